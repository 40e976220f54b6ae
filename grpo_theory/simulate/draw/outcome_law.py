"""The law of an outcome in a form from which few bits draw: multiples of 2^-8 or 2^-16, and a rest that is drawn again.

Let p be the probabilities of a prompt's outcomes, and n = 2^8 or 2^16.  Then ``p = (1 - R/n) q + (R/n) r``, where q is made of
the whole parts of n p, and r of what is left.  A word below n - R is a draw from q, by comparison with its distribution function.
Any other word leads to a draw from r.  In large groups r is split again after 8 bits, and drawn from with 16; what is left of
16 bits is drawn with 53.  So the law is exact to the rounding of p, whatever p.
"""

import math
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from grpo_theory.compiler import F2, record_type
from grpo_theory.problem import Point
from grpo_theory.simulate.draw.prompt_tables import LOOKUP, SHORT_LOOKUP, Lookup, ShortLookup, alias_rows, lookup, short_lookup
from grpo_theory.validation import Array

COARSE_BITS, FINE_BITS = 8, 16
COARSE_GROUP = 32
"""The smallest group whose responses are drawn by 8 bits first: in smaller ones the second draw costs more than is saved."""


class OutcomeLaw(NamedTuple):
    """What prompts and outcomes are drawn from: the problem at the policy that samples.

    Attributes
    ----------
    prompts : Lookup
        The prompts' alias table (M, 2), see `alias_rows`.
    numbers : ShortLookup
        For each prompt: the thresholds of 8-bit words, if responses are drawn by these, and then the thresholds of 16-bit words.
        If strides are longer than 1, the number of each response's reward value follows.  Thresholds are the distribution
        function of the outcomes' whole parts at the end of each stride, less half the number of words.  They are shifted by half
        because words are compared as signed numbers.
    coarse, fine : ndarray, shape (M, O)
        What is left after words of 8 bits (with M = 0 if no response is drawn by these), and after words of 16 bits.  Neither is
        normalised.
    stride : int
        The number of successive outcomes that are counted together, because at most one of them is possible at any prompt.  It
        is the number of reward values where the prompt and the response decide the reward, and otherwise 1.
    n_counted : int
        The number of thresholds of either kind, which is O over the stride.
    group_size : int
    """

    prompts: Lookup
    numbers: ShortLookup
    coarse: Array
    fine: Array
    stride: int
    n_counted: int
    group_size: int


OUTCOME_LAW = record_type(OutcomeLaw, LOOKUP, SHORT_LOOKUP, F2, F2, *[numba.int64] * 3)


def outcome_law(point: Point, group_size: int) -> OutcomeLaw:
    """Tabulate the law of prompts, and of outcomes at a point, for groups of a size."""
    bandit = point.bandit
    return make_law(bandit.prompt_weights, point.outcome_probabilities, bandit.values.size, group_size)


def make_law(prompt_weights: Array, probabilities: Array, n_values: int, group_size: int) -> OutcomeLaw:
    """Return the law of prompts with these weights (M,), and of outcomes with these probabilities (M, O)."""
    possible = (probabilities > 0.0).reshape(len(probabilities), -1, n_values)
    stride = n_values if (possible.sum(axis=2) <= 1).all() else 1
    numbers, coarse = [], np.empty((0, probabilities.shape[1]))
    if group_size >= COARSE_GROUP:
        thresholds, left = split(probabilities, COARSE_BITS)
        if 4 * drawn_again(left, group_size) <= group_size:
            numbers, coarse = [thresholds[:, stride - 1 :: stride]], left
    thresholds, fine = split(coarse if len(coarse) else probabilities, FINE_BITS)
    numbers.append(thresholds[:, stride - 1 :: stride])
    if stride > 1:
        numbers.append(np.argmax(possible, axis=2).astype(np.int16))
    sizes = stride, probabilities.shape[1] // stride, group_size
    return OutcomeLaw(lookup(alias_rows(prompt_weights)), short_lookup(np.hstack(numbers)), coarse, fine, *sizes)


def split(probabilities: Array, bits: int) -> tuple[NDArray[np.int16], Array]:
    """Return thresholds and residual, both (M, O), of the laws in the rows of `probabilities`, shape (M, O), not normalised.

    At least one word is left to the residual, so that every threshold is a number of so many bits.
    """
    scaled = (1 << bits) * (probabilities / probabilities.sum(axis=1, keepdims=True))
    whole = np.floor(scaled)
    full = whole.sum(axis=1) >= 1 << bits
    whole[full, np.argmax(whole[full], axis=1)] -= 1.0
    thresholds = np.cumsum(whole, axis=1) - (1 << (bits - 1))
    return thresholds.astype(np.int16), scaled - whole


def drawn_again(residual: Array, group_size: int) -> int:
    """Return how many responses of a group are drawn by 16 bits, if 8 bits leave them: more are seldom left."""
    expected = group_size * residual.sum(axis=1).max() / (1 << COARSE_BITS)
    return 4 * math.ceil((expected + 1.5 * math.sqrt(expected)) / 4.0)
