"""Kernels whose advantages are affine in the rewards of a group: they need no table, and a penalty may be in the reward."""

from typing import NamedTuple

import numpy as np

from grpo_theory.estimation import Estimator
from grpo_theory.estimation.advantage import affine_coefficients
from grpo_theory.exact.multisets import advantages_of, check_alone
from grpo_theory.jit import inlined, kernel
from grpo_theory.problem import Problem
from grpo_theory.validation import Array


class Affine(NamedTuple):
    """Advantages a r_i + b sum_j r_j + g V(x) + c of rewards r = Z - strength log(pi/reference).

    Attributes
    ----------
    coefficients : ndarray, shape (4,)
        a, b, g and c.
    values : ndarray, shape (L,)
    means : ndarray, shape (K, M)
        The mean of Z given response and prompt.
    log_reference : ndarray, shape (D, M)
    strength : float
        0 if there is no penalty.
    """

    coefficients: Array
    values: Array
    means: Array
    log_reference: Array
    strength: float


def penalty_in_reward(problem: Problem, estimator: Estimator) -> tuple[Array, float]:
    """Return the log of the reference (D, M) and the strength of a penalty in the reward; zeros if there is none."""
    if problem.kl is None or estimator.kl.place != "reward":
        return np.zeros((problem.policy.n_logits, problem.policy.n_prompts)), 0.0
    return np.array(problem.log_reference, dtype=np.float64).T.copy(), problem.kl.strength


def affine_of(problem: Problem, estimator: Estimator, group_size: int) -> Affine | None:
    """Return how the advantages of groups depend on rewards, or None if the kernel or the penalty is of another kind."""
    kind, (reference, strength) = estimator.advantage, penalty_in_reward(problem, estimator)
    if strength and estimator.kl.name != "k1 in reward":
        return None
    # A_i = a r_i + b sum_j r_j + g V + c for all rewards whatever, without sd and b* (docs/derivations.md, section 17.1).
    found = affine_coefficients(kind, group_size)
    if found is None or found[3:5].any():
        return None
    # Symbols show one group: several tell whether a kernel couples them unannounced.
    rng = np.random.default_rng(0)
    rewards, lengths = rng.random((64, group_size)), np.ones((64, group_size), dtype=np.int64)
    unread = np.full(rewards.shape, np.nan)
    batch = [rewards, unread, lengths, unread, *rng.random((3, 64))]
    check_alone(kind, batch, advantages_of(kind, batch))
    coefficients = found[[0, 1, 2, 5]]  # those of the standard deviation and of the optimal baseline are 0
    means = np.array(problem.bandit.mean_reward.T, order="C")
    return Affine(coefficients, problem.bandit.values, means, reference, strength)


@inlined
def fill_penalties(tables, log_reference, strength, prompts, log_tokens, penalties):
    """Fill in strength log(pi/reference) of each response (K, LANES), from the logs of tokens (D, LANES) and (D, M)."""
    for k in range(penalties.shape[0]):
        for j in range(penalties.shape[1]):
            penalties[k, j] = 0.0
        # strength sum_t l_t, with l_t = log(pi/reference) of token t (docs/derivations.md, section 16).
        if strength != 0.0:
            for t in range(tables.lengths[k]):
                edge = tables.edges[k, t]
                for j in range(penalties.shape[1]):
                    penalties[k, j] += strength * (log_tokens[edge, j] - log_reference[edge, prompts[j]])


@kernel
def sum_affine(tables, affine, room, policy, sums):
    """Add up the advantages (B, 1, K, LANES) of each response of a kernel that is affine."""
    own, shared, n_values, lanes = affine.coefficients[0], affine.coefficients[1], affine.values.shape[0], policy.pi.shape[2]
    of_value, constant = affine.coefficients[2], affine.coefficients[3]
    total, value, penalty = room.scratch.rows[1], room.scratch.rows[2], room.scratch.rows[3]
    for b in range(room.prompts.shape[0]):
        prompts, counts, penalties = room.prompts[b], room.counts[b], sums[b, 0]  # which are read before they are sums
        for j in range(lanes):
            total[j] = 0.0
            value[j] = 0.0
        fill_penalties(tables, affine.log_reference, affine.strength, prompts, policy.log_tokens[b], penalties)
        for k in range(sums.shape[2]):
            # V = sum_k pi_k q_k, with q_k = E[Z | k] - strength log(pi_k/reference_k) (docs/derivations.md, section 5).
            for j in range(lanes):
                value[j] += policy.pi[b, k, j] * (affine.means[k, prompts[j]] - penalties[k, j])
            for o in range(n_values):
                for j in range(lanes):
                    total[j] += counts[k * n_values + o, j] * (affine.values[o] - penalties[k, j])
        for j in range(lanes):
            total[j] = shared * total[j] + of_value * value[j] + constant
        for k in range(sums.shape[2]):
            for j in range(lanes):
                penalty[j] = penalties[k, j]
                sums[b, 0, k, j] = 0.0
            for o in range(n_values):
                for j in range(lanes):
                    advantage = own * (affine.values[o] - penalty[j]) + total[j]
                    sums[b, 0, k, j] += counts[k * n_values + o, j] * advantage
