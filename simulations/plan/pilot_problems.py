"""The problems on which the planner is tried, all with known constants of the error."""

from functools import cache

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence import Share
from grpo_theory.plan import Limits
from grpo_theory.plan.group_size import choose
from grpo_theory.problem.logit_map import HeadMap

HEAD = "language model's head"
NONE = "single"
"""Where c1 is 0 and a larger group is always better."""
NAMES = ("linear", "graded", "balanced", NONE, HEAD)
"""In "balanced" the best group is large: c3 is 340 times c1."""
LANGUAGE_MODEL, DIRECTIONS = "lm-few-shot", 4
UNIT = 1e6
"""The parameter in front of the model's own logits: so large that its share of the scores is 0 but for rounding."""
LIMITS = Limits(budget=1024, max_group_size=64)


@cache
def problem(name):
    """Return a problem by name: one of the gallery, or the language model's head along a few directions.

    The head W has 10 x 576 numbers. V is trained in W + V P, as in a low-rank adapter. The rows of P are the leading principal
    directions of the hidden states. The logits are W h + V P h, at V = 0. The first direction has 97% of the hidden states'
    squared length, so c1, c2 and c3 are within 3% of the whole head's. A pilot of 2,048 prompts fits in memory.
    """
    if name != HEAD:
        return gt.gallery.problem(name)
    whole = gt.gallery.problem(LANGUAGE_MODEL)
    head = whole.policy.logit_map
    assert isinstance(head, HeadMap)
    _, axes = np.linalg.eigh(head.hidden.T @ head.hidden)
    along = head.hidden @ axes[:, -DIRECTIONS:]
    logits = whole.policy.logits(whole.theta)
    adapter = np.einsum("kl,mr->mklr", np.eye(logits.shape[1]), along).reshape(*logits.shape, -1)
    features = np.concatenate([adapter, logits[..., None] / UNIT], axis=-1)
    theta = np.append(np.zeros(adapter.shape[-1]), UNIT)
    return gt.Problem(whole.bandit, gt.LinearSoftmax(features), theta=theta, name=name, title=name)


@cache
def constants(name):
    """Return the exact c1, c2 and c3."""
    case = problem(name)
    return gt.group_size_law(case, case.theta)


@cache
def truth(name):
    """Return the exact error at every allowed group size, and the best."""
    return choose(constants(name), np.zeros((3, 3)), pilot=2, limits=LIMITS)


@cache
def signal(name, group_size):
    """Return the squared norm of the gradient over the error at a group size."""
    case, exact = problem(name), truth(name)
    return float(gt.moments(case, case.theta).gradient_power / exact.mse.estimate[exact.at(group_size)])


def misses(holds, most):
    """Return evidence that a promise fails at most so often, from whether it holds in each draw, of one problem or several."""
    mean = np.mean([np.mean(held) for held in np.atleast_2d(holds)])
    return Share(float(1.0 - mean), most, replications=np.size(holds))
