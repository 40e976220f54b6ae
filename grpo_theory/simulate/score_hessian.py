"""What is kept of the rollouts of recorded runs: mean rewards, and score-function estimates of the objective's Hessian."""

from typing import NamedTuple, cast

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
    hessian : ndarray, shape (R, d, d)
        The mean over the window of the score-function estimates of the objective's Hessian (docs/derivations.md, section 13).
    window : ndarray of int64, shape (2,)
        The first rollout of the window, and the first after it.
    values, log_reference, strength
        Of the rewards, and of a penalty in them: see `Affine`.
    columns, features : ndarray, shape (M, S) and (M, D, S)
        The parameters on which each prompt's logits depend, and how.
    """

    mean_rewards: Array
    hessian: Array
    window: Integers
    values: Array
    log_reference: Array
    strength: float
    columns: Integers
    features: Array


def make_record(problem: Problem, estimator: Estimator, runs: int, steps: int, window: tuple[int, int]) -> Record:
    """Make room for the record of so many runs of so many rollouts, whose Hessian is estimated over a window of them."""
    dense = dense_features(cast(LogitMap, problem.policy.logit_map)).transpose(2, 0, 1)
    used = (dense != 0.0).any(axis=1)
    columns = np.ascontiguousarray(np.argsort(~used, axis=1, kind="stable")[:, : max(1, int(used.sum(axis=1).max()))])
    features = np.ascontiguousarray(np.take_along_axis(dense, columns[:, None, :], axis=2))
    kept = np.zeros((runs, steps)), np.zeros((runs, problem.policy.dimension, problem.policy.dimension))
    return Record(*kept, np.array(window), problem.bandit.values, *penalty_in_reward(problem, estimator), columns, features)


@kernel
def keep_rollout(tables, record, count, room, policy):
    """Keep the mean rewards of a rollout, counted from 0, and add what it estimates to the Hessians if it is in the window."""
    n_values, n_runs, (batch_size, n_outcomes, lanes) = record.values.shape[0], record.hessian.shape[0], room.counts.shape
    penalties, total, size = np.empty((tables.lengths.shape[0], lanes)), np.empty(lanes), 0.0
    leads, masses, (n_edges, n_columns) = np.empty_like(penalties), np.empty_like(penalties), record.features.shape[1:]
    scratch = np.empty(n_edges // tables.size), np.empty((n_edges // tables.size, n_columns)), np.empty(n_columns)
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
                leads[k, j] = share * lead
                masses[k, j] = share * (lead - record.strength * number)
        for j in range(n_runs):
            add_hessian(tables, record, room.prompts[b, j], j, leads, masses, policy.tokens[b], scratch)


@inlined
def add_hessian(tables, record, prompt, j, leads, masses, tokens, scratch):
    """Add sum_k (mass_k v_k v_k' - lead_k F_k) of a group, from leads and masses (K, LANES) of responses, to a run's Hessian.

    Here v is the score of a response, and F the sum of the Fisher matrices of the prefixes that it passes.
    """
    features, columns, hessian, (passed, middles, score) = record.features, record.columns, record.hessian, scratch
    for prefix in range(passed.size):
        passed[prefix] = 0.0
        for x in range(score.size):
            middles[prefix, x] = 0.0
            for d in range(prefix * tables.size, (prefix + 1) * tables.size):
                middles[prefix, x] += tokens[d, j] * features[prompt, d, x]
    for k in range(tables.lengths.shape[0]):
        for x in range(score.size):
            score[x] = 0.0
        for t in range(tables.lengths[k]):
            edge = tables.edges[k, t]
            passed[edge // tables.size] += leads[k, j]
            # W = Phi' sum_t (e_edge - p_prefix) (docs/derivations.md, section 15).
            for x in range(score.size):
                score[x] += features[prompt, edge, x] - middles[edge // tables.size, x]
        # Hhat = mean over i of A_i (W_i W_i' - F_i) - strength W_i W_i' (docs/derivations.md, section 13).
        for x in range(score.size if masses[k, j] != 0.0 else 0):
            for y in range(score.size):
                hessian[j, columns[prompt, x], columns[prompt, y]] += masses[k, j] * score[x] * score[y]
    # F = the sum over prefixes of Phi' (diag p - p p') Phi (docs/derivations.md, section 5), each with the leads of all responses
    # that pass it.
    for d in range(features.shape[1]):
        prefix = d // tables.size
        for x in range(score.size if passed[prefix] != 0.0 else 0):
            weight = passed[prefix] * tokens[d, j] * (features[prompt, d, x] - middles[prefix, x])
            for y in range(score.size):
                along = features[prompt, d, y] - middles[prefix, y]
                hessian[j, columns[prompt, x], columns[prompt, y]] -= weight * along
