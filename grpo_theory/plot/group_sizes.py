"""Curves over group sizes: exact efficiency of estimators at a budget, and what a plan says of each size."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from grpo_theory.estimation import Estimator
from grpo_theory.estimation.registry import find
from grpo_theory.exact import efficiency as exact_efficiency
from grpo_theory.page.picture import draw_losses
from grpo_theory.plot.axes import given_or_new, group_size_axis
from grpo_theory.problem import Problem
from grpo_theory.validation import as_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def efficiency(
    problem: Problem,
    theta: ArrayLike | None = None,
    estimators: Sequence[str | Estimator] = (),
    *,
    budget: int,
    group_sizes: Sequence[int] | None = None,
    axes: "Axes | None" = None,
) -> "Axes":
    """Draw exact efficiency against the group size, at equal numbers of responses: a curve an estimator.

    Parameters
    ----------
    problem, theta
        As for `gt.efficiency`.
    estimators : sequence of str or Estimator
        A size for which an estimator is not defined is left out of its curve.
    budget : int
        N, the responses of a step: a size G is tried with N/G prompts.
    group_sizes : sequence of int, optional
        Each divides the budget; its divisors up to 64 if omitted.
    axes : Axes, optional
        New ones if omitted.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If a group size does not divide the budget, there is no estimator, or none is defined for any size; and as for
        `gt.efficiency`.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("tabular")
    >>> axes = gt.plot.efficiency(problem, problem.theta, ["rloo", "grpo"], budget=64, group_sizes=[2, 4, 8])
    >>> [line.get_label() for line in axes.lines[:2]]
    ['rloo', 'grpo']
    """
    budget = as_count("budget", budget)
    sizes = [size for size in range(1, LARGEST + 1) if budget % size == 0] if group_sizes is None else sorted(group_sizes)
    for size in sizes:
        if budget % as_count("group_sizes", size):
            raise ValueError(f"group_sizes must divide the budget of {budget}, got {size}")
    asked = [find(one, "estimators") for one in estimators]
    if not asked:
        raise ValueError("estimators must have at least one, got none")
    curves = {}
    for one in asked:
        tried = [size for size in sizes if size >= one.advantage.minimum_group_size]
        at = [{"batch_size": budget // size, "group_size": size} for size in tried]
        curves[one.name] = tried, [exact_efficiency(problem, theta, one, **pair) for pair in at]
    if not any(tried for tried, _ in curves.values()):
        raise ValueError(f"group_sizes must have one for which an estimator is defined, got {sizes}")
    axes = given_or_new(axes)
    for number, (name, (tried, values)) in enumerate(curves.items()):
        # Estimators of one efficiency are common, as those that differ by a factor: a later curve lets an earlier one be seen.
        width, mark = max(3.0 - 0.7 * number, 0.9), max(10.0 - 2.0 * number, 4.0)
        axes.plot(tried, values, MARKERS[number % len(MARKERS)], label=name, linewidth=width, markersize=mark, fillstyle="none")
    group_size_axis(axes, sizes)
    axes.set(ylabel="efficiency", title=f"{budget} responses per step")
    axes.legend()
    return axes


def plan(advice: Any, axes: "Axes | None" = None) -> "Axes":
    """Draw what each group size loses, with limits, the sizes that may be best, the recommended one and the user's.

    Parameters
    ----------
    advice : Advice
        What `gt.plan.advise` returned.
    axes : Axes, optional
        New ones if omitted.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If the advice is of rewards alone, from which no size's loss can be told.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("linear"), gt.Pilot(batch_size=64, group_size=8)
    >>> rollouts = pilot.take(pilot.sample(problem, 0, 1), 0)
    >>> gt.plot.plan(gt.plan.advise(rollouts, 1024, group_size=8)).get_ylabel()
    'error above the least'
    """
    if not hasattr(advice, "scores"):
        raise TypeError(f"advice must be what gt.plan.advise returns, got {type(advice).__name__}")
    if advice.scores is None:
        raise ValueError("advice must be of rollouts with sketches for losses to be drawn: of rewards alone there are none")
    axes = given_or_new(axes)
    draw_losses(axes, advice)
    axes.legend()
    return axes


LARGEST = 64
"""The largest group size that is tried if none is named."""


MARKERS = ("o-", "s--", "D-.", "^:", "v-", "X--", "P-.")
"""Marks and lines that are told apart in grey."""
