"""Sums of advantages to logit gradients, and these to what is observed of each batch: error, power, gain, and directions.

The estimate of a batch is (1/B) sum_b Phi_b' c_b, with c_b the logit gradient of group b.  For a table or a head, the squared
length of Phi' c is |c|^2 times a number of the prompt.  Then all observations are sums of products of pairs of rows.  Any other
map has features, by which the estimate itself is added up.
"""

from typing import NamedTuple

import numpy as np

from grpo_theory.exact.score_moments import TokenWeights
from grpo_theory.jit import inlined, kernel
from grpo_theory.problem import Point
from grpo_theory.problem.logits import SURE, HeadMap, TabularMap
from grpo_theory.simulate.advantages import weigh_edges
from grpo_theory.simulate.draws import LANES, pool_tokens
from grpo_theory.simulate.policies import dense_features
from grpo_theory.validation import Array, Integers

_ROUNDED = 1e-13
"""A sum is 0 but for rounding where it is at most so many times the sum of its terms' absolute values."""


class TokenRule(NamedTuple):
    """What the tokens of responses weigh at a fixed pair of policies.

    Attributes
    ----------
    edges : ndarray of int64, shape (K, T)
    lengths : ndarray of int64, shape (K,)
    width : int
        The tokens V at a prefix.
    tokens : ndarray, shape (D, M)
        The current policy's probabilities of tokens given their prefixes.
    sure : bool
        Whether some token is sure.
    gains : ndarray, shape (F, K, T, M or 1)
        What multiplies each feature, the errors of estimated values last; one number for all prompts on policy.
    pool : int
        The groups whose tokens share the weight 1: none, the group alone, or all B of the batch.
    scale : float
        1/G.
    """

    edges: Integers
    lengths: Integers
    width: int
    tokens: Array
    sure: bool
    gains: Array
    pool: int
    scale: float


def token_rule(weights: TokenWeights, pool: str, batch_size: int, group_size: int) -> TokenRule:
    """Return the rule of these token weights."""
    tokens = weights.token_probabilities
    gains = np.concatenate([weights.by_token(np.arange(len(tokens))), np.swapaxes(weights.errors, 1, 2)], axis=1)
    alike = bool((gains == gains[:1]).all())
    return TokenRule(
        edges=np.ascontiguousarray(weights.paths.edges),
        lengths=np.ascontiguousarray(weights.paths.lengths),
        width=weights.paths.vocabulary_size,
        tokens=np.array(tokens.T, order="C"),  # ours: a view that is closed to writing is another type, compiled again
        sure=bool((tokens > SURE).any()),
        gains=np.ascontiguousarray(np.moveaxis(gains[:1] if alike else gains, 0, -1)),
        pool={"": 0, "group": 1, "batch": batch_size}[pool],
        scale=1.0 / group_size,
    )


class TrueGradient(NamedTuple):
    """What estimates are compared with, at theta.

    Attributes
    ----------
    inner : ndarray, shape (M, M)
        Inner products of a head's prompts; (0, 0) of other maps.
    own : ndarray, shape (M,)
        Inner products of prompts with themselves.
    shares : ndarray, shape (M,)
        The prompts' weights for a table, where different prompts share nothing; (0,) of other maps.
    features : ndarray, shape (D d, M)
        Of maps by whose features estimates are added up; (0, M) of others.
    gradients : ndarray, shape (D, M) or (d, M)
        The logit gradients of g(x), or with features g(x) itself.
    target : ndarray, shape (D, M) or (d, 1)
        The logits of g, or with features g itself.
    powers : ndarray, shape (M,)
        ||g(x)||^2.
    along : ndarray, shape (J, D, M)
        The logits of the directions.
    power : float
        ||g||^2.
    """

    inner: Array
    own: Array
    shares: Array
    features: Array
    gradients: Array
    target: Array
    powers: Array
    along: Array
    power: float


def truth_at(point: Point, directions: Array) -> TrueGradient:
    """Tabulate the truth at a point, and directions (J, d)."""
    policy, moments, n_prompts = point.policy, point.target, point.policy.n_prompts
    logits = np.asarray(point.tangent.logits(np.concatenate([directions, moments.gradient[None]])), dtype=np.float64)
    along = np.ascontiguousarray(logits[:-1].swapaxes(1, 2))
    inner, own, shares = np.empty((0, 0)), np.ones(n_prompts), np.empty(0)
    if type(policy.logit_map) in (TabularMap, HeadMap):
        if isinstance(policy.logit_map, HeadMap):
            inner = policy.logit_map.hidden @ policy.logit_map.hidden.T
            own = np.diag(inner).copy()
        else:
            shares = np.array(point.bandit.prompt_weights)
        logit_gradients = moments.gradient_in_logits
        # ||Phi_m' c||^2 = own_m ||c||^2: own is 1 for a table and ||h_m||^2 for a head (docs/derivations.md, section 4).
        powers = own * (logit_gradients**2).sum(axis=1)
        tables = np.array(logit_gradients.T, order="C"), np.ascontiguousarray(logits[-1].T)
        length = float(moments.gradient_squared_norm)
        return TrueGradient(inner, own, shares, np.empty((0, n_prompts)), *tables, powers, along, length)
    # Of any other class of map, the adjoint gives the features, a logit at a time.
    gradients = np.array(moments.prompt_gradients.T, order="C")
    return TrueGradient(
        inner=inner,
        own=own,
        shares=shares,
        features=dense_features(point.tangent).reshape(-1, n_prompts),
        gradients=gradients,
        target=np.array(moments.gradient)[:, None],
        powers=(gradients**2).sum(axis=0),
        along=along,
        power=float(moments.gradient_squared_norm),
    )


@inlined
def fill_logit_gradient(rule, prompts, sums, total, size, row):
    """Fill in the logit gradient (D, LANES) of a group's sums by response (F, K, LANES): scale sum_k S_k sum_t gain_kt c_kt.

    A token's logit gradient is e_edge - p, with p the probabilities at its prefix: what it got in all, times p, comes off.
    """
    n_logits, plain = row.shape[0], rule.gains.shape[3] == 1 and sums.shape[0] == 1 and rule.edges.shape[1] == 1
    if not plain:
        weigh_edges(rule.edges, rule.lengths, rule.gains, prompts, rule.scale, sums, row)
    # sum_t w_t (e_edge - p_prefix) = E - P(E), with P(E) the sum of E at a prefix, times p (docs/derivations.md, section 15).
    for first in range(0, n_logits, rule.width):
        for j in range(LANES):
            total[j] = 0.0
            size[j] = 0.0
        for d in range(first, first + rule.width):
            if plain:  # responses of a token are edges
                gain = rule.scale * rule.gains[0, d, 0, 0]
                for j in range(LANES):
                    row[d, j] = gain * sums[0, d, j]
            for j in range(LANES):
                total[j] += row[d, j]
                size[j] += abs(row[d, j])
        # Contrasts of a prefix that all responses pass add up to 0.  What rounding leaves of that is not worth a look-up.
        left = 0
        for j in range(LANES):
            left += int(abs(total[j]) > _ROUNDED * size[j])
        if left > 0:
            for d in range(first, first + rule.width):
                for j in range(LANES):
                    row[d, j] -= total[j] * rule.tokens[d, prompts[j]]
        if rule.sure:
            # That of a sure token is a difference in which 1 - p cancels: it is minus the sum of the others, as in `closed`.
            for j in range(LANES):
                total[j] = 0.0
            for d in range(first, first + rule.width):
                for j in range(LANES):
                    total[j] += 0.0 if rule.tokens[d, prompts[j]] > SURE else row[d, j]
            for d in range(first, first + rule.width):
                for j in range(LANES):
                    row[d, j] = -total[j] if rule.tokens[d, prompts[j]] > SURE else row[d, j]


@kernel
def fill_rows(rule, batches, sums, rows):
    """Fill in the logit gradients (T, B R, D, LANES) of groups, R of each, from sums by response (T, B, R, F, K, LANES)."""
    n_tiles, batch_size, n_rows = sums.shape[:3]
    total, size = np.empty(LANES), np.empty(LANES)
    for t in range(n_tiles):
        for i in range(batch_size * n_rows):
            b = i // n_rows
            fill_logit_gradient(rule, batches.prompts[t, b], sums[t, b, i % n_rows], total, size, rows[t, i])
        if rule.pool > 0:
            pool_tokens(rule.lengths, rule.pool, batches.counts[t], rows[t])


@inlined
def multiply_fact(rows, i, table, prompts, b, dot):
    """Put the products of a row with its prompt's column of a table (D, M) into dot (LANES,)."""
    for j in range(LANES):
        dot[j] = 0.0
    for d in range(table.shape[0]):
        for j in range(LANES):
            dot[j] += rows[i, d, j] * table[d, prompts[b, j]]


@kernel
def observe_pairs(truth, all_prompts, all_rows, all_weights, first, found):
    """Add up groups' squared errors, and batches' powers and gains (E, 4 + J, T', LANES) of T tiles, from the first of T' on.

    The rows (T, B R, D, LANES) have weights (T, E, B, R, LANES).  Gains and errors are not divided by B yet, nor powers by its
    square.
    """
    n_tiles, n_estimators, batch_size, n_rows, _ = all_weights.shape
    relation, dot, own = np.empty(LANES), np.empty(LANES), np.empty(LANES)
    gain, gap, product = np.empty(LANES), np.empty(LANES), np.empty(LANES)
    sums = np.empty((2, n_estimators, LANES))  # of products with rows of groups before, and of the own group
    for t in range(n_tiles):
        prompts, rows, weights, to = all_prompts[t], all_rows[t], all_weights[t], first + t
        for i in range(batch_size * n_rows):
            b, r = i // n_rows, i % n_rows
            sums[:] = 0.0
            for other in range(i + 1):
                other_b, other_r = other // n_rows, other % n_rows
                for j in range(LANES):
                    # <Phi_m' c, Phi_n' c'> = (c . c') (h_m . h_n) for a head (docs/derivations.md, section 11).
                    if truth.shares.shape[0] == 0:
                        relation[j] = truth.inner[prompts[b, j], prompts[other_b, j]]
                    else:
                        relation[j] = 1.0 if prompts[b, j] == prompts[other_b, j] else 0.0
                    dot[j] = 0.0
                for d in range(rows.shape[1]):
                    for j in range(LANES):
                        dot[j] += rows[i, d, j] * rows[other, d, j]
                for j in range(LANES):
                    dot[j] *= relation[j]
                for e in range(n_estimators if other < i else 0):
                    for j in range(LANES):
                        sums[int(other_b == b), e, j] += weights[e, other_b, other_r, j] * dot[j]
            multiply_fact(rows, i, truth.gradients, prompts, b, gap)
            if truth.shares.shape[0] == 0:
                multiply_fact(rows, i, truth.target, prompts, b, gain)
            else:  # of a table, g is f(x) g(x) at each prompt, and own is 1
                for j in range(LANES):
                    gain[j] = gap[j] * truth.shares[prompts[b, j]]
            for j in range(LANES):
                gap[j] *= truth.own[prompts[b, j]]
                own[j] = truth.powers[prompts[b, j]]
            for e in range(n_estimators):
                # ||y||^2 of y = sum_i w_i x_i is the sum over i of w_i (w_i ||x_i||^2 + 2 sum_{i' < i} w_i' <x_i, x_i'>)
                # (docs/derivations.md, section 17.1).
                for j in range(LANES):
                    product[j] = weights[e, b, r, j] * (weights[e, b, r, j] * dot[j] + 2.0 * sums[1, e, j])
                # ||y - g(x)||^2 = ||y||^2 - 2 <y, g(x)> + ||g(x)||^2 of a group, whose last term comes with its last row.
                for j in range(LANES):
                    found[e, 1, to, j] += product[j] - 2.0 * weights[e, b, r, j] * gap[j]
                for j in range(LANES):
                    found[e, 2, to, j] += product[j] + 2.0 * weights[e, b, r, j] * sums[0, e, j]
                for j in range(LANES):
                    found[e, 3, to, j] += weights[e, b, r, j] * gain[j]
                for j in range(LANES if r == n_rows - 1 else 0):
                    found[e, 1, to, j] += own[j]


@kernel
def observe_features(truth, all_prompts, all_rows, all_weights, first, found):
    """Add up the same by the estimates themselves, of maps that have features."""
    n_tiles, n_estimators, batch_size, n_rows, _ = all_weights.shape
    n_logits, dimension = all_rows.shape[2], truth.target.shape[0]
    sums, own = np.empty((n_estimators, dimension, LANES)), np.empty((n_rows, LANES))
    for t in range(n_tiles):
        prompts, rows, weights, to = all_prompts[t], all_rows[t], all_weights[t], first + t
        sums[:] = 0.0
        for b in range(batch_size):
            for x in range(dimension):
                for r in range(n_rows):
                    for j in range(LANES):
                        own[r, j] = 0.0
                    for d in range(n_logits):
                        for j in range(LANES):
                            own[r, j] += rows[b * n_rows + r, d, j] * truth.features[d * dimension + x, prompts[b, j]]
                for e in range(n_estimators):
                    for j in range(LANES):
                        estimate = weights[e, b, 0, j] * own[0, j]
                        if n_rows == 2:
                            estimate += weights[e, b, 1, j] * own[1, j]
                        sums[e, x, j] += estimate
                        error = estimate - truth.gradients[x, prompts[b, j]]
                        found[e, 1, to, j] += error * error
        for e in range(n_estimators):
            for x in range(dimension):
                for j in range(LANES):
                    found[e, 2, to, j] += sums[e, x, j] * sums[e, x, j]
                    found[e, 3, to, j] += sums[e, x, j] * truth.target[x, 0]


@kernel
def observe_directions(truth, all_prompts, all_rows, all_weights, first, found):
    """Add up the estimates along directions, which come after the first four of what is found."""
    dot, n_rows = np.empty(LANES), all_weights.shape[3]
    for t in range(all_weights.shape[0]):
        prompts, rows, weights = all_prompts[t], all_rows[t], all_weights[t]
        for direction in range(truth.along.shape[0]):
            for i in range(rows.shape[0]):
                b = i // n_rows
                multiply_fact(rows, i, truth.along[direction], prompts, b, dot)
                for e in range(weights.shape[0]):
                    for j in range(LANES):
                        found[e, 4 + direction, first + t, j] += weights[e, b, i % n_rows, j] * dot[j]
