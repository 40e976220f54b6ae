"""Kernels that are affine in the rewards, found out by running them on symbols.

A kernel is plain Python that numba compiles, so it also runs on symbols.  The symbols stand for the rewards r_1, ..., r_G of a
group and for the quantities that oracles know.  The kernel then leaves the advantages as affine forms of the symbols.  It fails
if it does what an affine form cannot: compare, multiply, take a root.  The forms that it leaves hold for every reward.
"""

from functools import lru_cache
from typing import Any, Self

import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.estimation.advantage import Advantage
from grpo_theory.estimation.kernel import PROMPT_FIELDS, Batch

LARGEST_GROUP = 2048
"""The largest group that is run on symbols, because their forms take 8 G^2 bytes."""


class AffineForm:
    """A constant plus a linear combination of symbols; anything else that is asked of it is refused."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, coefficients: Array, constant: float = 0.0) -> None:
        self.coefficients = coefficients
        self.constant = constant

    def __add__(self, other: Any) -> Self:
        if isinstance(other, AffineForm):
            return type(self)(self.coefficients + other.coefficients, self.constant + other.constant)
        return type(self)(self.coefficients, self.constant + float(other))

    def __mul__(self, other: Any) -> Self:
        if isinstance(other, AffineForm):
            return NotImplemented
        return type(self)(self.coefficients * float(other), self.constant * float(other))

    def __truediv__(self, other: Any) -> Self:
        if isinstance(other, AffineForm):
            return NotImplemented
        return type(self)(self.coefficients / float(other), self.constant / float(other))

    def __neg__(self) -> Self:
        return self * -1.0

    def __sub__(self, other: Any) -> Self:
        return self + -other

    def __rsub__(self, other: Any) -> Self:
        return -self + other

    def _refuse(self, *others: Any) -> Any:
        raise TypeError("an affine form has no such operation")

    # Comparisons must be refused, too. Python would compare identities without these lines, and a kernel that asks whether
    # rewards are equal would take one branch for all of them.
    __radd__, __rmul__, __pos__ = __add__, __mul__, lambda self: self
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __abs__ = __float__ = __int__ = __pow__ = _refuse


@lru_cache(maxsize=64)
def affine_coefficients(advantage: Advantage, group_size: int) -> Array | None:
    """Return the coefficients of a kernel's advantages, or None if they are not shown to be affine and alike for all responses.

    Returns
    -------
    ndarray, shape (6,), or None
        Five coefficients and the constant.  The coefficients multiply the response's own reward, the sum of the group's rewards,
        and the prompt's value, standard deviation and optimal baseline.
    """
    if advantage.couples_groups or advantage.reads & {"squared_score_norms", "lengths"} or group_size > LARGEST_GROUP:
        return None
    n_symbols = group_size + len(PROMPT_FIELDS)
    symbols = np.empty(n_symbols, dtype=object)
    for i, row in enumerate(np.eye(n_symbols)):
        symbols[i] = AffineForm(row)
    advantages = np.full((1, group_size), np.nan, dtype=object)
    fields = (symbols[group_size + f : group_size + f + 1] for f in range(len(PROMPT_FIELDS)))
    lengths, norms = np.ones((1, group_size), dtype=np.int64), np.full((1, group_size), np.nan)
    batch = Batch._make([symbols[None, :group_size], norms, lengths, *fields, advantage.parameter_array])
    try:
        advantage.function(batch, advantages)
    except Exception:
        return None
    forms = [form if isinstance(form, AffineForm) else AffineForm(np.zeros(n_symbols), float(form)) for form in advantages[0]]
    table = np.array([[*form.coefficients, form.constant] for form in forms])
    return _common(table, group_size)


def _common(table: Array, group_size: int) -> Array | None:
    """Return what the rows of a table (G, G + 4) have in common, if they are those of one rule for all responses."""
    if not np.isfinite(table).all():
        return None
    others = table[0, 1] if group_size > 1 else 0.0
    coefficients = np.array([table[0, 0] - others, others, *table[0, group_size:]])
    expected = np.hstack([np.full((group_size, group_size), others), np.tile(coefficients[2:], (group_size, 1))])
    expected[:, :group_size] += coefficients[0] * np.eye(group_size)
    scale = max(1.0, np.abs(table).max())
    return coefficients if (np.abs(table - expected) <= 1e-14 * group_size * scale).all() else None
