"""What is kept of training runs on the way: iterates, rewards, and an estimate of the Hessian."""

from typing import NamedTuple

import numba
import numpy as np

from grpo_theory.compiler import F2, F3, I1, I2, function_value, record_type, stage
from grpo_theory.problem import LogitMap, Paths, Problem
from grpo_theory.simulate.covector.features import features
from grpo_theory.simulate.draw.policy_draw import GROUPS, TOKEN_PATHS, OutcomeSource, TokenPaths
from grpo_theory.validation import Array, Integers


class Trace(NamedTuple):
    """What is kept of R runs; all empty where nothing is.

    Attributes
    ----------
    path : ndarray, shape (R, n + 1, d)
        The iterates; the first is given.
    mean_rewards : ndarray, shape (R, n)
        The mean reward of each rollout, the penalty in it.
    hessian : ndarray, shape (R, d, d)
        The mean over the window of the score-function estimates of the objective's Hessian (docs/derivations.md, section 13).
    window : ndarray of int, shape (2,)
        The rollouts of the window: the first, and one past the last.
    columns : ndarray of int64, shape (M, S)
        The parameters on which the logits of a prompt depend.
    features : ndarray, shape (M, D, S)
        Of the policy's edges, in these columns; 0 where a prompt has fewer than S.
    paths : TokenPaths
    parents : ndarray of int64, shape (D / V,)
        The edge that leads to each prefix; -1 at the root.
    group_size : int
    strength : float
        Of the penalty; 0 if there is none.
    """

    path: Array
    mean_rewards: Array
    hessian: Array
    window: Integers
    columns: Integers
    features: Array
    paths: TokenPaths
    parents: Integers
    group_size: int
    strength: float


_NONE, _TABLE, _ARRAY = np.zeros(0, dtype=np.int64), np.empty((0, 0)), np.empty((0, 0, 0))
NO_TRACE = Trace(_ARRAY, _TABLE, _ARRAY, _NONE, _NONE[:, None], _ARRAY, TokenPaths(_NONE[:, None], _NONE, 1), _NONE, 1, 0.0)
TRACE = record_type(Trace, F3, F2, F3, I1, I2, F3, TOKEN_PATHS, I1, numba.int64, numba.float64)
KEEP_ROLLOUT = numba.void(numba.int64, GROUPS, F3, F3, TRACE, numba.int64, numba.int64)
KEEP_ITERATES = numba.void(numba.int64, F2, TRACE, numba.int64)


def make_trace(problem: Problem, source: OutcomeSource, steps: int, window: tuple[int, int]) -> Trace:
    """Return the trace of no runs yet, whose window goes from a first rollout to before another."""
    dimension = problem.policy.dimension
    n_prompts, logit_map = problem.policy.n_prompts, problem.policy.logit_map
    # Features that are learned are no table; nobody asks for the Hessian then (see `simulate_records`).
    columns, by_prompt = np.zeros((n_prompts, 1), dtype=np.int64), np.zeros((n_prompts, problem.policy.n_logits, 1))
    if isinstance(logit_map, LogitMap):
        columns, by_prompt = compact_features(logit_map)
    return Trace(
        path=np.empty((0, steps + 1, dimension)),
        mean_rewards=np.empty((0, steps)),
        hessian=np.empty((0, dimension, dimension)),
        window=np.array(window, dtype=np.int64),
        columns=columns,
        features=by_prompt,
        paths=source.paths,
        parents=leading_edges(problem.policy.paths),
        group_size=source.group_size,
        strength=0.0 if problem.kl is None else problem.kl.strength,
    )


def trace_from(starts: Array, trace: Trace) -> Trace:
    """Return such a trace for the runs from these starts (R, d)."""
    runs, steps, dimension = len(starts), trace.mean_rewards.shape[1], starts.shape[1]
    path = np.empty((runs, steps + 1, dimension))
    path[:, 0] = starts
    return trace._replace(path=path, mean_rewards=np.empty((runs, steps)), hessian=np.zeros((runs, dimension, dimension)))


def compact_features(logit_map: LogitMap) -> tuple[Integers, Array]:
    """Return the parameters (M, S) on which each prompt's logits depend, and the features (M, D, S) in these columns."""
    dense = features(logit_map)
    used = (dense != 0.0).any(axis=1)
    order = np.argsort(~used, axis=1, kind="stable")[:, : max(1, int(used.sum(axis=1).max()))]
    columns = np.ascontiguousarray(order, dtype=np.int64)
    return columns, np.ascontiguousarray(np.take_along_axis(dense, columns[:, None, :], axis=2))


def leading_edges(paths: Paths) -> Integers:
    """Return the edge that leads to each prefix, -1 at the root, shape (D / V,)."""
    parents = np.full(paths.n_logits // paths.vocabulary_size, -1, dtype=np.int64)
    taken = paths.taken[:, 1:]
    parents[paths.edges[:, 1:][taken] // paths.vocabulary_size] = paths.edges[:, :-1][taken]
    return parents


@stage
def weigh_edges(counts, rewards, n, trace, mean, leads, masses):
    """Fill the mean rewards (N,) of a group, and the weights that its responses add to the edges that they take.

    The advantage A of a response is its reward less the mean of the group's other rewards (0 where there are none).  On each of
    its edges, a response adds A to the leads (D, N) and A - strength to the masses (D, N).  The counts and rewards (O, N) are
    those of the outcomes.
    """
    paths, group_size, strength = trace.paths, trace.group_size, trace.strength
    n_values = counts.shape[0] // paths.edges.shape[0]
    scale = group_size / (group_size - 1.0) if group_size > 1 else 1.0
    mean[:n] = 0.0
    leads[:, :n] = 0.0
    masses[:, :n] = 0.0
    for o in range(counts.shape[0]):
        count, reward = counts[o], rewards[o]
        for i in range(n):
            mean[i] += count[i] * reward[i] / group_size
    for o in range(counts.shape[0]):
        count, reward, k = counts[o], rewards[o], o // n_values
        for t in range(paths.lengths[k]):
            lead, mass = leads[paths.edges[k, t]], masses[paths.edges[k, t]]
            for i in range(n):
                advantage = scale * (reward[i] - (mean[i] if group_size > 1 else 0.0))
                lead[i] += count[i] * advantage
                mass[i] += count[i] * (advantage - strength)


@stage
def fill_forms(tokens, leads, masses, n, parents, rest, total, forms):
    """Fill the lower triangles of the forms (D, D, N) with sum_g {A_g (c_g c_g' - F_g) - strength c_g c_g'} of one group.

    Here c_g is the covector of the response, and F_g = -grad c_g the sum of diag(p) - p p' over the prefixes that it visits.  Let
    M be the masses, L and B the leads and masses summed over a prefix, and u = M - B p.  The entry of two edges d and e of that
    prefix is ``(L - B) p_d p_e - u_d p_e - p_d u_e``, plus ``M_d - L p_d`` if d = e.  Or the prefix of d comes before that of e,
    which lies beyond its edge x.  Then the entry is ``(1{d = x} - p_d) u_e``.
    """
    size = tokens.shape[0] // parents.shape[0]
    forms[:, :, :n] = 0.0
    for prefix in range(tokens.shape[0] // size):
        start = prefix * size
        total[:, :n] = 0.0
        for d in range(start, start + size):
            for i in range(n):
                total[0, i] += masses[d, i]
                total[1, i] += leads[d, i]
        for d in range(start, start + size):
            for i in range(n):
                rest[d, i] = masses[d, i] - total[0, i] * tokens[d, i]
            for e in range(start, d + 1):
                form, p, q, u, v = forms[d, e], tokens[d], tokens[e], rest[d], rest[e]
                for i in range(n):
                    form[i] = (total[1, i] - total[0, i]) * p[i] * q[i] - u[i] * q[i] - p[i] * v[i]
            form, mass, p = forms[d, d], masses[d], tokens[d]
            for i in range(n):
                form[i] += mass[i] - total[1, i] * p[i]
        above = parents[prefix]
        while above >= 0:
            first = above // size * size
            for d in range(first, first + size):
                here = 1.0 if d == above else 0.0
                for e in range(start, start + size):
                    form, p, u = forms[max(d, e), min(d, e)], tokens[d], rest[e]
                    for i in range(n):
                        form[i] = (here - p[i]) * u[i]
            above = parents[above // size]


@stage
def add_congruence(forms, prompts, share, runs, trace, gathered, half, entry):
    """Add to the Hessians of runs (first, n) `share` times the congruence of forms (D, D, N) with the prompts' (N,) features."""
    (first, n), n_logits, width = runs, forms.shape[0], trace.columns.shape[1]
    for i in range(n):
        for d in range(n_logits):
            for j in range(width):
                gathered[d, j, i] = trace.features[prompts[i], d, j]
    for j in range(width):
        half[:, :n] = 0.0
        for d in range(n_logits):
            for e in range(n_logits):
                form, feature, out = forms[max(d, e), min(d, e)], gathered[e, j], half[d]
                for i in range(n):
                    out[i] += form[i] * feature[i]
        for row in range(j + 1):
            entry[:n] = 0.0
            for d in range(n_logits):
                feature, out = gathered[d, row], half[d]
                for i in range(n):
                    entry[i] += feature[i] * out[i]
            for i in range(n):
                one, other = trace.columns[prompts[i], row], trace.columns[prompts[i], j]
                trace.hessian[first + i, one, other] += share * entry[i]
                if row < j:
                    trace.hessian[first + i, other, one] += share * entry[i]


@function_value(KEEP_ROLLOUT)
def keep_rollout(number, groups, rewards, tokens, trace, first, size):
    """Keep the mean rewards (B, O, N) of the rollout of that number and, within the window, its part of the Hessian.

    The rollout is that of `size` runs of the trace, from the first on, or fewer where the trace ends.
    """
    n, batch_size = min(size, trace.path.shape[0] - first), groups.prompts.shape[0]
    n_logits, lanes = tokens.shape[1], tokens.shape[2]
    in_window = trace.window[0] <= number < trace.window[1]
    share = 1.0 / (batch_size * trace.group_size * (trace.window[1] - trace.window[0]))
    mean, entry, total = np.empty(lanes), np.empty(lanes), np.empty((2, lanes))
    leads, masses = np.empty((n_logits, lanes)), np.empty((n_logits, lanes))
    rest, half = np.empty((n_logits, lanes)), np.empty((n_logits, lanes))
    forms = np.empty((n_logits, n_logits, lanes))
    gathered = np.empty((n_logits, trace.columns.shape[1], lanes))
    trace.mean_rewards[first : first + n, number] = 0.0
    for b in range(batch_size):
        weigh_edges(groups.counts[b], rewards[b], n, trace, mean, leads, masses)
        for run in range(n):
            trace.mean_rewards[first + run, number] += mean[run] / batch_size
        if in_window:
            fill_forms(tokens[b], leads, masses, n, trace.parents, rest, total, forms)
            add_congruence(forms, groups.prompts[b], share, (first, n), trace, gathered, half, entry)


@function_value(KEEP_ITERATES)
def keep_iterates(count, theta, trace, first):
    """Keep the iterates (d, N), the `count`-th of their runs, which are the trace's from the first on."""
    for run in range(min(theta.shape[1], trace.path.shape[0] - first)):
        for j in range(theta.shape[0]):
            trace.path[first + run, count, j] = theta[j, run]
