"""P4: groups that stop by their own rewards, in one step, exact.

A group that grows until it is mixed, and successive halving, are compared with their gradient and with groups of as many
responses. The formula and the law are compared with all sequences of rewards. The controls are a group of fixed size and weights
of groups that are drawn anew until they are mixed. Others are groups of fixed size over another prompt's p(1-p), and groups of
twice the size.
"""

from itertools import product

import numpy as np

import grpo_theory as gt
from grpo_theory.harness import check
from simulations.runs.worlds import WORLDS
from simulations.statements import stated

STOPS = ("mixed", "lm-few-shot", "draw 0 of world tabular")
MOST = 16
"""The most responses of a group: twice the usual number."""
NEAR = 0.1
"""A tenth of the gradient's length at a prompt is what another success rate would do to it."""
HALVED = np.array([0.02, 0.1, 0.3, 0.5])
"""Success rates of the four prompts of successive halving."""


def slopes_of_sequences(p):
    """Return E S^2/(p (1 - p)) over all sequences of `MOST` rewards, of which a group takes those until it is mixed."""
    variances = np.zeros(MOST + 1)
    for rewards in product((0, 1), repeat=MOST):
        until = rewards.index(1 - rewards[0]) + 1 if len(set(rewards)) > 1 else MOST
        # By how many of the whole sequence are right, because its chance depends on nothing else.
        variances[sum(rewards)] += np.var(rewards[:until], ddof=1)
    right = np.arange(MOST + 1)[:, None]
    return variances @ (p**right * (1.0 - p) ** (MOST - right)) / (p * (1.0 - p))


def efficiency(point, size):
    """Return the efficiency of leave-one-out groups of one size, which need not be whole: the law is a function of any size."""
    exact = point.moments
    traces = exact.oracle_trace / size + exact.second_order / (size * (size - 1.0))
    return exact.gradient_squared_norm / (exact.gradient_squared_norm + float(exact.prompt_weights**2 @ traces))


def cases(quick):
    """Each problem; a quick run has one."""
    return [{"problem": name} for name in STOPS[: 1 if quick else None]]


def stopped(problem):
    """Return groups that stop at the first mixed size, groups of `MOST`, and which prompts can have a signal."""
    found = gt.gallery.problem(problem) if "world" not in problem else WORLDS["tabular"].problem()
    groups, fixed = (gt.exact.first_mixed_groups(found, found.theta, low=low, high=MOST) for low in (2, MOST))
    values = groups.point.moments.value
    return groups, fixed, (values > 0.0) & (values < 1.0)


@check(stated("allocation/stopped"), cases=cases, broken={"grown": False}, setting="{problem}")
def slopes(problem, grown=True):
    """The formula and the law against all sequences of rewards; broken: groups of one size."""
    groups, fixed, unsure = stopped(problem)
    p, n = groups.point.moments.value[unsure], np.arange(2, MOST + 1)[:, None]
    predicted = ((p ** (n - 1) * (1.0 - p) + (1.0 - p) ** (n - 1) * p) / n).sum(axis=0) / (p * (1.0 - p))
    found = np.stack([groups.slopes[unsure], predicted] if grown else [fixed.slopes[unsure]])
    return np.abs(found / slopes_of_sequences(p) - 1.0), 0.0


@check(
    stated("allocation/stopped, unbiased"),
    cases=lambda quick: [{"problem": "four prompts", "how": "halving"}] + [one | {"how": "first mixed"} for one in cases(quick)],
    broken={"wrong": True},
    setting="{problem}, {how}",
)
def unbiased(problem, how, wrong=False):
    """How far slopes are from 1; broken: over the next prompt's p(1-p), or weights of groups drawn anew until they are mixed."""
    if how == "halving":
        return halving(wrong)
    groups, _, unsure = stopped(problem)
    p, found = groups.point.moments.value[unsure], groups.slopes[unsure]
    facts = {"least slope": found.min(), "greatest slope": found.max(), "cosine": groups.cosine}
    # Groups of one size that are drawn anew until they are mixed weigh 1/P(mixed), which is known to be another direction.
    return np.abs((1.0 / (1.0 - p**MOST - (1.0 - p) ** MOST) if wrong else found) - 1.0), NEAR, facts


def halving(wrong):
    """Four prompts with 4 responses each; two of them go on to 8, and one to 16."""
    logits = np.stack([np.log(HALVED / (1.0 - HALVED)), np.zeros(4)], axis=1)
    problem = gt.Problem(gt.Bandit(np.tile([1.0, 0.0], (4, 1))), gt.TabularSoftmax(4, 2), theta=logits.ravel())
    groups, fixed = (gt.exact.halved_groups(problem, problem.theta, low=4, rounds=rounds) for rounds in (2, 0))
    facts = {f"slope at p = {p:g}": slope for p, slope in zip(HALVED, groups.slopes, strict=True)}
    facts |= {"gap of groups of one size": np.abs(fixed.slopes - 1.0).max(), "cosine": groups.cosine}
    # Groups of one size have a slope of 1; over the next prompt's p(1-p) they have not.
    variance = HALVED * (1.0 - HALVED)
    return np.abs((fixed.slopes * variance / np.roll(variance, 1) if wrong else groups.slopes) - 1.0), NEAR, facts


@check(stated("allocation/stopped, pays"), cases=cases, broken={"times": 2.0}, setting="{problem}, first mixed")
def pays(problem, times=1.0):
    """The efficiency of groups of as many responses on average over that of groups that stop; broken: of twice as many."""
    groups, _, _ = stopped(problem)
    mean = float(groups.responses.mean())
    facts = {"responses on average": mean, "efficiency, stopped": groups.efficiency}
    return efficiency(groups.point, times * mean) / groups.efficiency, 1.0, facts
