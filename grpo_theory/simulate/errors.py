"""Covectors of groups to the squared errors of their batches, one driver for each way of adding up a batch.

The estimate of a batch is (1/B) sum_b Phi_b' c_b, with c_b the covector of group b.  Of each replication the drivers fill in
`observations` (E, 2 + J, T, STRIP), from strip number `first` on: row 0 is the squared error of the batch's estimate about g,
row 1 the mean of its groups' squared errors about their g(x), and the J others the estimate along the directions.

A stage is for one vector of lanes: vector v of the covectors (E, V, B, D, WIDTH), which are the lanes from i on of strip s of the
prompts and of strip t of the observations.
"""

from functools import cache
from typing import Any, NamedTuple

import numba

from grpo_theory.arrays import Array
from grpo_theory.compilation import F1, F2, F3, F4, NO_ARRAYS, compile_function, record_type, stage
from grpo_theory.lanes import WIDTH, add_at, lane_numbers, load, reals, store, take, where, zeros
from grpo_theory.simulate.choice import LOOKUP, Lookup, at_places, read_rows
from grpo_theory.simulate.covectors import COVECTORS
from grpo_theory.simulate.strip import VECTORS


class Truth(NamedTuple):
    """What the observations are measured against: the problem at theta.

    Attributes
    ----------
    facts : Lookup
        Of each prompt: the logits of the directions, J D numbers, and then what the driver asks for.
    array : ndarray of two dimensions
        A table that the driver understands.
    target : ndarray of one dimension
        ||g||^2, or g.
    """

    facts: Lookup
    array: Array
    target: Array


class ErrorRoom(NamedTuple):
    """Room for one vector of lanes.

    Attributes
    ----------
    facts : ndarray, shape (at least R, WIDTH)
        Those of the lanes' prompts.
    weights : ndarray, shape (2, B, WIDTH)
        What one group after another, or two at once, weigh the others with.
    sums : ndarray, shape (1, 1, n, m, WIDTH)
        What a driver adds up.
    """

    facts: Array
    weights: Array
    sums: Array


TRUTH = record_type(Truth, LOOKUP, F2, F1)
I3 = numba.int64[:, :, ::1]
ERROR_ROOM = record_type(ErrorRoom, F2, F3, COVECTORS)


@stage
def add_along(covectors, e, v, b, facts, prompts, here, t, i, observations):
    """Add a group to the estimate along the J directions, whose logits are the first facts."""
    n_logits = covectors.shape[3]
    for k in range(observations.shape[1] - 2):
        found = load(observations, e, 2 + k, t, i)
        for d in range(n_logits):
            found = found + load(covectors, e, v, b, d, 0) * at_places(facts, k * n_logits + d, prompts, here)
        store(found, observations, e, 2 + k, t, i)


@stage
def begin(observations, e, t, i, error):
    """Begin with an error, and with 0 for the other observations."""
    store(reals(error), observations, e, 0, t, i)
    for row in range(1, observations.shape[1]):
        store(reals(0.0), observations, e, row, t, i)


@stage
def divide(observations, e, t, i, error_divisor, divisor):
    """Divide the squared error by a number of its own, and the other observations by another."""
    store(load(observations, e, 0, t, i) / error_divisor, observations, e, 0, t, i)
    for row in range(1, observations.shape[1]):
        store(load(observations, e, row, t, i) / divisor, observations, e, row, t, i)


# ---- maps where ||Phi' c||^2 is |c|^2 times a number of the prompt; after J D facts are g's covectors, and 2 B times its logits


@stage
def add_alone(covectors, e, v, b, facts, prompts, here, own, square, t, i, observations):
    """Add what a group contributes by itself: to B times the mean squared error about g(x), and to B^2 times that about g.

    The latter is `square` times its own square, less 2 B times its product with g; `own` are the prompts' numbers.
    """
    n_logits = covectors.shape[3]
    first = (observations.shape[1] - 2) * n_logits
    error, gaps = load(observations, e, 0, t, i), reals(0.0)
    for d in range(n_logits):
        covector = load(covectors, e, v, b, d, 0)
        gap = covector - at_places(facts, first + d, prompts, here)
        along = at_places(facts, first + n_logits + d, prompts, here)
        error = error + covector * (square * covector - along)
        gaps = gaps + gap * gap
    store(error, observations, e, 0, t, i)
    store(load(observations, e, 1, t, i) + own * gaps, observations, e, 1, t, i)


@stage
def add_product(covectors, e, v, b, c, weight, found):
    """Return `found` and so many times the product of the covectors of groups b and c."""
    total = reals(0.0)
    for d in range(covectors.shape[3]):
        total = total + load(covectors, e, v, b, d, 0) * load(covectors, e, v, c, d, 0)
    return found + weight * total


@stage
def relate(prompts, s, b, i, inner, weights, row):
    """Weigh the group with those before it, in a row of weights (2, B, WIDTH), by inner products (M, M).

    Without any, the prompts are orthogonal: 1 where they are the same.
    """
    own = load(prompts, s, b, i)
    for c in range(b):
        if inner.shape[0] == 0:
            store(where(load(prompts, s, c, i) == own, reals(1.0), 0.0), weights, row, c, 0)
        else:
            store(take(inner, own * inner.shape[0] + load(prompts, s, c, i)), weights, row, c, 0)


@stage
def add_pairs(covectors, e, v, b, weights, t, i, observations):
    """Add the products of a group with those before it, which the first row of `weights` (2, B, WIDTH) weighs."""
    found = load(observations, e, 0, t, i)
    for c in range(b):
        found = add_product(covectors, e, v, b, c, 2.0 * load(weights, 0, c, 0), found)
    store(found, observations, e, 0, t, i)


@stage
def add_pairs_of_two(covectors, e, v, b, weights, t, i, observations):
    """Add the products of groups b and b + 1, b even, with one another and with those before, by the rows of `weights`.

    Two by two, because a number that is loaded is then used twice.
    """
    found = load(observations, e, 0, t, i)
    found = add_product(covectors, e, v, b, b + 1, 2.0 * load(weights, 1, b, 0), found)
    for c in range(0, b, 2):
        first, second, third, fourth = reals(0.0), reals(0.0), reals(0.0), reals(0.0)
        for d in range(covectors.shape[3]):
            x, y = load(covectors, e, v, b, d, 0), load(covectors, e, v, b + 1, d, 0)
            z, w = load(covectors, e, v, c, d, 0), load(covectors, e, v, c + 1, d, 0)
            first, second, third, fourth = first + x * z, second + x * w, third + y * z, fourth + y * w
        upper = load(weights, 0, c, 0) * first + load(weights, 0, c + 1, 0) * second
        lower = load(weights, 1, c, 0) * third + load(weights, 1, c + 1, 0) * fourth
        found = found + 2.0 * (upper + lower)
    store(found, observations, e, 0, t, i)


def fill_errors_by_pairs(truth, prompts, covectors, room, first, observations):
    """Add up a batch as the products of all pairs of its groups; `array` has inner products of prompts, or is empty.

    If it is not, the last fact is the inner product of the prompt with itself.
    """
    n_estimators, n_vectors, batch_size, n_logits = covectors.shape[:4]
    square, last = float(batch_size * batch_size), observations.shape[1] * n_logits
    for v in range(n_vectors):
        s, i = v // VECTORS, v % VECTORS * WIDTH
        t = first + s
        for e in range(n_estimators):
            begin(observations, e, t, i, truth.target[0] * square)
        for b in range(batch_size):
            here = load(prompts, s, b, i)
            read_rows(truth.facts, here, room.facts)
            relate(prompts, s, b, i, truth.array, room.weights, b % 2)
            own = at_places(truth.facts, last, here, room.facts) if truth.array.shape[0] > 0 else reals(1.0)
            for e in range(n_estimators):
                add_alone(covectors, e, v, b, truth.facts, here, room.facts, own, own, t, i, observations)
                add_along(covectors, e, v, b, truth.facts, here, room.facts, t, i, observations)
                if b % 2 == 1:
                    add_pairs_of_two(covectors, e, v, b - 1, room.weights, t, i, observations)
                elif b == batch_size - 1:
                    add_pairs(covectors, e, v, b, room.weights, t, i, observations)
        for e in range(n_estimators):
            divide(observations, e, t, i, square, float(batch_size))


@stage
def add_to_prompt(covectors, e, v, b, prompts, sums):
    """Add a group to the sum (1, 1, M, D, WIDTH) of its prompt."""
    places = prompts * (sums.shape[3] * WIDTH) + lane_numbers()
    for d in range(sums.shape[3]):
        add_at(sums, places + d * WIDTH, load(covectors, e, v, b, d, 0))


@stage
def add_prompts(sums, inner, e, t, i, observations):
    """Add the products of the sums (1, 1, M, D, WIDTH) of all pairs of prompts, by the prompts' inner products (M, M)."""
    found = load(observations, e, 0, t, i)
    for m in range(sums.shape[2]):
        for n in range(m + 1):
            times = inner[m, n] if n == m else 2.0 * inner[m, n]
            if times != 0.0:
                found = add_product(sums, 0, 0, m, n, reals(times), found)
    store(found, observations, e, 0, t, i)


@stage
def clear(sums):
    """Put 0 wherever sums (1, 1, n, m, WIDTH) are."""
    for row in range(sums.shape[2]):
        for k in range(sums.shape[3]):
            store(reals(0.0), sums, 0, 0, row, k, 0)


def fill_errors_by_prompt(truth, prompts, covectors, room, first, observations):
    """Add up a batch prompt by prompt, and then the products of the prompts; `array` has their inner products (M, M)."""
    n_estimators, n_vectors, batch_size = covectors.shape[:3]
    square = float(batch_size * batch_size)
    for v in range(n_vectors):
        s, i = v // VECTORS, v % VECTORS * WIDTH
        t = first + s
        for e in range(n_estimators):
            begin(observations, e, t, i, truth.target[0] * square)
            clear(room.sums)
            for b in range(batch_size):
                here = load(prompts, s, b, i)
                read_rows(truth.facts, here, room.facts)
                own = take(truth.array, here * (truth.array.shape[0] + 1))
                add_to_prompt(covectors, e, v, b, here, room.sums)
                facts, none = truth.facts, reals(0.0)
                add_alone(covectors, e, v, b, facts, here, room.facts, own, none, t, i, observations)
                add_along(covectors, e, v, b, facts, here, room.facts, t, i, observations)
            add_prompts(room.sums, truth.array, e, t, i, observations)
            divide(observations, e, t, i, square, float(batch_size))


# ---- any other map, by its features: after J D facts are those of each edge, D d numbers, and g(x)


@stage
def add_gradient(covectors, e, v, b, facts, prompts, here, sums, t, i, observations):
    """Add a group's gradient to the sums of the batch (1, 1, E, d, WIDTH), and its squared error about g(x)."""
    n_logits, dimension = covectors.shape[3], sums.shape[3]
    first = (observations.shape[1] - 2) * n_logits
    prompt_error = load(observations, e, 1, t, i)
    for k in range(dimension):
        gradient = reals(0.0)
        for d in range(n_logits):
            feature = at_places(facts, first + d * dimension + k, prompts, here)
            gradient = gradient + load(covectors, e, v, b, d, 0) * feature
        error = gradient - at_places(facts, first + n_logits * dimension + k, prompts, here)
        store(load(sums, 0, 0, e, k, 0) + gradient, sums, 0, 0, e, k, 0)
        prompt_error = prompt_error + error * error
    store(prompt_error, observations, e, 1, t, i)


@stage
def add_error(sums, batch_size, target, e, t, i, observations):
    """Add the squared error about g of the gradient whose sum over the batch is given."""
    found = load(observations, e, 0, t, i)
    for k in range(target.shape[0]):
        error = load(sums, 0, 0, e, k, 0) / float(batch_size) - target[k]
        found = found + error * error
    store(found, observations, e, 0, t, i)


def fill_errors_by_features(truth, prompts, covectors, room, first, observations):
    """Add up a batch as a gradient of d dimensions."""
    n_estimators, n_vectors, batch_size = covectors.shape[:3]
    for v in range(n_vectors):
        s, i = v // VECTORS, v % VECTORS * WIDTH
        t = first + s
        clear(room.sums)
        for e in range(n_estimators):
            begin(observations, e, t, i, 0.0)
        for b in range(batch_size):
            here = load(prompts, s, b, i)
            read_rows(truth.facts, here, room.facts)
            for e in range(n_estimators):
                facts, sums = truth.facts, room.sums
                add_gradient(covectors, e, v, b, facts, here, room.facts, sums, t, i, observations)
                add_along(covectors, e, v, b, facts, here, room.facts, t, i, observations)
        for e in range(n_estimators):
            add_error(room.sums, batch_size, truth.target, e, t, i, observations)
            divide(observations, e, t, i, 1.0, float(batch_size))


SIGNATURE = numba.void(TRUTH, I3, COVECTORS, ERROR_ROOM, numba.int64, F4)


def make_error_room(n_facts: int, batch_size: int, n_sums: int, length: int) -> ErrorRoom:
    """Make room for so many facts of each prompt, and sums of a length."""
    return ErrorRoom(zeros(n_facts, WIDTH), zeros(2, batch_size, WIDTH), zeros(1, 1, n_sums, length, WIDTH))


def error_room_sizes(driver: Any, truth: Truth, shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    """Return the sizes that `make_error_room` is given for a driver, and covectors of a shape."""
    n_estimators, _, batch_size, n_logits, _ = shape
    sums = {fill_errors_by_prompt: (len(truth.array), n_logits), fill_errors_by_features: (n_estimators, len(truth.target))}
    return truth.facts.rows.shape[1], batch_size, *sums.get(driver, (0, 0))


@cache
def compiled_errors(driver: Any) -> Any:
    """Compile one of the drivers above, or read it from the cache."""
    return compile_function(driver, SIGNATURE, **NO_ARRAYS)
