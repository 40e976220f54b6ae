"""Counted groups to pushes, where the kernel need not be shown anything: by its table, or by its coefficients."""

from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.compiler.compilation import F2, F4, NO_ARRAYS, compile_driver, record_type, stage
from grpo_theory.compiler.lanes import WIDTH, as_real, load, reals, store, where
from grpo_theory.simulate.advantage.tables import BOOK, find_advantages, find_multisets
from grpo_theory.simulate.draw.counting import COUNTS
from grpo_theory.simulate.draw.generator import LANES
from grpo_theory.simulate.draw.prompt_tables import LOOKUP, Lookup, at_places, lookup, read_rows


@stage
def push_outcomes(outcomes, s, b, i, advantages, stride, n_values, n_signs, pushes):
    """Add up the advantages of the outcomes, by sign and response, in pushes (S, B, n_signs K, LANES).

    Those of response k are from row k times the stride on, one for each reward value, in advantages (at least L or O, WIDTH).
    """
    n_responses = outcomes.shape[2] // n_values
    for k in range(n_responses):
        above, others = reals(0.0), reals(0.0)
        for value in range(n_values):
            advantage = load(advantages, k * stride + value, 0)
            push = advantage * as_real(load(outcomes, s, b, k * n_values + value, i))
            if n_signs == 1:
                above = above + push
            else:
                positive = advantage > 0.0
                above, others = where(positive, above + push, above), where(positive, others, others + push)
        store(above, pushes, s, b, k, i)
        if n_signs > 1:
            store(others, pushes, s, b, n_responses + k, i)


def fill_pushes_by_book(book, counts, n_signs, advantages, pushes):
    """Fill in pushes (S, B, n_signs K, LANES) of the one table of a book; advantages (at least L, WIDTH) are room."""
    n_strips, batch_size, _ = counts.prompts.shape
    n_values = book.ranks.shape[0] + 1
    for s in range(n_strips):
        for b in range(batch_size):
            for i in range(0, LANES, WIDTH):
                places = find_multisets(counts.outcomes, s, b, i, book.ranks)
                find_advantages(book, 0, load(counts.prompts, s, b, i), places, advantages)
                push_outcomes(counts.outcomes, s, b, i, advantages, 0, n_values, n_signs, pushes)


class Coefficients(NamedTuple):
    """What an affine kernel gives: an outcome's advantage, over G, is own r + everyone (sum of the group's rewards) + constant.

    Attributes
    ----------
    rewards : Lookup
        A table (M, O + 1): the rewards r of a prompt's outcomes, less the penalty if it is in the reward, and its constant.
    own, everyone : float
    """

    rewards: Lookup
    own: float
    everyone: float


COEFFICIENTS = record_type(Coefficients, LOOKUP, numba.float64, numba.float64)


def make_coefficients(found: Array, rewards: Array, fields: tuple[Array, ...], group_size: int) -> Coefficients:
    """Tabulate the `affine_coefficients` of a kernel, for rewards (M, O) and what oracles know of the prompts, (M,) each."""
    own, everyone, *others, constant = found / group_size
    constants = np.full(len(rewards), constant)
    for coefficient, field in zip(others, fields, strict=True):
        if coefficient != 0.0:
            constants += coefficient * field
    return Coefficients(lookup(np.column_stack([rewards, constants])), float(own), float(everyone))


@stage
def find_affine(coefficients, outcomes, s, b, i, prompts, found, advantages):
    """Fill in the advantages of the outcomes, (O, WIDTH), over G; found (at least O + 1, WIDTH) is room."""
    n_outcomes, total = outcomes.shape[2], reals(0.0)
    rewards = coefficients.rewards
    read_rows(rewards, prompts, found)
    for o in range(n_outcomes):
        total = total + as_real(load(outcomes, s, b, o, i)) * at_places(rewards, o, prompts, found)
    common = coefficients.everyone * total + at_places(rewards, n_outcomes, prompts, found)
    for o in range(n_outcomes):
        store(coefficients.own * at_places(rewards, o, prompts, found) + common, advantages, o, 0)


def fill_pushes_by_coefficients(coefficients, counts, n_responses, n_signs, found, advantages, pushes):
    """Fill in pushes (S, B, n_signs K, LANES) of an affine kernel; found and advantages are room, see `find_affine`."""
    n_strips, batch_size, _ = counts.prompts.shape
    n_values = counts.outcomes.shape[2] // n_responses
    for s in range(n_strips):
        for b in range(batch_size):
            for i in range(0, LANES, WIDTH):
                prompts = load(counts.prompts, s, b, i)
                find_affine(coefficients, counts.outcomes, s, b, i, prompts, found, advantages)
                push_outcomes(counts.outcomes, s, b, i, advantages, n_values, n_values, n_signs, pushes)


@cache
def compiled_fill_pushes_by_book() -> Any:
    """Compile `fill_pushes_by_book`, or read it from the cache."""
    return compile_driver(fill_pushes_by_book, numba.void(BOOK, COUNTS, numba.int64, F2, F4), **NO_ARRAYS)


@cache
def compiled_fill_pushes_by_coefficients() -> Any:
    """Compile `fill_pushes_by_coefficients`, or read it from the cache."""
    arguments = COEFFICIENTS, COUNTS, numba.int64, numba.int64, F2, F2, F4
    return compile_driver(fill_pushes_by_coefficients, numba.void(*arguments), **NO_ARRAYS)
