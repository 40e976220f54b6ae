"""Exact moments of reward and score, prompt by prompt."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from grpo_theory.arrays import Array, cached_array
from grpo_theory.problem.logit_map import LogitMap

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
    gradient_covectors : ndarray, shape (M, D)
        The covectors c(x) with g(x) = Phi' c(x).
    prompt_gradient_power : ndarray, shape (M,)
        ||g(x)||^2.
    score_power : ndarray, shape (M,)
        E[||W||^2 | x].
    score_reward_power : ndarray, shape (M,)
        E[||W||^2 Z | x].
    oracle_power : ndarray, shape (M,)
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
    gradient_covectors: Array
    prompt_gradient_power: Array
    score_power: Array
    score_reward_power: Array
    oracle_power: Array
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
        return self.logit_map.adjoint_by_prompt(self.gradient_covectors)

    @cached_array
    def score_reward_correlation(self) -> Array:
        """Correlation of ||W||^2 and Z given x, shape (M,); 0 where one of them is constant."""
        scale = np.sqrt(self.score_norm_variance() * self.reward_variance)
        # Where norms or rewards are constant, rounding leaves a scale that is not 0, and a correlation that means nothing.
        tiny = 1e-12 * self.score_power * (self.standard_deviation + np.abs(self.value))
        correlation = np.zeros_like(self.value)
        np.divide(self.score_reward_power - self.score_power * self.value, scale, out=correlation, where=scale > tiny)
        return correlation

    @property
    def standard_deviation(self) -> Array:
        """The standard deviation of the reward given x, shape (M,)."""
        return np.sqrt(self.reward_variance)

    @property
    def optimal_baseline(self) -> Array:
        """b*(x) = E[||W||^2 Z | x] / E[||W||^2 | x], shape (M,) (Greensmith et al. 2004); V(x) where W is 0."""
        baseline = self.value.copy()
        np.divide(self.score_reward_power, self.score_power, out=baseline, where=self.score_power > 0.0)
        return baseline

    @property
    def known_to_oracles(self) -> tuple[Array, Array, Array]:
        """Values, standard deviations and optimal baselines, shape (M,) each."""
        return self.value, self.standard_deviation, self.optimal_baseline

    @property
    def oracle_trace(self) -> Array:
        """Trace of Sigma_oracle(x) = Cov(W (Z - V) | x), shape (M,)."""
        return self.oracle_power - self.prompt_gradient_power

    @property
    def second_order(self) -> Array:
        """Var(Z | x) E[||W||^2 | x] + ||g(x)||^2, shape (M,): what estimating the baseline adds, times G (G - 1)."""
        return self.reward_variance * self.score_power + self.prompt_gradient_power

    @property
    def gradient_power(self) -> float:
        """||g||^2."""
        return float(self.gradient @ self.gradient)

    @property
    def known_gradient_power(self) -> float:
        """||g||^2, and 0 where it is no more than rounding leaves: beside the square of E[||W|| |Z - V|], see `magnitude`."""
        most = float(self.prompt_weights @ self.magnitude())
        return self.gradient_power if np.sqrt(self.gradient_power) > self.terms * ROUNDING * most else 0.0

    @property
    def between_prompts(self) -> float:
        """E||g(X) - g||^2."""
        return float(self.prompt_weights @ self.prompt_gradient_power) - self.gradient_power
