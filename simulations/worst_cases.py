"""The worst case of a bound: of what is drawn at random, and of what a search finds."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence.reading import largest
from grpo_theory.validation import Array

Box = Sequence[tuple[float, float]]
"""The lowest and the highest value of each parameter."""


def worst_of(
    drawn: Iterable[tuple[float, float]],
    sides: Callable[[Array], tuple[float, float]],
    box: Box,
    rng: np.random.Generator,
    starts: int,
    climbs: int,
    bound: float = 1.0,
) -> tuple[float, float, dict[str, float]]:
    """Return the sides of a check of a bound, and as facts the worst of what was drawn and of what was sought.

    Parameters
    ----------
    drawn : iterable of (float, float)
        The two sides of random cases.
    sides, box
        Those in a box of parameters, in which a search goes. Without starts there is none.
    bound : float, default 1.0
        The right side, of which the worst ratio is taken.
    """
    worst = {"random": bound * largest([left / right for left, right in drawn])}
    if starts:
        worst["sought"] = bound * gt.worst_case(sides, box, rng=rng, starts=starts, climbs=climbs).score
    return max(worst.values()), bound, worst
