"""Logits and step of a policy of two layers, for many runs side by side: forwards, and back by hand.

A step reads only the part of theta that it adds to, so it may also fill a gradient.  Everything else that it needs is in the rows
that `network_rows` lays out.
"""

from grpo_theory.compiler import function_value, stage
from grpo_theory.compiler.lanes import WIDTH, load, reals, store, take, where
from grpo_theory.simulate.draw.elementary import exponential
from grpo_theory.simulate.draw.network_rows import row_places
from grpo_theory.simulate.update.step_types import FILL_LOGITS, TAKE_STEP


@stage
def tanh_of(a):
    """Return tanh(a), within 2e-16."""
    shrunk = exponential(2.0 * where(a > 0.0, 0.0 - a, a))
    size = (1.0 - shrunk) / (1.0 + shrunk)
    return where(a > 0.0, size, 0.0 - size)


@stage
def tanh_slope(h):
    """Return the derivative of tanh where it is h."""
    return 1.0 - h * h


@stage
def relu_of(a):
    """Return a where it is positive and else 0; what is no number stays none."""
    return where(a < 0.0, 0.0, a)


@stage
def relu_slope(h):
    """Return 1 where h is positive, and else 0."""
    return where(h > 0.0, 1.0 + 0.0 * h, 0.0)


@stage
def identity_of(a):
    """Return a."""
    return a


@stage
def identity_slope(h):
    """Return 1."""
    return reals(1.0)


@stage
def go_forwards(act, slope, theta, prompts, array, rows, logits):
    """Fill logits (B, K, N) of prompts (B, N), with array[0] the inputs (M, I) and array[1, 0, 0] the scale; and the rows."""
    (n_groups, n_logits), n_inputs = logits.shape[:2], array.shape[2]
    width = theta.shape[0] // (n_inputs + n_logits)
    units, slopes, second = row_places(n_groups, n_inputs, width)
    for i in range(0, theta.shape[1], WIDTH):
        for row in range(n_logits * width):
            store(array[1, 0, 0] * load(theta, width * n_inputs + row, i), rows, second + row, i)
        for b in range(n_groups):
            own = load(prompts, b, i) * n_inputs
            for x in range(n_inputs):
                store(take(array, own + x), rows, b * n_inputs + x, i)
            for j in range(width):
                a = load(theta, j * n_inputs, i) * load(rows, b * n_inputs, i)
                for x in range(1, n_inputs):
                    a = a + load(theta, j * n_inputs + x, i) * load(rows, b * n_inputs + x, i)
                h = act(a)
                store(h, rows, units + b * width + j, i)
                store(slope(h), rows, slopes + b * width + j, i)
            for k in range(n_logits):
                logit = reals(0.0)
                for j in range(width):
                    logit = logit + load(rows, second + k * width + j, i) * load(rows, units + b * width + j, i)
                store(logit, logits, b, k, i)


@function_value(FILL_LOGITS)
def tanh_logits(theta, prompts, array, rows, logits):
    """See `go_forwards`."""
    go_forwards(tanh_of, tanh_slope, theta, prompts, array, rows, logits)


@function_value(FILL_LOGITS)
def relu_logits(theta, prompts, array, rows, logits):
    """See `go_forwards`."""
    go_forwards(relu_of, relu_slope, theta, prompts, array, rows, logits)


@function_value(FILL_LOGITS)
def identity_logits(theta, prompts, array, rows, logits):
    """See `go_forwards`."""
    go_forwards(identity_of, identity_slope, theta, prompts, array, rows, logits)


@function_value(TAKE_STEP)
def two_layer_step(theta, prompts, array, rows, covectors, step):
    """Move both layers by step times sum_b Phi_b' c_b for covectors (B, K, N), with Phi of what is in the rows."""
    (n_groups, n_logits), n_inputs = covectors.shape[:2], array.shape[2]
    width = theta.shape[0] // (n_inputs + n_logits)
    units, slopes, second = row_places(n_groups, n_inputs, width)
    for i in range(0, theta.shape[1], WIDTH):
        for b in range(n_groups):
            for j in range(width):
                h, back = load(rows, units + b * width + j, i), reals(0.0)
                for k in range(n_logits):
                    covector, row = step * load(covectors, b, k, i), k * width + j
                    back = back + covector * load(rows, second + row, i)
                    moved = load(theta, width * n_inputs + row, i) + array[1, 0, 0] * covector * h
                    store(moved, theta, width * n_inputs + row, i)
                back = back * load(rows, slopes + b * width + j, i)
                for x in range(n_inputs):
                    row = j * n_inputs + x
                    store(load(theta, row, i) + back * load(rows, b * n_inputs + x, i), theta, row, i)


LOGITS = {"tanh": tanh_logits, "relu": relu_logits, "identity": identity_logits}
"""The logits for each activation; the step is the same for all."""
