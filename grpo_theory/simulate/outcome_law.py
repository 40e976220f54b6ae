"""The law of an outcome in a form from which 16 bits draw: a multiple of 2^-16, and a residual that is drawn again.

With p the probabilities of a prompt's outcomes, p = (1 - R 2^-16) q + R 2^-16 r, where q is made of the whole parts of 65536 p
and r of what is left.  A word of 16 bits below 65536 - R is a draw from q, by comparison with its distribution function; any
other word leads to a draw from r with 53 bits.  So the law is exact to the rounding of p, whatever p.
"""

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from grpo_theory.arrays import Array
from grpo_theory.compilation import F2, record_type
from grpo_theory.lanes import PICKED, whole_rows
from grpo_theory.problem import Point
from grpo_theory.simulate.alias import alias_rows
from grpo_theory.simulate.choice import LOOKUP, Lookup, lookup, short_columns

WORDS = 1 << 16
LOWEST = -(WORDS // 2)


class OutcomeLaw(NamedTuple):
    """What prompts and outcomes are drawn from: the problem at the policy that samples.

    Attributes
    ----------
    prompts : Lookup
        The prompts' alias table (M, 2), see `alias_rows`.
    thresholds : ndarray of int16, shape (M, at least O)
        The distribution function of the outcomes' whole parts, less 2^15: a word is as far below as the signed number of
        the same bits is below 0.  Rows are those of `whole_rows`.
    columns : ndarray of int16, shape (O, at least M), or (0, 0)
        The same as `turned` has it, if prompts are few enough to be picked.
    residual : ndarray, shape (M, O)
        What is left of 65536 p.
    stride : int
        The number of outcomes one after another of which, at any prompt, 16 bits draw one at the most: that of the reward values
        where the prompt and the response decide the reward, and otherwise 1.
    """

    prompts: Lookup
    thresholds: NDArray[np.int16]
    columns: NDArray[np.int16]
    residual: Array
    stride: int


S2 = numba.int16[:, ::1]
OUTCOME_LAW = record_type(OutcomeLaw, LOOKUP, S2, S2, F2, numba.int64)


def outcome_law(point: Point) -> OutcomeLaw:
    """Tabulate the law of prompts, and of outcomes at a point."""
    return make_law(point.bandit.prompt_weights, *split(point.outcome_probabilities), point.bandit.values.size)


def make_law(prompt_weights: Array, thresholds: NDArray[np.int16], residual: Array, n_values: int) -> OutcomeLaw:
    """Return the law of prompts with these weights (M,), and of outcomes that `split` has split, with so many reward values."""
    lengths = np.diff(thresholds.astype(np.int64), axis=1, prepend=LOWEST).reshape(len(thresholds), -1, n_values)
    stride = n_values if (np.count_nonzero(lengths, axis=2) <= 1).all() else 1
    columns = short_columns(thresholds) if PICKED else np.empty((0, 0), dtype=np.int16)
    return OutcomeLaw(lookup(alias_rows(prompt_weights)), whole_rows(thresholds), columns, residual, stride)


def split(probabilities: Array) -> tuple[NDArray[np.int16], Array]:
    """Return thresholds and residual, both (M, O), of the laws in the rows of `probabilities`, shape (M, O).

    At least one word is left to the residual, so that every threshold is a number of 16 bits.
    """
    scaled = WORDS * (probabilities / probabilities.sum(axis=1, keepdims=True))
    whole = np.floor(scaled)
    full = whole.sum(axis=1) >= WORDS
    whole[full, np.argmax(whole[full], axis=1)] -= 1.0
    thresholds = np.cumsum(whole, axis=1) + LOWEST
    return thresholds.astype(np.int16), scaled - whole
