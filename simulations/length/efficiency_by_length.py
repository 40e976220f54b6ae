"""The group size of most efficiency against the length of responses, by estimator and kind of task, exact.

A step has 1,024 responses, in groups of 2 to 1,024. Efficiency is what a learning rate cannot undo. In one control the group size
is at one of the two ends, whichever loses more. In another it is four times the planned one, and in the third a response is
divided by the square of its length.
"""

from functools import partial

import numpy as np

import grpo_theory as gt
from grpo_theory.estimation import find
from grpo_theory.harness import check, rows, run
from grpo_theory.plan.advice import TOLERANCE
from simulations.gradient.groups import RESPONSES
from simulations.length.grid import SETTING, kinds_and_rates, point_of
from simulations.statements import stated

SIXTEEN, OWN_LENGTH, PLANNED = stated("length/sixteen", "length/own length", "length/planned")

ESTIMATORS = ("reinforce", "rloo", "dr_grpo", "trl_grpo", "verl_grpo", "nemo_rl", "max_rl", "trl_grpo_loss")
"""No baseline; leave-one-out and group means; divided as three trainers do, and by the mean; and by each response's length."""
JUDGED = ESTIMATORS[1:]
"""Without a baseline nothing of a group is used, and the smallest is best at any length."""
GROUP_SIZES = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
TRIED, ENDS = (16,), GROUP_SIZES[:: len(GROUP_SIZES) - 1]
SUM, MEAN, LONG = "trl_grpo", "trl_grpo_loss", 1024
"""Of the same advantages the sum and the mean over a response's tokens, and the horizon where they are compared."""
SQUARED = gt.Estimator(
    "squared",
    find(SUM).advantage,
    aggregation=gt.Aggregation("squared", lambda lengths, constant: 1.0 / np.square(lengths, dtype=np.float64)),
)
VARIED = partial(kinds_and_rates, kinds=("goal walk", "think until sure"))
"""The tasks whose responses differ in length."""
LOSS = 0.1
"""A tenth of the efficiency is a tenth of the steps: a trainer would not tune the group size for less."""


def judged(quick):
    """List each task and estimator that uses its group."""
    return [{**one, "name": name} for one in kinds_and_rates(quick) for name in JUDGED]


def by_size(point, estimator):
    """Return the efficiency of an estimator at each group size."""
    laws = (gt.exact.law_between(point, point, estimator, batch_size=RESPONSES // g, group_size=g) for g in GROUP_SIZES)
    return [law.efficiency for law in laws]


@run()
def efficiencies(kind, success, lengths):
    """The efficiency of each estimator, by length and group size."""
    points = (point_of(kind, length, success) for length in lengths)
    return dict(
        zip(ESTIMATORS, np.swapaxes([[by_size(point, name) for name in ESTIMATORS] for point in points], 0, 1), strict=True)
    )


@rows(of=efficiencies, cases=kinds_and_rates)
def by_length(found, lengths):
    """The efficiencies, for the figure."""
    for name, by_length in found.items():
        for (t, g), efficiency in np.ndenumerate(by_length):
            yield {"length": lengths[t], "estimator": name, "group_size": GROUP_SIZES[g], "estimate": efficiency}


@check(SIXTEEN, of=efficiencies, cases=judged, broken={"sizes": ENDS}, setting=f"{SETTING} ({{name}})")
def sixteen(found, name, lengths, sizes=TRIED):
    """The most that groups of 16 lose over the lengths."""
    own = found[name]
    lost = 1.0 - own[:, [GROUP_SIZES.index(size) for size in sizes]] / own.max(axis=1, keepdims=True)
    best = zip(lengths, own.argmax(axis=1), strict=True)
    return lost, LOSS, {f"best group size at {length:,} tokens": GROUP_SIZES[place] for length, place in best}


@check(PLANNED, of=efficiencies, cases=VARIED, broken={"steps": 2}, setting=SETTING)
def planned(found, steps=0):
    """What the mean over a response's tokens loses at the size that a planner names that knows the advantages alone."""
    lost = 1.0 - found[MEAN] / found[MEAN].max(axis=1, keepdims=True)
    place = np.minimum(found[SUM].argmax(axis=1) + steps, len(GROUP_SIZES) - 1)
    return np.take_along_axis(lost, place[:, None], axis=1), TOLERANCE


@check(OWN_LENGTH, cases=VARIED, broken={"divided": SQUARED}, setting=SETTING)
def own_length(kind, success, divided=MEAN):
    """What the mean over a response's own tokens loses against their sum, at their best sizes."""
    point = point_of(kind, LONG, success)
    return 1.0 - max(by_size(point, divided)) / max(by_size(point, SUM)), LOSS
