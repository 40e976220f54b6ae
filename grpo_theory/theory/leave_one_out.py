"""Exact covariance of the leave-one-out estimator and of its twin with the own sample in the mean."""

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.arrays import Array
from grpo_theory.estimation import find
from grpo_theory.exact.group_law import scores_of
from grpo_theory.problem import Moments, Problem
from grpo_theory.problem.bandit import LARGEST_REWARD
from grpo_theory.theory.baseline import baseline_trace
from grpo_theory.validation import as_count, as_not_negative, typed

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
def leave_one_out_parts(problem: Problem, theta: ArrayLike) -> tuple[Array, Array, Array]:
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
    for scores, _, _ in scores_of(point, point, find("rloo")).by_look:
        prompts, chances = scores.classes.prompts, scores.classes.probabilities[..., None, None]
        deviations = (scores.classes.fields[0] - exact.value[prompts, None])[..., None, None]
        squares[prompts], powers[prompts] = scores.forms(chances * deviations**2), scores.forms(chances)
    slopes = exact.gradient_covectors
    outer = slopes[:, :, None] * slopes[:, None, :]
    forms = (outer, squares - outer, exact.reward_variance[:, None, None] * powers + outer)
    weights = exact.prompt_weights[:, None, None]
    between, oracle, second_order = (point.tangent.congruence(weights * form) for form in forms)
    between -= np.outer(exact.gradient, exact.gradient)
    # Rounding leaves it a little off zero where all prompts have one gradient, and its sign would decide what group is best.
    if np.trace(between) <= ROUNDING * exact.gradient_power:
        between[:] = 0.0
    return between, oracle, second_order


@typed
def leave_one_out_covariance(problem: Problem, theta: ArrayLike, *, batch_size: int, group_size: int) -> Array:
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
    trace = (moments.between_prompts + float(within)) / batch_size
    return (1.0 - 1.0 / group_size) ** 2 * trace + moments.gradient_power / group_size**2


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
    return reward_range**2 * moments.score_power / group_size**2


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
    gain = float(f @ (baseline_trace(moments, 0.0) - moments.oracle_trace))
    return 1.0 + float(f @ moments.second_order) / gain if gain > 0.0 else float("inf")
