"""What is kept of the rollouts of recorded runs: mean rewards, and score-function estimates of the objective's Hessian."""

from typing import NamedTuple

import numpy as np

from grpo_theory.estimation import Estimator
from grpo_theory.jit import inlined, kernel
from grpo_theory.problem import LogitMap, Problem
from grpo_theory.simulate.affine import fill_penalties, penalty_in_reward
from grpo_theory.simulate.policies import dense_features
from grpo_theory.validation import Array, Integers


class Record(NamedTuple):
    """What is kept of R runs, and what it is made from.

    Attributes
    ----------
    mean_rewards : ndarray, shape (R, n)
        The mean reward of each rollout, the penalty in it.
    curvatures : ndarray, shape (R, M, D, D)
        The mean over the window of the score-function estimates of the objective's Hessian in the logits of each prompt.
    window : ndarray of int64, shape (2,)
        The first rollout of the window, and the first after it.
    values, log_reference, strength
        Of the rewards, and of a penalty in them: see `Affine`.
    """

    mean_rewards: Array
    curvatures: Array
    window: Integers
    values: Array
    log_reference: Array
    strength: float

    def hessian(self, logit_map: LogitMap) -> Array:
        """Return the mean over the window of the estimates of the Hessian in theta, shape (R, d, d)."""
        # sum_m Phi_m' C_m Phi_m, because s_m = Phi_m theta (docs/derivations.md, section 13).
        features = dense_features(logit_map)
        return np.einsum("dxm,rmde,eym->rxy", features, self.curvatures, features, optimize=True)


def make_record(problem: Problem, estimator: Estimator, runs: int, steps: int, window: tuple[int, int]) -> Record:
    """Make room for the record of so many runs of so many rollouts, whose Hessian is estimated over a window of them."""
    policy = problem.policy
    kept = np.zeros((runs, steps)), np.zeros((runs, policy.n_prompts, policy.n_logits, policy.n_logits))
    return Record(*kept, np.array(window), problem.bandit.values, *penalty_in_reward(problem, estimator))


@kernel
def keep_rollout(tables, record, count, room, policy):
    """Keep the mean rewards of a rollout, counted from 0, and add what it estimates to the Hessians if it is in the window."""
    n_values, n_runs, (batch_size, n_outcomes, lanes) = record.values.shape[0], record.curvatures.shape[0], room.counts.shape
    penalties, total, size = np.empty((tables.lengths.shape[0], lanes)), np.empty(lanes), 0.0
    score = np.empty(record.curvatures.shape[2])
    for o in range(n_outcomes):
        size += room.counts[0, o, 0]
    share = 1.0 / (max(record.window[1] - record.window[0], 1) * batch_size * size)
    for b in range(batch_size):
        fill_penalties(tables, record.log_reference, record.strength, room.prompts[b], policy.log_tokens[b], penalties)
        total[:] = 0.0
        for o in range(n_outcomes):
            # R = Z - strength log(pi/reference) (docs/derivations.md, section 13).
            for j in range(lanes):
                total[j] += room.counts[b, o, j] * (record.values[o % n_values] - penalties[o // n_values, j])
        for j in range(n_runs):
            record.mean_rewards[j, count] += total[j] / (batch_size * size)
        if not record.window[0] <= count < record.window[1]:
            continue
        for k in range(penalties.shape[0]):
            for j in range(n_runs):
                lead, number = 0.0, 0.0
                for value in range(n_values):
                    # The advantage of a response is its reward less the mean of the group's others; the reward if there are none.
                    gap, times = record.values[value] - penalties[k, j], room.counts[b, k * n_values + value, j]
                    # R_i - C_i = G/(G - 1) (R_i - mean R), with C_i the mean of the others (docs/derivations.md, section 1).
                    lead += times * (gap if size == 1.0 else size / (size - 1.0) * (gap - total[j] / size))
                    number += times
                if number > 0.0:
                    masses = share * lead, share * (lead - record.strength * number)
                    add_curvature(tables, k, policy.tokens[b], j, masses, score, record.curvatures, room.prompts[b, j])


@inlined
def add_curvature(tables, k, tokens, j, masses, score, curvatures, prompt):
    """Add mass v v' - lead F of responses k to a run's Hessian in the logits (D, D) of a prompt, for masses (lead, mass).

    Here v is the score of the response in logits, and F the sum of the Fisher matrices of the prefixes that it passes.
    """
    # Hhat = mean over i of A_i (W_i W_i' - F_i) - strength W_i W_i' (docs/derivations.md, section 13).
    score[:] = 0.0
    for t in range(tables.lengths[k]):
        edge = tables.edges[k, t]
        first = edge // tables.size * tables.size
        score[edge] += 1.0  # sum_t (e_edge - p_prefix) (docs/derivations.md, section 15)
        for d in range(first, first + tables.size):
            score[d] -= tokens[d, j]
            # diag p - p p' (docs/derivations.md, section 5).
            curvatures[j, prompt, d, d] -= masses[0] * tokens[d, j]
            for e in range(first, first + tables.size):
                curvatures[j, prompt, d, e] += masses[0] * tokens[d, j] * tokens[e, j]
    for d in range(score.size):
        for e in range(score.size):
            curvatures[j, prompt, d, e] += masses[1] * score[d] * score[e]
