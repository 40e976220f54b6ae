"""P7: what a stale rollout does to the mean update, exactly.

Let responses have one token and advantages add up to 0 in each group. An update without ratio is then that of the policy that
sampled: stale rollouts only delay the gradient. With the ratio of the whole response the leave-one-out mean is unbiased however
old the rollout. Each is checked on the gallery's problems, at 24 random moves of the policy. The table has the largest
difference, and in the control the least. In the controls no mean is subtracted, or the response's own reward is in the mean.
"""

from collections.abc import Iterator

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Comparison
from grpo_theory.harness.study import Cell, Settings
from simulations.sequence.parts import composed
from simulations.statements import stated

DELAYED, UNBIASED = stated("P7/delay", "P7/whole ratio")

ONE_TOKEN, SEQUENCES = ("tabular", "linear", "mixed", "conflict"), ("sequence-tabular", "sequence-shared")
CENTRED, BROKEN = ("rloo", "dr_grpo", "grpo"), "reinforce"
GROUP_SIZE, APART = 4, 0.7
"""The standard deviation by which a parameter has moved since the rollout was sampled: ratios of 1/2 and 2 are usual."""
MOVES, SEED = 24, 7


def cells(quick: bool) -> list[Cell]:
    """One cell for each problem; exact, so quick is no different."""
    return [Cell({"problem": name, "group_size": GROUP_SIZE}) for name in (*ONE_TOKEN, *SEQUENCES)]


def compare(settings: Settings) -> Iterator[Comparison]:
    """Yield the largest difference between the two sides over all moves, in lengths of the gradient."""
    name, group_size = settings["problem"], settings["group_size"]
    problem, rng = gt.gallery.problem(name), np.random.default_rng(SEED)
    then = problem.theta
    moves = then + APART * rng.standard_normal((MOVES, then.size))
    gradients = np.array([gt.moments(problem, now).gradient for now in moves])

    def mean(estimator: str | gt.Estimator, at: Array) -> Array:
        return gt.gradient_mean(problem, at, estimator, batch_size=1, group_size=group_size, behaviour=then)

    def apart(estimator: str | gt.Estimator, wanted: Array) -> Array:
        updates = np.array([mean(estimator, now) for now in moves])
        return np.asarray(np.abs(updates - wanted).max(axis=1) / np.linalg.norm(gradients, axis=1))

    if name in ONE_TOKEN:
        broken = float(apart(BROKEN, mean(BROKEN, then)).min())
        for estimator in CENTRED:
            largest = float(apart(estimator, mean(estimator, then)).max())
            yield DELAYED.compare(f"{name} ({estimator})", largest, 0.0, broken=broken)
    whole, own = (composed(advantage, "trajectory") for advantage in ("rloo", "dr_grpo"))
    yield UNBIASED.compare(name, float(apart(whole, gradients).max()), 0.0, broken=float(apart(own, gradients).min()))
