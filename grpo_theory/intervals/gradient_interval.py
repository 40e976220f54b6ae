"""Confidence sets of the policy gradient from one batch of rollouts."""

import numpy as np
from scipy.special import fdtri

from grpo_theory.arrays import Array, Flags
from grpo_theory.intervals.interval import Ellipsoid, Interval, check_level, student_interval, vectorized
from grpo_theory.intervals.u_statistics import centred, prompt_gradients, prompt_jackknife_variances
from grpo_theory.samples import Groups
from grpo_theory.validation import typed

SINGULAR = 1e-12
"""The least eigenvalue of a correlation matrix, and the least ratio of standard deviations, that count as more than rounding."""


@vectorized
@typed
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
    first = rollouts.sizes[0] - 1.0
    squares = (variances**2 * (first / (rollouts.sizes - 1.0))[:, None]).sum(axis=-2)
    degrees = first * np.divide(total**2, squares, out=np.ones_like(total), where=squares > 0.0)
    return student_interval(
        prompt_gradients(rollouts).mean(axis=-2),
        np.sqrt(total) / rollouts.batch_size,
        degrees,
        level,
        single=rollouts.single,
        of="the products of centred score and reward",
    )


@vectorized
@typed
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
    gradients = prompt_gradients(rollouts)
    size = rollouts.batch_size
    power = (centred(gradients, -2) ** 2).sum(axis=-2)
    return student_interval(
        gradients.mean(axis=-2),
        np.sqrt(power / (size * (size - 1.0))),
        size - 1,
        level,
        single=rollouts.single,
        of="the prompts' gradient estimates",
    )


def _flat_direction(covariance: Array) -> tuple[Flags, Array]:
    """Return whether covariance matrices (..., J, J) are singular, and a unit vector (..., J) along which they then vanish."""
    deviations = np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))
    largest = deviations.max(axis=-1, keepdims=True)
    constant = ~(deviations > SINGULAR * largest)
    scales = np.where(constant, 1.0, deviations)
    correlation = covariance / (scales[..., :, None] * scales[..., None, :])
    correlation = np.where(constant[..., :, None] | constant[..., None, :], 0.0, correlation)
    eigenvalues, vectors = np.linalg.eigh(correlation)
    direction = vectors[..., :, 0] / scales
    direction = direction / np.linalg.norm(direction, axis=-1, keepdims=True)
    return eigenvalues[..., 0] <= SINGULAR, direction


@vectorized
@typed
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
    singular, direction = _flat_direction(covariance)
    if rollouts.single and singular:
        vector = np.array2string(direction, precision=4, suppress_small=True, threshold=64, separator=", ")
        raise ValueError(
            f"the prompts' gradient estimates do not vary along the unit vector {vector}: their covariance is singular; "
            "take components along fewer directions (Rollouts.along)"
        )
    radius = dimension * (size - 1.0) / (size - dimension) * fdtri(dimension, size - dimension, level)
    covariance = np.where(singular[..., None, None], np.nan, covariance)
    return Ellipsoid(gradients.mean(axis=-2), covariance, np.where(singular, np.nan, radius), level)
