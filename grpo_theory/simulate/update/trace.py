"""What is kept of training runs on the way: iterates, rewards, and an estimate of the Hessian."""

from typing import NamedTuple

import numba
import numpy as np

from grpo_theory.arrays import Array, Integers
from grpo_theory.compiler import F2, F3, I1, I2, function_value, record_type, stage
from grpo_theory.problem import Paths, Policy, Problem
from grpo_theory.simulate.covector.features import features
from grpo_theory.simulate.draw.policy_draw import GROUPS


class CompactFeatures(NamedTuple):
    """The features of a policy's edges, in the parameters on which their prompt depends.

    Attributes
    ----------
    columns : ndarray of int64, shape (M, S)
        The parameters on which the logits of a prompt depend.
    features : ndarray, shape (M, D, S)
        Of the policy's edges, in these columns; 0 where a prompt has fewer than S.
    """

    columns: Integers
    features: Array


class PrefixTree(NamedTuple):
    """The paths of responses through a tree of prefixes.

    Attributes
    ----------
    edges, lengths : ndarray of int64, shapes (K, T) and (K,)
    parents : ndarray of int64, shape (D / V,)
        The edge that leads to each prefix; -1 at the root.
    vocabulary_size : int
    """

    edges: Integers
    lengths: Integers
    parents: Integers
    vocabulary_size: int


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
    compact : CompactFeatures
    tree : PrefixTree
    group_size : int
    strength : float
        Of the penalty; 0 if there is none.
    """

    path: Array
    mean_rewards: Array
    hessian: Array
    window: Integers
    compact: CompactFeatures
    tree: PrefixTree
    group_size: int
    strength: float


_NONE, _TABLE, _ARRAY = np.zeros(0, dtype=np.int64), np.empty((0, 0)), np.empty((0, 0, 0))
_NO_WINDOW = np.zeros(2, dtype=np.int64)
_NO_TREE = PrefixTree(_NONE[:, None], _NONE, _NONE, 1)
NO_TRACE = Trace(_ARRAY, _TABLE, _ARRAY, _NO_WINDOW, CompactFeatures(_NONE[:, None], _ARRAY), _NO_TREE, 1, 0.0)
COMPACT_FEATURES = record_type(CompactFeatures, I2, F3)
PREFIX_TREE = record_type(PrefixTree, I2, I1, I1, numba.int64)
TRACE = record_type(Trace, F3, F2, F3, I1, COMPACT_FEATURES, PREFIX_TREE, numba.int64, numba.float64)
KEEP_ROLLOUT = numba.void(numba.int64, GROUPS, F3, F3, TRACE, numba.int64, numba.int64)
KEEP_ITERATES = numba.void(numba.int64, F2, TRACE, numba.int64)


def empty_trace(
    problem: Problem, compact: CompactFeatures, starts: Array, group_size: int, steps: int, window: tuple[int, int]
) -> Trace:
    """Return a trace for runs from these starts (R, d) whose window goes from a first rollout to before another.

    `compact` are the policy's `compact_features`.
    """
    (runs, dimension), paths = starts.shape, problem.policy.paths
    tree = PrefixTree(paths.edges.copy(), paths.lengths.copy(), leading_edges(paths), paths.vocabulary_size)
    path, hessian = np.empty((runs, steps + 1, dimension)), np.zeros((runs, dimension, dimension))
    path[:, 0] = starts
    strength = 0.0 if problem.kl is None else problem.kl.strength
    return Trace(path, np.empty((runs, steps)), hessian, np.array(window, dtype=np.int64), compact, tree, group_size, strength)


def compact_features(policy: Policy) -> CompactFeatures:
    """Return the parameters (M, S) on which each prompt's logits depend, and the features (M, D, S) in these columns."""
    dense = features(policy)
    used = (dense != 0.0).any(axis=1)
    order = np.argsort(~used, axis=1, kind="stable")[:, : max(1, int(used.sum(axis=1).max()))]
    columns = np.ascontiguousarray(order, dtype=np.int64)
    return CompactFeatures(columns, np.ascontiguousarray(np.take_along_axis(dense, columns[:, None, :], axis=2)))


def leading_edges(paths: Paths) -> Integers:
    """Return the edge that leads to each prefix, -1 at the root, shape (D / V,)."""
    parents = np.full(paths.n_logits // paths.vocabulary_size, -1, dtype=np.int64)
    taken = paths.taken[:, 1:]
    parents[paths.edges[:, 1:][taken] // paths.vocabulary_size] = paths.edges[:, :-1][taken]
    return parents


@stage
def part_of(trace, first, n):
    """Return what is kept of n of the runs, from the first on."""
    stop = min(first + n, trace.path.shape[0])
    return Trace(
        trace.path[first:stop],
        trace.mean_rewards[first:stop],
        trace.hessian[first:stop],
        trace.window,
        trace.compact,
        trace.tree,
        trace.group_size,
        trace.strength,
    )


@stage
def weigh_edges(counts, rewards, n, trace, mean, leads, masses):
    """Fill the mean rewards (N,) of a group, and what its responses put on the edges that they take.

    A response of advantage A, its reward less the mean of the group's other rewards (0 where there are none), puts A on each of
    its edges in the leads and A - strength in the masses, (D, N) each; counts and rewards (O, N) are of the outcomes.
    """
    tree, group_size, strength = trace.tree, trace.group_size, trace.strength
    n_values = counts.shape[0] // tree.edges.shape[0]
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
        for t in range(tree.lengths[k]):
            lead, mass = leads[tree.edges[k, t]], masses[tree.edges[k, t]]
            for i in range(n):
                advantage = scale * (reward[i] - (mean[i] if group_size > 1 else 0.0))
                lead[i] += count[i] * advantage
                mass[i] += count[i] * (advantage - strength)


@stage
def fill_forms(tokens, leads, masses, n, tree, rest, total, forms):
    """Fill the lower triangles of the forms (D, D, N) with sum_g {A_g (c_g c_g' - F_g) - strength c_g c_g'} of one group.

    c_g is the covector of the response, and F_g = -grad c_g the sum of diag(p) - p p' over the prefixes that it visits.  With M
    the masses, L and B the leads and masses summed over a prefix, and u = M - B p, two edges d and e of that prefix have
    (L - B) p_d p_e - u_d p_e - p_d u_e, and M_d - L p_d more if they are one.  If the prefix of d comes before that of e, which
    lies beyond its edge x, they have (1{d = x} - p_d) u_e.
    """
    size = tree.vocabulary_size
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
        above = tree.parents[prefix]
        while above >= 0:
            first = above // size * size
            for d in range(first, first + size):
                here = 1.0 if d == above else 0.0
                for e in range(start, start + size):
                    form, p, u = forms[max(d, e), min(d, e)], tokens[d], rest[e]
                    for i in range(n):
                        form[i] = (here - p[i]) * u[i]
            above = tree.parents[above // size]


@stage
def add_congruence(forms, prompts, share, n, trace, gathered, half, entry):
    """Add to the Hessians `share` times the congruence of the forms (D, D, N) with the features of the prompts (N,)."""
    n_logits, width, compact = forms.shape[0], trace.compact.columns.shape[1], trace.compact
    for i in range(n):
        for d in range(n_logits):
            for j in range(width):
                gathered[d, j, i] = compact.features[prompts[i], d, j]
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
                one, other = compact.columns[prompts[i], row], compact.columns[prompts[i], j]
                trace.hessian[i, one, other] += share * entry[i]
                if row < j:
                    trace.hessian[i, other, one] += share * entry[i]


@function_value(KEEP_ROLLOUT)
def keep_rollout(number, groups, rewards, tokens, whole, first, size):
    """Keep the mean rewards (B, O, N) of the rollout of that number and, within the window, its part of the Hessian.

    The rollout is that of `size` runs of the trace, from the first on, or fewer where the trace ends.
    """
    trace = part_of(whole, first, size)
    n, batch_size = trace.path.shape[0], groups.prompts.shape[0]
    n_logits, lanes = tokens.shape[1], tokens.shape[2]
    in_window = trace.window[0] <= number < trace.window[1]
    share = 1.0 / (batch_size * trace.group_size * (trace.window[1] - trace.window[0]))
    mean, entry, total = np.empty(lanes), np.empty(lanes), np.empty((2, lanes))
    leads, masses = np.empty((n_logits, lanes)), np.empty((n_logits, lanes))
    rest, half = np.empty((n_logits, lanes)), np.empty((n_logits, lanes))
    forms = np.empty((n_logits, n_logits, lanes))
    gathered = np.empty((n_logits, trace.compact.columns.shape[1], lanes))
    for run in range(n):
        trace.mean_rewards[run, number] = 0.0
    for b in range(batch_size):
        weigh_edges(groups.counts[b], rewards[b], n, trace, mean, leads, masses)
        for run in range(n):
            trace.mean_rewards[run, number] += mean[run] / batch_size
        if in_window:
            fill_forms(tokens[b], leads, masses, n, trace.tree, rest, total, forms)
            add_congruence(forms, groups.prompts[b], share, n, trace, gathered, half, entry)


@function_value(KEEP_ITERATES)
def keep_iterates(count, theta, trace, first):
    """Keep the iterates (d, N), the `count`-th of their runs, which are the trace's from the first on."""
    for run in range(min(theta.shape[1], trace.path.shape[0] - first)):
        for j in range(theta.shape[0]):
            trace.path[first + run, count, j] = theta[j, run]
