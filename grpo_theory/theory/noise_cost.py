"""How much the gradient's noise lowers the objective of the learned policy, and the group size with the least loss."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.exact import gradient, hessian, objective
from grpo_theory.exact.derivatives import hessians_in_logits, logit_tables, score_logit_gradients, second_moment
from grpo_theory.problem import Problem
from grpo_theory.problem.policy import LARGEST_PARAMETER
from grpo_theory.schedule import Schedule, step_sizes
from grpo_theory.theory.leave_one_out import GroupSizeLaw, leave_one_out_parts
from grpo_theory.validation import Array, as_count, as_numbers, as_real_array, check_finite, check_shape, outline, typed

DIFFERENCE = 5e-3
"""The step, in a logit, of central differences of up to third order: 1e-5 of truncation, 1e-9 of rounding."""


def reward_moments(problem: Problem) -> tuple[Array, Array]:
    """Return the second and the third central moment of the reward given prompt and response, each (M, K)."""
    bandit = problem.bandit
    deviations = bandit.values - bandit.mean_reward[:, :, None]
    second, third = ((bandit.probabilities * deviations**power).sum(axis=-1) for power in (2, 3))
    return second, third


def noise_in_logits(problem: Problem, logits: Array) -> Array:
    """Return the three parts of the leave-one-out estimator's covariance in the logits, shape (3, ..., M, D, D).

    They are those of `leave_one_out_parts`, weighted by the prompts' probabilities.  The first lacks its - g g'.
    """
    problem.check_climbs_mean("the noise of the leave-one-out estimator")
    tokens, pi, centred = logit_tables(problem, logits)
    logit_gradients = score_logit_gradients(problem.policy.paths, tokens)
    # E[(Z - V)^2 | k] = (E[Z|k] - V)^2 + Var(Z | k).
    squares = pi * (centred**2 + reward_moments(problem)[0])
    slopes = ((pi * centred)[..., None] * logit_gradients).sum(axis=-2)
    outer = slopes[..., :, None] * slopes[..., None, :]
    # g g', Sigma_oracle = E[(Z - V)^2 W W'] - g g', and Var(Z) F + g g'.
    second_order = squares.sum(axis=-1)[..., None, None] * second_moment(logit_gradients, pi) + outer
    parts = np.stack((outer, second_moment(logit_gradients, squares) - outer, second_order))
    return problem.bandit.prompt_weights[:, None, None] * parts


def logit_derivative(function: Callable[[Array], Array], logits: Array, axes: int) -> Array:
    """Return the derivative in each prompt's own logits as one more, last axis, by central differences.

    Parameters
    ----------
    function : callable
        A function of logits (..., M, D). Its values have shape (..., M) followed by `axes` axes, or axes of its own before these.
    logits : ndarray, shape (..., M, D)
    axes : int
        How many axes of the value come after that of the prompts.

    Returns
    -------
    ndarray, shape of the value, and (D,)
    """
    shifts = DIFFERENCE * np.eye(logits.shape[-1])[:, None, :]
    ahead, behind = (function(logits[..., None, :, :] + sign * shifts) for sign in (1.0, -1.0))
    return np.moveaxis(ahead - behind, -2 - axes, -1) / (2.0 * DIFFERENCE)


class ThirdCumulant(NamedTuple):
    """The third cumulant of one group's leave-one-out estimate, its prompt drawn too, at every group size.

    Theorem (docs/derivations.md, section 14.1).  Given the prompt, the estimate is the sample covariance of score and reward.
    Its third cumulant is Fisher's for a sample variance, with joint cumulants of scores and rewards in place of those of one
    variable.  The law of total cumulance combines the prompts.  The third cumulant of a batch is 1/B^2 times that of a group.

    Attributes
    ----------
    features : ndarray, shape (M, D, d)
        The derivatives of the logits in theta.
    within : ndarray, shape (4, M, D, D, D)
        The parts given the prompt, in its logits, weighted by the prompts' probabilities.
    mixed : ndarray, shape (2, d, d, d)
        Prompts' gradients about their mean times the two parts of the covariance given the prompt.
    between : ndarray, shape (d, d, d)
        The third cumulant of the prompts' gradients.
    """

    features: Array
    within: Array
    mixed: Array
    between: Array

    def at(self, group_sizes: ArrayLike) -> Array:
        """Return the cumulant at group sizes of any shape, shape (..., d, d, d)."""
        g = as_numbers("group_sizes", group_sizes)
        # k(2^3) = k6/G^2 + 12 k4 k2/(G (G - 1)) + 4 (G - 2) k3^2/(G (G - 1)^2) + 8 k2^3/(G - 1)^2
        # (docs/derivations.md, section 14.1).
        parts = (1.0 / g**2, 1.0 / (g * (g - 1.0)), (g - 2.0) / (g * (g - 1.0) ** 2), 1.0 / (g - 1.0) ** 2)
        within = np.tensordot(np.stack(parts, axis=-1), self.within, axes=1)
        mixed = np.tensordot(np.stack((1.0 / g, 1.0 / (g * (g - 1.0))), axis=-1), self.mixed, axes=1)
        return lifted(self.features, within) + mixed + self.between


def leave_one_out_third_cumulant(problem: Problem, theta: ArrayLike) -> ThirdCumulant:
    """Compute the parts of the third cumulant exactly, for the problem at theta (d,)."""
    theta = problem.policy.check_theta(theta)
    logits, weights = problem.policy.logits(theta), problem.bandit.prompt_weights
    features = problem.policy.jacobian(theta)
    exact = problem.at(theta).moments
    # kappa = E kappa(x) + Sym_3 E[(g(x) - g) Cov(x)] + E[(g(x) - g)^3] (docs/derivations.md, section 14.1).
    deviations = exact.prompt_gradients - exact.gradient
    spread = np.swapaxes(features, 1, 2) @ noise_in_logits(problem, logits)[1:] @ features
    mixed = symmetric(np.einsum("mi,pmjk->pijk", deviations, spread, optimize=True))
    between = np.einsum("m,mi,mj,mk->ijk", weights, deviations, deviations, deviations, optimize=True)
    return ThirdCumulant(features, weights[:, None, None, None] * _within_prompts(problem, logits), mixed, between)


def lifted(features: Array, tensors: Array) -> Array:
    """Return sum_m of tensors (..., M, D, D, D) in the logits, taken to theta by features (M, D, d), shape (..., d, d, d)."""
    twice = np.swapaxes(features, 1, 2)[:, None] @ tensors @ features[:, None]
    shape = (*tensors.shape[:-4], -1, *twice.shape[-2:])
    flat = twice.reshape(*tensors.shape[:-4], features.shape[0] * features.shape[1], -1)
    return (features.reshape(-1, features.shape[-1]).T @ flat).reshape(shape)


def symmetric(tensor: Array) -> Array:
    """Return t_ijk + t_jik + t_kij of a tensor that is symmetric in its last two indices, shape (..., d, d, d)."""
    return tensor + np.swapaxes(tensor, -3, -2) + np.moveaxis(tensor, -3, -1)


def _within_prompts(problem: Problem, logits: Array) -> Array:
    """Return the four parts of the third cumulant given each prompt, in the logits, shape (4, M, D, D, D)."""
    tables, (spread, skew) = logit_tables(problem, logits), reward_moments(problem)
    pi, z = tables.probabilities, tables.centred
    c = score_logit_gradients(problem.policy.paths, tables.token_probabilities)
    powers = (z, z**2 + spread, z**3 + 3.0 * z * spread + skew)
    one, two, three = (pi * power for power in powers)
    variance, third = (weight.sum(axis=-1)[:, None, None, None] for weight in (two, three))

    def moment(weight: Array, order: int) -> Array:
        """Return the mean of a weight times so many copies of the logit gradient."""
        copies = ",".join(("mka", "mkb", "mkc")[:order])
        return np.einsum(f"mk,{copies}->m{'abc'[:order]}", weight, *[c] * order, optimize=True)

    def three_ways(vector: Array, matrix: Array) -> Array:
        return symmetric(vector[:, :, None, None] * matrix[:, None, :, :])

    slope, information = moment(one, 1), moment(pi, 2)
    w_z, ww_z, www_z = slope, moment(one, 2), moment(one, 3)
    w_zz, ww_zz = moment(two, 1), moment(two, 2)
    w_zzz, www_zzz = moment(three, 1), moment(three, 3)
    cubed = slope[:, :, None, None] * slope[:, None, :, None] * slope[:, None, None, :]
    slope_information = three_ways(slope, information)
    # A fourth joint cumulant is the moment less its three products of two covariances: k4 = m4 - 3 m2^2.
    four_www_z = www_z - slope_information
    four_ww_zz = ww_zz - information * variance[..., 0] - 2.0 * slope[:, :, None] * slope[:, None, :]
    four_w_zzz = w_zzz - 3.0 * slope * variance[..., 0, 0]
    www = moment(pi, 3)
    # k3^2: the two cumulants part each of the pairs (W_a, Z), (W_b, Z), (W_c, Z), in 1 + 3 = 4 ways (section 14.1).
    pairs_of_threes = www * third + three_ways(w_zz, ww_z)
    # k6 = m6 - 15 m4 m2 - 10 m3^2 + 30 m2^3, each product summed over the ways to deal W_a, W_b, W_c, Z, Z, Z.
    six = www_zzz - three_ways(w_zzz, information) - 3.0 * three_ways(w_z, ww_zz) - 3.0 * variance * www_z
    six += -www * third - 3.0 * three_ways(w_zz, ww_z) + 6.0 * variance * slope_information + 12.0 * cubed
    # k4 k2 and k2^3: every cumulant links two pairs or more, in 3 + 6 + 3 = 12 and 6 + 2 = 8 ways (section 14.1).
    four_and_two = 3.0 * variance * four_www_z + 2.0 * three_ways(slope, four_ww_zz) + three_ways(four_w_zzz, information)
    twos = 2.0 * variance * slope_information + 2.0 * cubed
    return np.stack((six, four_and_two, pairs_of_threes, twos))


class _Spread(NamedTuple):
    """The cumulants of theta about the noise-free run to lowest order: mean (S, d), covariance (S, d, d), third (S, d, d, d)."""

    mean: Array
    covariance: Array
    third: Array


class LocalDerivatives:
    """The derivatives of the objective and of the noise's covariance at a point of the noise-free run.

    Attributes
    ----------
    third, fourth_in_logits : ndarrays, shapes (d, d, d) and (M, D, D, D, D)
        The objective's third derivative, and the fourth in each prompt's logits.
    noise_parts : ndarray, shape (3, d, d)
        The three parts of the noise's covariance, see `leave_one_out_parts`.
    noise_slopes, noise_bends : ndarrays, shapes (3, M, D, D, D) and (3, M, D, D, D, D)
        Their first and second derivatives in each prompt's logits, last axes, without those of - g g'.
    """

    def __init__(self, problem: Problem, theta: Array) -> None:
        hessians, noise = partial(hessians_in_logits, problem), partial(noise_in_logits, problem)
        self.problem, self.logits, self.features = problem, problem.policy.logits(theta), problem.policy.jacobian()
        self.gradient, self.hessian = gradient(problem, theta), hessian(problem, theta)
        self.third = lifted(self.features, logit_derivative(hessians, self.logits, 2))
        self.fourth_in_logits = logit_derivative(partial(logit_derivative, hessians, axes=2), self.logits, 3)
        self.noise_parts = np.array(leave_one_out_parts(problem, theta))
        self.noise_slopes = logit_derivative(noise, self.logits, 2)
        self.noise_bends = logit_derivative(partial(logit_derivative, noise, axes=2), self.logits, 3)
        self.third_cumulant = leave_one_out_third_cumulant(problem, theta)

    def at_prompts(self, matrices: Array) -> Array:
        """Return matrices (..., d, d) in the logits of each prompt, shape (..., M, D, D)."""
        return self.features @ matrices[..., None, :, :] @ np.swapaxes(self.features, 1, 2)

    def noise_bend(self, weights: Array, curvature: Array, covariance: Array) -> Array:
        """Return the second derivative of trace(curvature noise) along covariances (S, d, d), shape (S,)."""
        along = np.einsum("pmcdef,mcd->pmef", self.noise_bends, self.at_prompts(curvature))
        total = np.einsum("sp,pmef,smef->s", weights, along, self.at_prompts(covariance), optimize=True)
        # d^2 (g' K g)/dtheta^2 : C = 2 (J3 : C)' K g + 2 trace(H K H C), K the curvature.
        turned = covariance.reshape(len(covariance), -1) @ self.third.reshape(-1, len(self.gradient))
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
        ahead, behind = (hessians_in_logits(self.problem, self.logits + shifts + sign * along) for sign in (1.0, -1.0))
        by_shift = np.einsum("rsmcd,smcd->rsm", ahead - behind, local) / (2.0 * DIFFERENCE)
        # J5[v, C, C] = sum_r lambda_r d^2/du_r^2 of (dH/dv : C), with C = sum_r lambda_r u_r u_r' in a prompt's logits.
        n = len(axes)
        bends = (by_shift[:n] + by_shift[n : 2 * n] - 2.0 * by_shift[2 * n]) / DIFFERENCE**2
        return np.einsum("rsm,smr,m->s", bends, values, sizes[:, 0])


def second_order(points: list[LocalDerivatives], steps: Array, slopes: Array, curvatures: Array, group_sizes: Array) -> Array:
    """Return N^2 times the second order of E J(theta_n) in the noise, for the leave-one-out estimator with N = B_i G_i.

    Theorem (docs/derivations.md, section 14.1).  The cumulants of theta_i about the noise-free run are of order 1/B (mean and
    covariance) and 1/B^2 (the third), and follow a recursion.  The terms of order 1/B^2 of E J(theta_n) are sums over the steps.
    They combine the cumulants with the derivatives of the final objective in theta_1..theta_n.

    Parameters
    ----------
    points : list of LocalDerivatives, n + 1 of them
        Those at the noise-free theta_0..theta_n.
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
    for here, step, slope, curvature, sizes in zip(points, steps, slopes, curvatures, group_sizes.T, strict=False):
        # N Gamma = G Gamma_1 + Gamma_2 + Gamma_3/(G - 1), as B = N/G (docs/derivations.md, section 14).
        weights = np.stack((sizes, np.ones(plans), 1.0 / (sizes - 1.0)), axis=-1)
        # The derivative of the noise's covariance. That of g g' along e is (H e) g' + g (H e)', off the part with the weight G.
        product = here.hessian[:, None, :] * here.gradient[:, None]
        own = weights[:, :1, None, None] * (product + np.swapaxes(product, 0, 1))
        slope_of_noise = lifted(here.features, np.tensordot(weights, here.noise_slopes, axes=1)) - own
        total += _added(here, spread, step, slope, curvature, weights, slope_of_noise)
        spread = _moved(here, spread, step, weights, slope_of_noise, sizes)
    # E J(theta_n) over the spread: m'Hm/2 + J3:(k3/6 + m C/2) + J4:(C C)/8, by Taylor's series and the cumulants m, C and k3.
    here, mean, covariance = points[-1], spread.mean, spread.covariance
    local = here.at_prompts(covariance)
    fourth = np.einsum("mcdef,smcd,smef->s", here.fourth_in_logits, local, local, optimize=True)
    turned = covariance.reshape(plans, -1) @ here.third.reshape(d, -1).T
    skewed = spread.third.reshape(plans, -1) @ here.third.reshape(-1) / 6.0 + 0.5 * (turned * mean).sum(axis=1)
    return total + (0.5 * np.einsum("si,ij,sj->s", mean, here.hessian, mean) + skewed + fourth / 8.0)


def _added(
    here: LocalDerivatives, spread: _Spread, step: float, slope: Array, curvature: Array, weights: Array, slope_of_noise: Array
) -> Array:
    """Return what one step adds to the mean and to the covariance of theta, to second order, weighted by the objective."""
    mean, covariance, cubic = spread.mean, spread.covariance, spread.third
    plans, d = mean.shape
    bend = np.einsum("mcdef,smef->smcd", here.fourth_in_logits, here.at_prompts(covariance))
    bend = (np.swapaxes(here.features, 1, 2) @ bend @ here.features).sum(axis=-3)
    fourth = lifted(here.features, np.einsum("mcdef,mc->mdef", here.fourth_in_logits, here.features @ slope))
    along = (here.third @ mean.T).transpose(2, 0, 1)
    # p . {J3[m, m]/2 + J4 : k3/6 + J4[m, C]/2 + J5[C, C]/8}, p the final objective's slope (docs/derivations.md, section 14.1).
    of_mean = 0.5 * np.einsum("sij,si,j->s", along + bend, mean, slope) + cubic.reshape(plans, -1) @ fourth.reshape(-1) / 6.0
    of_mean += here.fifth(slope, covariance) / 8.0
    # trace[P X]/2 with X = eta Sym_2 {T [k3 : J3/2 + C J3[m] + C J4[C]/2]} + eta^2 {J3 C C J3/2 + dGamma[m] + d^2 Gamma[C]/2}
    # and T = I + eta H, P the curvature of the final objective (docs/derivations.md, section 14.1).
    carrier = curvature @ (np.eye(d) + step * here.hessian)
    skewed = cubic.reshape(plans, d, -1) @ here.third.reshape(d, -1).T
    products = 0.5 * skewed + covariance @ (along + 0.5 * bend)
    squares = _both(here.third, covariance).reshape(plans, d, -1) @ here.third.reshape(d, -1).T
    noise = np.einsum("sijk,ij,sk->s", slope_of_noise, curvature, mean) + 0.5 * here.noise_bend(weights, curvature, covariance)
    of_covariance = np.einsum("sil,li->s", products, carrier) + step * (
        0.25 * np.einsum("sij,ij->s", squares, curvature) + 0.5 * noise
    )
    return step * (of_mean + of_covariance)


def _moved(here: LocalDerivatives, spread: _Spread, step: float, weights: Array, slope_of_noise: Array, sizes: Array) -> _Spread:
    """Return the cumulants after one step."""
    plans, d = spread.mean.shape
    transition = np.eye(d) + step * here.hessian
    suffix_sums = transition @ spread.covariance
    # k3 <- T k3 T T + eta sym(J''' C T C) + eta^2 sym(dSigma T C) + eta^3 k3(noise), T = I + eta H.
    third = (_both(spread.third, transition).reshape(plans, d, -1).swapaxes(1, 2) @ transition).swapaxes(1, 2)
    third = third.reshape(plans, d, d, d) + step * symmetric(_both(here.third, spread.covariance @ transition))
    slopes = slope_of_noise.reshape(plans, -1, d) @ suffix_sums.swapaxes(1, 2)
    third += step**2 * symmetric(np.moveaxis(slopes.reshape(plans, d, d, d), -1, 1))
    third += step**3 * sizes[:, None, None, None] ** 2 * here.third_cumulant.at(sizes)
    # m <- T m + (eta/2) J3 : C and C <- T C T + eta^2 Gamma (docs/derivations.md, section 14.1).
    mean = spread.mean @ transition + 0.5 * step * spread.covariance.reshape(plans, -1) @ here.third.reshape(d, -1).T
    return _Spread(mean, suffix_sums @ transition + step**2 * np.tensordot(weights, here.noise_parts, axes=1), third)


def _both(third: Array, matrices: Array) -> Array:
    """Return t_iab m_aj m_bk for matrices (..., d, d), shape (..., d, d, d)."""
    return np.swapaxes(matrices, -1, -2)[..., None, :, :] @ third @ matrices[..., None, :, :]


_DIFFERENCE = 1e-4


@dataclass(frozen=True, eq=False)
class TrainingLaw:
    """E J(theta_n) = J(noise-free theta_n) - loss, to first order in the noise, for the leave-one-out estimator.

    Theorem (docs/derivations.md, section 14). loss = sum_i [k1_i + k2_i/G_i + k3_i/(G_i (G_i - 1))] / B_i.  The constants weight
    the three parts of the covariance at step i by minus the second derivative of the final objective in theta_i.

    At a fixed budget N = BG and one group size for all steps the loss is (c1 G + c2 + c3/(G-1))/N. Its constants are those of the
    steps, added up.  They can be negative, unlike those of the gradient's error: where the objective is convex, noise helps.

    What is left out begins with `second_order`, of order 1/N^2: compare the two at the budget and the group size in question.

    Attributes
    ----------
    problem : Problem
    steps : ndarray, shape (n,)
        The step sizes.
    path : ndarray, shape (n + 1, d)
        The noise-free iterates, from the start.
    objective : float
        J at the last of them.
    slopes : ndarray, shape (n, d)
        The gradients of the final objective in theta_1..theta_n along the path.
    constants : ndarray, shape (n, 3)
        k1, k2, k3 of each step.
    curvatures : ndarray, shape (n, d, d)
        The second derivatives of the final objective in theta_1..theta_n along the path.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("single")
    >>> law = gt.theory.training_law(problem, problem.theta, gt.Constant(0.2), steps=5)
    >>> law.path.shape, law.best_schedule([2, 4, 8]).tolist()
    ((6, 2), [8.0, 8.0, 8.0, 8.0, 8.0])
    >>> bool(abs(law.second_order(64, 4)) < abs(law.loss(64, 4)))
    True
    """

    problem: Problem
    steps: Array
    path: Array
    objective: float
    slopes: Array
    constants: Array
    curvatures: Array
    __repr__ = outline

    @property
    def group_size_law(self) -> GroupSizeLaw:
        """The law of one group size for all steps: the constants summed over the steps."""
        return GroupSizeLaw(*(float(total) for total in self.constants.sum(axis=0)))

    @property
    def optimum(self) -> float:
        """The least costly real G >= 2 at fixed BG; infinite if the first-order loss falls forever.

        Infinite with c1 < 0 means that noise helps, not that ever larger groups do: with few prompts in a batch noise did harm.
        """
        law = self.group_size_law
        if law.c1 == 0.0 and law.c3 < 0.0:
            return 2.0
        return max(2.0, float(law.optimum))

    def best_schedule(self, group_sizes: ArrayLike) -> Array:
        """Return the least costly of some group sizes (J,), all at least 2, for each step, shape (n,)."""
        sizes = _as_group_sizes(as_real_array("group_sizes", group_sizes, 1))
        k1, _, k3 = self.constants.T
        # The loss of a step is (k1 G + k2 + k3/(G - 1))/N: k2 does not decide (docs/derivations.md, section 14).
        return sizes[np.argmin(np.outer(k1, sizes) + np.outer(k3, 1.0 / (sizes - 1.0)), axis=1)]

    def loss(self, budget: int, group_sizes: ArrayLike) -> float:
        """Return the loss at N = BG responses per step, with one group size or one for each step, shape () or (n,)."""
        sizes = _as_group_sizes(as_numbers("group_sizes", group_sizes))
        if sizes.ndim:
            check_shape("group_sizes", sizes, (len(self.constants),), "(n,), the steps")
        factors = np.stack(np.broadcast_arrays(sizes, 1.0, 1.0 / (sizes - 1.0)), axis=-1)
        return float((factors * self.constants).sum()) / as_count("budget", budget, 2)

    def second_order(self, budget: int, group_sizes: ArrayLike) -> Array:
        """Return the second order of the loss, exactly: an estimate of what `loss` is off by, not a bound of it.

        If the second order is small compared with the loss, it is the error of `loss`.  If it is large, it has the right sign and
        says that `loss` should not be relied on (measured: docs/derivations.md, section 14).

        Parameters
        ----------
        budget : int
            N = BG responses per step.
        group_sizes : array_like, shape (), (n,) or (J, n)
            One group size for all steps, one for each step, or J such plans at little more than the cost of one.

        Returns
        -------
        ndarray, shape () or (J,)
        """
        sizes = _as_group_sizes(as_numbers("group_sizes", group_sizes))
        if sizes.ndim:
            check_shape("group_sizes", sizes[-1] if sizes.ndim == 2 else sizes, (len(self.steps),), "(n,), the steps")
        plans = np.broadcast_to(sizes, (sizes.shape[0] if sizes.ndim == 2 else 1, len(self.steps)))
        effect = second_order(self._derivatives, self.steps, self.slopes, self.curvatures, plans)
        losses = -effect / as_count("budget", budget, 2) ** 2
        return losses if sizes.ndim == 2 else losses[0]

    @cached_property
    def _derivatives(self) -> list[LocalDerivatives]:
        if not self.problem.policy.is_linear:
            raise ValueError(
                "policy must have logits that are linear in theta for the second order of the loss, "
                f"got {self.problem.policy!r}: the first order is had without"
            )
        return [LocalDerivatives(self.problem, theta) for theta in self.path]


def _as_group_sizes(sizes: Array) -> Array:
    if not (sizes >= 2.0).all():
        raise ValueError(f"group_sizes must be at least 2, got {sizes.min():g}")
    return sizes


@typed
def training_law(
    problem: Problem, theta0: ArrayLike | None = None, schedule: Schedule | ArrayLike = (), *, steps: int
) -> TrainingLaw:
    """Compute the loss of n training steps with the leave-one-out estimator, to first order in the noise.

    The part left out grows with the number of steps and with the noise, and so with G at a fixed budget N = BG. No batch size is
    safe on every problem.  `TrainingLaw.second_order` says how much the next order is.  The study "group_size" measures how far
    the first order is off: docs/long_responses.md has its table.

    Parameters
    ----------
    problem : Problem
        Small enough for (d, d) matrices.
    theta0 : array_like, shape (d,), optional
        The start; the problem's own theta if omitted.
    schedule : Schedule or array_like, shape (steps,)
        The step sizes.
    steps : int
        n.

    Returns
    -------
    TrainingLaw

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("single")
    >>> law = gt.theory.training_law(problem, problem.theta, gt.Constant(0.2), steps=10)
    >>> bool(law.loss(budget=64, group_sizes=4) > 0.0)
    True
    """
    problem.check_climbs_mean("the law of training with the leave-one-out estimator")
    steps = as_count("steps", steps)
    sizes = step_sizes(schedule, steps)
    path = noise_free_path(problem, theta0, sizes)
    slope = gradient(problem, path[-1])
    curvature = hessian(problem, path[-1])
    d = problem.policy.dimension
    slopes, constants, curvatures = np.empty((steps, d)), np.empty((steps, 3)), np.empty((steps, d, d))
    for i in range(steps - 1, -1, -1):
        slopes[i], curvatures[i] = slope, curvature
        parts = leave_one_out_parts(problem, path[i])
        # k_j = -eta^2/2 trace(D^2 Sigma_j), D^2 the second derivative of the final objective in theta_{i+1}.
        constants[i] = [-0.5 * sizes[i] ** 2 * np.vdot(curvature, part) for part in parts]
        third = _derivative_along(partial(hessian, problem), path[i], slope)
        transition = np.eye(d) + sizes[i] * hessian(problem, path[i])
        # The chain rule through theta + eta grad J: D^2 <- (I + eta H) D^2 (I + eta H) + eta J'''[D], and D <- (I + eta H) D.
        curvature = transition @ curvature @ transition + sizes[i] * third
        slope = transition @ slope
    return TrainingLaw(problem, sizes, path, float(objective(problem, path[-1])), slopes, constants, curvatures)


@typed
def noise_free_path(problem: Problem, theta0: ArrayLike | None, steps: Array) -> Array:
    """Return the iterates of gradient ascent with exact gradients, shape (n + 1, d); the start alone for no steps.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("single")
    >>> path = gt.theory.noise_free_path(problem, problem.theta, gt.Constant(0.2).steps(10))
    >>> path.shape, bool(gt.objective(problem, path[-1]) > gt.objective(problem, path[0]))
    ((11, 2), True)
    """
    sizes = as_numbers("steps", steps)
    check_finite("steps", sizes)
    check_shape("steps", sizes, (sizes.size,), "(n,)")
    path = [problem.parameters(theta0, "theta0")]
    for number, step in enumerate(sizes):
        path.append(path[-1] + step * gradient(problem, path[-1]))
        if np.abs(path[-1]).max() > LARGEST_PARAMETER:
            raise ValueError(f"steps must leave theta below {LARGEST_PARAMETER:g}, and step {number + 1}, {step:g}, does not")
    return np.array(path)


@typed
def noise_free_slopes(problem: Problem, path: Array, steps: Array) -> Array:
    """Return the gradients of the final objective in theta_1..theta_n along a noise-free path (n + 1, d), shape (n, d).

    Each gradient is the next one, carried back through one step of ascent.  The Hessian is applied as a difference of gradients.
    So no (d, d) matrix is formed, and any policy will do.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, steps = gt.gallery.problem("single"), gt.Constant(0.2).steps(10)
    >>> path = gt.theory.noise_free_path(problem, problem.theta, steps)
    >>> gt.theory.noise_free_slopes(problem, path, steps).shape
    (10, 2)
    """
    slopes = np.empty((len(steps), problem.policy.dimension))
    slope = gradient(problem, path[-1])
    for i in range(len(steps) - 1, -1, -1):
        slopes[i] = slope
        # p_{i-1} = (I + eta_i H) p_i (docs/derivations.md, section 14).
        slope = slope + steps[i] * _derivative_along(partial(gradient, problem), path[i], slope)
    return slopes


def _derivative_along(function: Callable[[Array], Array], theta: Array, direction: Array) -> Array:
    """Return the derivative of a function of theta along a direction, shape of its value, by central differences."""
    length = float(np.linalg.norm(direction))
    step = direction * (_DIFFERENCE / length if length > 0.0 else 1.0)
    return (function(theta + step) - function(theta - step)) * (length / (2.0 * _DIFFERENCE))
