"""P4: groups that stop by their own rewards, in one step, exact.

A group that grows until it is mixed, and successive halving, are compared with their gradient and with groups of as many
responses. The formula and the law are compared with all sequences of rewards. The controls are a group of fixed size and weights
of groups that are drawn anew until they are mixed. Others are groups of fixed size over another prompt's p(1-p), and groups of
twice the size.
"""

from collections.abc import Iterator
from itertools import product

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Comparison
from grpo_theory.harness.study import Cell, Settings
from simulations.runs.worlds import WORLDS
from simulations.statements import stated

STOPPED, UNBIASED, PAYS = stated("allocation/stopped", "allocation/stopped, unbiased", "allocation/stopped, pays")

STOPS = ("mixed", "lm-few-shot", "draw 0 of world tabular")
MOST = 16
"""The most responses of a group: twice the usual number."""
NEAR = 0.1
"""A tenth of the gradient's length at a prompt is what another success rate would do to it."""
HALVED = np.array([0.02, 0.1, 0.3, 0.5])
"""Success rates of the four prompts of successive halving."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each problem; a quick run has two."""
    return [Cell({"problem": name}) for name in ("halving", *STOPS[: 1 if quick else None])]


def compare(settings: Settings) -> Iterator[Comparison]:
    """Yield the comparisons of one problem."""
    name = settings["problem"]
    if name == "halving":
        yield from _halving()
    else:
        problem = WORLDS["tabular"].problem() if name == "draw 0 of world tabular" else gt.gallery.problem(name)
        yield from _stopped(name, problem)


def _stopped(name: str, problem: gt.Problem) -> Iterator[Comparison]:
    """Groups that stop at the first mixed size, of at most `MOST` responses."""
    groups, fixed = (gt.exact.first_mixed_groups(problem, problem.theta, low=low, high=MOST) for low in (2, MOST))
    values = groups.point.moments.value
    unsure = (values > 0.0) & (values < 1.0)
    p, slopes, plain = values[unsure], groups.slopes[unsure], fixed.slopes[unsure]
    n = np.arange(2, MOST + 1)[:, None]
    predicted = ((p ** (n - 1) * (1.0 - p) + (1.0 - p) ** (n - 1) * p) / n).sum(axis=0) / (p * (1.0 - p))
    enumerated = _slopes_of_sequences(p)
    gaps = [float(np.abs(one / enumerated - 1.0).max()) for one in (slopes, predicted, plain)]
    yield STOPPED.compare(name, max(gaps[:2]), 0.0, broken=gaps[2])
    facts = {"least slope": slopes.min(), "greatest slope": slopes.max(), "cosine": groups.cosine}
    # Groups of one size that are drawn anew until they are mixed weigh 1/P(mixed), which is known to be another direction.
    redrawn = float((1.0 / (1.0 - p**MOST - (1.0 - p) ** MOST)).max() - 1.0)
    yield UNBIASED.compare(f"{name}, first mixed", float(np.abs(slopes - 1.0).max()), NEAR, broken=redrawn, facts=facts)
    mean = float(groups.responses.mean())
    ratio, double = (_efficiency(groups.point, size) / groups.efficiency for size in (mean, 2.0 * mean))
    facts = {"responses on average": mean, "efficiency, stopped": groups.efficiency}
    yield PAYS.compare(f"{name}, first mixed", ratio, 1.0, broken=double, facts=facts)


def _slopes_of_sequences(p: Array) -> Array:
    """Return E S^2/(p (1 - p)) over all sequences of `MOST` rewards, of which a group takes those until it is mixed."""
    variances = np.zeros(MOST + 1)
    for rewards in product((0, 1), repeat=MOST):
        until = rewards.index(1 - rewards[0]) + 1 if len(set(rewards)) > 1 else MOST
        # By how many of the whole sequence are right, because its chance depends on nothing else.
        variances[sum(rewards)] += np.var(rewards[:until], ddof=1)
    right = np.arange(MOST + 1)[:, None]
    return np.asarray(variances @ (p**right * (1.0 - p) ** (MOST - right)) / (p * (1.0 - p)))


def _efficiency(point: gt.Point, size: float) -> float:
    """Return the efficiency of leave-one-out groups of one size, which need not be whole: the law is a function of any size."""
    exact = point.moments
    traces = exact.oracle_trace / size + exact.second_order / (size * (size - 1.0))
    return exact.gradient_power / (exact.gradient_power + float(exact.prompt_weights**2 @ traces))


def _halving() -> Iterator[Comparison]:
    """Four prompts with 4 responses each; two of them go on to 8, and one to 16."""
    logits = np.stack([np.log(HALVED / (1.0 - HALVED)), np.zeros(4)], axis=1)
    problem = gt.Problem(gt.Bandit(np.tile([1.0, 0.0], (4, 1))), gt.TabularSoftmax(4, 2), theta=logits.ravel())
    groups, fixed = (gt.exact.halved_groups(problem, problem.theta, low=4, rounds=rounds) for rounds in (2, 0))
    gap = float(np.abs(groups.slopes - 1.0).max())
    facts = {f"slope at p = {p:g}": slope for p, slope in zip(HALVED, groups.slopes, strict=True)}
    facts["gap of groups of one size"] = float(np.abs(fixed.slopes - 1.0).max())
    # Groups of one size have a slope of 1; over the next prompt's p(1-p) they have not.
    variance = HALVED * (1.0 - HALVED)
    broken = float(np.abs(fixed.slopes * variance / np.roll(variance, 1) - 1.0).max())
    yield UNBIASED.compare("four prompts, halving", gap, NEAR, broken=broken, facts=facts | {"cosine": groups.cosine})
