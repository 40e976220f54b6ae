"""Advantages by coefficients: kernels that are affine in the rewards, which may differ by prompt and have many values."""

from typing import NamedTuple

import numba
import numpy as np

from grpo_theory.compiler import F1, F3, F4, function_value, record_type, stage
from grpo_theory.compiler.lanes import WIDTH, as_real, load, reals, store
from grpo_theory.simulate.draw.policy_draw import T3
from grpo_theory.simulate.draw.prompt_tables import LOOKUP, Lookup, at_places, lookup, read_rows
from grpo_theory.validation import Array


class Coefficients(NamedTuple):
    """At a fixed policy: an outcome's advantage, over G, is own r + everyone (sum of the group's rewards) + constant.

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
SUM_AFFINE = numba.void(T3, F1, F3, numba.int64, F3, F1, F4)


def make_coefficients(found: Array, rewards: Array, fields: tuple[Array, ...], group_size: int) -> Coefficients:
    """Tabulate the `affine_coefficients` of a kernel, for rewards (M, O) and what oracles know of the prompts, (M,) each."""
    own, everyone, *others, constant = found / group_size
    constants = np.full(len(rewards), constant)
    for coefficient, field in zip(others, fields, strict=True):
        if coefficient != 0.0:
            constants += coefficient * field
    return Coefficients(lookup(np.column_stack([rewards, constants])), float(own), float(everyone))


@stage
def find_affine(coefficients, counts, b, i, prompts, found, advantages):
    """Fill in the advantages of the outcomes (O, WIDTH), over G, from counts (B, O, N); found (at least O + 1, WIDTH) is room."""
    n_outcomes, total = counts.shape[1], reals(0.0)
    rewards = coefficients.rewards
    read_rows(rewards, prompts, found)
    for o in range(n_outcomes):
        total = total + as_real(load(counts, b, o, i)) * at_places(rewards, o, prompts, found)
    common = coefficients.everyone * total + at_places(rewards, n_outcomes, prompts, found)
    for o in range(n_outcomes):
        store(coefficients.own * at_places(rewards, o, prompts, found) + common, advantages, o, 0)


@function_value(SUM_AFFINE)
def sum_affine(counts, values, penalties, n, fields, coefficients, sums):
    """Sum the advantages of the groups of n runs, in the first of sums (B, S, O, N), by a kernel's `affine_coefficients`.

    Rewards are the values (L,) less the penalties (B, K, N), and fields (B, 3, N) what oracles know of the prompts.
    """
    n_values = values.shape[0]
    for b in range(counts.shape[0]):
        for i in range(0, n, WIDTH):
            total = reals(0.0)
            for k in range(penalties.shape[1]):
                penalty = load(penalties, b, k, i)
                for value in range(n_values):
                    total = total + as_real(load(counts, b, k * n_values + value, i)) * (values[value] - penalty)
            common = coefficients[5] + coefficients[1] * total
            for f in range(fields.shape[1]):
                common = common + coefficients[2 + f] * load(fields, b, f, i)
            for k in range(penalties.shape[1]):
                penalty = load(penalties, b, k, i)
                for value in range(n_values):
                    advantage = coefficients[0] * (values[value] - penalty) + common
                    o = k * n_values + value
                    store(advantage * as_real(load(counts, b, o, i)), sums, b, 0, o, i)
