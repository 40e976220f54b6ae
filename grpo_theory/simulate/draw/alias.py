"""Walker's alias tables: one uniform, one comparison, one draw from a finite law."""

from typing import NamedTuple

import numpy as np

from grpo_theory.arrays import Array, Integers
from grpo_theory.compiler.compilation import stage
from grpo_theory.compiler.lanes import as_integer, as_real, where
from grpo_theory.simulate.draw.prompt_tables import at_places, read_rows


class AliasTable(NamedTuple):
    """Alias tables of several laws on O points.

    Of a uniform u, the whole part of u O is a place j, and the rest is compared with threshold[row, j]: below it the draw is
    choices[row, 2 j] = j, else choices[row, 2 j + 1].

    Attributes
    ----------
    threshold : ndarray, shape (rows, O)
    choices : ndarray of int64, shape (rows, 2 O)
    """

    threshold: Array
    choices: Integers


def alias_table(probabilities: Array) -> AliasTable:
    """Build the tables of the laws in the rows of `probabilities`, shape (rows, O)."""
    n_rows, n_points = np.shape(probabilities)
    table = AliasTable(np.empty((n_rows, n_points)), np.empty((n_rows, 2 * n_points), dtype=np.int64))
    for row, law in enumerate(np.asarray(probabilities, dtype=np.float64)):
        table.threshold[row], table.choices[row, 1::2] = _alias(law.tolist())
        table.choices[row, ::2] = np.arange(n_points)
    return table


def _alias(law: list[float]) -> tuple[list[float], list[int]]:
    """Return the thresholds of a law, and what is chosen where they are reached (Vose's order)."""
    total = 0.0
    for p in law:  # sum() adds more exactly from Python 3.12 on: other bits
        total += p
    threshold, other = [p * len(law) / total for p in law], list(range(len(law)))
    small = [j for j, height in enumerate(threshold) if height < 1.0]
    large = [j for j, height in enumerate(threshold) if not height < 1.0]
    while small and large:
        low, high = small.pop(), large[-1]
        other[low] = high
        threshold[high] -= 1.0 - threshold[low]
        if threshold[high] < 1.0:
            small.append(large.pop())
    # What is left is 1 up to rounding; a point of probability 0 is never left, because its deficit is 1.
    for j in small + large:
        threshold[j] = 1.0
    return threshold, other


def alias_rows(law: Array) -> Array:
    """Return the table of a law (O,), place by place: its threshold, and what is chosen if that is reached, shape (O, 2)."""
    table = alias_table(law[None])
    return np.column_stack([table.threshold[0], table.choices[0, 1::2]])


@stage
def draw_prompts(uniforms, threshold, choices, prompts):
    """Draw prompts (N,) from uniforms (N,) by the alias table of their law: one uniform, one look-up."""
    n_prompts = threshold.shape[1]
    for i in range(prompts.shape[0]):
        x = uniforms[i] * n_prompts
        j = np.uintp(x)
        prompts[i] = choices[0, np.uintp(2) * j + np.uintp(x - j >= threshold[0, j])]


@stage
def choose_prompts(words, table, found):
    """Return the prompts that lanes of words choose by their alias table (M, 2); the rows found there (2, WIDTH) are room."""
    x = as_real(as_integer(words >> 11)) * (table.rows.shape[0] / 9007199254740992.0)
    place = as_integer(x)
    read_rows(table, place, found)
    threshold, other = at_places(table, 0, place, found), at_places(table, 1, place, found)
    return where(x - as_real(place) >= threshold, as_integer(other), place)
