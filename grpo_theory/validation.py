"""Checks of what a user passes in: one message names the argument, the value and what is allowed."""

import numbers

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.arrays import Array

Rng = int | np.random.SeedSequence | np.random.Generator

SUM_TOLERANCE = 1e-9
ROUNDING = 1e-14
"""The variation of numbers, relative to their size, that counts as rounding."""


def as_real_array(name: str, value: ArrayLike, ndim: int | None) -> Array:
    """Return a finite, contiguous float64 copy of `value` with `ndim` dimensions, at least one if None, and no empty axis."""
    wanted = "dimensions, at least one" if ndim is None else f"{ndim} dimensions"
    try:
        if np.iscomplexobj(value):
            raise TypeError("complex numbers are not real")
        array = np.array(value, dtype=np.float64, order="C")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of real numbers with {wanted}: {error}") from None
    if array.ndim != ndim and (ndim is not None or array.ndim == 0):
        raise ValueError(f"{name} must have {wanted}, got shape {array.shape}")
    if array.size == 0:
        raise ValueError(f"{name} must not be empty, got shape {array.shape}")
    check_finite(name, array)
    return array


def check_finite(name: str, array: Array) -> None:
    """Raise if an entry is NaN or infinite, naming the first."""
    bad = ~np.isfinite(array)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(f"{name} must be finite, got {array[where]} at index {where}")


def check_within(name: str, array: Array, low: float, high: float) -> None:
    """Raise if an entry lies outside [low, high], naming the first."""
    bad = (array < low) | (array > high)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(f"{name} must lie in [{low:g}, {high:g}], got {array[where]:g} at index {where}")


def check_distribution(name: str, array: Array) -> None:
    """Raise unless the entries along the last axis are probabilities that sum to one."""
    check_within(name, array, 0.0, 1.0)
    total = array.sum(axis=-1)
    bad = np.abs(total - 1.0) > SUM_TOLERANCE
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        place = f" at index {where}" if where else ""
        raise ValueError(f"{name} must sum to 1 along the last axis, got a sum of {total[where]:.12g}{place}")


def check_shape(name: str, array: np.ndarray, shape: tuple[int, ...], meaning: str) -> None:
    """Raise unless `array` has `shape`; `meaning` says what the shape stands for."""
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape} = {meaning}, got {array.shape}")


def as_count(name: str, value: int, minimum: int = 1) -> int:
    """Return `value` as an int of at least `minimum`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer of at least {minimum}, got {value!r}")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}")
    return int(value)


def as_positive(name: str, value: float) -> float:
    """Return `value` as a finite float above zero."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number above 0, got {value!r}")
    if not 0.0 < value < np.inf:
        raise ValueError(f"{name} must be finite and above 0, got {value}")
    return float(value)


def as_fraction(name: str, value: float) -> float:
    """Return `value` as a float strictly between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number strictly between 0 and 1, got {value!r}")
    if not 0.0 < value < 1.0:
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {value}")
    return float(value)


def as_generator(rng: Rng | None) -> np.random.Generator:
    """Return the generator that `rng` is or seeds; fresh entropy if it is None."""
    if rng is None or isinstance(rng, np.random.SeedSequence | np.random.Generator):
        return np.random.default_rng(rng)
    if isinstance(rng, numbers.Integral) and not isinstance(rng, bool) and rng >= 0:
        return np.random.default_rng(int(rng))
    raise TypeError(f"rng must be a non-negative int, a SeedSequence or a Generator, got {rng!r}")
