"""Step sizes of a training run."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.arrays import Array
from grpo_theory.validation import as_count, as_number, as_positive, as_real_array, check_shape


class Schedule(Protocol):
    """Anything that gives the steps eta_1..eta_n."""

    def steps(self, n: int) -> Array:
        """Return eta_1..eta_n, shape (n,), all above 0."""


@dataclass(frozen=True)
class Constant:
    """eta_i = step."""

    step: float

    def __post_init__(self) -> None:
        as_positive("step", self.step)

    def steps(self, n: int) -> Array:
        """Return the first n steps, shape (n,)."""
        return np.full(as_count("n", n, 0), float(self.step))


@dataclass(frozen=True)
class Harmonic:
    """eta_i = step_scale / (i + offset), i = 1, 2, ..."""

    step_scale: float
    offset: int = 0

    def __post_init__(self) -> None:
        as_positive("step_scale", self.step_scale)
        as_count("offset", self.offset, 0)

    def steps(self, n: int) -> Array:
        """Return the first n steps, shape (n,)."""
        return self.step_scale / (np.arange(1, as_count("n", n, 0) + 1) + self.offset)


@dataclass(frozen=True)
class Power:
    """eta_i = step_scale * i^-exponent, exponent in (0, 1]."""

    step_scale: float
    exponent: float

    def __post_init__(self) -> None:
        as_positive("step_scale", self.step_scale)
        if not 0.0 < as_number("exponent", self.exponent) <= 1.0:
            raise ValueError(f"exponent must lie in (0, 1], got {self.exponent}")

    def steps(self, n: int) -> Array:
        """Return the first n steps, shape (n,)."""
        return self.step_scale * np.arange(1, as_count("n", n, 0) + 1, dtype=np.float64) ** -self.exponent


def step_sizes(schedule: Schedule | ArrayLike, n: int) -> Array:
    """Return eta_1..eta_n of a schedule, or of an array of n steps.

    Raises
    ------
    ValueError
        If a step is not finite and above 0.
    """
    return as_steps("schedule", schedule.steps(n) if callable(getattr(schedule, "steps", None)) else schedule, n)  # type: ignore


def as_steps(name: str, value: ArrayLike, n: int) -> Array:
    """Return an array of n steps, all finite and above 0."""
    steps = as_real_array(name, value, 1)
    check_shape(name, steps, (n,), "(steps,)")
    if steps.min() <= 0.0:
        where = int(np.argmin(steps))
        raise ValueError(f"{name} must have steps above 0, got {steps[where]:g} at step {where + 1}")
    return steps
