"""What covectors are measured against, and what the squared errors of batches have in common, however a batch is added up."""

from typing import NamedTuple

import numba

from grpo_theory.compiler import F1, F2, F3, F4, record_type, stage
from grpo_theory.compiler.lanes import load, reals, store
from grpo_theory.simulate.covector.combinations import COMBINATIONS
from grpo_theory.simulate.draw.prompt_tables import LOOKUP, Lookup, at_places
from grpo_theory.validation import Array


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
    relations : ndarray, shape (2, B, WIDTH)
        What the groups of two rows have to do with those before them.
    gram : ndarray, shape (2, N, WIDTH)
        Products of two rows with those before them.
    before : ndarray, shape (2, C, WIDTH)
        Their sums over the groups before, by each column of the weights.
    products : ndarray, shape (2, J + 2, WIDTH)
        Products of two rows with facts.
    found : ndarray, shape (E, 4 + J, WIDTH)
        Sums over the groups of the batch, for each observation.
    base : ndarray, shape (1, WIDTH)
        The sum of ||g(x)||^2 over the groups.
    row : ndarray, shape (1, D, WIDTH)
        The covector of one group.
    sums : ndarray, shape (n, m, WIDTH)
        What a driver adds up.
    """

    facts: Array
    relations: Array
    gram: Array
    before: Array
    products: Array
    found: Array
    base: Array
    row: Array
    sums: Array


TRUTH = record_type(Truth, LOOKUP, F2, F1)
ERROR_ROOM = record_type(ErrorRoom, F2, F3, F3, F3, F3, F3, F2, F3, F3)
FILL_ERRORS = numba.void(TRUTH, numba.int64[:, :, ::1], COMBINATIONS, ERROR_ROOM, numba.int64, F4)
"""The drivers that fill in errors: `fill_errors(truth, prompts, covectors, room, first, observations)`."""


@stage
def begin(found):
    """Begin the sums (E, 4 + J, WIDTH) with 0."""
    for e in range(found.shape[0]):
        for row in range(found.shape[1]):
            store(reals(0.0), found, e, row, 0)


@stage
def write_out(found, share, t, i, observations):
    """Write down what is a mean over the groups: all but error, power and gain of the batch; the sums are (E, 4 + J, WIDTH)."""
    for e in range(found.shape[0]):
        store(load(found, e, 1, 0) * share, observations, e, 1, t, i)
        for row in range(4, found.shape[1]):
            store(load(found, e, row, 0) * share, observations, e, row, t, i)


@stage
def write_out_batch(found, power, share, t, i, observations):
    """Write down error, power and gain of the batch, from sums over pairs of groups, and 2 B times the gain.

    `power` is ||g||^2, and `share` is 1/B^2: a multiplication takes a tenth of the time of a division.
    """
    for e in range(found.shape[0]):
        own, twice = load(found, e, 2, 0) * share, load(found, e, 3, 0) * share
        store(own - twice + power, observations, e, 0, t, i)
        store(own, observations, e, 2, t, i)
        store(0.5 * twice, observations, e, 3, t, i)


@stage
def multiply_facts(rows, r, facts, prompts, here, products, k):
    """Multiply a row with each of the prompts' J + 2 facts that are D numbers, the last two at once, for row k of products."""
    n_logits, last = rows.shape[1], products.shape[1] - 1
    for fact in range(last - 1):
        total = reals(0.0)
        for d in range(n_logits):
            total = total + load(rows, r, d, 0) * at_places(facts, fact * n_logits + d, prompts, here)
        store(total, products, k, fact, 0)
    first, second = reals(0.0), reals(0.0)
    for d in range((last - 1) * n_logits, last * n_logits):
        number = load(rows, r, d - (last - 1) * n_logits, 0)
        first = first + number * at_places(facts, d, prompts, here)
        second = second + number * at_places(facts, d + n_logits, prompts, here)
    store(first, products, k, last - 1, 0)
    store(second, products, k, last, 0)
