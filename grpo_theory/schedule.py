"""Step sizes of a training run."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.validation import Array, as_count, as_number, as_positive, as_real_array, check_shape, shown


class Schedule(Protocol):
    """Anything that gives the steps eta_1..eta_n.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> class WarmUp:
    ...     def steps(self, n):
    ...         return np.minimum(np.arange(1, n + 1) / 10, 1.0)
    >>> WarmUp().steps(3).tolist()
    [0.1, 0.2, 0.3]
    >>> problem, sizes = gt.gallery.problem("single"), {"batch_size": 4, "group_size": 4, "steps": 20, "replications": 8}
    >>> gt.simulate_training(problem, problem.theta, "rloo", WarmUp(), **sizes, rng=0).objectives.shape
    (8, 1)
    """

    def steps(self, n: int) -> Array:
        """Return eta_1..eta_n, shape (n,), all above 0."""


@dataclass(frozen=True)
class Constant:
    """Constant step sizes, eta_i = step.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> gt.Constant(0.5).steps(3).tolist()
    [0.5, 0.5, 0.5]
    """

    step: float

    def __post_init__(self) -> None:
        as_positive("step", self.step)

    def steps(self, n: int) -> Array:
        """Return the first n steps, shape (n,)."""
        return np.full(as_count("n", n, 0), float(self.step))


@dataclass(frozen=True)
class Harmonic:
    """Harmonic step sizes, eta_i = step_scale / (i + offset) for i = 1, 2, ...

    Examples
    --------
    >>> import grpo_theory as gt
    >>> gt.Harmonic(6.0, offset=1).steps(3).tolist()
    [3.0, 2.0, 1.5]
    """

    step_scale: float
    offset: int = 0

    def __post_init__(self) -> None:
        as_positive("step_scale", self.step_scale)
        as_count("offset", self.offset, 0)

    def steps(self, n: int) -> Array:
        """Return the first n steps, shape (n,)."""
        return self.step_scale / (np.arange(1, as_count("n", n, 0) + 1) + self.offset)


@dataclass(frozen=True)
class PowerLaw:
    """Power-law step sizes, eta_i = step_scale * i^-exponent, with the exponent in (0, 1].

    Examples
    --------
    >>> import grpo_theory as gt
    >>> gt.PowerLaw(1.0, 0.5).steps(4).round(3).tolist()
    [1.0, 0.707, 0.577, 0.5]
    """

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
    TypeError
        If it is no schedule, or a function, which does not say whether it gives one step or all of them.
    ValueError
        If there are not n steps, or a step is not finite and above 0.
    """
    if schedule is None or isinstance(schedule, type | str) or (callable(schedule) and not hasattr(schedule, "steps")):
        raise TypeError(
            f"schedule must be an object with a method steps(n), or an array of {n} steps, got {shown(schedule)}. Make one with "
            f"gt.Constant, gt.Harmonic or gt.PowerLaw, or give a function's steps as [f(i) for i in range(1, {n + 1})]"
        )
    return as_steps("schedule", schedule.steps(n) if callable(getattr(schedule, "steps", None)) else schedule, n)  # type: ignore


def as_steps(name: str, value: ArrayLike, n: int) -> Array:
    """Return an array of n steps, all finite and above 0."""
    if isinstance(value, (int, float)):
        raise ValueError(
            f"{name} must be a schedule or an array of {n} steps, got {value:g}: gt.Constant({value:g}) has steps of one size"
        )
    steps = as_real_array(name, value, 1)
    check_shape(name, steps, (n,), "(steps,)")
    if steps.min() <= 0.0:
        where = int(np.argmin(steps))
        raise ValueError(f"{name} must have steps above 0, got {steps[where]:g} at step {where + 1}")
    return steps
