"""The exact error of a batch in which prompts get different numbers of responses, and the sizes that make it least."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.estimation import Estimator
from grpo_theory.estimation.allocation import SECOND_ORDER, VARIANCE, AllocationRule, checked_budget, find_rule, spread_sizes
from grpo_theory.exact.group_law import efficiency_of, law_between
from grpo_theory.exact.multisets import binomial_law
from grpo_theory.problem import Point, Problem
from grpo_theory.validation import Array, Integers, as_array, as_count, check_shape, typed

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class AllocationLaw:
    """Mean and error of the estimate sum_q f_q ghat_q over all M prompts, the group of prompt q having n_q responses.

    Sizes are given as an array of M integers between `low` and `high`, or as one for all prompts.

    Attributes
    ----------
    estimator : str
    low, high : int
        The sizes for which the law was made.
    traces : ndarray, shape (high - low + 1, M)
        Trace of the covariance of one group's estimate, by size and prompt.
    logit_gradients : ndarray, shape (high - low + 1, M, D)
        The logit gradients of one group's expected estimate, by size and prompt.
    known : ndarray, shape (M, 7)
        What a rule may know of the prompts, nothing seen before; see `AllocationRule`.
    point : Point

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("mixed")
    >>> law = gt.allocation_law(problem, problem.theta, "rloo", low=2, high=16)
    >>> best = law.best(64)
    >>> print(best)
    [ 4  7  9 10 11 10  8  5]
    >>> round(law.mse(best) / law.mse(8), 2), round(law.trace(best) / law.trace(8), 2)  # against 8 for every prompt
    (0.91, 0.91)
    >>> round(law.efficiency(best), 2), law.mean(best).shape
    (0.68, (40,))
    >>> law.sizes("uniform", 64).tolist()
    [8, 8, 8, 8, 8, 8, 8, 8]
    >>> law.to_frame(best).columns.tolist()
    ['prompt', 'weight', 'value', 'size', 'trace']
    """

    estimator: str
    low: int
    high: int
    traces: Array = field(repr=False)
    logit_gradients: Array = field(repr=False)
    known: Array = field(repr=False)
    point: Point = field(repr=False)

    def mean(self, sizes: ArrayLike) -> Array:
        """Return the expected estimate, shape (d,)."""
        weights = self.point.bandit.prompt_weights[:, None]
        return self.point.tangent.adjoint(weights * self.logit_gradients[self._places(sizes)])

    def trace(self, sizes: ArrayLike) -> float:
        """Return the trace of the estimate's covariance, sum_q f_q^2 tau_q(n_q): groups are independent."""
        return float(self.point.bandit.prompt_weights**2 @ self.traces[self._places(sizes)])

    def mse(self, sizes: ArrayLike) -> float:
        """Return E||estimate - grad J||^2: the trace plus the squared bias."""
        bias = self.mean(sizes) - self.point.target.gradient
        return self.trace(sizes) + float(bias @ bias)

    def efficiency(self, sizes: ArrayLike) -> float:
        """Return the efficiency (g . E ghat)^2/(||g||^2 E||ghat||^2), see `gt.efficiency`; ValueError where the gradient is 0."""
        mean, exact = self.mean(sizes), self.point.target
        power = self.trace(sizes) + float(mean @ mean)
        return float(efficiency_of(exact.gradient @ mean, exact.known_gradient_squared_norm, power))

    def sizes(self, rule: str | AllocationRule, budget: int) -> Integers:
        """Return the sizes (M,) that a rule gives the prompts, whose sum is the budget.

        The bounds are the rule's own, narrowed to the law's.  The errors of a `weighted` rule are multiplied by f_q^2, because
        the law is of all prompts at once.  In training, prompts with more weight are drawn more often, and each draw has the same
        weight.

        Raises
        ------
        ValueError
            If the budget cannot be spent within the bounds.  Also if the rule is not defined for these rewards, or leaves costs
            that are negative or not finite.
        """
        found = find_rule(rule, "rule")
        found.check_rewards(self.point.bandit.values)
        low, high = max(found.low, self.low), min(found.high, self.high)
        if low > high:
            raise ValueError(f"{found!r} allows no size for which this law was made, {self.low} to {self.high}")
        budget = checked_budget(budget, len(self.point.bandit.prompt_weights), low, high)
        costs = found.costs(self.known)
        if found.weighted:
            costs *= self.point.bandit.prompt_weights[:, None] ** 2
        return spread_sizes(costs, budget, low, high)

    def best(self, budget: int) -> Integers:
        """Return the sizes (M,) of least trace whose sum is the budget, by dynamic programming over prompts.

        For an unbiased estimator this is the least error.  The traces may be any function of the size.
        """
        n_prompts = len(self.point.bandit.prompt_weights)
        budget = checked_budget(budget, n_prompts, self.low, self.high)
        return least_sizes(self.point.bandit.prompt_weights**2 * self.traces, budget - n_prompts * self.low) + self.low

    def to_frame(self, sizes: ArrayLike) -> pd.DataFrame:
        """Return a DataFrame: one row per prompt, with weight, value, size and trace of one group's covariance."""
        import pandas as pd  # slow to import, and not always wanted

        rows, prompts = self._places(sizes)
        columns = {"prompt": prompts, "weight": self.point.bandit.prompt_weights, "value": self.known[:, 0]}
        return pd.DataFrame(columns | {"size": rows + self.low, "trace": self.traces[rows, prompts]})

    def _places(self, sizes: ArrayLike) -> tuple[Integers, Integers]:
        n_prompts = len(self.point.bandit.prompt_weights)
        given = as_array("sizes", sizes)
        if not np.issubdtype(given.dtype, np.integer):
            raise TypeError(f"sizes must be integers, the responses of each prompt, got {given.dtype}")
        given = np.full(n_prompts, given) if given.ndim == 0 else given
        check_shape("sizes", given, (n_prompts,), "(M,), one for each prompt")
        outside = given[(given < self.low) | (given > self.high)]
        if outside.size:
            raise ValueError(
                f"sizes must be {self.low} to {self.high}, for which this law was made, got {outside[0]}: "
                "allocation_law(..., low=, high=) makes it for others"
            )
        return np.asarray(given, dtype=np.int64) - self.low, np.arange(n_prompts)


def least_sizes(costs: Array, spare: int) -> Integers:
    """Return the rows r_q >= 0 (M,) with sum `spare` that make sum_q costs[r_q, q] least, for costs (R, M) of any shape."""
    n_rows, n_prompts = costs.shape
    least, taken = np.full(spare + 1, np.inf), np.zeros((n_prompts, spare + 1), dtype=np.int64)
    least[0] = 0.0
    for q in range(n_prompts):
        padded = np.concatenate([np.full(n_rows - 1, np.inf), least])
        # Row s of the windows is least[s - n_rows + 1 .. s], so that its last column has this prompt at row 0.
        totals = np.lib.stride_tricks.sliding_window_view(padded, n_rows) + costs[::-1, q]
        taken[q] = n_rows - 1 - totals.argmin(axis=1)
        # Bellman: the least cost of s spare responses over prompts 1..q is least over r of cost_q(r) plus that of s - r before.
        least = totals.min(axis=1)
    rows, left = np.empty(n_prompts, dtype=np.int64), spare
    for q in reversed(range(n_prompts)):
        rows[q] = taken[q, left]
        left -= rows[q]
    return rows


@typed
def allocation_law(
    problem: Problem,
    theta: ArrayLike | None = None,
    estimator: str | Estimator = "rloo",
    *,
    low: int = 2,
    high: int = 64,
    start: ArrayLike | None = None,
) -> AllocationLaw:
    """Compute the exact error of a batch in which prompt q gets n_q responses, for all sizes between two bounds.

    The batch contains each prompt once.  For the leave-one-out estimator the trace of one group is A_q/n + C_q/(n (n - 1)).  A_q
    is the oracle's trace, and C_q = Var(Z|q) E||W||^2 + ||g_q||^2 (docs/derivations.md, section 33.1).  For any other estimator
    that sees each group alone, the trace is enumerated.

    Parameters
    ----------
    problem : Problem
    theta : array_like, shape (d,), optional
        The problem's own if omitted.
    estimator : str or Estimator, default "rloo"
    low, high : int, default 2 and 64
        The fewest and the most responses of a prompt.
    start : array_like, shape (d,), optional
        Where the run began, for rules that know the success rates then; theta if omitted.

    Returns
    -------
    AllocationLaw

    Raises
    ------
    NotEnumerableError
        As for `gradient_law`.
    ValueError
        If the bounds are crossed, or the estimator is not defined for groups of `low`.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("lm-few-shot")
    >>> law = gt.allocation_law(problem, problem.theta, high=32)
    >>> budget = 8 * problem.policy.n_prompts
    >>> least = law.mse(law.best(budget))
    >>> [round(law.mse(law.sizes(rule, budget)) / least, 2) for rule in ("uniform", "vip", "neyman")]
    [1.05, 1.01, 1.0]
    """
    low = as_count("low", low)
    if as_count("high", high) < low:
        raise ValueError(f"high must be at least low = {low}, got {high}: bounds are the fewest and the most responses")
    point = problem.at(theta)
    began = point if start is None else problem.at(problem.policy.check_theta(start, "start"))
    exact, nothing = point.moments, np.zeros(problem.policy.n_prompts)
    columns = exact.value, exact.reward_variance, exact.oracle_trace, exact.second_order, began.moments.value, nothing, nothing
    known = np.stack(columns, axis=1)
    # Rounding leaves a variance or a trace that is 0 a little off it on either side.  Values may be negative.
    known[:, VARIANCE : SECOND_ORDER + 1] = np.maximum(known[:, VARIANCE : SECOND_ORDER + 1], 0.0)
    laws = [law_between(point, point, estimator, batch_size=1, group_size=size) for size in range(low, high + 1)]
    return AllocationLaw(
        estimator=estimator if isinstance(estimator, str) else estimator.name,
        low=low,
        high=high,
        traces=np.stack([law.prompt_traces for law in laws]),
        logit_gradients=np.stack([law.mean_logit_gradients for law in laws]),
        known=known,
        point=point,
    )


MOST_STATES = 1 << 22
"""The most states of all prompts together that a round is enumerated from or to: half a minute."""


@dataclass(frozen=True, eq=False)
class StoppedGroups:
    """Mean and error of the estimate sum_q f_q ghat_q over all M prompts, of groups that stop by their rewards.

    Attributes
    ----------
    responses : ndarray, shape (M,)
        E n_q.
    slopes : ndarray, shape (M,)
        E ghat_q = slopes_q g_q: the mean of the sample variance k (n - k)/(n (n - 1)), divided by p (1 - p).  It is 1 for sizes
        that do not depend on the rewards.
    products : ndarray, shape (M, M)
        The mean products of what the slopes are means of, for two different prompts.
    squared_norms : ndarray, shape (M,)
        E||ghat_q||^2.
    point : Point

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> problem = gt.gallery.problem("mixed")
    >>> law = gt.exact.first_mixed_groups(problem, problem.theta, low=4, high=4)  # groups that never grow
    >>> bool(np.allclose(law.responses, 4.0)), bool(np.allclose(law.slopes, 1.0))
    (True, True)
    """

    responses: Array
    slopes: Array
    products: Array = field(repr=False)
    squared_norms: Array = field(repr=False)
    point: Point = field(repr=False)

    @property
    def mean(self) -> Array:
        """The expected estimate, shape (d,)."""
        f, exact = self.point.bandit.prompt_weights, self.point.moments
        # E ghat_q = h_q g_q, h = E S^2/(p (1 - p)), S^2 the sample variance of the rewards (docs/derivations.md, section 33.2).
        return self.point.tangent.adjoint((f * self.slopes)[:, None] * exact.gradient_in_logits)

    @property
    def mean_squared_norm(self) -> float:
        """E||estimate||^2."""
        f, gradients = self.point.bandit.prompt_weights, self.point.moments.prompt_gradients
        # E ghat_q . ghat_r = g_q . g_r E[S_q^2 S_r^2]/(V_q V_r) for q != r, V = p (1 - p) (docs/derivations.md, section 33.2).
        between = self.products * (gradients @ gradients.T)
        np.fill_diagonal(between, self.squared_norms)
        return float(f @ between @ f)

    @property
    def mse(self) -> float:
        """E||estimate - grad J||^2."""
        gradient = self.point.target.gradient
        return self.mean_squared_norm - 2.0 * float(gradient @ self.mean) + float(gradient @ gradient)

    @property
    def efficiency(self) -> float:
        """(g . E ghat)^2/(||g||^2 E||ghat||^2), see `gt.efficiency`."""
        exact = self.point.target
        return float(efficiency_of(exact.gradient @ self.mean, exact.known_gradient_squared_norm, self.mean_squared_norm))

    @property
    def cosine(self) -> float:
        """Cosine of the angle between the expected estimate and the gradient."""
        gradient, mean = self.point.target.gradient, self.mean
        return float(gradient @ mean / (np.linalg.norm(gradient) * np.linalg.norm(mean)))


@typed
def first_mixed_groups(problem: Problem, theta: ArrayLike | None = None, *, low: int, high: int) -> StoppedGroups:
    """Return the law of groups that begin with `low` responses and grow one by one until both rewards are there, or to `high`.

    Parameters
    ----------
    problem : Problem
        Rewards are 0 or 1.
    theta : array_like, shape (d,), optional
        The problem's own if omitted.
    low, high : int
        2 <= low <= high.

    Raises
    ------
    ValueError

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("mixed")
    >>> law = gt.exact.first_mixed_groups(problem, problem.theta, low=2, high=16)
    >>> law.responses.round(1).tolist()  # hard and easy prompts take more responses
    [14.0, 10.9, 6.3, 3.3, 3.3, 6.3, 10.9, 14.0]
    """
    low = as_count("low", low, 2)
    if as_count("high", high, 2) < low:
        raise ValueError(f"high must be at least low = {low}, got {high}: bounds are the fewest and the most responses")
    point = _binary_point(problem, theta)
    p = point.moments.value
    sizes, successes = [low] * (low - 1), list(range(1, low))
    chances = list(binomial_law(np.arange(1, low), low, p).T)
    for n in range(low + 1, high + 1):
        sizes += [n, n]
        successes += [n - 1, 1]
        # The n-th response is the first of its kind: n - 1 right ones and a wrong one, or the other way round.
        chances += [p ** (n - 1) * (1.0 - p), (1.0 - p) ** (n - 1) * p]
    sizes += [high, high]
    successes += [high, 0]
    chances += [p**high, (1.0 - p) ** high]
    law = np.stack(chances)
    spreads, powers = _given_counts(np.array(sizes)[:, None], np.array(successes)[:, None], point)
    # h(p) = sum over (n, k) of P(n, k) k (n - k)/(n (n - 1))/(p (1 - p)) (docs/derivations.md, section 33.2).
    slopes = (law * spreads).sum(axis=0)
    return StoppedGroups(np.array(sizes) @ law, slopes, np.outer(slopes, slopes), np.einsum("sq,sq->q", law, powers), point)


@typed
def halved_groups(problem: Problem, theta: ArrayLike | None = None, *, low: int, rounds: int) -> StoppedGroups:
    """Return the law of groups by successive halving: all begin with `low` responses; in each round half of the prompts go on.

    Those go on, and double their responses, whose share of right responses is nearest to a half; of equals the first.  With M
    prompts, M/2 go on in the first round, rounded up, M/4 in the second, and so on.  All states of all prompts are enumerated:
    for few prompts.

    Parameters
    ----------
    problem : Problem
        Rewards are 0 or 1.
    theta : array_like, shape (d,), optional
        The problem's own if omitted.
    low, rounds : int
        The responses to begin with, at least 2, and how often half of the prompts go on.

    Raises
    ------
    ValueError
        If a round would have too many states, which is counted before they are made.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.Problem(gt.Bandit([[0.05, 0.05], [0.6, 0.4]]), gt.TabularSoftmax(2, 2))
    >>> gt.exact.halved_groups(problem, problem.theta, low=2, rounds=1).responses.round(3).tolist()
    [3.095, 2.905]
    """
    low, rounds = as_count("low", low, 2), as_count("rounds", rounds, 0)
    point = _binary_point(problem, theta)
    p = point.moments.value
    n_prompts = len(p)
    states, kept = {(0,) * (2 * n_prompts): 1.0}, 2 * n_prompts
    for played in range(rounds + 1):
        # All begin with `low` responses; in each round half of them go on, rounded up, and double theirs.
        kept, more = -(-kept // 2), low << max(played - 1, 0)
        if (wanted := len(states) * (more + 1) ** kept) > MOST_STATES:
            shown = f"{wanted:,}" if wanted < 1 << 60 else f"2^{wanted.bit_length() - 1} or more"
            raise ValueError(
                f"problem, low and rounds must make at most {MOST_STATES:,} states in a round, got {shown}: "
                "take fewer prompts, responses or rounds"
            )
        laws = binomial_law(np.arange(more + 1), more, p).tolist()
        grown: dict[tuple[int, ...], float] = {}
        for state, chance in states.items():
            sizes, successes = np.array(state[:n_prompts]), np.array(state[n_prompts:])
            # Only those that have gone on so far are candidates: they have the most responses.
            score = np.where(sizes == sizes.max(), np.abs(successes / np.maximum(sizes, 1) - 0.5), np.inf)
            going = np.zeros(n_prompts, dtype=np.bool_)
            going[np.argsort(score, kind="stable")[:kept]] = True
            # The numbers of right responses of all prompts with their chances: 0 of those that do not go on.
            each = [list(enumerate(law)) if on else [(0, 1.0)] for law, on in zip(laws, going.tolist(), strict=True)]
            for drawn in product(*each):
                right = np.array([k for k, _ in drawn])
                then = (*(sizes + more * going).tolist(), *(successes + right).tolist())
                grown[then] = grown.get(then, 0.0) + chance * prod([one for _, one in drawn])
        states = grown
    table, chances = np.array(list(states)), np.array(list(states.values()))
    sizes, successes = table[:, :n_prompts], table[:, n_prompts:]
    spreads, powers = _given_counts(sizes, successes, point)
    products = np.einsum("s,sq,sr->qr", chances, spreads, spreads)
    return StoppedGroups(chances @ sizes, chances @ spreads, products, chances @ powers, point)


def _binary_point(problem: Problem, theta: ArrayLike | None) -> Point:
    point = problem.at(theta)
    if not np.isin(point.bandit.values, (0.0, 1.0)).all() or problem.kl is not None:
        raise ValueError(f"problem must have rewards of 0 and 1 without a penalty, got values {point.bandit.values.tolist()}")
    return point


def _given_counts(sizes: Integers, successes: Integers, point: Point) -> tuple[Array, Array]:
    """Return the sample variance k (n - k)/(n (n - 1)) over p (1 - p), and E||ghat||^2, given sizes n and successes k.

    Prompts lie along the last axis, (S, M), or have all the same counts, (S, 1).
    """
    exact, n, k = point.moments, sizes.astype(np.float64), successes.astype(np.float64)
    # Where p (1 - p) is 0 a group is never mixed.
    spreads = k * (n - k) / (n * (n - 1.0)) / np.where(exact.reward_variance > 0.0, exact.reward_variance, 1.0)
    mixed = (exact.value > 0.0) & (exact.value < 1.0)
    p = np.where(mixed, exact.value, 0.5)
    # P_1 = E[||W||^2 | Z = 1] = E[||W||^2 Z]/p and P_0 = E[||W||^2 (1 - Z)]/(1 - p).
    right = exact.score_reward_squared_norm / p
    wrong = (exact.score_squared_norm - exact.score_reward_squared_norm) / (1.0 - p)
    # a = 1 - (k - 1)/(n - 1) = (n - k)/(n - 1) and b = -k/(n - 1) are the advantages (docs/derivations.md, section 33.2).
    of_right, of_wrong = (n - k) / (n - 1.0), -k / (n - 1.0)
    # n^2 E[||ghat||^2 | n, k] = k a^2 P_1 + (n - k) b^2 P_0 + ||g||^2 R (docs/derivations.md, section 33.2).
    own = k * of_right**2 * right + (n - k) * of_wrong**2 * wrong
    # The mean score of a right response is g/p, that of a wrong one -g/(1 - p).
    # R = k (k - 1) a^2/p^2 + (n - k)(n - k - 1) b^2/(1 - p)^2 - 2 k (n - k) a b/(p (1 - p)).
    pairs = k * (k - 1.0) * of_right**2 / p**2 + (n - k) * (n - k - 1.0) * of_wrong**2 / (1.0 - p) ** 2
    pairs -= 2.0 * k * (n - k) * of_right * of_wrong / (p * (1.0 - p))
    return spreads, np.where(mixed, (own + pairs * exact.prompt_gradient_squared_norm) / n**2, 0.0)
