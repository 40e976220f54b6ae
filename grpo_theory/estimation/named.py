"""The named estimators that the papers and the trainers use, as kernels.

W is the score, Z the reward, G the group size; each kernel fills A in (1/BG) sum_bg A_bg W_bg.  They have loops and no slices.
Numba takes two seconds to compile a slice that is filled, for the message about shapes that do not fit.
"""

import numpy as np

from grpo_theory.estimation.kernel import centre
from grpo_theory.estimation.registry import estimator


@estimator("reinforce", exchangeable=True)
def reinforce(batch, advantages):
    """A = Z: no baseline (Williams 1992); "vanilla" in the papers."""
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.rewards[b, g]


@estimator("oracle", exchangeable=True)
def oracle(batch, advantages):
    """A = Z - V(x): the value baseline, known only to an oracle."""
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.rewards[b, g] - batch.values[b]


@estimator("optimal", exchangeable=True)
def optimal(batch, advantages):
    """A = Z - b*(x): the prompt-only baseline of least variance (Greensmith et al. 2004), known only to an oracle."""
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.rewards[b, g] - batch.optimal_baselines[b]


@estimator("rloo", minimum_group_size=2, exchangeable=True)
def rloo(batch, advantages):
    """A = Z - mean of the group's other rewards: the GRPO-type estimator of arXiv 2603.01162."""
    n_groups, group_size = batch.rewards.shape
    # Z_g - C_g = G/(G - 1) (Z_g - mean), C_g the mean of the others (docs/derivations.md, section 1).
    scale = group_size / (group_size - 1.0)
    for b in range(n_groups):
        mean = batch.rewards[b].mean()
        for g in range(group_size):
            advantages[b, g] = scale * (batch.rewards[b, g] - mean)


@estimator("dr_grpo", exchangeable=True)
def dr_grpo(batch, advantages):
    """A = Z - group mean, own sample in (Dr. GRPO, arXiv 2503.20783)."""
    for b in range(batch.rewards.shape[0]):
        mean = batch.rewards[b].mean()
        for g in range(batch.rewards.shape[1]):
            # Z_g - mean = (1 - 1/G)(Z_g - C_g), C_g the mean of the others (docs/derivations.md, section 1).
            advantages[b, g] = batch.rewards[b, g] - mean


@estimator("grpo", parameters={"epsilon": 1e-4}, minimum_group_size=2, exchangeable=True)
def grpo(batch, advantages):
    """A = (Z - group mean) / (group sd + epsilon), ddof 1: GRPO (arXiv 2402.03300) as TRL computes it."""
    n_groups, group_size = batch.rewards.shape
    epsilon = batch.parameters[0]
    for b in range(n_groups):
        deviation = np.sqrt(centre(batch.rewards[b], advantages[b]) / (group_size - 1.0))
        if deviation > 0.0:
            for g in range(group_size):
                advantages[b, g] /= deviation + epsilon


@estimator("optimal_loo", minimum_group_size=2, exchangeable=True)
def optimal_loo(batch, advantages):
    """A = Z - leave-one-out estimate of b*: sum ||W||^2 Z / sum ||W||^2 over the others (0 where all are zero)."""
    n_groups, group_size = batch.rewards.shape
    # Sums over the others as sums before and after: a difference of totals loses all digits where one norm dwarfs the rest.
    weight_after = np.zeros(group_size + 1)
    weighted_after = np.zeros(group_size + 1)
    for b in range(n_groups):
        for g in range(group_size - 1, -1, -1):
            norm = batch.squared_score_norms[b, g]
            weight_after[g] = weight_after[g + 1] + norm
            weighted_after[g] = weighted_after[g + 1] + norm * batch.rewards[b, g]
        weight = 0.0
        weighted = 0.0
        for g in range(group_size):
            others = weight + weight_after[g + 1]
            baseline = (weighted + weighted_after[g + 1]) / others if others > 0.0 else 0.0
            advantages[b, g] = batch.rewards[b, g] - baseline
            weight += batch.squared_score_norms[b, g]
            weighted += batch.squared_score_norms[b, g] * batch.rewards[b, g]
