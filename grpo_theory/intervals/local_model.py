"""A training run near its maximiser, as estimated from the run alone."""

from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.arrays import Array, Flags
from grpo_theory.compiler import F1, F2, F3, READONLY_F1, function_value
from grpo_theory.samples import TrainingRecord
from grpo_theory.validation import as_real_array

RANK_TOLERANCE = 1e-9
CONTRAST_TOLERANCE = 1e-6


class Influence(NamedTuple):
    """A point of the run is theta* + start (theta_0 - theta*) + sum_i noise_i xi_i, xi_i the error of the i-th gradient.

    In the basis of the curvatures, where start and noise act entry by entry.

    Attributes
    ----------
    products : ndarray, shape (..., d, d)
        The sum over the steps of noise_i noise_i', of which the covariance of the point is made.
    start : ndarray, shape (..., d)
    """

    products: Array
    start: Array


@function_value(numba.void(F1, READONLY_F1, F2, F3, F2))
def add_influences(weights, step_sizes, curvatures, products, reach):
    """Add the products (R, d, d) of the influences on sum_i weight_i theta_i, and fill in that of the start (R, d).

    The gradient's error at step i has the influence ``eta_i sum_{j >= i} weight_j prod_{i < l <= j} (1 - eta_l a)``.  It is found
    from the last step back, for the curvatures a (R, d) of each run.
    """
    n, dimension = step_sizes.shape[0], curvatures.shape[1]
    for run in range(curvatures.shape[0]):
        own, product = reach[run], products[run]
        own[:] = 0.0
        for i in range(n - 1, -1, -1):
            for j in range(dimension):
                own[j] += weights[i]
                for k in range(j + 1):
                    product[j, k] += step_sizes[i] ** 2 * own[j] * own[k]
            for j in range(dimension):
                own[j] *= 1.0 - step_sizes[i] * curvatures[run, j]
        for j in range(dimension):
            for k in range(j):
                product[k, j] = product[j, k]


@dataclass(frozen=True, eq=False)
class LocalModel:
    """Linear drift and constant noise, theta_i - theta* = (I - eta_i A)(theta_{i-1} - theta*) + eta_i noise, in the basis of A.

    Attributes
    ----------
    step_sizes : ndarray, shape (n,)
    tail_start : int
        The number of steps before the last part of the run.
    curvatures : ndarray, shape (..., d)
        Eigenvalues of A, minus the estimated Hessian; 0 in flat directions, and in all of a run that is not usable.
    directions : ndarray, shape (..., d, d)
        Their eigenvectors, in columns.
    noise : ndarray, shape (..., d, d)
        The estimated covariance of the gradient estimate in that basis; 0 in flat directions.
    usable : ndarray of bool, shape (...)
        Whether the estimates allow a limit law; the rest gets NaN.
    """

    step_sizes: Array
    tail_start: int
    curvatures: Array
    directions: Array
    noise: Array
    usable: Flags

    def last(self) -> Influence:
        """Return the influence on the last iterate: eta_i prod_{l > i} (1 - eta_l a), and prod_l (1 - eta_l a) of the start."""
        weights = np.zeros(len(self.step_sizes))
        weights[-1] = 1.0
        return self._influence(weights)

    def average(self) -> Influence:
        """Return the influence on the mean of the m iterates after step s.

        It is ``(eta_i / m) sum_{j >= i, j > s} prod_{i < l <= j} (1 - eta_l a)``.  For steps i^-b with b in (1/2, 1) it tends to
        1/(m a).
        """
        weights = np.zeros(len(self.step_sizes))
        weights[self.tail_start :] = 1.0 / (len(weights) - self.tail_start)
        return self._influence(weights)

    def covariance(self, influence: Influence) -> Array:
        """Return the covariance of a point about theta* plus what is left of the start, in the basis, shape (..., d, d).

        For the last iterate and steps beta/i it tends to the solution of the Lyapunov equation over n.  With constant steps it
        tends to the stationary covariance.  For the average and steps i^-b it tends to ``H^-1 Gamma H^-1 / m``.
        """
        return np.where(np.expand_dims(self.usable, (-2, -1)), self.noise * influence.products, np.nan)

    def _influence(self, weights: Array) -> Influence:
        """Return the influence on a weighted sum of the iterates; nothing is said of flat directions, where the start stays."""
        shape, dimension = self.curvatures.shape, self.curvatures.shape[-1]
        curvatures = np.ascontiguousarray(self.curvatures.reshape(-1, dimension))
        products, start = np.zeros((len(curvatures), dimension, dimension)), np.empty(curvatures.shape)
        add_influences(weights, self.step_sizes, curvatures, products, start)
        start = np.where(self.curvatures == 0.0, 0.0, start.reshape(shape))
        return Influence(products.reshape(*shape, dimension), start)

    def variance(self, covariance: Array, contrasts: Array) -> Array:
        """Return the variance of functionals (J, d) under a covariance in the basis, shape (..., J); NaN if not identifiable."""
        components = contrasts @ self.directions
        variance = np.einsum("...ji,...ik,...jk->...j", components, covariance, components)
        return np.where(self.identifies(contrasts), variance, np.nan)

    def identifies(self, contrasts: Array) -> Flags:
        """Return which functionals (J, d) have no part along a flat direction, shape (..., J)."""
        flat = np.expand_dims(self.curvatures == 0.0, -2)
        along = np.sqrt((np.where(flat, contrasts @ self.directions, 0.0) ** 2).sum(axis=-1))
        return along <= CONTRAST_TOLERANCE * np.linalg.norm(contrasts, axis=-1)


def fit_local_model(record: TrainingRecord) -> LocalModel:
    """Estimate drift and noise from a run.

    Raises
    ------
    ValueError
        If the record has no Hessian. For a single run, also if the estimated Hessian is positive along some direction or 0 along
        all. Finally, if the steps of a single run fall too fast or are too large for it.
    """
    if record.hessian is None:
        raise ValueError("hessian must be in the record for a plug-in interval, got None; see rollout_hessian")
    finite = np.isfinite(record.path).all(axis=(-2, -1)) & np.isfinite(record.hessian).all(axis=(-2, -1))
    hessian = np.where(np.expand_dims(finite, (-2, -1)), record.hessian, 0.0)
    curvatures, directions = np.linalg.eigh(-(hessian + np.swapaxes(hessian, -1, -2)) / 2.0)
    flat = np.abs(curvatures) <= RANK_TOLERANCE * np.abs(curvatures).max(axis=-1, keepdims=True)
    curvatures = np.where(flat, 0.0, curvatures)
    slowest = np.where(flat, np.inf, curvatures).min(axis=-1)
    step = record.step_sizes[-1]
    fall = 1.0 / step - 1.0 / record.step_sizes[-2]
    usable = (slowest > 0.0) & np.isfinite(slowest) & (2.0 * slowest > fall) & (step * curvatures.max(axis=-1) < 2.0)
    if usable.ndim == 0 and not usable:
        raise ValueError(_complaint(curvatures, directions, float(slowest), step, fall))
    noise = np.swapaxes(directions, -1, -2) @ np.where(np.expand_dims(finite, (-2, -1)), record.noise, 0.0) @ directions
    noise = np.where(flat[..., :, None] | flat[..., None, :], 0.0, noise)
    # Along a positive curvature the recursion grows without bound.
    curvatures = np.where(np.expand_dims(usable, -1), curvatures, 0.0)
    return LocalModel(record.step_sizes, record.tail_start, curvatures, directions, noise, usable)


def _complaint(curvatures: Array, directions: Array, slowest: float, step: float, fall: float) -> str:
    """Say why a single run allows no limit law."""
    if not np.isfinite(slowest):
        return "hessian must be negative along some direction, and the estimate is 0 along all"
    if slowest <= 0.0:
        direction = np.round(directions[:, int(np.argmin(curvatures))], 3).tolist()
        return (
            f"hessian must be negative or zero along every direction, got {-slowest:.4g} along {direction}: "
            "the run is too short, or not yet near a maximiser"
        )
    if 2.0 * slowest <= fall:
        return (
            f"step_sizes fall too fast for a limit law: beta = {1.0 / fall:.4g} must be above 1/(2 lambda) = {0.5 / slowest:.4g} "
            f"with the estimated smallest curvature lambda = {slowest:.4g}"
        )
    return (
        f"step_sizes must be below 2/lambda = {2.0 / curvatures.max():.4g} with the estimated largest curvature, got {step:.4g}"
    )


def as_contrasts(contrasts: ArrayLike | None, dimension: int) -> Array:
    """Return linear functionals as an array (J, d); the coordinates if omitted."""
    if contrasts is None:
        return np.eye(dimension)
    array = as_real_array("contrasts", contrasts, 2)
    if array.shape[1] != dimension:
        raise ValueError(f"contrasts must have shape (J, d) with d = {dimension}, got {array.shape}")
    if (array == 0.0).all(axis=1).any():
        raise ValueError("contrasts must not have a row of zeros")
    return array


def check_identifiable(model: LocalModel, contrasts: Array) -> None:
    """Raise, for a single run, if a functional has a part along a flat direction; say which.

    Raises
    ------
    ValueError
    """
    identified = model.identifies(contrasts)
    if model.usable.ndim == 0 and not identified.all():
        row = int(np.argmin(identified))
        flat = np.where(model.curvatures == 0.0, contrasts[row] @ model.directions, 0.0)
        direction = np.round(model.directions @ flat / np.linalg.norm(flat), 3).tolist()
        raise ValueError(f"contrasts must be identifiable: row {row} has a part along {direction}, where the objective is flat")
