"""GRPO's division taken apart: its weights without its noise, and its noise without its weights.

Given a prompt with success p, the mean update of GRPO is w(p) grad p. Here ``w(p) = E[f(1 - f)/s]/(p(1 - p))``, f is the share of
successes in a group and s its standard deviation (docs/derivations.md, section 24). The kernels here know p.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.compiler import stage
from grpo_theory.estimation import find, make_estimator
from grpo_theory.estimation.centring import centre
from simulations.runs.arms import dropping

NEAR = 1e-12
"""Success rates nearer to 0 or 1 than this are taken for this: such prompts have groups without signal only."""


@stage
def division_weight(success, size):
    """Return w(p) of groups of `size` divided by their standard deviation, without epsilon; the same for p and 1 - p.

    The sum goes over numbers j of the rarer reward.  It ends where its terms no longer count.
    """
    q = max(min(success, 1.0 - success), NEAR)
    term = size * (1.0 - q) ** (size - 1.0)  # the binomial probability of j, over q
    total = 0.0
    for j in range(1, int(size)):
        share = j / size
        added = term * np.sqrt(share * (1.0 - share))
        total += added
        if j > size * q and added < 1e-12 * total:
            break
        term *= (size - j) / (j + 1.0) * q / (1.0 - q)
    return total * np.sqrt((size - 1.0) / size) / (1.0 - q)


def weighted(batch, advantages):
    """A = w(p) (Z - mean of the group's other rewards), w that of groups of the parameter's size, whatever the group's own."""
    n_groups, group_size = batch.rewards.shape
    for b in range(n_groups):
        centre(batch.rewards[b], advantages[b])
        factor = division_weight(batch.values[b], batch.parameters[0]) * group_size / (group_size - 1.0)
        for g in range(group_size):
            advantages[b, g] *= factor


def weighted_oracle(batch, advantages):
    """A = w(p) (Z - p), w that of groups of the parameter's size: no baseline is estimated."""
    for b in range(batch.rewards.shape[0]):
        factor = division_weight(batch.values[b], batch.parameters[0])
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = factor * (batch.rewards[b, g] - batch.values[b])


def unweighted(batch, advantages):
    """A = (Z - mean)/(s w(p)): divided as GRPO does, and its mean is the gradient."""
    n_groups, group_size = batch.rewards.shape
    for b in range(n_groups):
        deviation = np.sqrt(centre(batch.rewards[b], advantages[b]) / (group_size - 1.0))
        if deviation > 0.0:
            factor = 1.0 / (deviation * division_weight(batch.values[b], float(group_size)))
            for g in range(group_size):
                advantages[b, g] *= factor


LENT = 64
"""The groups whose weights are lent to smaller ones."""
WEIGHTED = {"weights": weighted, "oracle": weighted_oracle}


def arm_estimator(arm: str, group_size: int) -> gt.Estimator:
    """Return the estimator of an arm at a group size.

    Parameters
    ----------
    arm : str
        A registered name, such as "grpo" or "rloo", or one of five. The arm "weights" has w of the group's own size, and the mean
        of the others as baseline. The arm "oracle" is the same with p as baseline, and "noise" is GRPO over w. In "dropped" the
        mean is over groups with a signal. The arm "lent" has w of groups of 64, at any size.
    group_size : int
    """
    if arm == "noise":
        return make_estimator(arm, unweighted, minimum_group_size=2)
    if arm == "dropped":
        return dropping(arm, 0.0)
    if arm == "lent":
        return make_estimator(arm, weighted, parameters={"size": float(LENT)}, minimum_group_size=2)
    if arm in WEIGHTED:
        return make_estimator(arm, WEIGHTED[arm], parameters={"size": float(group_size)}, minimum_group_size=2)
    return find(arm)
