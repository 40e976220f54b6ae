"""Policies that move: from parameters to logits and probabilities at the prompts drawn, and from logit gradients to parameters.

Theta is (d, LANES), a column for each run.  A head has many parameters, and theta is (runs, d).  Each run is by itself there,
so that what stands side by side is a row of the head.
"""

from typing import NamedTuple

import numpy as np

from grpo_theory.jit import inlined, kernel, summing_kernel
from grpo_theory.problem import LogitMap, Policy
from grpo_theory.problem.logits import HeadMap, TabularMap
from grpo_theory.problem.two_layer import TwoLayerMap
from grpo_theory.validation import Array, Integers

TABULAR, FEW, FEATURES, HEAD, TANH, RELU, IDENTITY = range(7)
"""The last four have hidden units, of the model under a head or of their own."""
FEW_PROMPTS = 4
"""Logits of all prompts cost less than features of those drawn, if there are at most so many times as many."""
_LOG2_E, _LN2_HIGH, _LN2_LOW = 1.4426950408889634, 6.93147180369123816490e-01, 1.90821492927058770002e-10


class LogitRule(NamedTuple):
    """How parameters become logits.

    Attributes
    ----------
    kind : int
        TABULAR, FEW, FEATURES, HEAD, or the activation of a network of two layers.
    table : ndarray
        Nothing (0, 0), features (M D, d) of few prompts or (D d, M), hidden states (M, H), or inputs (I, M).
    scale : float
        Of the second layer.
    edges, lengths : ndarray of int64, shape (K, T) and (K,)
        The responses as paths of edges.
    size : int
        The tokens V at a prefix.
    """

    kind: int
    table: Array
    scale: float
    edges: Integers
    lengths: Integers
    size: int


class Scratch(NamedTuple):
    """What policies are computed in; nothing that is in it before is read.

    Attributes
    ----------
    rows : ndarray, shape (5, LANES)
        For single rows of numbers.
    bits : ndarray of int64, shape (LANES,)
        Those of the first of these rows: the same memory.
    units : ndarray, shape (rows, LANES)
        The logits of all prompts, or the inputs and then the hidden units of a network at a group, see `rows_needed`.
    """

    rows: Array
    bits: Integers
    units: Array


def make_scratch(rows_needed: int, lanes: int) -> Scratch:
    """Make room for policies that need so many rows."""
    rows = np.empty((5, lanes))
    return Scratch(rows, rows[0].view(np.int64), np.empty((rows_needed, lanes)))


def logit_rule(policy: Policy, batch_size: int) -> LogitRule:
    """Tabulate a policy for batches of so many prompts; of a class of map that is not the package's, by its adjoint."""
    logit_map, paths = policy.logit_map, policy.paths
    ways = np.ascontiguousarray(paths.edges), np.ascontiguousarray(paths.lengths), paths.vocabulary_size
    if type(logit_map) is TabularMap:
        return LogitRule(TABULAR, np.empty((0, 0)), 1.0, *ways)
    if type(logit_map) is HeadMap:
        return LogitRule(HEAD, np.array(logit_map.hidden), 1.0, *ways)
    if type(logit_map) is TwoLayerMap:
        kind = {"tanh": TANH, "relu": RELU, "identity": IDENTITY}[logit_map.activation]
        return LogitRule(kind, np.array(logit_map.inputs.T, order="C"), float(logit_map.scale), *ways)
    if not isinstance(logit_map, LogitMap):
        raise ValueError(
            f"policy must have logits that are linear in theta, or be a TwoLayerSoftmax, to be trained, got {policy!r}"
        )
    features = dense_features(logit_map)
    if policy.n_prompts <= FEW_PROMPTS * batch_size:
        return LogitRule(FEW, np.ascontiguousarray(features.transpose(2, 0, 1)).reshape(-1, policy.dimension), 1.0, *ways)
    return LogitRule(FEATURES, features.reshape(-1, policy.n_prompts), 1.0, *ways)


def rows_needed(policy: Policy, tables: LogitRule) -> int:
    """Return the rows of room that logits and steps need: logits of all prompts, or inputs and hidden units of one."""
    if tables.kind == FEW:
        return len(tables.table)
    return len(tables.table) + policy.logit_map.width if isinstance(policy.logit_map, TwoLayerMap) else 0


def dense_features(logit_map: LogitMap) -> Array:
    """Return the features of each prompt's edges, shape (D, d, M), of any linear map."""
    features = np.empty((logit_map.n_logits, logit_map.dimension, logit_map.n_prompts))
    for edge, logit_gradient in enumerate(np.eye(logit_map.n_logits)):
        features[edge] = logit_map.adjoint_by_prompt(np.tile(logit_gradient, (logit_map.n_prompts, 1))).T
    return features


@inlined
def exponentiate(x, n, scratch):
    """Replace the first n rows of x (rows, LANES), at most 709, by exp(x).

    x = m ln 2 + r with |r| <= ln(2)/2 (Cody and Waite), and exp(r) is a Taylor polynomial of degree 12: it errs by 1e-15.
    """
    for row in range(n):
        for j in range(x.shape[1]):
            y = x[row, j] if x[row, j] > -700.0 else -700.0
            m = np.rint(y * _LOG2_E)
            r = (y - m * _LN2_HIGH) - m * _LN2_LOW
            p = ((r * (1.0 / 479001600.0) + 1.0 / 39916800.0) * r + 1.0 / 3628800.0) * r + 1.0 / 362880.0
            p = (((p * r + 1.0 / 40320.0) * r + 1.0 / 5040.0) * r + 1.0 / 720.0) * r + 1.0 / 120.0
            p = (((p * r + 1.0 / 24.0) * r + 1.0 / 6.0) * r + 0.5) * r + 1.0
            scratch.bits[j] = (np.int64(np.int32(m)) + 1023) << 52  # those of 2^m, which the first row of numbers is
            # What is no number stays none.
            x[row, j] = p * r + 1.0 if x[row, j] == x[row, j] else x[row, j]
        for j in range(x.shape[1]):
            x[row, j] *= scratch.rows[0, j]


@summing_kernel
def fill_head_logits(tables, theta, prompts, n, logits):
    """Fill in logits W h_m (B, D, LANES) of the first n runs."""
    width = tables.table.shape[1]
    for b in range(logits.shape[0]):
        for j in range(n):
            for d in range(logits.shape[1]):
                total = 0.0
                for h in range(width):
                    total += theta[j, d * width + h] * tables.table[prompts[b, j], h]
                logits[b, d, j] = total


@kernel
def fill_logits(tables, theta, prompts, scratch, logits):
    """Fill in logits (B, D, LANES) at prompts (B, LANES), of policies without hidden units."""
    (_, n_logits, lanes), n_theta, units = logits.shape, theta.shape[0], scratch.units
    if tables.kind == FEW:
        for row in range(units.shape[0]):
            for j in range(lanes):
                units[row, j] = tables.table[row, 0] * theta[0, j]
            for x in range(1, n_theta):
                for j in range(lanes):
                    units[row, j] += tables.table[row, x] * theta[x, j]
    rows = units if tables.kind == FEW else theta
    for b in range(prompts.shape[0]):
        for d in range(n_logits):
            if tables.kind != FEATURES:
                for j in range(lanes):
                    logits[b, d, j] = rows[prompts[b, j] * n_logits + d, j]
            else:
                for j in range(lanes):
                    logits[b, d, j] = 0.0
                for x in range(n_theta):
                    for j in range(lanes):
                        logits[b, d, j] += tables.table[d * n_theta + x, prompts[b, j]] * theta[x, j]


@kernel
def fill_unit_logits(tables, theta, prompts, n, scratch, logits):
    """Fill in logits (B, D, LANES) at the prompts (B, LANES) of the first n runs, of heads and of networks."""
    if tables.kind == HEAD:
        fill_head_logits(tables, theta, prompts, n, logits)
        return
    n_inputs, units = tables.table.shape[0], scratch.units
    width = units.shape[0] - n_inputs
    for b in range(prompts.shape[0]):
        fill_units(tables, theta, prompts[b], scratch)
        # s_d = scale sum_h v_dh act(u_h . x) (docs/derivations.md, section 5.1).
        for d in range(logits.shape[1]):
            for j in range(logits.shape[2]):
                logits[b, d, j] = 0.0
            for h in range(width):
                for j in range(logits.shape[2]):
                    logits[b, d, j] += tables.scale * theta[width * n_inputs + d * width + h, j] * units[n_inputs + h, j]


@inlined
def fill_units(tables, theta, prompts, scratch):
    """Fill in the inputs and the hidden units (I + H, LANES) of a network at prompts (LANES,)."""
    n_inputs, lanes, own, units = tables.table.shape[0], prompts.shape[0], scratch.units, scratch.units[tables.table.shape[0] :]
    for x in range(n_inputs):
        for j in range(lanes):
            own[x, j] = tables.table[x, prompts[j]]
    for h in range(units.shape[0]):
        for j in range(lanes):
            units[h, j] = 0.0
        for x in range(n_inputs):
            for j in range(lanes):
                units[h, j] += theta[h * n_inputs + x, j] * own[x, j]
        for j in range(lanes):
            if tables.kind == RELU:
                units[h, j] = 0.0 if units[h, j] < 0.0 else units[h, j]
            elif tables.kind == TANH:  # (1 - e)/(1 + e) with e = exp(-2 a)
                units[h, j] = min(max(-2.0 * units[h, j], -700.0), 700.0) if units[h, j] == units[h, j] else units[h, j]
    if tables.kind == TANH:
        exponentiate(units, units.shape[0], scratch)
        for h in range(units.shape[0]):
            for j in range(lanes):
                units[h, j] = (1.0 - units[h, j]) / (1.0 + units[h, j])


@kernel
def fill_probabilities(tables, logits, scratch, tokens, log_tokens, pi):
    """Turn logits (B, D, LANES) into probabilities of tokens given their prefixes, and of responses (B, K, LANES).

    Their logs are filled in where there is room for them (B, D, LANES).
    """
    lanes, wants_logs, top, total = logits.shape[2], log_tokens.shape[1] > 0, scratch.rows[1], scratch.rows[2]
    for b in range(logits.shape[0]):
        # p_d = exp(s_d - max s)/sum exp(s - max s) at each prefix (docs/derivations.md, section 15).
        for prefix in range(logits.shape[1] // tables.size):
            first = prefix * tables.size
            for j in range(lanes):
                top[j] = logits[b, first, j]
                total[j] = 0.0
            for d in range(first + 1, first + tables.size):
                for j in range(lanes):
                    top[j] = max(top[j], logits[b, d, j])
            for d in range(first, first + tables.size):
                for j in range(lanes):
                    tokens[b, d, j] = logits[b, d, j] - top[j]
                    if wants_logs:
                        log_tokens[b, d, j] = tokens[b, d, j]
            exponentiate(tokens[b, first : first + tables.size], tables.size, scratch)
            for d in range(first, first + tables.size):
                for j in range(lanes):
                    total[j] += tokens[b, d, j]
            for j in range(lanes):
                top[j] = 1.0 / total[j]
            for d in range(first, first + tables.size):
                for j in range(lanes):
                    tokens[b, d, j] *= top[j]
            if wants_logs:
                for j in range(lanes):
                    total[j] = np.log(total[j])
                for d in range(first, first + tables.size):
                    for j in range(lanes):
                        log_tokens[b, d, j] -= total[j]
        # pi_k = prod_t p_edge(k,t) (docs/derivations.md, section 15); of responses of a token both are one array.
        for k in range(pi.shape[1] if tables.edges.shape[1] > 1 else 0):
            for j in range(lanes):
                pi[b, k, j] = tokens[b, tables.edges[k, 0], j]
            for t in range(1, tables.lengths[k]):
                for j in range(lanes):
                    pi[b, k, j] *= tokens[b, tables.edges[k, t], j]


@inlined
def place(prompts, of_all, found):
    """Fill rows (B, R, LANES) at prompts (B, LANES) with those of all prompts (M, R, LANES)."""
    for b in range(found.shape[0]):
        for r in range(found.shape[1]):
            for j in range(found.shape[2]):
                found[b, r, j] = of_all[prompts[b, j], r, j]


@inlined
def gather(prompts, rows, of_all):
    """Fill rows of all prompts (M, R, LANES) with the sums of those (B, R, LANES) at prompts (B, LANES)."""
    for m in range(of_all.shape[0]):
        for r in range(rows.shape[1]):
            for j in range(rows.shape[2]):
                of_all[m, r, j] = 0.0
    for b in range(rows.shape[0]):
        for r in range(rows.shape[1]):
            for j in range(rows.shape[2]):
                of_all[prompts[b, j], r, j] += rows[b, r, j]


@kernel
def add_gradient(tables, prompts, logit_gradients, scratch, gradient):
    """Fill gradients with sum_b Phi_b' c_b, of logit gradients (B, D, LANES), of policies without hidden units."""
    (_, n_logits, lanes), n_theta, units = logit_gradients.shape, gradient.shape[0], scratch.units
    gradient[:] = 0.0
    units[:] = 0.0
    rows = units if tables.kind == FEW else gradient
    for b in range(logit_gradients.shape[0]):
        for d in range(n_logits):
            if tables.kind != FEATURES:
                for j in range(lanes):
                    rows[prompts[b, j] * n_logits + d, j] += logit_gradients[b, d, j]
            else:
                for x in range(n_theta):
                    for j in range(lanes):
                        gradient[x, j] += logit_gradients[b, d, j] * tables.table[d * n_theta + x, prompts[b, j]]
    # sum_b Phi_b' c_b = sum_m Phi_m' c_m, with c_m the sum of c_b over m's groups (docs/derivations.md, section 5.1).
    for row in range(units.shape[0]):
        for x in range(n_theta):
            for j in range(lanes):
                gradient[x, j] += tables.table[row, x] * units[row, j]


@kernel
def add_unit_gradient(tables, theta, prompts, n, logit_gradients, scratch, gradient):
    """Fill gradients with sum_b Phi_b' c_b, of logit gradients (B, D, LANES), of the first n runs' heads or of networks."""
    (_, n_logits, lanes), units, back, n_inputs = logit_gradients.shape, scratch.units, scratch.rows[1], tables.table.shape[0]
    gradient[:] = 0.0
    for b in range(logit_gradients.shape[0]):
        if tables.kind == HEAD:
            width = tables.table.shape[1]
            for j in range(n):
                for d in range(n_logits):
                    weight = logit_gradients[b, d, j]
                    if weight != 0.0:
                        for h in range(width):
                            gradient[j, d * width + h] += weight * tables.table[prompts[b, j], h]
            continue
        width = units.shape[0] - n_inputs
        fill_units(tables, theta, prompts[b], scratch)
        for h in range(width):
            # ds_d/du_h = scale v_dh act'(u_h . x) x, and ds_d/dv_dh = scale act(u_h . x) (docs/derivations.md, section 5.1).
            # Back through the second layer, scale W_2, and through the unit, whose slope is f'(a) by its value f(a).
            unit = units[n_inputs + h]
            for j in range(lanes):
                back[j] = 0.0
            for d in range(n_logits):
                row = width * n_inputs + d * width + h
                for j in range(lanes):
                    back[j] += tables.scale * logit_gradients[b, d, j] * theta[row, j]
                    gradient[row, j] += tables.scale * logit_gradients[b, d, j] * unit[j]
            for j in range(lanes):
                if tables.kind == TANH:
                    back[j] *= 1.0 - unit[j] * unit[j]
                elif tables.kind == RELU:
                    back[j] *= 1.0 if unit[j] > 0.0 else 0.0
            for x in range(n_inputs):
                for j in range(lanes):
                    gradient[h * n_inputs + x, j] += back[j] * units[x, j]
