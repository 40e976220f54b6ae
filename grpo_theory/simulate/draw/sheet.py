"""Sheets of random words, from which groups are counted or found in order."""

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from grpo_theory.compiler import record_type
from grpo_theory.compiler.lanes import WIDTH, zeros
from grpo_theory.simulate.draw.outcome_law import OutcomeLaw, drawn_again
from grpo_theory.simulate.draw.streams import LANES

SHEET_WORDS = 1 << 11
"""So many words of 64 bits are drawn at once, and are still in the first level of cache when they are read."""


class Sheet(NamedTuple):
    """Random words for n vectors of groups: one word of 64 bits for each prompt, and then those of the responses.

    Attributes
    ----------
    words : ndarray of uint64, shape (at least all that follow, LANES)
    prompts : ndarray of uint64, shape (n, WIDTH)
        The prompts' words.
    coarse : ndarray of int8, shape (n, at least G or 0, WIDTH)
        The responses' words of 8 bits, if they are drawn by such.
    fine : ndarray of int16, shape (n, F, WIDTH)
        The words of 16 bits of the responses, or of those that are drawn again; all three look at `words`.
    """

    words: NDArray[np.uint64]
    prompts: NDArray[np.uint64]
    coarse: NDArray[np.int8]
    fine: NDArray[np.int16]


SHEET = record_type(Sheet, numba.uint64[:, ::1], numba.uint64[:, ::1], numba.int8[:, :, ::1], numba.int16[:, :, ::1])


def make_sheet(law: OutcomeLaw) -> Sheet:
    """Make an empty sheet: fixed by the law and its group size alone."""
    group_size = law.group_size
    is_coarse = len(law.coarse) > 0
    n_coarse = -(-group_size // 8) * 8 if is_coarse else 0
    n_fine = drawn_again(law.coarse, group_size) if is_coarse else -(-group_size // 4) * 4
    sizes = np.array([1, n_coarse // 8, n_fine // 4]) * WIDTH  # in words of 64 bits
    n = max(1, SHEET_WORDS // sizes.sum())
    words = zeros(-(-n * sizes.sum() // LANES), LANES, dtype=np.uint64)
    prompts, coarse, fine, _ = np.split(words.reshape(-1), n * np.cumsum(sizes))
    return Sheet(
        words,
        prompts.reshape(n, WIDTH),
        coarse.view(np.int8).reshape(n, n_coarse, WIDTH),
        fine.view(np.int16).reshape(n, n_fine, WIDTH),
    )
