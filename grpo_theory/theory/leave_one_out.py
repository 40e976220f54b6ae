"""Exact covariance of the leave-one-out estimator and of its twin with the own sample in the mean."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.estimation import find
from grpo_theory.exact.score_moments import scores_of
from grpo_theory.problem import Moments, Problem
from grpo_theory.problem.policy import LARGEST_REWARD
from grpo_theory.validation import (
    MOST,
    Array,
    Integers,
    Number,
    as_count,
    as_not_negative,
    as_numbers,
    check_finite,
    check_within,
    typed,
)

if TYPE_CHECKING:
    import pandas as pd


@typed
def baseline_trace(moments: Moments, baseline: ArrayLike) -> Array:
    """Return the trace of Cov(W (Z - C(x)) | x) for a baseline C that depends on the prompt alone.

    Theorem (Greensmith et al. 2004; docs/derivations.md, section 3).  For every C(x) with finite moments,

        trace Cov(W (Z - C) | x) = trace Sigma_oracle + E||W||^2 [(C - b*)^2 - (V - b*)^2],

    with b* = E[||W||^2 Z | x] / E[||W||^2 | x].  So C beats V at x exactly when |C - b*| < |V - b*|. For V > 0, no baseline at
    all (C = 0) beats the value baseline exactly when b*/V < 1/2.

    Parameters
    ----------
    moments : Moments
        Exact moments at theta.
    baseline : array_like, broadcastable to shape (M,)
        C(x), in units of reward.

    Returns
    -------
    ndarray, shape (M,)
        Divide by G for the variance of one group's estimate given its prompt.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("two-arms")
    >>> moments = gt.moments(problem, problem.theta)
    >>> [float(gt.theory.baseline_trace(moments, baseline).round(4)[0]) for baseline in (0.0, moments.value)]
    [0.1827, 0.0983]
    """
    best = moments.optimal_baseline
    baseline = as_numbers("baseline", baseline)
    check_finite("baseline", baseline)
    check_within("baseline", baseline, -LARGEST_REWARD, LARGEST_REWARD)
    if baseline.ndim and baseline.shape[-1] not in (1, best.size):
        raise ValueError(f"baseline must be a number or have shape (..., {best.size}), one for each prompt, got {baseline.shape}")
    # trace Cov(W (Z - C)) = E[||W||^2 Z^2] - 2 C E[||W||^2 Z] + C^2 E||W||^2 - ||g||^2, a parabola in C with the vertex b*.
    excess = (baseline - best) ** 2 - (moments.value - best) ** 2
    return moments.oracle_trace + moments.score_squared_norm * excess


ROUNDING = 1e-14
"""A spread of the prompts' gradients below this share of ||g||^2 is 0."""


@typed
def leave_one_out_traces(moments: Moments, group_size: int) -> Array:
    """Return the trace of Cov(group's leave-one-out estimate | x), shape (M,).

    Theorem (docs/derivations.md, section 2).  For every G >= 2, with F(x) = E[W W' | x],

        Cov(x) = Sigma_oracle(x) / G + [Var(Z|x) F(x) + g(x) g(x)'] / (G (G - 1)),

    exactly; there are no terms of higher order.  This sharpens Theorem 2 of arXiv 2603.01162, which states
    trace Sigma_oracle / G + O(E||W||^2 / G^2).

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("two-arms")
    >>> moments = gt.moments(problem, problem.theta)
    >>> [float(gt.theory.leave_one_out_traces(moments, size)[0].round(4)) for size in (2, 8)]
    [0.1131, 0.0146]
    """
    group_size = as_count("group_size", group_size, 2)
    return moments.oracle_trace / group_size + moments.second_order / (group_size * (group_size - 1))


@typed
def leave_one_out_parts(problem: Problem, theta: ArrayLike | None = None) -> tuple[Array, Array, Array]:
    """Return Cov g(X), E Sigma_oracle(X) and E[Var(Z|X) F(X) + g(X) g(X)'], each of shape (d, d).

    With the weights 1/B, 1/(BG) and 1/(BG(G-1)) the three parts add up to the covariance of the batch's leave-one-out estimate
    (docs/derivations.md, section 2).  Their traces are the constants c1, c2 and c3 of the scaling law.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> problem = gt.gallery.problem("linear")
    >>> traces = [float(np.trace(part)) for part in gt.theory.leave_one_out_parts(problem, problem.theta)]
    >>> law = gt.group_size_law(problem, problem.theta)
    >>> bool(np.allclose(traces, [law.c1, law.c2, law.c3]))
    True
    """
    point = problem.at(theta)
    exact = point.moments
    squares, powers = (np.empty((len(exact.value), *2 * (problem.policy.n_logits,))) for _ in range(2))
    for scores in scores_of(point, point, find("rloo")):
        prompts, chances = scores.classes.prompts, scores.classes.probabilities[..., None, None]
        deviations = (scores.classes.fields[0] - exact.value[prompts, None])[..., None, None]
        # E[(Z - V)^2 W W'] = sum_z P(z) (z - V)^2 E[W W' | z], and F = E[W W'] = sum_z P(z) E[W W' | z].
        squares[prompts], powers[prompts] = scores.matrices(chances * deviations**2), scores.matrices(chances)
    slopes = exact.gradient_in_logits
    outer = slopes[:, :, None] * slopes[:, None, :]
    # g g', Sigma_oracle = E[(Z - V)^2 W W'] - g g', and Var(Z) F + g g' (docs/derivations.md, section 2).
    matrices = (outer, squares - outer, exact.reward_variance[:, None, None] * powers + outer)
    weights = exact.prompt_weights[:, None, None]
    between, oracle, second_order = (point.tangent.congruence(weights * matrix) for matrix in matrices)
    between -= np.outer(exact.gradient, exact.gradient)
    # Rounding leaves it a little off zero where all prompts have one gradient, and its sign would decide what group is best.
    if np.trace(between) <= ROUNDING * exact.gradient_squared_norm:
        between[:] = 0.0
    return between, oracle, second_order


@typed
def leave_one_out_covariance(problem: Problem, theta: ArrayLike | None = None, *, batch_size: int, group_size: int) -> Array:
    """Return Cov of the batch's leave-one-out estimate in closed form, shape (d, d).

    Theorem (docs/derivations.md, section 2).  With prompts drawn from f,

        Cov = (1/B) { Cov g(X) + E Sigma_oracle(X) / G + E[Var(Z|X) F(X) + g(X) g(X)'] / (G (G - 1)) }.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> problem, sizes = gt.gallery.problem("linear"), {"batch_size": 8, "group_size": 4}
    >>> closed = gt.theory.leave_one_out_covariance(problem, problem.theta, **sizes)
    >>> bool(np.allclose(closed, gt.gradient_covariance(problem, problem.theta, "rloo", **sizes)))
    True
    """
    batch_size = as_count("batch_size", batch_size)
    group_size = as_count("group_size", group_size, 2)
    between, oracle, second_order = leave_one_out_parts(problem, theta)
    return (between + oracle / group_size + second_order / (group_size * (group_size - 1))) / batch_size


@typed
def own_mean_mse(moments: Moments, *, batch_size: int, group_size: int) -> float:
    """Return the MSE about g of the estimator whose group mean includes the sample itself ("dr_grpo").

    Theorem (docs/derivations.md, section 1).  On every sample that estimator is (1 - 1/G) times the leave-one-out one, so

        MSE = (1 - 1/G)^2 trace Cov(leave-one-out) + ||g||^2 / G^2.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> problem, sizes = gt.gallery.problem("linear"), {"batch_size": 8, "group_size": 4}
    >>> closed = gt.theory.own_mean_mse(gt.moments(problem, problem.theta), **sizes)
    >>> bool(np.isclose(closed, gt.gradient_mse(problem, problem.theta, "dr_grpo", **sizes)))
    True
    """
    batch_size = as_count("batch_size", batch_size)
    within = moments.prompt_weights @ leave_one_out_traces(moments, group_size)
    # trace Cov = (E||g(X) - g||^2 + E trace Cov(X))/B, by the law of total variance over prompts.
    trace = (moments.between_prompts + float(within)) / batch_size
    return (1.0 - 1.0 / group_size) ** 2 * trace + moments.gradient_squared_norm / group_size**2


@typed
def remainder_bound(moments: Moments, group_size: int, reward_range: float) -> Array:
    """Return an explicit constant for the remainder of U3: reward_range^2 E||W||^2 / G^2, shape (M,).

    Theorem (docs/derivations.md, section 2).  If Z lies in an interval of length R, then for every G >= 2

        0 <= MSE(x) - trace Sigma_oracle(x) / G <= R^2 E[||W||^2 | x] / G^2.

    This follows from ||g||^2 <= Var(Z) E||W||^2 (Cauchy-Schwarz), Var(Z) <= R^2/4 and 2/(G (G - 1)) <= 4/G^2.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("two-arms")
    >>> moments = gt.moments(problem, problem.theta)
    >>> float(gt.theory.remainder_bound(moments, 8, reward_range=1.0)[0].round(4))
    0.0069
    """
    group_size = as_count("group_size", group_size, 2)
    reward_range = as_not_negative("reward_range", reward_range)
    if reward_range > LARGEST_REWARD:
        raise ValueError(f"reward_range must be at most {LARGEST_REWARD:g}, got {reward_range:g}")
    return reward_range**2 * moments.score_squared_norm / group_size**2


@typed
def break_even_group_size(moments: Moments) -> float:
    """Return the group size above which the leave-one-out mean has a lower error than no baseline.

    Theorem (docs/derivations.md, section 3).  Let D = E[trace Sigma_0 - trace Sigma_oracle] = E[||W||^2 V (2 b* - V)], where
    Sigma_0 = Cov(W Z | X), and let c3 be as in the scaling law.  The leave-one-out estimator has the lower mean squared error if
    and only if G > 1 + c3/D. This holds per prompt on average and per batch.  If D <= 0, it never has the lower error.

    Returns
    -------
    float
        1 + c3/D; infinite where D <= 0.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("two-arms")
    >>> least = gt.theory.break_even_group_size(gt.moments(problem, problem.theta))
    >>> sizes = [{"batch_size": 8, "group_size": size} for size in (int(least), int(least) + 1)]
    >>> mse = {name: [gt.gradient_mse(problem, problem.theta, name, **one) for one in sizes] for name in ("rloo", "reinforce")}
    >>> [bool(left_out < none) for left_out, none in zip(mse["rloo"], mse["reinforce"])]
    [False, True]
    """
    f = moments.prompt_weights
    # Leave-one-out has the lower error if and only if c3/(G - 1) < D, the gain (docs/derivations.md, section 3).
    gain = float(f @ (baseline_trace(moments, 0.0) - moments.oracle_trace))
    return 1.0 + float(f @ moments.second_order) / gain if gain > 0.0 else float("inf")


DIVISORS_AT_ONCE = 1 << 20
"""So many numbers are tried at once as divisors."""


@dataclass(frozen=True, eq=False)
class GroupSizeLaw:
    """MSE(leave-one-out) = c1/B + c2/(BG) + c3/(BG(G-1)), exactly, for every B >= 1 and G >= 2.

    Theorem (docs/derivations.md, section 2), with c1 = E||g(X) - g||^2, c2 = E trace Sigma_oracle(X) and
    c3 = E[Var(Z|X) E(||W||^2|X) + ||g(X)||^2].  At a fixed budget N = BG the MSE is (c1 G + c2 + c3/(G-1)) / N.  It is convex
    in G with minimiser G* = 1 + sqrt(c3/c1).  Theorem 7 of arXiv 2603.01162 prints c1/B + c2/(BG) + c3/(BG^2) and
    G* = sqrt(c3/c1).

    The constants may be estimates, of many datasets along leading axes; those can be negative, the true ones of the gradient's
    error cannot.

    Attributes
    ----------
    c1, c2, c3 : float, or ndarray of shape (...)
        In units of squared gradient norm.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> law = gt.theory.GroupSizeLaw(c1=0.1, c2=1.0, c3=2.5)
    >>> float(law.optimum), float(law.paper_optimum), law.best(budget=96)
    (6.0, 5.0, 6)
    >>> float(law.mse(16, 6)), law.to_frame().shape
    (0.021875, (1, 5))
    """

    c1: Number
    c2: Number
    c3: Number

    @property
    def optimum(self) -> Number:
        """The exact minimiser over real G at fixed BG, 1 + sqrt(c3/c1), shape (...).

        It is infinite where c1 is not above 0, and 1 where only c3 is not.
        """
        # d[c1 G + c2 + c3/(G - 1)]/dG = c1 - c3/(G - 1)^2 = 0 (docs/derivations.md, section 2.1).
        return 1.0 + self.paper_optimum

    @property
    def paper_optimum(self) -> Number:
        """The printed minimiser sqrt(c3/c1), shape (...): infinite where c1 is not above 0, 0 where only c3 is not."""
        c1, c3 = np.asarray(self.c1, dtype=np.float64), np.maximum(self.c3, 0.0)
        ratio = np.divide(c3, c1, out=np.full(np.broadcast(c1, c3).shape, np.inf), where=c1 > 0.0)
        return np.sqrt(ratio)[()]

    def mse(self, batch_size: ArrayLike, group_size: ArrayLike) -> Number:
        """Return c1/B + c2/(BG) + c3/(BG(G-1)), broadcast over B and G."""
        weights = mse_weights(batch_size, group_size)
        return (self.c1 * weights[..., 0] + self.c2 * weights[..., 1] + self.c3 * weights[..., 2])[()]

    def to_frame(self) -> pd.DataFrame:
        """Return a DataFrame with the columns c1, c2, c3, optimum and paper_optimum: one row per law."""
        import pandas as pd  # slow to import, and not always wanted

        names = ("c1", "c2", "c3", "optimum", "paper_optimum")
        return pd.DataFrame({name: np.ravel(getattr(self, name)) for name in names})

    def best(self, budget: int) -> int:
        """Return the group size of least MSE among the divisors G >= 2 of the budget N = BG.

        All of the budget is spent.  The planner may leave a rest, and so may find a size between two divisors: of 1,024
        responses it spends 1,023 in groups of 3.
        """
        budget = as_count("budget", budget, 2)
        sizes = divisors(budget)[1:]
        return int(sizes[np.argmin(self.mse(budget // sizes, sizes))])


def divisors(number: int) -> Integers:
    """Return the divisors of a number of at most 2^53, ascending: each one below the root has its partner above."""
    root, blocks = isqrt(number), range(1, isqrt(number) + 1, DIVISORS_AT_ONCE)
    tried = (np.arange(first, min(first + DIVISORS_AT_ONCE, root + 1)) for first in blocks)
    small = np.concatenate([some[number % some == 0] for some in tried])
    return np.union1d(small, number // small)


def mse_weights(batch_size: ArrayLike, group_size: ArrayLike) -> Array:
    """Return the weights of c1, c2 and c3 in the error at batch size B >= 1 and group size G >= 2, shape (..., 3).

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> gt.theory.mse_weights(np.array([8, 4]), np.array([4, 8])).round(4).tolist()
    [[0.125, 0.0312, 0.0104], [0.25, 0.0312, 0.0045]]
    """
    given = as_numbers("batch_size", batch_size), as_numbers("group_size", group_size)
    try:
        b, g = np.broadcast_arrays(*given)
    except ValueError as error:
        raise ValueError(f"batch_size and group_size must broadcast: {error}") from None
    for name, sizes, least in (("batch_size", b, 1), ("group_size", g, 2)):
        refused = sizes[~(np.isfinite(sizes) & (sizes >= least))]
        if refused.size:
            raise ValueError(f"{name} must be finite and at least {least}, got {refused[0]:g}")
        if (sizes > MOST).any():
            raise ValueError(f"{name} must be at most {MOST}, got {sizes.max():g}")
    return np.stack([1.0 / b, 1.0 / (b * g), 1.0 / (b * g * (g - 1.0))], axis=-1)


@typed
def group_size_law(problem: Problem, theta: ArrayLike | None = None) -> GroupSizeLaw:
    """Compute the three constants of the scaling law exactly, for the problem at theta (d,), its own if omitted.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("lm-few-shot")
    >>> law = gt.group_size_law(problem, problem.theta)
    >>> round(float(law.optimum), 1), law.best(budget=1024)
    (3.3, 4)
    """
    problem.check_climbs_mean("the scaling law of the group size")
    exact = problem.at(theta).moments
    f = exact.prompt_weights
    # Rounding can leave E||g(X)||^2 - ||g||^2 a little off zero where all prompts have one gradient.
    between = exact.between_prompts if exact.between_prompts > ROUNDING * exact.gradient_squared_norm else 0.0
    return GroupSizeLaw(c1=between, c2=float(f @ exact.oracle_trace), c3=float(f @ exact.second_order))
