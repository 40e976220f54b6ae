"""What a problem climbs, and a problem at a parameter: its tables and the exact moments of reward and score, each made once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import comb
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, gammaln

from grpo_theory.problem.logits import LogitMap, less_mean
from grpo_theory.problem.policy import KL, Bandit, Policy
from grpo_theory.validation import Array, Integers, as_count, as_real_array, cached_array, check_room, check_shape, read_only

OfLaw = Callable[[Array, Array], Array]
"""A function of reward values (L,) and their probabilities (..., L)."""
STEP = 1e-5
AGREEMENT = 1e-5
"""A derivative is compared with central differences over a step: they are right to 1e-9 where a function is smooth."""


@dataclass(frozen=True, eq=False)
class Objective:
    """A function F of each prompt's reward law, whose mean over the prompts a problem climbs.

    Let q be the probabilities of the reward values at theta, and F_l the derivative of F in q_l.  With the score W the gradient
    of F(q) is E[F_Z W], a policy gradient with the reward F_Z in place of Z.  A constant added to all F_l changes nothing.

    Parameters
    ----------
    name : str
    value : callable
        ``value(values, law)`` returns F, shape (...), for reward values (L,), ascending, and their probabilities (..., L).
    slope : callable
        ``slope(values, law)`` returns the derivatives F_l, shape (..., L).
    curvature : callable, optional
        ``curvature(values, law)`` returns the second derivatives, shape (..., L, L).  Hessians and maximisers need it.
    estimate : callable, optional
        ``estimate(rewards)`` returns an unbiased estimate of F, shape (...), from the rewards (..., G) of groups: for intervals.
    draws : int, default 0
        How many responses F is about, as four of pass@4; 0 if no such number is known.

    Raises
    ------
    ValueError
        When a problem is made with it: if the slope is not the derivative of the value, or the rewards do not fit.

    Examples
    --------
    Pass@4, the chance that the best of four responses is right:

    >>> import numpy as np, grpo_theory as gt
    >>> bandit, policy = gt.Bandit([[0.3, 0.8]]), gt.TabularSoftmax(1, 2)
    >>> problem = gt.Problem(bandit, policy, objective=gt.Objective.best_of(4))
    >>> round(float(gt.objective(problem, problem.theta)), 6) == round(1.0 - 0.45**4, 6)
    True

    One's own, the mean less the variance:

    >>> def value(z, q):
    ...     return q @ z - (q @ z**2 - (q @ z) ** 2)
    >>> def slope(z, q):
    ...     return z - z**2 + 2.0 * (q @ z)[..., None] * z
    >>> careful = gt.Problem(bandit, policy, objective=gt.Objective("mean less variance", value, slope))
    >>> gt.exact.gradient(careful, careful.theta).round(4).tolist()
    [-0.1375, 0.1375]
    """

    name: str
    value: OfLaw
    slope: OfLaw
    curvature: OfLaw | None = None
    estimate: Callable[[Array], Array] | None = None
    draws: int = 0

    def __repr__(self) -> str:
        return f"Objective({self.name!r})"

    @classmethod
    def of_success(cls, name: str, value: Callable, slope: Callable, curvature: Callable | None = None) -> Self:
        """Return f(p), p the chance of the larger of two rewards, from f and its derivatives; f(p) = log p is `log_success`.

        Examples
        --------
        >>> import grpo_theory as gt
        >>> gt.Objective.of_success("p squared", lambda p: p**2, lambda p: 2.0 * p)
        Objective('p squared')
        """

        def rate(values: Array, law: Array) -> Array:
            if len(values) != 2:
                raise ValueError(f"objective {name!r} is of a success rate and needs two rewards, got {values.tolist()}")
            return law[..., 1]

        def slopes(values: Array, law: Array) -> Array:
            p = rate(values, law)
            return np.stack([np.zeros_like(p), slope(p)], axis=-1)

        def curvatures(values: Array, law: Array) -> Array:
            bent = np.zeros((*law.shape, 2))
            bent[..., 1, 1] = curvature(rate(values, law)) if curvature else np.nan
            return bent

        return cls(name, lambda values, law: value(rate(values, law)), slopes, curvatures if curvature else None)

    @classmethod
    def log_success(cls) -> Self:
        """Return log p of two rewards: what dividing the advantage by the group's mean climbs (Davis and Recht 2025).

        Examples
        --------
        >>> import grpo_theory as gt
        >>> problem = gt.Problem(gt.Bandit([[0.5, 0.5]]), gt.TabularSoftmax(1, 2), objective=gt.Objective.log_success())
        >>> round(float(gt.objective(problem, problem.theta)), 3)
        -0.693
        """
        return cls.of_success("log of the success rate", np.log, lambda p: 1.0 / p, lambda p: -1.0 / p**2)

    @classmethod
    def arcsin_success(cls) -> Self:
        """Return 2 arcsin sqrt(p): what dividing by the standard deviation climbs (Davis and Recht 2025).

        Examples
        --------
        >>> import grpo_theory as gt
        >>> problem = gt.Problem(gt.Bandit([[0.5, 0.5]]), gt.TabularSoftmax(1, 2), objective=gt.Objective.arcsin_success())
        >>> round(float(gt.objective(problem, problem.theta)), 3)
        1.571
        """
        return cls.of_success(
            "arcsin of the root of the success rate",
            lambda p: 2.0 * np.arcsin(np.sqrt(p)),
            lambda p: (p * (1.0 - p)) ** -0.5,
            lambda p: (p - 0.5) * (p * (1.0 - p)) ** -1.5,
        )

    @classmethod
    def mean_of(cls, worth: ArrayLike) -> Self:
        """Return the mean of what each reward is worth (L,): of several rewards together, see `gt.estimation.apart`.

        Examples
        --------
        >>> import grpo_theory as gt
        >>> gt.Objective.mean_of([0.0, 1.0, 1.0, 2.0])
        Objective('mean worth')
        """
        own = as_real_array("worth", worth, 1)

        def value(values: Array, law: Array) -> Array:
            check_shape("worth", own, values.shape, "(L,), a number for each of the problem's reward values")
            return law @ own

        return cls(
            "mean worth",
            value,
            lambda values, law: np.broadcast_to(own, law.shape),
            lambda values, law: np.zeros((*law.shape, own.size)),
            draws=1,
        )

    @classmethod
    def best_of(cls, draws: int) -> Self:
        """Return E max of so many rewards: max@k, and pass@k where rewards are 0 and 1.

        Examples
        --------
        >>> import grpo_theory as gt
        >>> gt.Objective.best_of(4)
        Objective('best of 4')
        """
        return replace(cls.order_statistic(draws, draws), name=f"best of {draws}")

    @classmethod
    def order_statistic(cls, rank: int, draws: int) -> Self:
        """Return the mean of the rank-th smallest of so many rewards, a quantile that can be climbed.

        The quantile of finitely many rewards is a step function of the law, so that its own gradient is 0 wherever it exists.

        Examples
        --------
        The median of three:

        >>> import grpo_theory as gt
        >>> gt.Objective.order_statistic(2, 3)
        Objective('2 of 3')
        """
        draws = as_count("draws", draws)
        rank = as_count("rank", rank)
        if rank > draws:
            raise ValueError(f"rank must be at most draws, {draws}, got {rank}")
        r, s = rank - 1, draws - rank
        scale = np.exp(gammaln(draws + 1.0) - gammaln(rank) - gammaln(s + 1.0))

        # E Z_(r) = z_L - sum_{l<L} (z_{l+1} - z_l) P(Z_(r) <= z_l), the last a beta law's distribution function at F_l.
        def value(values: Array, law: Array) -> Array:
            below = np.clip(np.cumsum(law, axis=-1)[..., :-1], 0.0, 1.0)
            return values[-1] - betainc(rank, s + 1.0, below) @ np.diff(values)

        def slope(values: Array, law: Array) -> Array:
            below = np.cumsum(law, axis=-1)[..., :-1]
            return _later(-np.diff(values) * scale * below**r * (1.0 - below) ** s)

        def curvature(values: Array, law: Array) -> Array:
            x = np.cumsum(law, axis=-1)[..., :-1]
            bent = scale * (r * x ** max(r - 1, 0) * (1.0 - x) ** s - s * x**r * (1.0 - x) ** max(s - 1, 0))
            by_value = _later(-np.diff(values) * bent)
            larger = np.maximum.outer(np.arange(len(values)), np.arange(len(values)))
            return by_value[..., larger]  # F_l depends on q_i and q_j where l is at least both

        def estimate(rewards: Array) -> Array:
            size = rewards.shape[-1]
            if size < draws:
                raise ValueError(f"rollouts must have at least {draws} responses per prompt for this objective, got G = {size}")
            # Of the C(G, k) subsets of a group, C(i-1, r-1) C(G-i, k-r) have its i-th smallest reward as their r-th smallest.
            ordered = np.sort(rewards, axis=-1)
            share = np.array([comb(i, r) * comb(size - 1 - i, s) / comb(size, draws) for i in range(size)])
            return ordered[..., 0] + (share * (ordered - ordered[..., :1])).sum(axis=-1)

        return cls(f"{rank} of {draws}", value, slope, curvature, estimate, draws)

    def bend(self, values: Array, law: Array, gradients: Array) -> Array:
        """Return sum_lm F_lm (grad q_l)(grad q_m)', shape (..., D, D), for gradients of the law's entries (..., L, D)."""
        if self.curvature is None:
            raise ValueError(f"{self!r} must have a curvature for a Hessian: gt.Objective(name, value, slope, curvature)")
        return np.swapaxes(gradients, -1, -2) @ self.curvature(values, law) @ gradients

    def check(self, values: Array) -> None:
        """Raise ValueError unless the slope is the derivative of the value at a law of these rewards, by central differences."""
        n = len(values)
        law = np.arange(n, 2.0 * n) / np.arange(n, 2.0 * n).sum()
        moves = STEP * (np.eye(n)[1:] - np.eye(n)[0])
        gained = (np.asarray(self.value(values, law + moves)) - self.value(values, law - moves)) / (2.0 * STEP)
        told = np.asarray(self.slope(values, law))
        if told.shape != (n,) or gained.shape != (n - 1,):
            raise ValueError(
                f"objective {self.name!r} must return values of shape (...) and slopes of shape (..., L) for laws (..., L); "
                f"slopes of {n} rewards have shape {told.shape}, and {n - 1} values shape {gained.shape}"
            )
        wrong = ~(np.abs(told[1:] - told[0] - gained) <= AGREEMENT * max(1.0, np.abs(gained).max()))
        if wrong.any():
            at = int(np.argmax(wrong))
            raise ValueError(
                f"objective {self.name!r} must have the slope that its value has: between rewards {values[0]:g} and "
                f"{values[at + 1]:g} slopes differ by {told[at + 1] - told[0]:.6g}, and values by {gained[at]:.6g} each"
            )


def _later(terms: Array) -> Array:
    """Return the sums over l >= j of terms (..., L - 1), for j = 1..L, shape (..., L)."""
    sums = np.cumsum(terms[..., ::-1], axis=-1)[..., ::-1]
    return np.concatenate([sums, np.zeros((*terms.shape[:-1], 1))], axis=-1)


ROUNDING = 64.0 * np.finfo(np.float64).eps
"""What rounding leaves of a sum that is 0, relative to what it is made of."""


@dataclass(frozen=True, eq=False)
class Moments:
    """Exact moments at one theta; X prompt, Y response, Z reward, W = grad log pi(Y|X) the score.

    Attributes
    ----------
    prompt_weights : ndarray, shape (M,)
        f(x).
    value : ndarray, shape (M,)
        V(x) = E[Z | x].
    reward_variance : ndarray, shape (M,)
        Var(Z | x).
    gradient : ndarray, shape (d,)
        g = E g(X).
    gradient_in_logits : ndarray, shape (M, D)
        The logit gradients c(x) with g(x) = Phi' c(x).
    prompt_gradient_squared_norm : ndarray, shape (M,)
        ||g(x)||^2.
    score_squared_norm : ndarray, shape (M,)
        E[||W||^2 | x].
    score_reward_squared_norm : ndarray, shape (M,)
        E[||W||^2 Z | x].
    oracle_squared_norm : ndarray, shape (M,)
        E[||W||^2 (Z - V)^2 | x].
    magnitude : callable
        Returns E[||W|| |Z - V| | x], shape (M,), or a little more: rounding of the gradient is relative to it.
    score_norm_variance : callable
        Returns Var(||W||^2 | x), shape (M,).
    logit_map : LogitMap
        Phi.
    terms : int, default 1
        How many sums were carried one after another: rounding adds up over them.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("two-arms")
    >>> found = gt.moments(problem, problem.theta)
    >>> found.value.round(3).tolist(), found.reward_variance.round(3).tolist(), found.gradient.round(3).tolist()
    ([0.633], [0.232], [-0.111, 0.111])
    """

    prompt_weights: Array
    value: Array
    reward_variance: Array
    gradient: Array
    gradient_in_logits: Array
    prompt_gradient_squared_norm: Array
    score_squared_norm: Array
    score_reward_squared_norm: Array
    oracle_squared_norm: Array
    magnitude: Callable[[], Array] = field(repr=False)
    score_norm_variance: Callable[[], Array] = field(repr=False)
    logit_map: LogitMap = field(repr=False)
    terms: int = 1

    def __repr__(self) -> str:
        reward, sizes = float(self.prompt_weights @ self.value), f"prompts={len(self.value)}, parameters={len(self.gradient)}"
        return f"Moments({sizes}, reward={reward:.4g}, gradient length={float(np.linalg.norm(self.gradient)):.4g})"

    @cached_array
    def prompt_gradients(self) -> Array:
        """g(x) = E[W Z | x], shape (M, d): mostly zeros where each prompt has parameters of its own, so made when asked for."""
        return self.logit_map.adjoint_by_prompt(self.gradient_in_logits)

    @cached_array
    def score_reward_correlation(self) -> Array:
        """Correlation of ||W||^2 and Z given x, shape (M,); 0 where one of them is constant."""
        scale = np.sqrt(self.score_norm_variance() * self.reward_variance)
        # Where norms or rewards are constant, rounding leaves a scale that is not 0, and a correlation that means nothing.
        tiny = 1e-12 * self.score_squared_norm * (self.standard_deviation + np.abs(self.value))
        correlation = np.zeros_like(self.value)
        # Cov(||W||^2, Z) = E[||W||^2 Z] - E||W||^2 V (docs/derivations.md, section 3).
        np.divide(
            self.score_reward_squared_norm - self.score_squared_norm * self.value, scale, out=correlation, where=scale > tiny
        )
        return correlation

    @property
    def standard_deviation(self) -> Array:
        """The standard deviation of the reward given x, shape (M,)."""
        return np.sqrt(self.reward_variance)

    @property
    def optimal_baseline(self) -> Array:
        """b*(x) = E[||W||^2 Z | x] / E[||W||^2 | x], shape (M,) (Greensmith et al. 2004); V(x) where W is 0."""
        baseline = self.value.copy()
        # E||W||^2 (Z - C)^2 = E||W||^2 Z^2 - 2 C E||W||^2 Z + C^2 E||W||^2 is least at C = b* (docs/derivations.md, section 3).
        np.divide(self.score_reward_squared_norm, self.score_squared_norm, out=baseline, where=self.score_squared_norm > 0.0)
        return baseline

    @property
    def known_to_oracles(self) -> tuple[Array, Array, Array]:
        """Values, standard deviations and optimal baselines, shape (M,) each."""
        return self.value, self.standard_deviation, self.optimal_baseline

    @property
    def oracle_trace(self) -> Array:
        """Trace of Sigma_oracle(x) = Cov(W (Z - V) | x), shape (M,)."""
        # trace Cov(W (Z - V)) = E||W||^2 (Z - V)^2 - ||g||^2 (docs/derivations.md, section 3).
        return self.oracle_squared_norm - self.prompt_gradient_squared_norm

    @property
    def second_order(self) -> Array:
        """Var(Z | x) E[||W||^2 | x] + ||g(x)||^2, shape (M,): what estimating the baseline adds, times G (G - 1)."""
        # The trace of Var(Z) F + g g' in Cov(U) = Sigma_oracle/G + (Var(Z) F + g g')/(G (G - 1)), F = E[W W']
        # (docs/derivations.md, section 2).
        return self.reward_variance * self.score_squared_norm + self.prompt_gradient_squared_norm

    @property
    def gradient_squared_norm(self) -> float:
        """||g||^2."""
        return float(self.gradient @ self.gradient)

    @property
    def known_gradient_squared_norm(self) -> float:
        """||g||^2, and 0 where it is no more than rounding leaves: beside the square of E[||W|| |Z - V|], see `magnitude`."""
        most = float(self.prompt_weights @ self.magnitude())
        return self.gradient_squared_norm if np.sqrt(self.gradient_squared_norm) > self.terms * ROUNDING * most else 0.0

    @property
    def between_prompts(self) -> float:
        """E||g(X) - g||^2."""
        # c1 = E||g(X) - g||^2 = E||g(X)||^2 - ||g||^2 (docs/derivations.md, section 2).
        return float(self.prompt_weights @ self.prompt_gradient_squared_norm) - self.gradient_squared_norm


@dataclass(frozen=True, eq=False)
class Point:
    """A problem at theta; made by `Problem.at`.

    The outcome of a draw is a response together with its reward. A prompt has O = K L outcomes; outcome o is response o // L with
    the reward value o % L.

    Attributes
    ----------
    bandit, policy, kl
        The parts of the problem.
    log_reference : ndarray, shape (M, D), or None
        See `Problem.log_reference`.
    theta : ndarray, shape (d,)
    objective : Objective or None
        What is climbed in place of the mean reward.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> problem = gt.gallery.problem("two-arms")
    >>> point = problem.at(problem.theta)
    >>> point.value.round(3).tolist(), point.probabilities.round(3).tolist()
    ([0.633], [[0.333, 0.667]])
    >>> rewards = point.rewards_less(0.1 * np.log(point.probabilities))  # a bonus for entropy
    >>> bool(point.moments_of(rewards).value[0] > point.value[0])
    True
    """

    bandit: Bandit
    policy: Policy
    kl: KL | None
    log_reference: Array | None
    theta: Array
    objective: Objective | None = None

    @cached_array
    def tangent(self) -> LogitMap:
        """Phi: the derivatives of the logits here."""
        return self.policy.logit_map.at(self.theta)

    @cached_array
    def token_log_probabilities(self) -> Array:
        """Log probability of each token given its prefix, one for each edge, shape (M, D)."""
        return self.policy.paths.log_probabilities(self.policy.logits(self.theta))

    @cached_array
    def token_probabilities(self) -> Array:
        """Probability of each token given its prefix, shape (M, D)."""
        return np.exp(self.token_log_probabilities)

    @cached_array
    def probabilities(self) -> Array:
        """pi(k | m), shape (M, K)."""
        return np.exp(self.policy.paths.along(self.token_log_probabilities))

    @cached_array
    def log_ratios_to_reference(self) -> Array:
        """Log of each token's probability over the reference's, shape (M, D); zeros if there is no penalty."""
        if self.log_reference is None:
            return np.zeros_like(self.token_log_probabilities)
        return self.token_log_probabilities - self.log_reference

    @cached_array
    def penalties(self) -> Array:
        """The strength times log(pi / reference) of each response, shape (M, K); zeros if there is no penalty."""
        strength = 0.0 if self.kl is None else self.kl.strength
        # q = strength log(pi/reference), and the logarithm is a sum over tokens (docs/derivations.md, section 13).
        return strength * self.policy.paths.along(self.log_ratios_to_reference)

    @cached_array
    def outcome_probabilities(self) -> Array:
        """Probability of each outcome, shape (M, O)."""
        joint = self.probabilities[:, :, None] * self.bandit.probabilities
        return joint.reshape(len(joint), -1)

    @cached_array
    def outcome_responses(self) -> Integers:
        """The response of each outcome, shape (O,)."""
        return np.repeat(np.arange(self.policy.n_responses), self.bandit.values.size)

    @cached_array
    def rewards(self) -> Array:
        """The reward of each outcome, less the penalty, shape (M, O)."""
        return self.rewards_less(self.penalties)

    def rewards_less(self, penalties: Array) -> Array:
        """Return the reward of each outcome less penalties of the responses (M, K), shape (M, O)."""
        return (self.bandit.values - penalties[:, :, None]).reshape(len(penalties), -1)

    @cached_array
    def logit_gradients(self) -> Array:
        """The score of each response as a logit gradient, W = Phi_m' c, shape (M, K, D)."""
        paths, shape = self.policy.paths, (len(self.probabilities), self.policy.n_responses, self.policy.n_logits)
        check_room("the scores of all responses as logit gradients", shape, "moments, objective and gradient_mse do without")
        # c = sum_t (e_edge t - p_prefix t), the edges taken less what is expected (docs/derivations.md, section 15).
        return paths.centre(paths.incidence, self.token_probabilities[:, None, :])

    @cached_array
    def token_products(self) -> Array:
        """Inner products of the scores of the tokens of each response, shape (M, K, T, T); 0 beyond its end."""
        return self.tangent.token_products(self.policy.paths, self.token_probabilities)

    @cached_array
    def squared_score_norms(self) -> Array:
        """||W||^2 of each response, shape (M, K)."""
        # W = sum_t w_t, so that ||W||^2 = sum_st <w_s, w_t> (docs/derivations.md, sections 4 and 15).
        return np.maximum(self.token_products.sum(axis=(-2, -1)), 0.0)

    @property
    def value(self) -> Array:
        """E[Z | x], shape (M,)."""
        return self.moments.value

    @cached_array
    def moments(self) -> Moments:
        """Exact moments of reward and score."""
        return self.moments_of(self.rewards)

    @cached_array
    def reward_law(self) -> Array:
        """The probability of each reward value, shape (M, L)."""
        return self.bandit.reward_law(self.probabilities)

    @cached_array
    def target(self) -> Moments:
        """The moments whose gradient is that of what is climbed: the rewards are the objective's slopes, less the penalty."""
        if self.objective is None:
            return self.moments
        # grad F(q) = sum_l F_l grad q_l = E[F_Z W], q_l = sum_k pi_k P(l | k) (docs/derivations.md, section 39).
        slopes = self.objective.slope(self.bandit.values, self.reward_law)
        return self.moments_of((slopes[:, None] - self.penalties[:, :, None]).reshape(len(slopes), -1))

    def moments_of(self, rewards: Array) -> Moments:
        """Return the moments with other rewards of the outcomes, shape (M, O), in place of the problem's own."""
        p, weights = self.outcome_probabilities, self.bandit.prompt_weights
        paths, logit_map = self.policy.paths, self.tangent
        norms = self.squared_score_norms[:, self.outcome_responses]
        value = np.einsum("mo,mo->m", p, rewards)
        centred = less_mean(rewards, p)
        reward_variance = np.einsum("mo,mo->m", p, centred**2)
        # g(x) = sum_k pi_k (q_k - V) w_k with q_k = E[Z | k]: the policy gradient theorem (Sutton et al. 2000, theorem 1), less a
        # baseline V (Williams 1992), which changes nothing, because sum_k pi_k w_k = 0.
        means = (self.bandit.probabilities * rewards.reshape(self.bandit.probabilities.shape)).sum(axis=-1)
        lead = self.probabilities * less_mean(means, self.probabilities)
        logit_gradients = paths.centre(paths.collect(lead), self.token_probabilities)
        score_squared_norm = np.einsum("mo,mo->m", p, norms)
        norm_variance = read_only(np.einsum("mo,mo->m", p, (norms - score_squared_norm[:, None]) ** 2))
        # E[||W||^2 Z] = Cov(||W||^2, Z) + E[||W||^2] V, and nothing cancels in the covariance.
        covariance = np.einsum("mo,mo,mo->m", p, norms, centred)
        return Moments(
            prompt_weights=weights,
            value=value,
            reward_variance=reward_variance,
            gradient=logit_map.adjoint(weights[:, None] * logit_gradients),
            gradient_in_logits=logit_gradients,
            prompt_gradient_squared_norm=logit_map.squared_norms(logit_gradients[:, None])[:, 0],
            score_squared_norm=score_squared_norm,
            score_reward_squared_norm=covariance + score_squared_norm * value,
            oracle_squared_norm=np.einsum("mo,mo,mo->m", p, norms, centred**2),
            # A penalty has been rounded, however near to its mean the reward less it may be.
            magnitude=lambda: np.einsum(
                "mo,mo->m", p * np.sqrt(norms), np.maximum(np.abs(centred), 0.0 if self.kl is None else np.abs(rewards))
            ),
            score_norm_variance=lambda: norm_variance,
            logit_map=logit_map,
        )
