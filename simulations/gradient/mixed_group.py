"""R3: advantages and update given a mixed group, by enumeration.

Expectations given that a group is mixed are sums over all ordered groups of 2 to 4 of a prompt's outcomes. They are compared with
the closed forms, at the prompt and group size where they are farthest off. In the control, groups with right answers only count
as mixed.
"""

from itertools import product

import numpy as np

import grpo_theory as gt
from grpo_theory.harness import check
from grpo_theory.theory import mixed_bias, mixed_share
from simulations.statements import stated

R3, *PARTS = stated("R3", "R3/printed", "R3/own reward", "R3/gradient")
CASES = [{"problem": "two-arms"}, {"problem": "tabular"}]
GROUP_SIZES = (2, 3, 4)


def conditional(point, prompt, size, mixed):
    """Sum over all ordered groups of a prompt's outcomes, given that some are right, and if `mixed` that some are wrong.

    Returns
    -------
    mean, right : float
        The expected group mean, and that given besides that the first response is right.
    update : ndarray, shape (D,)
        The expected logit gradient of the update with advantages Z - group mean.
    """
    groups = np.array(list(product(range(point.outcome_responses.size), repeat=size)))
    rewards = point.rewards[prompt][groups]
    weights = point.outcome_probabilities[prompt][groups].prod(axis=1)
    kept = (rewards.max(axis=1) == 1.0) & ((rewards.min(axis=1) == 0.0) | (not mixed))
    weights, rewards, groups = weights[kept] / weights[kept].sum(), rewards[kept], groups[kept]
    means = rewards.mean(axis=1)
    logit_gradients = point.logit_gradients[prompt][point.outcome_responses[groups]]
    update = np.einsum("n,ng,ngd->d", weights, rewards - means[:, None], logit_gradients) / size
    first = weights * rewards[:, 0]
    return float(weights @ means), float(first @ means / first.sum()), update


@check(*PARTS, cases=CASES, broken={"mixed": False}, setting="{problem}")
def gaps(problem, mixed=True):
    """How far the mean, that given a right response, and the update are from the closed forms, by prompt and group size."""
    problem = gt.gallery.problem(problem)
    point, found, shares = problem.at(problem.theta), [], []
    for prompt, size in product(range(problem.bandit.n_prompts), GROUP_SIZES):
        p = float(point.moments.value[prompt])
        expected, share = p + float(mixed_bias(p, size)), float(mixed_share(p, size))
        truth = (1.0 - 1.0 / size) * point.moments.gradient_in_logits[prompt] / share
        mean, right, update = conditional(point, prompt, size, mixed)
        found.append((abs(mean - expected), abs(right - expected), np.abs(update - truth).max() / np.abs(truth).max()))
        shares.append(share)
    facts = {"share of mixed groups": min(shares)}
    return {one.id: (gap, 0.0, facts) for one, gap in zip(PARTS, np.transpose(found), strict=True)}
