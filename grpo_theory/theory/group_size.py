"""The scaling law of the gradient's mean squared error, and the optimal group size."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grpo_theory.exact.moments import moments
from grpo_theory.kl import KL
from grpo_theory.policy import Policy
from grpo_theory.problem import Bandit
from grpo_theory.theory.leave_one_out import ROUNDING
from grpo_theory.validation import as_count


@dataclass(frozen=True)
class GroupSizeLaw:
    """MSE(leave-one-out) = c1/B + c2/(BG) + c3/(BG(G-1)), exactly, for every B >= 1 and G >= 2.

    Theorem (docs/derivations.md, section 2), with c1 = E||g(X) - g||^2, c2 = E trace Sigma_oracle(X) and
    c3 = E[Var(Z|X) E(||W||^2|X) + ||g(X)||^2].  At a fixed budget N = BG the MSE is (c1 G + c2 + c3/(G-1)) / N; it is convex
    in G with minimiser G* = 1 + sqrt(c3/c1).  Theorem 7 of arXiv 2603.01162 prints c1/B + c2/(BG) + c3/(BG^2) and
    G* = sqrt(c3/c1).

    Attributes
    ----------
    c1, c2, c3 : float
        In units of squared gradient norm.
    """

    c1: float
    c2: float
    c3: float

    @property
    def optimum(self) -> float:
        """The exact minimiser over real G at fixed BG, 1 + sqrt(c3/c1); infinite where c1 is 0."""
        return 1.0 + self.paper_optimum

    @property
    def paper_optimum(self) -> float:
        """The printed minimiser sqrt(c3/c1); infinite where c1 is 0."""
        return float(np.sqrt(self.c3 / self.c1)) if self.c1 > 0.0 else float("inf")

    def mse(self, batch_size: ArrayLike, group_size: ArrayLike) -> NDArray[np.float64]:
        """Return c1/B + c2/(BG) + c3/(BG(G-1)), broadcast over B and G."""
        b, g = np.asarray(batch_size, dtype=np.float64), np.asarray(group_size, dtype=np.float64)
        if not (g >= 2).all():
            raise ValueError(f"group_size must be at least 2, got {g.min():g}")
        if not (b >= 1).all():
            raise ValueError(f"batch_size must be at least 1, got {b.min():g}")
        return (self.c1 + self.c2 / g + self.c3 / (g * (g - 1.0))) / b

    def best(self, budget: int) -> int:
        """Return the group size of least MSE among the divisors G >= 2 of the budget N = BG."""
        budget = as_count("budget", budget, 2)
        divisors = np.array([g for g in range(2, budget + 1) if budget % g == 0])
        return int(divisors[np.argmin(self.mse(budget // divisors, divisors))])


def group_size_law(bandit: Bandit, policy: Policy, theta: ArrayLike, kl: KL | None = None) -> GroupSizeLaw:
    """Compute the three constants of the scaling law exactly.

    Parameters
    ----------
    bandit, policy, theta
        The problem, the policy and its parameters (d,).
    kl : KL, optional
        A penalty, placed in the reward.

    Returns
    -------
    GroupSizeLaw
    """
    m = moments(bandit, policy, theta, kl)
    f = m.prompt_weights
    # Rounding can leave E||g(X)||^2 - ||g||^2 a little off zero where all prompts have one gradient.
    between = m.between_prompts if m.between_prompts > ROUNDING * m.gradient_power else 0.0
    return GroupSizeLaw(
        c1=between,
        c2=float(f @ m.oracle_trace),
        c3=float(f @ m.second_order),
    )
