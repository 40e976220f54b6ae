"""Confidence sets from one batch of rollouts: of the gradient, the value, the error and its components, the group size.

First come the unbiased statistics by prompt that they are made of (docs/derivations.md, section 8). Sums run from the first term
to the last, so that what is constant is exactly 0 and every processor finds the same bits.
"""

from collections.abc import Callable
from dataclasses import replace
from math import floor
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import fdtri

from grpo_theory.intervals.interval import (
    Ellipsoid,
    Interval,
    binomial_limits,
    check_level,
    interval_function,
    quotient_limits,
    student_interval,
    student_quantile,
)
from grpo_theory.intervals.rollouts import Groups, Rollouts
from grpo_theory.intervals.u_statistics import gradients, powers
from grpo_theory.problem.objective import Objective
from grpo_theory.simulate.draws import Rng, as_seed_sequence
from grpo_theory.theory import GroupSizeLaw, mse_weights
from grpo_theory.validation import ROUNDING, Array, Integers, as_count, as_numbers, check_room, read_only, shown, typed

FAR = 1e8
"""The size of a studentised statistic whose standard error is 0, as of resamples of one prompt alone."""

FEW = 64
"""Sums side by side for which numpy's accumulation is faster than a loop over the terms."""


def added(values: Array, axis: int) -> Array:
    """Return the sum along an axis, term after term."""
    if values.size < FEW * values.shape[axis]:  # faster there, with the same bits
        return np.add.accumulate(values, axis=axis).take(-1, axis=axis)
    return np.asarray(sum(np.moveaxis(values, axis, 0)))


def shifted(values: Array, axis: int) -> Array:
    """Return what values are above the first along an axis."""
    return values - values[(*[slice(None)] * (axis % values.ndim), slice(1))]


def centred(values: Array, axis: int) -> Array:
    """Return the deviations from the mean along an axis; exactly 0 where the values are constant."""
    above, one = shifted(values, axis), list(values.shape)
    one[axis] = 1
    return above - (added(above, axis) / values.shape[axis]).reshape(one)


def shifted_mean(values: Array, axis: int) -> Array:
    """Return the mean along an axis of what values are above the first: a large constant in all of them costs no digits."""
    return np.take(values, 0, axis=axis) + shifted(values, axis).mean(axis=axis)


def error_of_mean(values: Array, axis: int) -> Array:
    """Return the standard error of the mean of n independent values along an axis; exactly 0 where they are constant."""
    # E[sum_b (t_b - mean t)^2/(n (n - 1))] = Var(mean t), also where the variances of the t_b differ (docs/derivations.md,
    # section 33).
    size = values.shape[axis]
    return np.sqrt((centred(values, axis) ** 2).sum(axis=axis) / (size * (size - 1.0)))


def jackknife_variances(z: Array, w: Array) -> Array:
    """Return the jackknife variances (..., J) of the estimates; exactly 0 where the products are constant."""
    size = z.shape[-1]
    # Without response i the estimate moves by -G/((G-1)(G-2)) (p_i - mean p), p_i = z_i (w_i - mean w); and the jackknife's
    # variance is (G-1)/G times the sum of squares (Arvesen 1969).
    products = centred(z[..., None] * centred(w, -2), -2)
    return added(products**2, -2) * (size / (size - 2.0) ** 2 / (size - 1.0))


_REMEMBERED: WeakKeyDictionary[Groups, dict[Callable, Array]] = WeakKeyDictionary()
"""Statistics of prompts, as long as the rollouts live: several intervals and plans ask for them of the same rollouts."""


def _of_prompts(rollouts: Groups, responses: int, statistic: Callable[[Array, Array], Array]) -> Array:
    """Return a statistic of each prompt's centred rewards and scores, shape (..., B, width), closed to writing, and kept."""
    rollouts.require(responses=responses)
    known = _REMEMBERED.setdefault(rollouts, {})
    if statistic not in known:
        found = rollouts.by_prompt(lambda same: statistic(centred(same.rewards, -1), same.known_scores))
        known[statistic] = read_only(found)
    return known[statistic]


def prompt_gradients(rollouts: Groups) -> Array:
    """Return the leave-one-out estimate of each prompt's gradient, (1/(G-1)) sum_i W_i (Z_i - mean Z), shape (..., B, J).

    It is the U-statistic of order two with kernel h(i,j) = (1/2)(W_i - W_j)(Z_i - Z_j) (arXiv 2603.01162, Lemma 1), and the
    sample covariance of score and reward. Needs G >= 2.
    """
    return _of_prompts(rollouts, 2, gradients)


def prompt_jackknife_variances(rollouts: Groups) -> Array:
    """Return the delete-one-response jackknife variance of each prompt's gradient estimate, by component, shape (..., B, J).

    Given the prompt it has mean ``diag{Sigma_oracle/G + 2 [Var(Z) F + g g']/(G(G-2))}``, with F = E[W W']. The variance itself is
    ``diag{Sigma_oracle/G + [Var(Z) F + g g']/(G(G-1))}``. So the jackknife variance is too large, in the second order alone.
    Needs G >= 3.
    """
    return _of_prompts(rollouts, 3, jackknife_variances)


def prompt_powers(rollouts: Groups) -> Array:
    """Estimate without bias, given the prompt, what the error of a gradient estimate is made of, shape (3, ..., B).

    These are three U-statistics, computed in O(G J).  The first is of ||g||^2: the mean of h(i,j) . h(k,l) over distinct
    responses.  The second is of E[||W||^2 (Z - V)^2]: the mean of ||W_i||^2 (Z_i - Z_j)(Z_i - Z_k).  The third is of E||W||^2
    Var(Z): the mean of ||W_k||^2 (Z_i - Z_j)^2 / 2.  Needs G >= 4.
    """
    return np.moveaxis(_of_prompts(rollouts, 4, powers), -1, 0)


def estimated(rollouts: Groups, objective: Objective | None) -> Groups:
    """Return one response per prompt, whose reward is an estimate of the objective there; the rollouts if there is none.

    The estimate is the objective's own, which is unbiased, or else the jackknife of F at the shares of a group's rewards. The
    jackknife's bias is of order 1/G^2, and 0 where F is linear or quadratic (docs/derivations.md, section 39).

    Raises
    ------
    ValueError
        If an estimate is not finite, as of log success where no response of a prompt succeeds. Also if groups are too small.
    """
    if objective is None:
        return rollouts
    if not isinstance(objective, Objective):
        raise TypeError(f"objective must be an Objective, as gt.Objective.best_of(4), or None, got {shown(objective)}")
    rollouts.require(responses=1 if objective.estimate else 2)
    if objective.estimate is None and rollouts.rewards.ndim > 2:  # each dataset has reward values of its own
        return Rollouts(np.stack([estimated(Rollouts(rewards), objective).rewards for rewards in rollouts.rewards]))
    values = np.unique(rollouts.rewards)

    def jackknifed(rewards: Array) -> Array:
        # Each multiset of rewards is evaluated once, so that prompts with equal rewards differ by exactly 0.
        size = rewards.shape[-1]
        groups, which = np.unique(np.sort(rewards, axis=-1).reshape(-1, size), axis=0, return_inverse=True)
        check_room("the laws without a response", (*groups.shape, len(values)), "round the rewards to fewer values")
        came = groups[..., None] == values
        counts = came.sum(axis=-2, keepdims=True)
        # G F(q) - (G - 1) mean_i F(q without response i), q the shares of the rewards (Quenouille 1956).
        whole, less = objective.value(values, counts / size), objective.value(values, (counts - came) / (size - 1.0))
        return (whole[:, 0] + (size - 1.0) * (whole - less).mean(axis=-1))[which.reshape(rewards.shape[:-1])]

    with np.errstate(divide="ignore", invalid="ignore"):
        found = rollouts.by_prompt(lambda same: (objective.estimate or jackknifed)(same.rewards))
    if unknown := int((~np.isfinite(found)).sum()):
        raise ValueError(f"{objective!r} must have a finite estimate at every prompt, and has none at {unknown} of {found.size}")
    return Rollouts(found[..., None])


class PromptTerms(NamedTuple):
    """What each prompt says: gradient estimates (..., B, J); estimates of ||g||^2 and of the terms of c2 and c3 (..., B)."""

    gradients: Array
    power: Array
    c2: Array
    c3: Array

    def components(self) -> GroupSizeLaw:
        """Return the unbiased estimates of c1, c2 and c3; needs B >= 2.

        An estimate of c1 that is 0 but for rounding is 0: its sign decides whether there is an optimal group size.
        """
        u, size = self.gradients, self.gradients.shape[-2]
        # ||g||^2 is the mean of u_a . u_b over different prompts: the square of the sum, less the sum of squares.
        product = added(added(u, -2) ** 2 - added(u**2, -2), -1) / (size * (size - 1.0))
        # c1 = E||g(X) - g||^2 = E||g(X)||^2 - ||g||^2 (docs/derivations.md, sections 2 and 8).
        c1, c2, c3 = self.power.mean(axis=-1) - product, self.c2.mean(axis=-1), self.c3.mean(axis=-1)
        return GroupSizeLaw(np.where(np.abs(c1) <= ROUNDING * (np.abs(c2) + np.abs(c3)), 0.0, c1), c2, c3)

    def influences(self) -> Array:
        """Return what each prompt adds to the error of the three estimates, shape (..., 3, B); needs B >= 3.

        The sums of their products over B (B - 1) are the covariance.
        """
        u, size = self.gradients, self.gradients.shape[-2]
        others = added(u * (added(u, -2)[..., None, :] - u), -1)
        found = centred(np.stack([self.power, self.c2, self.c3], axis=-2), -1)
        # c1 is the mean of the powers less the mean product of pairs, of which a prompt has a share in 2 of B.
        # Without prompt b a mean moves by -(t_b - mean t)/(B-1), and the mean product by -2 (o_b - mean o)/((B-1)(B-2)).
        # Here o_b = u_b . sum_{c != b} u_c.
        found[..., 0, :] -= 2.0 / (size - 2.0) * centred(others, -1)
        return found

    def covariance(self) -> Array:
        """Return the delete-one-prompt jackknife covariance of the estimates, shape (..., 3, 3); needs B >= 3."""
        # The jackknife: (B-1)/B sum_b d_b d_b', where d_b = -influence_b/(B-1) is what the estimates move by without prompt b.
        size, found = self.gradients.shape[-2], self.influences()
        return added(found[..., :, None, :] * found[..., None, :, :], -1) / (size * (size - 1.0))


def prompt_terms(rollouts: Groups, prompts: int) -> PromptTerms:
    """Return what each prompt says, of at least so many prompts with four responses."""
    rollouts.require(prompts=prompts, responses=4)
    gradient, advantage, independent = prompt_powers(rollouts)
    # c2 = E trace Sigma_oracle(X), trace Sigma_oracle = E||W||^2 (Z - V)^2 - ||g(x)||^2; and
    # c3 = E[Var(Z | X) E(||W||^2 | X) + ||g(X)||^2] (docs/derivations.md, section 2).
    return PromptTerms(prompt_gradients(rollouts), gradient, advantage - gradient, independent + gradient)


@typed
def estimate_group_size_law(rollouts: Groups) -> GroupSizeLaw:
    """Estimate c1, c2 and c3 without bias from a pilot batch.

    c1 = E||g(X)||^2 - ||g||^2, c2 = E[E(||W||^2 (Z - V)^2 | X) - ||g(X)||^2] and c3 = E[Var(Z|X) E(||W||^2|X) + ||g(X)||^2].
    What stands under E is estimated by each prompt's U-statistics (`prompt_powers`), ||g||^2 by the products of different
    prompts' gradient estimates. The mean of W must be 0, as that of a score is.

    Parameters
    ----------
    rollouts : Rollouts or RaggedRollouts
        B >= 2 prompts drawn from f, G >= 4; scores in full, or in orthonormal coordinates.

    Returns
    -------
    GroupSizeLaw
        Shape (...).

    Examples
    --------
    >>> import grpo_theory as gt
    >>> data = gt.data.sampled_answers()  # of a language model
    >>> rollouts = gt.Rollouts(data.rewards[data.index], data.sketches[data.index])
    >>> round(float(gt.intervals.estimate_group_size_law(rollouts).optimum), 1)
    3.1
    """
    return prompt_terms(rollouts, 2).components()


def bootstrap_quantiles(terms: PromptTerms, weights: Array, resamples: int, level: float, rng: Rng | None) -> tuple[Array, Array]:
    """Return the two quantiles of (estimate* - mean*)/se* for L combinations of c1, c2 and c3, both of shape (..., L).

    The weights (..., L, 3) may differ from dataset to dataset. The quantiles are kept on their own sides of 0, so that limits
    made of them have the estimate between them. All datasets along the leading axes share the resamples; statistics of different
    datasets are uncorrelated given these.

    Raises
    ------
    ValueError
        If the resamples are too few for the level.
    """
    resamples, size = as_count("resamples", resamples), terms.power.shape[-1]
    rank = floor((resamples + 1) * (1.0 - level) / 2.0 + 1e-9)
    if rank < 1:
        raise ValueError(f"resamples must be at least 2/(1 - level) - 1 = {2.0 / (1.0 - level) - 1.0:.0f}, got {resamples}")
    drawn = np.random.default_rng(as_seed_sequence(rng)).multinomial(size, np.full(size, 1.0 / size), size=resamples)
    counts, ranks = np.ascontiguousarray(drawn.T, dtype=np.float64), [rank - 1, resamples - rank]
    quantiles = np.empty((*weights.shape[:-1], 2))
    for i in np.ndindex(terms.power.shape[:-1]):
        statistics = studentised(PromptTerms(*(term[i] for term in terms)), weights[i], counts)
        quantiles[i] = np.partition(statistics, ranks, axis=-1)[:, ranks]
    return np.minimum(quantiles[..., 0], 0.0), np.maximum(quantiles[..., 1], 0.0)


def studentised(terms: PromptTerms, weights: Array, counts: Array) -> Array:
    """Return the studentised statistics (L, R) of one dataset, from the numbers of times (B, R) that each prompt is drawn.

    A resample can hold a prompt twice. So the resampled mean of products of different prompts is centred at the mean of all
    products of the data. That mean includes the products of a prompt with itself.
    """
    u, size, of_product = terms.gradients, len(counts), weights[:, 0]
    total, linear = u.sum(axis=0), weights @ np.stack([terms.power, terms.c2, terms.c3])
    # The resampled mean of U_a* . U_b* over different draws has the mean |mean U|^2 (docs/derivations.md, section 10).
    centre = linear.mean(axis=1) - of_product * (total @ total) / size**2
    # The product of each prompt's estimate with those of all others drawn (B, R), and means over the resample.
    with_others = np.linalg.multi_dot([u, u.T, counts]) - (u**2).sum(axis=1, keepdims=True)
    mean, product = added(counts * linear[:, :, None], 1) / size, added(counts * with_others, 0) / size
    slope = (2.0 * of_product / (size - 2.0))[:, None]
    influence = linear[:, :, None] - slope[:, None] * with_others - (mean - slope * product)[:, None]
    error = np.sqrt(added(counts * influence * influence, 1) / (size * (size - 1.0)))
    excess = mean - of_product[:, None] * product / (size - 1.0) - centre[:, None]
    return np.divide(excess, error, out=np.copysign(FAR, excess), where=error > 0.0)


SINGULAR = 1e-12
"""The least eigenvalue of a correlation matrix, and the least ratio of standard deviations, that count as more than rounding."""


@interval_function
def gradient_jackknife(rollouts: Groups, level: float = 0.95) -> Interval:
    """Interval of each component of (1/B) sum_b g(X_b), the gradient averaged over the prompts at hand.

    This is the jackknife of the U-statistic, with prompts as strata: within each prompt one response is deleted at a time
    (Arvesen 1969). The degrees of freedom are Satterthwaite's (1946). It sees how responses vary, not how prompts do. For the
    population's gradient E g(X), delete prompts instead: the jackknife that deletes one prompt at a time is `gradient_between`.

    Coverage: for the prompts at hand, at least nominal as B G grows. It is somewhat above nominal at small G, where the
    jackknife's variance is too large in the second order (`prompt_jackknife_variances`). For the population's gradient it tends
    to ``P(|N(0,1)| < z sqrt(v/(w + c1)))`` as B grows. Here ``w = c2/G + c3/(G(G-1))`` and ``v = c2/G + 2 c3/(G(G-2))``, in the
    component's own c's. This limit is below nominal unless prompts hardly differ in gradient, and falls in G.
    Measured (study "coverage"), for the population's gradient, worst component: short, far so on a language model's head.

    Parameters
    ----------
    rollouts : Rollouts or RaggedRollouts
        B >= 1, G >= 3.
    level : float, default 0.95

    Returns
    -------
    Interval
        Shape (..., J), in units of score times reward.

    Raises
    ------
    ValueError
        On too few responses, and for one dataset in which a component's products of score and reward do not vary.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("linear"), gt.Pilot(batch_size=64, group_size=8)
    >>> rollouts = pilot.take(pilot.sample(problem, 0, 1), 0)
    >>> narrow, wide = gt.intervals.gradient_jackknife(rollouts), gt.intervals.gradient_between(rollouts)
    >>> bool((narrow.standard_error < wide.standard_error).all())  # it does not see how prompts vary
    False
    """
    variances = prompt_jackknife_variances(rollouts)
    total = variances.sum(axis=-2)
    # Satterthwaite's degrees of freedom of a sum: (sum v_b)^2 / sum v_b^2/(G_b - 1).
    first = rollouts.sizes[0] - 1.0
    squares = (variances**2 * (first / (rollouts.sizes - 1.0))[:, None]).sum(axis=-2)
    degrees = first * np.divide(total**2, squares, out=np.ones_like(total), where=squares > 0.0)
    # Var(mean_b U_b) given the prompts is sum_b Var(U_b)/B^2 (docs/derivations.md, section 9).
    estimate, error = prompt_gradients(rollouts).mean(axis=-2), np.sqrt(total) / rollouts.batch_size
    of = "the products of centred score and reward"
    return student_interval(estimate, error, degrees, level, single=rollouts.single, of=of)


@interval_function
def gradient_between(rollouts: Groups, level: float = 0.95) -> Interval:
    """Interval of each component of the population's gradient E[W Z], from the variance between prompts.

    This is Student's t with B - 1 degrees of freedom on the prompts' leave-one-out estimates. It is the same as the jackknife
    that deletes one prompt at a time. The variance between prompts' estimates includes both sources, ``c1/B`` and
    ``c2/(BG) + c3/(BG(G-1))``.

    Coverage: nominal as B grows, for every G >= 2. At small B it is that of a t interval on B skewed values, which can be below
    nominal where successes are rare.
    Measured (study "coverage"), worst component: near nominal with 64 prompts, and short with 16 on near-deterministic policies.
    It is far below nominal with few successes, where most batches have no answer.

    Parameters
    ----------
    rollouts : Rollouts or RaggedRollouts
        B >= 2, G >= 2.
    level : float, default 0.95

    Returns
    -------
    Interval
        Shape (..., J), in units of score times reward.

    Raises
    ------
    ValueError
        On too few prompts or responses, and for one dataset in which a component is the same at all prompts.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("linear"), gt.Pilot(batch_size=64, group_size=8)
    >>> rollouts = pilot.take(pilot.sample(problem, 0, 1), 0)
    >>> gt.intervals.gradient_between(rollouts).covers(gt.exact.gradient(problem, problem.theta)).tolist()
    [True, True, False, True, True]
    """
    rollouts.require(prompts=2)
    found, of = prompt_gradients(rollouts), "the prompts' gradient estimates"
    degrees = rollouts.batch_size - 1
    return student_interval(found.mean(axis=-2), error_of_mean(found, -2), degrees, level, single=rollouts.single, of=of)


@interval_function
def gradient_ellipsoid(rollouts: Groups, level: float = 0.95) -> Ellipsoid:
    """Joint confidence set of the population's gradient E[W Z]: Hotelling's T^2 on the prompts' leave-one-out estimates.

    The set is ``{x : (x - m)' (S/B)^-1 (x - m) <= J (B-1)/(B-J) F_{J, B-J}}``, with m the mean and S the covariance of the B
    estimates (Hotelling 1931). Scores of a softmax are orthogonal to constant shifts of its logits, so S is singular in raw
    coordinates. Take components along directions that the scores span (`Rollouts.along`).

    Coverage: nominal as B/J grows, and exact if the estimates were normal. It is below nominal where B is not far above J and the
    estimates are skewed, for instance because most responses are the same. The set needs more prompts than one component's
    interval does.
    Measured (study "coverage"), J = 4: near nominal on a half-trained policy, far short on near-deterministic ones and where
    success is rare.

    Parameters
    ----------
    rollouts : Rollouts or RaggedRollouts
        B > J, G >= 2.
    level : float, default 0.95

    Returns
    -------
    Ellipsoid
        Shape (...), in J dimensions.

    Raises
    ------
    ValueError
        On too few prompts or responses, and for one dataset whose covariance is singular. The message then names a unit vector
        along which the estimates do not vary.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("linear"), gt.Pilot(batch_size=64, group_size=8)
    >>> rollouts = pilot.take(pilot.sample(problem, 0, 1), 0).along(np.eye(5)[:2])
    >>> bool(gt.intervals.gradient_ellipsoid(rollouts).covers(gt.exact.gradient(problem, problem.theta)[:2]))
    True
    """
    level = check_level(level)
    size, dimension = rollouts.batch_size, rollouts.known_scores.shape[-1]
    rollouts.require(prompts=dimension + 1)
    gradients = prompt_gradients(rollouts)
    deviations = centred(gradients, -2)
    covariance = np.swapaxes(deviations, -1, -2) @ deviations / (size * (size - 1.0))
    # Singular is what a correlation matrix of least eigenvalue 0 is, whatever the components' units.
    errors = np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))
    constant = ~(errors > SINGULAR * errors.max(axis=-1, keepdims=True))
    scales = np.where(constant, 1.0, errors)
    correlation = covariance / (scales[..., :, None] * scales[..., None, :])
    correlation = np.where(constant[..., :, None] | constant[..., None, :], 0.0, correlation)
    eigenvalues, vectors = np.linalg.eigh(correlation)
    singular = eigenvalues[..., 0] <= SINGULAR
    if rollouts.single and singular:
        direction = vectors[:, 0] / scales
        direction = direction / np.linalg.norm(direction)
        vector = np.array2string(direction, precision=4, suppress_small=True, threshold=64, separator=", ")
        raise ValueError(
            f"the prompts' gradient estimates do not vary along the unit vector {vector}: their covariance is singular; "
            "take components along fewer directions (Rollouts.along)"
        )
    # Hotelling's T^2 is J (B - 1)/(B - J) times F of J and B - J degrees of freedom.
    radius = dimension * (size - 1.0) / (size - dimension) * fdtri(dimension, size - dimension, level)
    covariance = np.where(singular[..., None, None], np.nan, covariance)
    return Ellipsoid(gradients.mean(axis=-2), covariance, np.where(singular, np.nan, radius), level)


BEYOND = "a limit is beyond the rewards, which are 0 and 1; value_effective has limits within them"
"""The note on limits of Student's t that no success rate can have."""


@interval_function
def value_naive(rollouts: Groups, level: float = 0.95) -> Interval:
    """Interval of the value E[Z] that treats all B G rewards as independent; for comparison, not for use.

    Coverage: below nominal wherever prompts differ in value. Let rho be the share of a reward's variance that lies between
    prompts. The estimate's variance is ``(1 + (G-1) rho)/(BG)`` times a reward's, and the interval leaves out the factor
    ``1 + (G-1) rho``. As B grows, coverage tends to ``P(|N(0,1)| < z / sqrt(1 + (G-1) rho))``, which falls to 0 as G grows.
    Measured (study "coverage"): short everywhere, most on near-deterministic policies, however many prompts.
    Ragged groups count by their sizes, as if every response had a prompt of its own.

    Parameters
    ----------
    rollouts : Rollouts or RaggedRollouts
        At least two rewards.
    level : float, default 0.95

    Returns
    -------
    Interval
        Shape (...), in units of reward.

    Raises
    ------
    ValueError
        On fewer than two rewards, and for one dataset whose rewards are all equal.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> data = gt.data.sampled_answers()
    >>> rollouts = gt.Rollouts(data.rewards[data.index])
    >>> naive, clustered = gt.intervals.value_naive(rollouts), gt.intervals.value_clustered(rollouts)
    >>> bool(naive.standard_error < 0.5 * clustered.standard_error)
    True
    """
    size = int(rollouts.sizes.sum())
    if size < 2:
        raise ValueError("rollouts must have at least 2 rewards, got 1")
    rewards = rollouts.rewards.reshape(*rollouts.rewards.shape[:-2], size)
    estimate, error = shifted_mean(rewards, -1), error_of_mean(rewards, -1)
    return student_interval(estimate, error, size - 1, level, single=rollouts.single, of="the rewards")


@interval_function
def value_clustered(rollouts: Groups, level: float = 0.95, objective: Objective | None = None) -> Interval:
    """Interval of the value E[Z] from the B mean rewards of the prompts, Student's t with B - 1 degrees of freedom.

    With an objective F it is the interval of the mean of F(reward law) over prompts. Each prompt's estimate is unbiased for the
    best of k <= G, pass@k say, and order statistics. For other objectives it is the jackknife's: that has a bias of order
    1/G^2, and none where F is linear or quadratic. More prompts do not reduce this bias; larger groups do.

    For comparison, and for rewards without bounds; the library recommends and uses `value_effective`. These limits do not know
    the range of rewards: with few prompts they go beyond 0 or 1, and `note` then says so.

    Coverage: nominal as B grows, for every G. Below nominal where most prompts have no success at all, because then the mean and
    its standard error are small together.
    Measured (study "coverage"): nominal at 64 prompts, and a little short at 16. Where success is rare it is short, most so with
    few responses in all, because most such batches have no success.

    Parameters
    ----------
    rollouts : Rollouts or RaggedRollouts
        B >= 2.
    level : float, default 0.95
    objective : Objective, optional
        What is to be covered in place of the mean reward. Its rewards are the values that came in the rollouts.

    Returns
    -------
    Interval
        Shape (...), in units of reward, or of the objective.

    Raises
    ------
    ValueError
        On fewer than two prompts, and for one dataset whose prompts have equal mean rewards. With an objective also where groups
        are too small for it, or an estimate is infinite.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> data = gt.data.sampled_answers()
    >>> interval = gt.intervals.value_clustered(gt.Rollouts(data.rewards[data.index]))
    >>> round(float(interval.low), 3), round(float(interval.high), 3)
    (0.308, 0.413)
    >>> pass_at_4 = gt.intervals.value_clustered(gt.Rollouts(data.rewards[data.index]), objective=gt.Objective.best_of(4))
    >>> round(float(pass_at_4.low), 3), round(float(pass_at_4.high), 3)
    (0.568, 0.698)
    """
    rollouts.require(prompts=2)
    rollouts = estimated(rollouts, objective)
    # Rewards are taken from the first before they are averaged, so that prompts with equal rewards differ by exactly 0.
    first = rollouts.rewards.reshape(*rollouts.rewards.shape[:-2], -1)[..., :1]
    above = rollouts.by_prompt(lambda same: (same.rewards - first[..., None]).mean(axis=-1))
    estimate, error, of = first[..., 0] + above.mean(axis=-1), error_of_mean(above, -1), "the prompts' mean rewards"
    found = student_interval(estimate, error, rollouts.batch_size - 1, level, single=rollouts.single, of=of)
    binary = rollouts.single and bool(np.isin(rollouts.rewards, (0.0, 1.0)).all())
    return replace(found, note=BEYOND) if binary and not 0.0 <= found.low <= found.high <= 1.0 else found


@interval_function
def value_effective(
    rollouts: Groups, level: float = 0.95, bounds: ArrayLike = (0.0, 1.0), objective: Objective | None = None
) -> Interval:
    """Interval of the value E[Z] of bounded rewards, success rates say: Clopper-Pearson at an effective sample size.

    The library recommends this one, and the planner uses it. It stays within the bounds, and it alone was measured to hold over
    the whole design. `value_clustered` falls to 47% where success is rare, and to 92% with 16 prompts.

    Rewards are brought to [0, 1]. Let m be their mean and s its clustered standard error. By Korn and Graubard (1998) the BG
    responses carry as much information as ``n = m (1 - m)/s^2`` independent draws of 0 or 1. This n is kept within [B, BG].
    The design effect is ``1 + (G-1) rho``, with the share rho of the variance between prompts in [0, 1]. Without any
    success, or without any failure, n = B. It is then multiplied by ``(t_{BG-1}/t_{B-1})^2`` for the degrees of freedom behind
    s. In ragged groups prompts count equally, and the variance of their mean is
    ``(sigma^2/B) (rho + (1 - rho) mean(1/G_b))``. BG is then replaced by B times the
    harmonic mean of the groups' sizes G_b.

    Coverage: about nominal or above, also where successes are few and Student's t fails. The interval is wider than
    `value_clustered` where there are many. Below nominal where few prompts carry all the successes, because the design effect
    cannot be seen then.
    Without success the upper limit is never too low: P(no success) = E[(1 - V(X))^G]^B <= (1 - E V(X))^B.
    Measured (study "coverage"): at least nominal, within the error of the study, over the whole design.

    Of an objective about k responses a group of G has no more than G/k independent ones, rounded down, in the place of G. Of
    other objectives it has one. Where nearly all groups have a success, `value_clustered` is too narrow for pass@k; this is not.

    Parameters
    ----------
    rollouts : Rollouts or RaggedRollouts
        B >= 2; rewards within the bounds.
    level : float, default 0.95
    bounds : (float, float), default (0, 1)
        The least and the largest reward that there can be, or the least and the largest of the objective.
    objective : Objective, optional
        What is to be covered in place of the mean reward, see `value_clustered`: pass@k is ``gt.Objective.best_of(k)``.

    Returns
    -------
    Interval
        Shape (...), in units of reward, or of the objective. Never degenerate.

    Raises
    ------
    ValueError
        On fewer than two prompts, and on rewards or estimates of the objective beyond the bounds.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> interval = gt.intervals.value_effective(gt.Rollouts([[0.0, 0.0, 0.0, 0.0]] * 10))
    >>> float(interval.low), round(float(interval.high), 3)  # no success among 10 prompts
    (0.0, 0.37)
    """
    level = check_level(level)
    rollouts.require(prompts=2)
    ends = as_numbers("bounds", bounds)
    if ends.shape != (2,) or not -np.inf < ends[0] < ends[1] < np.inf:
        raise ValueError(f"bounds must be the least and the largest reward that there can be, as (0, 1), got {shown(bounds)}")
    sizes, rollouts = rollouts.sizes, estimated(rollouts, objective)
    if objective is not None:
        sizes = np.maximum(sizes // objective.draws, 1) if objective.draws else np.ones_like(sizes)
    beyond = rollouts.rewards[(rollouts.rewards < ends[0]) | (rollouts.rewards > ends[1])]
    if beyond.size:
        raise ValueError(f"rewards must lie within the bounds {ends[0]:g} and {ends[1]:g}, got {beyond[0]:g}: state others")
    means = rollouts.by_prompt(lambda same: same.rewards.mean(axis=-1))
    return effective_interval(means, sizes, (float(ends[0]), float(ends[1])), level)


def effective_interval(means: Array, sizes: Integers, bounds: tuple[float, float], level: float) -> Interval:
    """Return `value_effective` from the prompts' mean rewards (..., B) and numbers of responses (B,)."""
    (least, most), size = bounds, means.shape[-1]
    # B/mean_b(1/G_b), which is B G if all groups have one size (docs/derivations.md, section 33).
    total = size**2 * sizes[0] / (sizes[0] / sizes).sum()
    scaled = (means - least) / (most - least)
    rate, error = scaled.mean(axis=-1), error_of_mean(scaled, -1)
    # Korn and Graubard (1998): n = m (1 - m)/s^2, kept within [B, BG], times (t_{BG-1}/t_{B-1})^2.
    spread = rate * (1.0 - rate)
    effective = np.divide(spread, error**2, out=np.full_like(spread, np.inf), where=error > 0.0)
    effective = np.where(spread > 0.0, np.clip(effective, size, total), size)
    effective = effective * (student_quantile(total - 1, level) / student_quantile(size - 1, level)) ** 2
    low, high = binomial_limits(rate * effective, (1.0 - rate) * effective, level)
    estimate, low, high = (least + (most - least) * one for one in (rate, low, high))
    return Interval(estimate, (most - least) * error, low, high, level)


def _combination(
    rollouts: Groups, sizes: tuple[int, int] | None, level: float, resamples: int | None = None, rng: Rng | None = None
) -> Interval:
    """Return the interval of c1, c2 and c3, or of the error at a batch and group size, of which none can be below 0.

    Quantiles are Student's, or those of so many resamples.
    """
    weights = np.eye(3) if sizes is None else mse_weights(*sizes)
    if sizes is not None and weights.ndim != 1:
        raise ValueError(f"batch_size and group_size must be single numbers, got {sizes[0]!r} and {sizes[1]!r}")
    level, terms, rows = check_level(level), prompt_terms(rollouts, 3), np.atleast_2d(weights)
    law, degrees, of = terms.components(), rollouts.batch_size - 1, "the prompts' terms of the error"
    estimate = np.stack([law.c1, law.c2, law.c3], axis=-1) @ rows.T
    # Var(k'c) = k' Cov(c) k for weights k of c = (c1, c2, c3), in which the error is linear (docs/derivations.md, section 8).
    error = np.sqrt(np.einsum("li,...ij,lj->...l", rows, terms.covariance(), rows))
    found = student_interval(estimate, error, degrees, level, single=rollouts.single, of=of)
    low, high = found.low, found.high
    if resamples is not None:
        every = np.broadcast_to(rows, (*estimate.shape[:-1], *rows.shape))
        lower, upper = bootstrap_quantiles(terms, every, resamples, level, rng)
        known = np.where(np.isnan(low), np.nan, error)
        low, high = estimate - upper * known, estimate - lower * known
    low, high = np.maximum(low, 0.0), np.maximum(high, 0.0)
    if weights.ndim == 1:
        estimate, error, low, high = (part[..., 0] for part in (estimate, error, low, high))
    return Interval(estimate, error, low, high, level)


@interval_function
def components_jackknife(rollouts: Groups, level: float = 0.95) -> Interval:
    """Interval of each of c1, c2 and c3 in MSE = c1/B + c2/(BG) + c3/(BG(G-1)).

    Unbiased estimates (`estimate_group_size_law`), the jackknife that deletes one prompt at a time, Student's t with B - 1
    degrees of freedom, limits cut at 0.

    Coverage: nominal as B grows. The estimates are quadratic or quartic in scores, so skewed: below nominal at small B, on the
    upper side above all. Where c1 = 0 its estimate is a degenerate U-statistic, the jackknife's variance is twice too large, and
    coverage is above nominal.
    Measured (study "coverage"): c2 and c3 near nominal with 64 prompts, c1 short; all short with 16, and on near-deterministic
    policies. Not to be used where success is rare.

    Parameters
    ----------
    rollouts : Rollouts or RaggedRollouts
        B >= 3 prompts drawn from f, G >= 4; scores in full, or in orthonormal coordinates.
    level : float, default 0.95

    Returns
    -------
    Interval
        Shape (..., 3), in units of squared gradient norm.

    Raises
    ------
    ValueError
        On too few prompts or responses, and for one dataset in which a component does not vary between prompts.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("linear"), gt.Pilot(batch_size=64, group_size=8)
    >>> rollouts, law = pilot.take(pilot.sample(problem, 0, 1), 0), gt.group_size_law(problem, problem.theta)
    >>> gt.intervals.components_jackknife(rollouts).covers([law.c1, law.c2, law.c3]).tolist()
    [True, True, True]
    """
    return _combination(rollouts, None, level)


@interval_function
def components_bootstrap(rollouts: Groups, level: float = 0.95, *, resamples: int = 999, rng: Rng | None = None) -> Interval:
    """Interval of each of c1, c2 and c3, with quantiles from a bootstrap-t over prompts in place of Student's.

    Otherwise as `components_jackknife`. B prompts are drawn with replacement, and the studentised statistic is recomputed; its
    quantiles follow the skewness that t's do not. All datasets along the leading axes share the resamples.

    Coverage: nominal as B grows, with an error of smaller order in B than the jackknife's where the component is above 0. Where
    c1 = 0 its estimate is degenerate and no bootstrap of it is consistent.
    Measured (study "coverage"): better than the jackknife for c2 and c3, which it covers; not for c1, where it is short.

    Parameters
    ----------
    rollouts : Rollouts or RaggedRollouts
        B >= 3 prompts drawn from f, G >= 4; scores in full, or in orthonormal coordinates.
    level : float, default 0.95
    resamples : int, default 999
        R, at least 2/(1 - level) - 1.
    rng : int, SeedSequence or Generator, optional

    Returns
    -------
    Interval
        Shape (..., 3), in units of squared gradient norm.

    Raises
    ------
    ValueError
        On too few resamples, and as `components_jackknife`.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("linear"), gt.Pilot(batch_size=32, group_size=8)
    >>> rollouts = pilot.take(pilot.sample(problem, 0, 1), 0)
    >>> gt.intervals.components_bootstrap(rollouts, resamples=99, rng=0).low.shape
    (3,)
    """
    return _combination(rollouts, None, level, resamples, rng)


@interval_function
def mse_jackknife(rollouts: Groups, batch_size: int, group_size: int, level: float = 0.95) -> Interval:
    """Interval of the leave-one-out estimator's mean squared error at any batch and group size.

    The pilot's own sizes need not be those asked about. Otherwise as `components_jackknife`: the error is linear in c1, c2, c3.

    Coverage: as `components_jackknife`. It is best near the pilot's own group size; far below it c3 rules, and far above it c1,
    which is the hardest to estimate.
    Measured (study "coverage") for the error at B = 256, G = 16: short with 64 prompts, more so with 16, most where success is
    rare.

    Parameters
    ----------
    rollouts : Rollouts or RaggedRollouts
        B >= 3 prompts drawn from f, G >= 4; scores in full, or in orthonormal coordinates.
    batch_size, group_size : int
        What the error is asked at: at least 1 and 2.
    level : float, default 0.95

    Returns
    -------
    Interval
        Shape (...), in units of squared gradient norm.

    Raises
    ------
    ValueError
        On sizes out of range, and as `components_jackknife`.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("linear"), gt.Pilot(batch_size=64, group_size=8)
    >>> rollouts = pilot.take(pilot.sample(problem, 0, 1), 0)
    >>> truth = gt.gradient_mse(problem, problem.theta, "rloo", batch_size=64, group_size=16)
    >>> bool(gt.intervals.mse_jackknife(rollouts, batch_size=64, group_size=16).covers(truth))
    True
    """
    return _combination(rollouts, (batch_size, group_size), level)


@interval_function
def mse_bootstrap(
    rollouts: Groups, batch_size: int, group_size: int, level: float = 0.95, *, resamples: int = 999, rng: Rng | None = None
) -> Interval:
    """Interval of the leave-one-out estimator's mean squared error, with quantiles from a bootstrap-t over prompts.

    Otherwise as `mse_jackknife`; the resamples as in `components_bootstrap`.

    Coverage: nominal as B grows, with an error of smaller order in B than the jackknife's.
    Measured (study "coverage") for the error at B = 256, G = 16: nearer to nominal than the jackknife; short with 16 prompts.

    Parameters
    ----------
    rollouts : Rollouts or RaggedRollouts
        B >= 3 prompts drawn from f, G >= 4; scores in full, or in orthonormal coordinates.
    batch_size, group_size : int
        What the error is asked at: at least 1 and 2.
    level : float, default 0.95
    resamples : int, default 999
        R, at least 2/(1 - level) - 1.
    rng : int, SeedSequence or Generator, optional

    Returns
    -------
    Interval
        Shape (...), in units of squared gradient norm.

    Raises
    ------
    ValueError
        On sizes out of range, too few resamples, and as `components_jackknife`.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("linear"), gt.Pilot(batch_size=32, group_size=8)
    >>> rollouts = pilot.take(pilot.sample(problem, 0, 1), 0)
    >>> interval = gt.intervals.mse_bootstrap(rollouts, batch_size=64, group_size=16, resamples=99, rng=0)
    >>> bool(interval.low < interval.high)
    True
    """
    return _combination(rollouts, (batch_size, group_size), level, resamples, rng)


UNBOUNDED = (
    "the upper limit is infinite because the data do not rule out c1 = 0, prompts that do not differ in gradient. A larger "
    "group is then always better. More prompts would tell"
)


def _optimum_interval(
    rollouts: Groups, level: float, *, logarithm: bool = False, resamples: int | None = None, rng: Rng | None = None
) -> Interval:
    """Return the interval of G* from limits of c3/c1; the standard error is the delta method's on log(c3/c1).

    The limits are the delta method's too, or with `logarithm` false Fieller's, by Student's quantiles or those of so many
    resamples.
    """
    level, terms = check_level(level), prompt_terms(rollouts, 3)
    law, covariance, t = terms.components(), terms.covariance(), student_quantile(rollouts.batch_size - 1, level)
    v11, v13, v33 = covariance[..., 0, 0], covariance[..., 0, 2], covariance[..., 2, 2]
    degenerate = ~(v11 + v33 > 0.0)
    proper = (law.c1 > 0.0) & (law.c3 > 0.0)
    # "where" computes both branches; the 1 keeps the one that is not used free of divisions by 0.
    c1, c3 = np.where(proper, law.c1, 1.0), np.where(proper, law.c3, 1.0)
    # d log(c3/c1) = dc3/c3 - dc1/c1, so that Var log(c3/c1) = s' Cov s with s = (-1/c1, 0, 1/c3).
    slopes = np.stack([-1.0 / c1, np.zeros_like(c1), 1.0 / c3], axis=-1)
    log_error = np.sqrt(np.maximum(np.einsum("...i,...ij,...j->...", slopes, covariance, slopes), 0.0))
    if logarithm:
        half = t * np.where(proper, log_error, np.inf)
        with np.errstate(over="ignore"):
            limits = c3 / c1 * np.exp(-half), c3 / c1 * np.exp(half)
    else:
        # Estimates below 0 are replaced by 0, the nearest value that the truth can have.
        lower, upper, top, bottom = -t, t, np.maximum(law.c3, 0.0), np.maximum(law.c1, 0.0)
        if resamples is not None:
            # c3* - r c1* at r = c3/c1 = tan(angle), times cos(angle): the studentised statistic has no scale
            # (docs/derivations.md, section 10).
            angle = np.arctan2(top, bottom)
            weights = np.stack([-np.sin(angle), np.zeros_like(angle), np.cos(angle)], axis=-1)[..., None, :]
            lower, upper = (each[..., 0] for each in bootstrap_quantiles(terms, weights, resamples, level, rng))
        # The limits are the ends of the hull of the ratios that pass the test. Their set can have a gap, where the two estimates
        # are strongly correlated and neither 0 nor inf is rejected. The hull covers at least as often as the set.
        limits = quotient_limits(top, bottom, (v33, v13, v11), lower, upper)
    if rollouts.single and degenerate:
        raise ValueError("the prompts' terms of the error do not vary: they say nothing about the optimal group size")
    # G* = 1 + sqrt(c3/c1) rises with c3/c1 (docs/derivations.md, section 2.1).
    low, high = (np.where(degenerate, np.nan, 1.0 + np.sqrt(ratio)) for ratio in limits)
    optimum = np.asarray(law.optimum)
    # dG*/d log r = sqrt(r)/2 = (G* - 1)/2.
    error = np.where(proper, (np.where(proper, optimum, 1.0) - 1.0) / 2.0 * np.where(proper, log_error, 0.0), np.inf)
    return Interval(optimum, error, low, high, level, UNBOUNDED if np.isinf(high).any() else "")


@interval_function
def group_size_jackknife(rollouts: Groups, level: float = 0.95) -> Interval:
    """Interval of G* = 1 + sqrt(c3/c1) by the delta method on log(c3/c1), variances from deleting one prompt at a time.

    The logarithm keeps the limits above 1, and its error hardly grows with c1's estimate. Where the estimate of c1 (or c3) is not
    above 0 the delta method cannot be used, and the interval is [1, inf].

    Coverage: nominal as B grows if c1 > 0. Do not trust the upper limit unless c1's estimate is several standard errors above 0.
    At c1 = 0 (G* infinite) the interval covers only when the estimate of c1 is below 0, however large B. `group_size_fieller`
    covers there too.
    Measured (study "coverage"): nominal on a half-trained policy; short on near-deterministic ones, where success is rare, and
    most of all at c1 = 0.

    Parameters
    ----------
    rollouts : Rollouts or RaggedRollouts
        B >= 3 prompts drawn from f, G >= 4; scores in full, or in orthonormal coordinates.
    level : float, default 0.95

    Returns
    -------
    Interval
        Shape (...), in responses.

    Raises
    ------
    ValueError
        On too few prompts or responses, and for one dataset in which nothing varies between prompts.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("linear"), gt.Pilot(batch_size=64, group_size=8)
    >>> rollouts = pilot.take(pilot.sample(problem, 0, 1), 0)
    >>> bool(gt.intervals.group_size_jackknife(rollouts).covers(gt.group_size_law(problem, problem.theta).optimum))
    True
    """
    return _optimum_interval(rollouts, level, logarithm=True)


@interval_function
def group_size_fieller(rollouts: Groups, level: float = 0.95) -> Interval:
    """Interval of G* = 1 + sqrt(c3/c1) by inverting the t tests of c3 - r c1 = 0 (Fieller 1954), variances from the jackknife.

    This is the least interval that contains all ratios r that are not rejected, with B - 1 degrees of freedom. Those ratios need
    not form an interval themselves. Where they have a gap, the gap is covered too, which is conservative. The upper limit is
    inf where c1 = 0 is not rejected: then the data do not bound the optimal group size.

    Coverage: nominal as B grows if c1 > 0. It is at least 1 - (1 - level)/2 at c1 = 0 (G* infinite), because no ratio of
    estimates is taken. At small B it is that of a t interval on skewed terms, which misses below more often than above. Any set
    with sound coverage near c1 = 0 must be unbounded with positive probability (Gleser and Hwang 1987).
    Measured (study "coverage"): a little short with 64 prompts, more so with 16; conservative at c1 = 0. Where success is rare
    the limits are nearly always infinite.

    Parameters
    ----------
    rollouts : Rollouts or RaggedRollouts
        B >= 3 prompts drawn from f, G >= 4; scores in full, or in orthonormal coordinates.
    level : float, default 0.95

    Returns
    -------
    Interval
        Shape (...), in responses.

    Raises
    ------
    ValueError
        On too few prompts or responses, and for one dataset in which nothing varies between prompts.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("linear"), gt.Pilot(batch_size=64, group_size=8)
    >>> rollouts = pilot.take(pilot.sample(problem, 0, 1), 0)
    >>> bool(gt.intervals.group_size_fieller(rollouts).covers(gt.group_size_law(problem, problem.theta).optimum))
    True
    """
    return _optimum_interval(rollouts, level)


@interval_function
def group_size_bootstrap(rollouts: Groups, level: float = 0.95, *, resamples: int = 999, rng: Rng | None = None) -> Interval:
    """Interval of G* = 1 + sqrt(c3/c1) as `group_size_fieller`, with quantiles from a bootstrap-t over prompts.

    B prompts are drawn with replacement, and ``(c3* - r c1*)/se*(r)`` is recomputed at the estimated ratio r. It is centred at
    the mean of the resampled U-statistic. That mean includes the products of a prompt's estimate with itself, because a prompt
    can be drawn twice. The quantiles follow the skewness, as t's do not. All datasets along the leading axes share the resamples.

    Coverage: as `group_size_fieller`, with an error of smaller order in B where c1 > 0. Where c1 = 0 the product term is
    degenerate and no bootstrap of it is consistent. Quantiles from R resamples add a random error of about sqrt(p(1-p)/R) to each
    tail's probability p. With very few prompts (B below about 16) resamples repeat prompts too often to be of use.
    Measured (study "coverage"): short with 16 prompts, on near-deterministic policies and where success is rare.
    `group_size_fieller` is safer.

    Parameters
    ----------
    rollouts : Rollouts or RaggedRollouts
        B >= 3 prompts drawn from f, G >= 4; scores in full, or in orthonormal coordinates.
    level : float, default 0.95
    resamples : int, default 999
        R, at least 2/(1 - level) - 1.
    rng : int, SeedSequence or Generator, optional

    Returns
    -------
    Interval
        Shape (...), in responses.

    Raises
    ------
    ValueError
        On too few prompts, responses or resamples, and for one dataset in which nothing varies between prompts.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("linear"), gt.Pilot(batch_size=32, group_size=8)
    >>> rollouts = pilot.take(pilot.sample(problem, 0, 1), 0)
    >>> interval = gt.intervals.group_size_bootstrap(rollouts, resamples=99, rng=0)
    >>> bool(1.0 <= interval.low < interval.high)
    True
    """
    return _optimum_interval(rollouts, level, resamples=resamples, rng=rng)
