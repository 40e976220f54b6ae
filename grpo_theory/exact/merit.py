"""How good an estimate of the gradient is: its squared error, and its efficiency, which has no scale."""

from numpy.typing import ArrayLike

from grpo_theory.estimation import Estimator
from grpo_theory.exact.group_law import gradient_law
from grpo_theory.problem import Problem
from grpo_theory.validation import typed


@typed
def gradient_mse(
    problem: Problem,
    theta: ArrayLike,
    estimator: str | Estimator,
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
    sizes = {"batch_size": batch_size, "group_size": group_size}
    return gradient_law(problem, theta, estimator, **sizes, behaviour=behaviour).mse


@typed
def efficiency(
    problem: Problem,
    theta: ArrayLike,
    estimator: str | Estimator,
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
    sizes = {"batch_size": batch_size, "group_size": group_size}
    return gradient_law(problem, theta, estimator, **sizes, behaviour=behaviour).efficiency
