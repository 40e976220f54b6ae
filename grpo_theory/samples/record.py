"""What one training run leaves behind."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.schedule import as_steps
from grpo_theory.validation import Array, as_number, as_numbers, cached_array, check_shape, kept

MINIMUM_STEPS = 20


@dataclass(frozen=True, eq=False)
class TrainingRecord:
    """The record of one training run, or of many runs along leading axes (...).

    Attributes
    ----------
    step_sizes : ndarray, shape (n,)
        eta_1..eta_n, at least 20 of them.
    path : ndarray, shape (..., n + 1, d)
        The iterates theta_0..theta_n, or d linear functionals of them.  A run that diverged among others stays, as NaN.
    mean_rewards : ndarray, shape (..., n)
        The mean reward of each step's rollouts, less the KL penalty where there is one.
    hessian : ndarray, shape (..., d, d), optional
        An estimate of the objective's Hessian over the last part of the run; `rollout_hessian` makes one.
    tail : float, default 0.5
        The share of the run that counts as its last part; 1 for all of it. Average, noise and Hessian are taken from that part.

    Raises
    ------
    ValueError
        If shapes do not fit, there are fewer than 20 steps, or the only run is not finite.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, sizes = gt.gallery.problem("kl-linear"), {"batch_size": 8, "group_size": 8, "steps": 400, "replications": 1}
    >>> optimum = gt.find_optimum(problem, problem.theta)
    >>> record = next(gt.simulate_records(problem, optimum, "rloo", gt.Harmonic(20.0, 50), **sizes, rng=0))
    >>> record.path.shape, record.mean_rewards.shape, record.hessian.shape
    ((1, 401, 3), (1, 400), (1, 3, 3))
    """

    step_sizes: Array
    path: Array
    mean_rewards: Array
    hessian: Array | None = None
    tail: float = field(default=0.5, kw_only=True)

    def __post_init__(self) -> None:
        path, rewards = _finite_or_nan("path", self.path), _finite_or_nan("mean_rewards", self.mean_rewards)
        if path.ndim < 2 or path.size == 0:
            raise ValueError(f"path must have shape (..., n + 1, d) and not be empty, got {path.shape}")
        n = path.shape[-2] - 1
        if n < MINIMUM_STEPS:
            raise ValueError(f"path must have at least {MINIMUM_STEPS} steps, got {n}")
        check_shape("mean_rewards", rewards, (*path.shape[:-2], n), "(..., n), one for each step of the path")
        arrays = {"path": path, "mean_rewards": rewards}
        if self.hessian is not None:
            arrays["hessian"] = _finite_or_nan("hessian", self.hessian)
            check_shape("hessian", arrays["hessian"], (*path.shape[:-2], path.shape[-1], path.shape[-1]), "(..., d, d)")
        if path.ndim == 2:
            for name, array in arrays.items():
                if np.isnan(array).any():
                    where = tuple(int(i) for i in np.argwhere(np.isnan(array))[0])
                    raise ValueError(f"{name} must be finite, and is not at index {where}: the run diverged")
        check_tail(self.tail)
        arrays["step_sizes"] = as_steps("step_sizes", self.step_sizes, n)
        for name, array in arrays.items():
            object.__setattr__(self, name, kept(array))

    @property
    def steps(self) -> int:
        """The number of steps n."""
        return self.path.shape[-2] - 1

    @property
    def dimension(self) -> int:
        """The number of parameters d."""
        return self.path.shape[-1]

    @property
    def tail_start(self) -> int:
        """The number of steps before the last part."""
        return tail_start(self.steps, self.tail)

    @cached_array
    def average(self) -> Array:
        """The average of the iterates of the last part, shape (..., d)."""
        return np.asarray(by_component(self.path[..., self.tail_start + 1 :, :]).mean(axis=-1))

    @cached_array
    def noise(self) -> Array:
        """The covariance of the gradient estimates of the last part, shape (..., d, d).

        A gradient estimate is an increment over its step, ``ghat_i = (theta_i - theta_{i-1}) / eta_i``.  So the path and its
        steps are all that need be kept, and the batch size does not matter.  At a fixed theta this sample covariance is unbiased
        for Gamma.  Along the path it also includes the spread of the mean gradient, which is of order 1/n.
        """
        gradients = np.diff(by_component(self.path[..., self.tail_start :, :]), axis=-1) / self.step_sizes[self.tail_start :]
        gradients -= gradients.mean(axis=-1, keepdims=True)
        return gradients @ np.swapaxes(gradients, -1, -2) / (gradients.shape[-1] - 1)


def by_component(path: Array) -> Array:
    """Return the iterates of paths (..., n, d) component by component, shape (..., d, n): numpy sums faster along a last axis."""
    return np.ascontiguousarray(np.swapaxes(path, -1, -2))


def _finite_or_nan(name: str, value: ArrayLike) -> Array:
    """Return an array of float64 with NaN for what is not finite."""
    array = as_numbers(name, value)
    finite = np.isfinite(array)
    return array if finite.all() else np.where(finite, array, np.nan)


def tail_start(steps: int, tail: float) -> int:
    """Return the number of steps before the last part of a run."""
    return steps - max(2, round(check_tail(tail) * steps))


def check_tail(tail: float) -> float:
    """Return the share of a run that is its last part, in (0, 1]."""
    if not 0.0 < as_number("tail", tail) <= 1.0:
        raise ValueError(f"tail must lie in (0, 1], got {tail}")
    return tail
