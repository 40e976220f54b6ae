"""Exact mean, covariance and mean squared error of any group estimator of the policy gradient, on and off policy."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln

from grpo_theory.estimation import Estimator, find
from grpo_theory.estimation.kernel import RESPONSE_FIELDS
from grpo_theory.exact.multisets import (
    KEPT,
    MAXIMUM_COUNTS,
    MAXIMUM_RESPONSES,
    NotEnumerableError,
    add_moments,
    check_exchangeable,
    class_tables,
    count_multisets,
)
from grpo_theory.exact.score_moments import ScoreMoments, SharedScores, scores_of
from grpo_theory.problem import LogitMap, Point, Problem
from grpo_theory.validation import Array, as_count, as_numbers, as_real_array, cached_array, check_room, check_shape, typed

if TYPE_CHECKING:
    import pandas as pd


def efficiency_of(gain: ArrayLike, gradient_squared_norm: float, squared_norm: ArrayLike) -> Array:
    """Return (g . E ghat)^2/(||g||^2 E||ghat||^2) from g . E ghat, ||g||^2 and E||ghat||^2, shape (...); see `gt.efficiency`.

    Raises ValueError where ||g||^2 is 0.
    """
    if not gradient_squared_norm > 0.0:
        raise ValueError(
            "efficiency compares an estimate with the gradient, and the gradient is 0 at theta: "
            "no step gains anything to first order there. Choose a theta that is not stationary"
        )
    gain, squared = as_numbers("gain", gain), as_numbers("squared_norm", squared_norm)
    lengths = np.sqrt(squared) * np.sqrt(gradient_squared_norm)
    cosine = np.divide(gain, lengths, out=np.zeros_like(lengths), where=lengths > 0.0)
    return np.asarray(np.minimum(cosine**2, 1.0))


@dataclass(frozen=True, eq=False)
class GradientLaw:
    """First two moments of an estimator's gradient at one theta, prompts drawn from f.

    Attributes
    ----------
    logit_map : LogitMap
        Phi, the derivatives of the logits at theta.
    batch_size, group_size : int
        B prompts, G responses each.
    true_gradient : ndarray, shape (d,)
    gradient_squared_norm : float
        Its squared length, and 0 where that is no more than rounding.
    true_logit_gradients : ndarray, shape (M, D)
        c(x) with g(x) = Phi' c(x).
    prompt_weights : ndarray, shape (M,)
    mean_logit_gradients : ndarray, shape (M, D)
        c(x) with E[one group's estimate | x] = Phi' c(x).
    squared_norms : ndarray, shape (M,)
        E[||one group's estimate||^2 | x].
    shares
        What second moments are made from.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("linear")
    >>> law = gt.gradient_law(problem, problem.theta, "rloo", batch_size=8, group_size=4)
    >>> round(law.mse, 4), round(law.efficiency, 3), law.covariance().shape
    (0.006, 0.106, (5, 5))
    >>> law.variance_along([[1.0, 0.0, 0.0, 0.0, 0.0]]).round(4).tolist()
    [0.0008]
    >>> law.to_frame().shape
    (12, 4)
    """

    logit_map: LogitMap
    batch_size: int
    group_size: int
    true_gradient: Array
    gradient_squared_norm: float
    true_logit_gradients: Array
    prompt_weights: Array
    mean_logit_gradients: Array
    squared_norms: Array
    shares: list[SharedScores] = field(repr=False)

    def __repr__(self) -> str:
        sizes = f"batch_size={self.batch_size}, group_size={self.group_size}"
        return f"GradientLaw({sizes}, parameters={len(self.true_gradient)}, mse={self.mse:.4g})"

    def summary(self) -> str:
        """Return a table to be printed: sizes, the gradient's length, the estimate's error and its parts, efficiency and cosine.

        The efficiency is left out where the gradient is 0.

        Examples
        --------
        >>> import grpo_theory as gt
        >>> problem = gt.gallery.problem("tabular")
        >>> print(gt.gradient_law(problem, problem.theta, "rloo", batch_size=32, group_size=8).summary().splitlines()[6])
        mean squared error          0.0007772
        """
        rows: list[tuple[str, object]] = [
            ("batch size B", self.batch_size),
            ("group size G", self.group_size),
            ("parameters", len(self.true_gradient)),
            ("length of the true gradient", math.sqrt(self.gradient_squared_norm)),
            ("mean squared error", self.mse),
            ("of it variance (trace)", self.trace),
            ("of it squared bias", float(self.bias @ self.bias)),
            ("cosine of mean and gradient", self.cosine),
        ]
        if self.gradient_squared_norm:
            rows.append(("efficiency", self.efficiency))
        from statsmodels.iolib.table import SimpleTable  # slow to import, and not always wanted

        shown = [[name, f"{value:.4g}" if isinstance(value, float) else str(value)] for name, value in rows]
        table = SimpleTable(shown, title="Exact law of a gradient estimate", txt_fmt={"data_aligns": "lr"})
        return str(table.as_text())

    @cached_array
    def second_moments(self) -> Array:
        """A(x) with E[one group's estimate times its transpose | x] = Phi' A(x) Phi, shape (M, D, D)."""
        shape = (self.logit_map.n_prompts, self.logit_map.n_logits, self.logit_map.n_logits)
        check_room("the second moments of each prompt", shape, "gradient_mse and .trace do without")
        matrices = np.empty(shape)
        for share in self.shares:
            # E[(sum_i x_i)(sum_i x_i)'] = sum_rfg E[Q_rfg] E[u_f u_g' | r] + sum_ab P_ab m_a m_b', with P what lies between
            # (docs/derivations.md, section 4).
            between = np.swapaxes(share.within, 1, 2) @ share.between @ share.within
            matrices[share.scores.classes.prompts] = share.scores.matrices(share.squares) + between
        # ghat = (1/G) sum_i x_i, so E[ghat ghat'] = E[(sum_i x_i)(sum_i x_i)']/G^2 (docs/derivations.md, section 4).
        return matrices / self.group_size**2

    @property
    def mean(self) -> Array:
        """The expected estimate, shape (d,)."""
        return self.logit_map.adjoint(self.prompt_weights[:, None] * self.mean_logit_gradients)

    @property
    def bias(self) -> Array:
        """The expected estimate less the true gradient, shape (d,)."""
        return self.mean - self.true_gradient

    @property
    def prompt_traces(self) -> Array:
        """Trace of the covariance of one group's estimate given the prompt, shape (M,)."""
        return self.squared_norms - self.logit_map.squared_norms(self.mean_logit_gradients[:, None])[:, 0]

    @property
    def trace(self) -> float:
        """Trace of the covariance of the batch's estimate."""
        mean = self.mean
        # Groups are independent and their prompts drawn: trace Cov = (E||ghat_1||^2 - ||E ghat_1||^2)/B.
        return float(self.prompt_weights @ self.squared_norms - mean @ mean) / self.batch_size

    @property
    def mean_squared_norm(self) -> float:
        """E||estimate||^2 of the batch's estimate."""
        mean = self.mean
        # E||ghat||^2 = ||m||^2 + (P - ||m||^2)/B, P = E||one group's estimate||^2 (docs/derivations.md, section 37).
        return self.trace + float(mean @ mean)

    @property
    def cosine(self) -> float:
        """Cosine of the angle between the expected estimate and the true gradient; NaN if one of them is 0."""
        lengths = np.linalg.norm(self.mean) * np.linalg.norm(self.true_gradient)
        return float(self.mean @ self.true_gradient / lengths) if lengths > 0.0 else float("nan")

    @property
    def efficiency(self) -> float:
        """(g . E ghat)^2/(||g||^2 E||ghat||^2), between 0 and 1, see `gt.efficiency`; a ValueError where the gradient is 0."""
        return float(efficiency_of(self.true_gradient @ self.mean, self.gradient_squared_norm, self.mean_squared_norm))

    @property
    def mse(self) -> float:
        """E||estimate - true gradient||^2: trace of the covariance plus squared bias."""
        return self.trace + float(self.bias @ self.bias)

    @property
    def prompt_mses(self) -> Array:
        """E||one group's estimate - g(x)||^2 given the prompt, shape (M,)."""
        bias = self.mean_logit_gradients - self.true_logit_gradients
        return self.prompt_traces + self.logit_map.squared_norms(bias[:, None])[:, 0]

    @property
    def prompt_mse(self) -> float:
        """Mean over prompts of one group's squared error about its prompt's gradient g(x)."""
        return float(self.prompt_weights @ self.prompt_mses)

    def to_frame(self) -> pd.DataFrame:
        """Return a DataFrame with one row per prompt: its weight, and one group's trace of the covariance and squared error."""
        import pandas as pd  # slow to import, and not always wanted

        columns = {
            "prompt": np.arange(len(self.prompt_weights)),
            "weight": self.prompt_weights,
            "trace": self.prompt_traces,
            "mse": self.prompt_mses,
        }
        return pd.DataFrame(columns)

    def covariance(self) -> Array:
        """Return the covariance of the batch's estimate, shape (d, d)."""
        # Cov ghat = (sum_m f_m Phi_m' A_m Phi_m - m m')/B for B independent groups.
        second = self.logit_map.congruence(self.prompt_weights[:, None, None] * self.second_moments)
        return (second - np.outer(self.mean, self.mean)) / self.batch_size

    def variance_along(self, directions: ArrayLike) -> Array:
        """Return the variance of <v, estimate> for each direction v, shape (J,), for directions of shape (J, d)."""
        directions = as_real_array("directions", directions, 2)
        check_shape("directions", directions, (len(directions), self.logit_map.dimension), "(J, d)")
        along = self.logit_map.logits(directions)
        # Var <v, ghat> = (sum_m f_m (Phi_m v)' A_m (Phi_m v) - <v, m>^2)/B.
        second = np.einsum("m,jmk,mkl,jml->j", self.prompt_weights, along, self.second_moments, along, optimize=True)
        return (second - (directions @ self.mean) ** 2) / self.batch_size


@typed
def gradient_law(
    problem: Problem,
    theta: ArrayLike | None = None,
    estimator: str | Estimator = "",
    *,
    batch_size: int,
    group_size: int,
    behaviour: ArrayLike | None = None,
    old: ArrayLike | None = None,
) -> GradientLaw:
    """Compute the exact first two moments of an estimator's gradient.

    All multisets of what the kernel can tell apart in a group are enumerated (docs/derivations.md, section 4).  These are
    reward values for a kernel that reads only rewards, and outcomes otherwise.  Nothing of size d x d is formed.

    Parameters
    ----------
    problem : Problem
    theta : array_like, shape (d,), optional
        The current policy's parameters, the problem's own if omitted: the error is about grad J(theta).
    estimator : str or Estimator
        Any estimator that does not couple groups.  One with a memory has the law given its start, see `Estimator.with_memory`.
    batch_size, group_size : int
        B prompts, G responses each.
    behaviour : array_like, shape (d,), optional
        The parameters of the policy that sampled; theta if omitted.
    old : array_like, shape (d,), optional
        The parameters of the trainer's policy at the start of the update, if that policy is not the one that sampled.
        Importance ratios are of theta over `old`, and the estimator's mismatch is of `old` over `behaviour`.

    Returns
    -------
    GradientLaw

    Raises
    ------
    NotEnumerableError
        If the estimator couples groups, or needs too many multisets; a ValueError.
    ValueError
        If the kernel is not exchangeable or yields NaN, or an importance ratio is infinite.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("linear")
    >>> law = gt.gradient_law(problem, problem.theta, "grpo", batch_size=8, group_size=4)
    >>> round(law.mse, 4), round(law.efficiency, 3)
    (0.012, 0.106)
    """
    current, sampler = points_at(problem, theta, behaviour)
    began = sampler.theta if old is None else problem.policy.check_theta(old, "old")
    start = None
    if not np.array_equal(began, sampler.theta):
        start = current if np.array_equal(began, current.theta) else problem.at(began)
    return law_between(current, sampler, estimator, batch_size=batch_size, group_size=group_size, old=start)


def points_at(problem: Problem, theta: ArrayLike | None, behaviour: ArrayLike | None) -> tuple[Point, Point]:
    """Return the problem at theta (d,), and at the parameters of the policy that samples: one point where these are equal."""
    current = problem.at(theta)
    sampled = current.theta if behaviour is None else problem.policy.check_theta(behaviour, "behaviour")
    # A policy's own draws are on policy, whether it is named or not: ratios are 1 whatever they are made of.
    return current, current if np.array_equal(sampled, current.theta) else problem.at(sampled)


@typed
def law_between(
    current: Point,
    sampler: Point,
    estimator: str | Estimator,
    *,
    batch_size: int,
    group_size: int,
    old: Point | None = None,
) -> GradientLaw:
    """Compute `gradient_law` from two points of one problem, so that several estimators share the points' tables.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("linear")
    >>> now, before = problem.at(problem.theta), problem.at(0.9 * problem.theta)
    >>> ratio = gt.compose("reinforce_with_ratio_example", advantage="rloo", ratio="trajectory")
    >>> law = gt.exact.law_between(now, before, ratio, batch_size=8, group_size=4)
    >>> round(law.efficiency, 2)
    0.11
    """
    estimator = find(estimator).at_lengths(current.policy.lengths)
    batch_size = as_count("batch_size", batch_size)
    group_size = as_count("group_size", group_size)
    estimator.check_defined(group_size, sampler.bandit.values, sampler.policy.lengths)
    if estimator.couples_groups:
        raise NotEnumerableError(
            f"estimator {estimator.name!r} couples groups: use simulate_gradients, exact sums need one group"
        )
    scores = scores_of(current, sampler, estimator, old)
    shown = tuple(one.looks for one in scores)
    sizes = [(*looks.fields.shape[1:], count_multisets(looks.fields.shape[2], group_size)) for looks in shown]
    responses = sum(n_looks * group_size * n_multisets for n_looks, _, n_multisets in sizes)
    if responses > MAXIMUM_RESPONSES or max(n_classes * n_multisets for _, n_classes, n_multisets in sizes) > MAXIMUM_COUNTS:
        raise NotEnumerableError(
            f"estimator {estimator.name!r} at group_size {group_size} needs about 1e{int(math.log10(responses))} responses "
            f"enumerated, and at most {MAXIMUM_RESPONSES:.0e} are: use simulate_gradients"
        )
    # If there are few looks, the same are not checked again at another theta.
    few = group_size * sum(looks.fields.size for looks in shown) <= KEPT
    (check_exchangeable if few else check_exchangeable.__wrapped__)(estimator.advantage, shown, group_size)
    shares, tangent = [_group_moments(estimator, one, group_size) for one in scores], current.tangent
    means, powers = np.zeros((tangent.n_prompts, tangent.n_logits)), np.zeros(tangent.n_prompts)
    for share in shares:
        prompts, within = share.scores.classes.prompts, share.within
        # E[sum_i x_i] = sum_rf E[S_rf] m_rf (docs/derivations.md, section 4).
        means[prompts] = np.einsum("sr,srd->sd", share.mean, within)
        # The form sum_ab P_ab <w_a, w_b> is a sum of eigenvalues times squared lengths.
        values, vectors = np.linalg.eigh(share.between)
        turned = np.zeros((tangent.n_prompts, *within.shape[1:]))
        turned[prompts] = np.swapaxes(vectors, 1, 2) @ within
        # E||sum_i x_i||^2 = sum_rfg E[Q_rfg] E[<u_f, u_g> | r] + sum_ab P_ab <w_a, w_b> (docs/derivations.md, section 4).
        own = np.einsum("srfg,srfg->s", share.squares, share.scores.products)
        powers[prompts] = own + (values * tangent.squared_norms(turned)[prompts]).sum(axis=1)
    return GradientLaw(
        logit_map=tangent,
        batch_size=batch_size,
        group_size=group_size,
        true_gradient=current.target.gradient,
        gradient_squared_norm=current.target.known_gradient_squared_norm,
        true_logit_gradients=current.target.gradient_in_logits,
        prompt_weights=current.bandit.prompt_weights,
        mean_logit_gradients=means / group_size,
        squared_norms=powers / group_size**2,
        shares=shares,
    )


def _group_moments(estimator: Estimator, scores: ScoreMoments, group_size: int) -> SharedScores:
    """Sum the moments of a group's features over all multisets, for prompts that have equally many classes.

    What multiplies the logit gradients of a class is its advantage, split by sign if clips do, and 1 for a KL term.
    """
    n_prompts, *shape, dimension = scores.means.shape
    log_p, all_features = np.log(scores.classes.probabilities), shape[0] * shape[1]
    mean, product, squares = (np.zeros((n_prompts, *rest)) for rest in (shape, shape + shape, [*shape, shape[1]]))
    for counts, advantages in class_tables(estimator.advantage, scores.looks, group_size):
        # phi = (max(A, 0), min(A, 0), 1) (docs/derivations.md, section 4).
        split = [np.maximum(advantages, 0.0), np.minimum(advantages, 0.0)] if scores.by_sign else [advantages]
        multipliers = np.stack([*split, np.ones_like(advantages)] if scores.drifting else split, axis=-1)
        if estimator.aggregation.pool:
            # A pooled token weighs G/sum_i L_i, a function of the counts (docs/derivations.md, section 16).
            tokens = scores.looks.fields[RESPONSE_FIELDS.index("lengths")] @ counts.T
            multipliers *= (group_size / tokens)[..., None, None]
        # Logs of the multinomial coefficients, because those of some hundred responses overflow a double.
        # P(n_1..n_R) = G!/(n_1!..n_R!) prod_r p_r^n_r.
        log_weights = gammaln(group_size + 1.0) - gammaln(counts + 1.0).sum(axis=1)
        add_moments(counts, log_weights, log_p, scores.look, multipliers, mean, product, squares)
    for r in range(shape[0]):
        # The coefficient of m_rf m_sg' is E[S_rf S_sg] - 1{r = s} E[Q_rfg] (docs/derivations.md, section 4).
        product[:, r, :, r] -= squares[:, r]
    within, between = scores.means.reshape(n_prompts, -1, dimension), product.reshape(n_prompts, all_features, all_features)
    return SharedScores(scores, within, mean.reshape(n_prompts, -1), between, squares)


@typed
def gradient_covariance(
    problem: Problem,
    theta: ArrayLike | None = None,
    estimator: str | Estimator = "",
    *,
    batch_size: int,
    group_size: int,
    behaviour: ArrayLike | None = None,
) -> Array:
    """Return the exact covariance of the estimate, shape (d, d); arguments as for `gradient_law`.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("linear")
    >>> gt.gradient_covariance(problem, problem.theta, "rloo", batch_size=8, group_size=4).shape
    (5, 5)
    """
    return gradient_law(problem, theta, estimator, batch_size=batch_size, group_size=group_size, behaviour=behaviour).covariance()


@typed
def gradient_mse(
    problem: Problem,
    theta: ArrayLike | None = None,
    estimator: str | Estimator = "",
    *,
    batch_size: int,
    group_size: int,
    behaviour: ArrayLike | None = None,
) -> float:
    """Return the exact E||estimate - true gradient||^2; arguments as for `gradient_law`.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, theta = gt.gallery.problem("linear"), gt.gallery.problem("linear").theta
    >>> [round(gt.gradient_mse(problem, theta, name, batch_size=8, group_size=4), 4) for name in ("reinforce", "rloo", "oracle")]
    [0.0076, 0.006, 0.0047]
    """
    return gradient_law(problem, theta, estimator, batch_size=batch_size, group_size=group_size, behaviour=behaviour).mse


@typed
def efficiency(
    problem: Problem,
    theta: ArrayLike | None = None,
    estimator: str | Estimator = "",
    *,
    batch_size: int,
    group_size: int,
    behaviour: ArrayLike | None = None,
) -> float:
    """Return the exact efficiency of an estimator, (g . E ghat)^2/(||g||^2 E||ghat||^2), between 0 and 1.

    Efficiency is the share of the exact gradient's gain that one step with the estimate keeps.  Each takes its own best step
    length, on a quadratic objective with the same curvature in all directions.  One minus the efficiency is the squared error of
    the best multiple of the estimate, relative to ||g||^2.  A factor on the estimator, which a learning rate undoes, does not
    change the efficiency.  So it compares estimators of different multiples or directions.  docs/derivations.md, section 37, has
    the form for any curvature.  It is a square: where `cosine` of the `gradient_law` is negative, the best step is a step back.

    Parameters
    ----------
    problem, theta, estimator, batch_size, group_size, behaviour
        As for `gradient_law`.

    Returns
    -------
    float
        0 for an estimator that is 0 with probability 1, 1 for a multiple of the gradient without noise.

    Raises
    ------
    NotEnumerableError
        As for `gradient_law`; `simulate_gradients` has the efficiency of estimators that couple groups.
    ValueError
        If the gradient is 0 at theta, which no estimate is compared with; and as for `gradient_law`.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, sizes = gt.gallery.problem("lm-few-shot"), {"batch_size": 32, "group_size": 8}
    >>> [round(gt.efficiency(problem, problem.theta, name, **sizes), 3) for name in ("rloo", "dr_grpo", "grpo")]
    [0.126, 0.126, 0.17]
    """
    return gradient_law(problem, theta, estimator, batch_size=batch_size, group_size=group_size, behaviour=behaviour).efficiency
