"""A problem, which is a bandit, a policy and a penalty; and a problem at a parameter: its tables and exact moments, made once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.problem.chain import StateRewards, TokenChain, listed_chain
from grpo_theory.problem.logits import LogitMap, less_mean
from grpo_theory.problem.objective import Objective
from grpo_theory.problem.policy import KL, Bandit, Policy
from grpo_theory.validation import (
    Array,
    Integers,
    cached_array,
    check_room,
    read_only,
    typed,
)

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


Policy.point_kind = Point


@dataclass(frozen=True, eq=False, init=False)
class Problem:
    """A bandit, a policy, the penalty in the objective if there is one, and the parameters at which they are studied.

    Parameters
    ----------
    bandit : Bandit
    policy : Policy
        It must have the bandit's numbers of prompts and responses.
    kl : KL, optional
        The objective is E[Z] - strength * E KL(pi || reference).
    theta : array_like, shape (d,), optional
        Where the problem is studied, or where a search for its maximiser or a training run starts. Zeros if omitted; a policy
        with learned features refuses zeros.
    name, title : str, default ""
        The name is for tables, and the title for figures.
    objective : Objective, optional
        What is climbed in place of each prompt's mean reward, as ``gt.Objective.best_of(4)``.  Objective, gradient, Hessian,
        maximiser, and bias, error and efficiency of estimates are then about it.  Rewards stay what they are.

    Raises
    ------
    TypeError
        If a part is of another kind.
    ValueError
        If the parts' shapes do not fit.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.Problem(gt.Bandit([[0.3, 0.8], [0.5, 0.1]]), gt.TabularSoftmax(2, 2), name="mine")
    >>> problem.theta.tolist(), problem.at(problem.theta).value.round(3).tolist()
    ([0.0, 0.0, 0.0, 0.0], [0.55, 0.3])
    >>> gt.objective(problem.at_prompt(0), problem.theta).round(3).item()
    0.55
    >>> problem.listed() is problem  # only the responses of a `TokenChain` are not listed already
    True
    """

    bandit: Bandit
    policy: Policy
    kl: KL | None
    theta: Array
    name: str
    title: str
    objective: Objective | None

    def __init__(
        self,
        bandit: Bandit,
        policy: Policy,
        kl: KL | None = None,
        theta: ArrayLike | None = None,
        name: str = "",
        title: str = "",
        objective: Objective | None = None,
    ) -> None:
        if not isinstance(bandit, Bandit):
            raise TypeError(f"bandit must be a Bandit, got {bandit!r}")
        if not isinstance(policy, Policy):
            raise TypeError(f"policy must be a Policy, got {policy!r}")
        if kl is not None and not isinstance(kl, KL):
            raise TypeError(f"kl must be a KL(strength, reference) or None, got {kl!r}")
        if objective is not None and not isinstance(objective, Objective):
            raise TypeError(f"objective must be an Objective or None, got {objective!r}")
        if isinstance(bandit, StateRewards) or isinstance(policy, TokenChain):
            if not isinstance(bandit, StateRewards):
                raise TypeError(f"bandit must be StateRewards(success) for a TokenChain, got {bandit!r}")
            if not isinstance(policy, TokenChain):
                raise TypeError(f"policy must be a TokenChain for StateRewards, got {policy!r}")
            if kl is not None:
                raise ValueError(
                    "kl must be None for a TokenChain. With a penalty the reward depends on every token, and not on the state in "
                    "which the response ends. A TokenTree of up to 4,096 responses can have one"
                )
            if bandit.n_states != policy.n_states:
                told = f"success must have one entry for each of the chain's {policy.n_states} states, got {bandit.n_states}"
                raise ValueError(told)
            bandit = bandit.for_starts(policy.n_prompts)
        else:
            shape = bandit.n_prompts, bandit.n_responses
            if (policy.n_prompts, policy.n_responses) != shape:
                raise ValueError(f"policy must have the bandit's (M, K) = {shape}, got {(policy.n_prompts, policy.n_responses)}")
            if kl is not None:
                kl.check_reference(shape)
        if objective is not None:
            objective.check(bandit.values)
        start = read_only(policy.check_theta(policy.starting_point() if theta is None else theta))
        vars(self).update(bandit=bandit, policy=policy, kl=kl, theta=start, name=name, title=title, objective=objective)

    def parameters(self, theta: ArrayLike | None, name: str = "theta") -> Array:
        """Return parameters as a finite array (d,): the problem's own for None."""
        return self.policy.check_theta(self.theta if theta is None else theta, name)

    def at(self, theta: ArrayLike | None = None) -> Point:
        """Return the problem at the parameters theta (d,), its own if omitted; what is computed there is kept."""
        theta = read_only(self.parameters(theta))
        return self.policy.point_kind(self.bandit, self.policy, self.kl, self.log_reference, theta, self.objective)

    @cached_array
    def log_reference(self) -> Array | None:
        """Log probability of each token given its prefix under the penalty's reference, shape (M, D), if there is a penalty."""
        return None if self.kl is None else self.policy.paths.conditionals(np.log(self.kl.reference))

    def at_prompt(self, prompt: int) -> Self:
        """Restrict the problem to one prompt, so that its gradient is g(x) instead of E g(X)."""
        return replace(self, bandit=self.bandit.at_prompt(prompt))

    def listed(self) -> Problem:
        """Convert a problem on a `TokenChain` to one whose responses are listed; other problems are returned unchanged.

        Raises
        ------
        ValueError
            If there are more than 4,096 responses, or other ones for another prompt.
        """
        if not isinstance(self.policy, TokenChain) or not isinstance(self.bandit, StateRewards):
            return self
        bandit, policy = listed_chain(self.policy, self.bandit)
        return Problem(bandit, policy, theta=self.theta, name=self.name, title=self.title, objective=self.objective)

    def __repr__(self) -> str:
        name = f"{self.name!r}, " if self.name else ""
        penalty = f", kl strength {self.kl.strength:g}" if self.kl is not None else ""
        climbed = f", {self.objective!r}" if self.objective is not None else ""
        return f"Problem({name}{self.bandit!r}, {self.policy!r}{penalty}{climbed})"

    def check_climbs_mean(self, what: str) -> None:
        """Raise ValueError where `what`, a prediction about the mean reward, is asked of a problem that climbs something else."""
        if self.objective is not None:
            raise ValueError(f"problem must climb its mean reward for {what}, and has {self.objective!r}; leave objective out")


@typed
def moments(problem: Problem, theta: ArrayLike | None = None) -> Moments:
    """Return the exact moments of reward and score at theta (d,), the problem's own if omitted.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("two-arms")
    >>> gt.moments(problem).value.round(3).tolist()
    [0.633]
    """
    return problem.at(theta).moments
