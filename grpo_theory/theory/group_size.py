"""The scaling law of the gradient's mean squared error, and the optimal group size."""

from dataclasses import dataclass
from math import isqrt
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.arrays import Array, Integers, Number
from grpo_theory.problem import Problem
from grpo_theory.theory.leave_one_out import ROUNDING
from grpo_theory.validation import MOST, as_count, as_numbers, typed

if TYPE_CHECKING:
    import pandas as pd

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

    def to_frame(self) -> "pd.DataFrame":
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
def group_size_law(problem: Problem, theta: ArrayLike) -> GroupSizeLaw:
    """Compute the three constants of the scaling law exactly, for the problem at theta (d,).

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("lm-few-shot")
    >>> law = gt.group_size_law(problem, problem.theta)
    >>> round(float(law.optimum), 1), law.best(budget=1024)
    (3.3, 4)
    """
    exact = problem.at(theta).moments
    f = exact.prompt_weights
    # Rounding can leave E||g(X)||^2 - ||g||^2 a little off zero where all prompts have one gradient.
    between = exact.between_prompts if exact.between_prompts > ROUNDING * exact.gradient_power else 0.0
    return GroupSizeLaw(c1=between, c2=float(f @ exact.oracle_trace), c3=float(f @ exact.second_order))
