"""The second order of what noise costs the policy: how far the first order can be trusted.

Arrays have a leading axis for the plans of group sizes that are compared, which share everything but their noise.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from grpo_theory.arrays import Array, cached_array
from grpo_theory.exact import gradient, hessian
from grpo_theory.exact.logit_forms import DIFFERENCE, hessian_forms, logit_derivative, noise_forms
from grpo_theory.problem import Problem
from grpo_theory.theory.leave_one_out import leave_one_out_parts
from grpo_theory.theory.third_cumulant import ThirdCumulant, leave_one_out_third_cumulant, lift, symmetric


@dataclass(frozen=True, eq=False)
class _Spread:
    """The cumulants of theta about the noise-free run to lowest order: mean (S, d), covariance (S, d, d), third (S, d, d, d)."""

    mean: Array
    covariance: Array
    third: Array


@dataclass(frozen=True, eq=False)
class Surroundings:
    """The objective and the noise around a point of the noise-free run, by their derivatives there.

    Attributes
    ----------
    problem : Problem
    theta : ndarray, shape (d,)
    """

    problem: Problem
    theta: Array

    @cached_array
    def logits(self) -> Array:
        """The logits, shape (M, D)."""
        return self.problem.policy.logits(self.theta)

    @cached_array
    def features(self) -> Array:
        """The derivatives of the logits in theta, shape (M, D, d)."""
        return self.problem.policy.jacobian()

    @cached_array
    def gradient(self) -> Array:
        """The objective's gradient, shape (d,)."""
        return gradient(self.problem, self.theta)

    @cached_array
    def hessian(self) -> Array:
        """The objective's second derivative, shape (d, d)."""
        return hessian(self.problem, self.theta)

    @cached_array
    def third_forms(self) -> Array:
        """The third derivative of the objective in each prompt's logits, shape (M, D, D, D)."""
        return logit_derivative(partial(hessian_forms, self.problem), self.logits, 2)

    @cached_array
    def third(self) -> Array:
        """The objective's third derivative, shape (d, d, d)."""
        return lift(self.features, self.third_forms)

    @cached_array
    def fourth_forms(self) -> Array:
        """The fourth derivative of the objective in each prompt's logits, shape (M, D, D, D, D)."""
        thirds = partial(logit_derivative, partial(hessian_forms, self.problem), axes=2)
        return logit_derivative(thirds, self.logits, 3)

    @cached_array
    def noise_parts(self) -> Array:
        """The three parts of the noise's covariance, shape (3, d, d)."""
        return np.array(leave_one_out_parts(self.problem, self.theta))

    @cached_array
    def noise_slopes(self) -> Array:
        """Their derivatives in each prompt's logits, last axis, without that of - g g', shape (3, M, D, D, D)."""
        return logit_derivative(partial(noise_forms, self.problem), self.logits, 2)

    @cached_array
    def noise_bends(self) -> Array:
        """Their second derivatives, last axes, without that of - g g', shape (3, M, D, D, D, D)."""
        return logit_derivative(partial(logit_derivative, partial(noise_forms, self.problem), axes=2), self.logits, 3)

    @cached_array
    def third_cumulant(self) -> ThirdCumulant:
        """The third cumulant of the noise."""
        return leave_one_out_third_cumulant(self.problem, self.theta)

    def at_prompts(self, matrices: Array) -> Array:
        """Return matrices (..., d, d) in the logits of each prompt, shape (..., M, D, D)."""
        return self.features @ matrices[..., None, :, :] @ np.swapaxes(self.features, 1, 2)

    def from_prompts(self, forms: Array) -> Array:
        """Return sum_m of forms (..., M, D, D), taken to theta, shape (..., d, d)."""
        return (np.swapaxes(self.features, 1, 2) @ forms @ self.features).sum(axis=-3)

    def noise_slope(self, weights: Array) -> Array:
        """Return the derivative of the noise's covariance with weights (S, 3), last axis, shape (S, d, d, d)."""
        product = self.hessian[:, None, :] * self.gradient[:, None]
        own = weights[:, :1, None, None] * (product + np.swapaxes(product, 0, 1))
        return lift(self.features, np.tensordot(weights, self.noise_slopes, axes=1)) - own

    def noise_bend(self, weights: Array, curvature: Array, covariance: Array) -> Array:
        """Return the second derivative of trace(curvature noise) along covariances (S, d, d), shape (S,)."""
        along = np.einsum("pmcdef,mcd->pmef", self.noise_bends, self.at_prompts(curvature))
        total = np.einsum("sp,pmef,smef->s", weights, along, self.at_prompts(covariance), optimize=True)
        turned = covariance.reshape(len(covariance), -1) @ self.third.reshape(-1, len(self.theta))
        squares = np.einsum("ij,sij->s", self.hessian @ curvature @ self.hessian, covariance)
        return total - 2.0 * weights[:, 0] * (turned @ (curvature @ self.gradient) + squares)

    def fifth(self, vector: Array, covariance: Array) -> Array:
        """Return the objective's fifth derivative along a vector (d,) and twice along covariances (S, d, d), shape (S,)."""
        local, slopes = self.at_prompts(covariance), self.features @ vector
        sizes = np.maximum(np.linalg.norm(slopes, axis=-1, keepdims=True), np.finfo(float).tiny)
        values, vectors = np.linalg.eigh(local)
        axes = DIFFERENCE * np.moveaxis(vectors, -1, 0)
        shifts = np.concatenate([axes, -axes, np.zeros_like(axes[:1])])
        along = DIFFERENCE * slopes / sizes
        ahead, behind = (hessian_forms(self.problem, self.logits + shifts + sign * along) for sign in (1.0, -1.0))
        by_shift = np.einsum("rsmcd,smcd->rsm", ahead - behind, local) / (2.0 * DIFFERENCE)
        n = len(axes)
        bends = (by_shift[:n] + by_shift[n : 2 * n] - 2.0 * by_shift[2 * n]) / DIFFERENCE**2
        return np.einsum("rsm,smr,m->s", bends, values, sizes[:, 0])


def second_order(surroundings: list[Surroundings], steps: Array, slopes: Array, curvatures: Array, group_sizes: Array) -> Array:
    """Return N^2 times the second order of E J(theta_n) in the noise, for the leave-one-out estimator with N = B_i G_i.

    Theorem (docs/derivations.md, section 14).  The cumulants of theta_i about the noise-free run are of order 1/B (mean and
    covariance) and 1/B^2 (the third), and follow a recursion.  The terms of order 1/B^2 of E J(theta_n) are sums over the steps.
    They combine the cumulants with the derivatives of the final objective in theta_1..theta_n.

    Parameters
    ----------
    surroundings : list of Surroundings, n + 1 of them
        The surroundings of the noise-free theta_0..theta_n.
    steps : ndarray, shape (n,)
    slopes, curvatures : ndarray, shapes (n, d) and (n, d, d)
        The first and second derivatives of the final objective in theta_1..theta_n along the path.
    group_sizes : ndarray, shape (S, n)
        G of each step, for S plans.

    Returns
    -------
    ndarray, shape (S,)
    """
    plans, d = len(group_sizes), slopes.shape[1]
    spread = _Spread(np.zeros((plans, d)), np.zeros((plans, d, d)), np.zeros((plans, d, d, d)))
    total = np.zeros(plans)
    for here, step, slope, curvature, sizes in zip(surroundings, steps, slopes, curvatures, group_sizes.T, strict=False):
        weights = np.stack((sizes, np.ones(plans), 1.0 / (sizes - 1.0)), axis=-1)
        slope_of_noise = here.noise_slope(weights)
        total += _added(here, spread, step, slope, curvature, weights, slope_of_noise)
        spread = _moved(here, spread, step, weights, slope_of_noise, sizes)
    return total + _at_the_end(surroundings[-1], spread)


def _added(
    here: Surroundings, spread: _Spread, step: float, slope: Array, curvature: Array, weights: Array, slope_of_noise: Array
) -> Array:
    """Return what one step adds to the mean and to the covariance of theta, to second order, weighted by the objective."""
    mean, covariance, cubic = spread.mean, spread.covariance, spread.third
    plans, d = mean.shape
    bend = here.from_prompts(np.einsum("mcdef,smef->smcd", here.fourth_forms, here.at_prompts(covariance)))
    fourth = lift(here.features, np.einsum("mcdef,mc->mdef", here.fourth_forms, here.features @ slope))
    along = (here.third @ mean.T).transpose(2, 0, 1)
    of_mean = 0.5 * np.einsum("sij,si,j->s", along + bend, mean, slope) + cubic.reshape(plans, -1) @ fourth.reshape(-1) / 6.0
    of_mean += here.fifth(slope, covariance) / 8.0
    carrier = curvature @ (np.eye(d) + step * here.hessian)
    skewed = cubic.reshape(plans, d, -1) @ here.third.reshape(d, -1).T
    products = 0.5 * skewed + covariance @ (along + 0.5 * bend)
    squares = _both(here.third, covariance).reshape(plans, d, -1) @ here.third.reshape(d, -1).T
    noise = np.einsum("sijk,ij,sk->s", slope_of_noise, curvature, mean) + 0.5 * here.noise_bend(weights, curvature, covariance)
    of_covariance = np.einsum("sil,li->s", products, carrier) + step * (
        0.25 * np.einsum("sij,ij->s", squares, curvature) + 0.5 * noise
    )
    return step * (of_mean + of_covariance)


def _moved(here: Surroundings, spread: _Spread, step: float, weights: Array, slope_of_noise: Array, sizes: Array) -> _Spread:
    """Return the cumulants after one step."""
    plans, d = spread.mean.shape
    transition = np.eye(d) + step * here.hessian
    carried = transition @ spread.covariance
    third = (_both(spread.third, transition).reshape(plans, d, -1).swapaxes(1, 2) @ transition).swapaxes(1, 2)
    third = third.reshape(plans, d, d, d) + step * symmetric(_both(here.third, spread.covariance @ transition))
    slopes = slope_of_noise.reshape(plans, -1, d) @ carried.swapaxes(1, 2)
    third += step**2 * symmetric(np.moveaxis(slopes.reshape(plans, d, d, d), -1, 1))
    third += step**3 * sizes[:, None, None, None] ** 2 * here.third_cumulant.at(sizes)
    mean = spread.mean @ transition + 0.5 * step * spread.covariance.reshape(plans, -1) @ here.third.reshape(d, -1).T
    return _Spread(mean, carried @ transition + step**2 * np.tensordot(weights, here.noise_parts, axes=1), third)


def _at_the_end(here: Surroundings, spread: _Spread) -> Array:
    """Return the second order of the objective's own mean over the spread of theta_n."""
    mean, covariance = spread.mean, spread.covariance
    plans, d = mean.shape
    local = here.at_prompts(covariance)
    fourth = np.einsum("mcdef,smcd,smef->s", here.fourth_forms, local, local, optimize=True)
    turned = covariance.reshape(plans, -1) @ here.third.reshape(d, -1).T
    skewed = spread.third.reshape(plans, -1) @ here.third.reshape(-1) / 6.0 + 0.5 * (turned * mean).sum(axis=1)
    return 0.5 * np.einsum("si,ij,sj->s", mean, here.hessian, mean) + skewed + fourth / 8.0


def _both(third: Array, matrices: Array) -> Array:
    """Return t_iab m_aj m_bk for matrices (..., d, d), shape (..., d, d, d)."""
    return np.swapaxes(matrices, -1, -2)[..., None, :, :] @ third @ matrices[..., None, :, :]
