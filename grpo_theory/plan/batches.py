"""What a batch costs, which batches are allowed, and the best group size under a cost."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from grpo_theory.theory import GroupSizeLaw
from grpo_theory.validation import Argument, ArgumentError, Integers, as_count, as_not_negative, as_positive

LARGEST_GROUP = 4096
"""The largest group that may be asked for."""
MOST_PAIRS = 1e12
"""The most pairs of responses that a budget may buy: numbers of prompts are then exact."""
BUDGET, MAX_RESPONSES, MIN_PROMPTS = (Argument(name) for name in ("budget", "max_responses", "min_prompts"))
FEWEST_PROMPTS = 3
"""The fewest prompts from which a group size is chosen: fewer give no standard errors by leaving one out."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one batch of B prompts with G responses each may cost, and what it must fit.

    The batch costs B (cost_prompt + G cost_response). B is the most prompts that budget and limits allow at a group size, so a
    part of the budget can stay unspent.

    Attributes
    ----------
    budget : float
        What one batch may cost: a number of responses with the default costs, else in the unit of the costs, as tokens or
        seconds.
    cost_prompt : float, default 0
        The cost of a prompt, whatever its group's size: the prefill.
    cost_response : float, default 1
        The cost of a response: the decoding. Above 0.
    max_group_size : int, default 4096
        The largest group considered, at most 4096.
    max_responses : int, optional
        The most responses B G that fit at once, as in memory.
    min_prompts : int, default 1
        The fewest prompts B a batch may have.
    multiple_of : int, default 1
        B G must be a multiple of it, as of the number of devices times the size of a micro-batch.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> limits = gt.plan.Limits(budget=1024, cost_prompt=4.0, multiple_of=64)
    >>> limits.prompts(16), limits.cost(48, 16), limits.batches()[0][:3].tolist()
    (48, 960.0, [2, 3, 4])
    """

    budget: float
    cost_prompt: float = 0.0
    cost_response: float = 1.0
    max_group_size: int = LARGEST_GROUP
    max_responses: int | None = None
    min_prompts: int = 1
    multiple_of: int = 1

    def __post_init__(self) -> None:
        for name in ("budget", "cost_response"):
            object.__setattr__(self, name, as_positive(name, getattr(self, name)))
        object.__setattr__(self, "cost_prompt", as_not_negative("cost_prompt", self.cost_prompt))
        for name, least in (("max_group_size", 2), ("min_prompts", 1), ("multiple_of", 1)):
            object.__setattr__(self, name, as_count(name, getattr(self, name), least))
        if self.max_group_size > LARGEST_GROUP:
            raise ArgumentError(Argument("max_group_size"), f" must be at most {LARGEST_GROUP}, got {self.max_group_size}")
        if self.max_responses is not None:
            object.__setattr__(self, "max_responses", as_count("max_responses", self.max_responses, 2))
        pair = self.cost(1, 2)
        if self.budget > MOST_PAIRS * pair:
            raise ArgumentError(BUDGET, f" must buy at most {MOST_PAIRS:.0e} pairs of responses, got {self.budget:g}")
        if self.budget < pair:
            raise ArgumentError(BUDGET, f" must pay for one prompt with two responses, which cost {pair:g}, got {self.budget:g}")

    def cost(self, batch_size: int, group_size: int) -> float:
        """Return what a batch costs."""
        return batch_size * (self.cost_prompt + group_size * self.cost_response)

    def prompts(self, group_size: int) -> int:
        """Return the most prompts that a batch of groups of this size can have; 0 if it is not allowed."""
        sizes, batches = self.batches()
        allowed = batches[sizes == group_size]
        return int(allowed[0]) if allowed.size else 0

    def batches(self) -> tuple[Integers, Integers]:
        """Return the allowed group sizes, ascending, and the most prompts a batch can have at each, both of shape (K,).

        Raises
        ------
        ValueError
            If no batch meets all limits.
        """
        sizes = np.arange(2, self.max_group_size + 1)
        # A budget that is a multiple of the cost must buy that multiple, whatever the rounding of the quotient.
        bought = np.floor(self.budget / (self.cost_prompt + sizes * self.cost_response) * (1.0 + 1e-12)).astype(np.int64)
        fitting = bought if self.max_responses is None else np.minimum(bought, self.max_responses // sizes)
        step = self.multiple_of // np.gcd(self.multiple_of, sizes)
        whole = fitting // step * step
        allowed = whole >= self.min_prompts
        if not allowed.any():
            ends = (BUDGET, self.budget, "pays", bought.max()), (MAX_RESPONSES, self.max_responses, "leaves room", fitting.max())
            for limit, value, gives, most in ends:
                if most < self.min_prompts:
                    told = f" {value:g} {gives} for at most {most} prompt{'s' * int(most != 1)}, fewer than "
                    raise ArgumentError("no batch meets all limits: ", limit, told, MIN_PROMPTS, f" {self.min_prompts}")
            divided = Argument("multiple_of"), f" {self.multiple_of} divides"
            raise ArgumentError("no batch meets all limits: none that fits has a number of responses that ", *divided)
        return sizes[allowed], whole[allowed]


FREE: dict[str, Any] = {"max_group_size": LARGEST_GROUP, "max_responses": None, "min_prompts": 1, "multiple_of": 1}
"""What each limit is where it limits nothing."""


def limits_groups(limits: Limits) -> tuple[str, ...]:
    """Return the names of the limits each of which, were it not there, would allow groups larger than the largest.

    Where no single one does it is the budget, with all limits together, and no name is returned.
    """
    largest = int(limits.batches()[0][-1])
    bind = [name for name, free in FREE.items() if getattr(limits, name) != free]
    return tuple(name for name in bind if int(replace(limits, **{name: FREE[name]}).batches()[0][-1]) > largest)


def cost_optimum(law: GroupSizeLaw, cost_prompt: float = 0.0, cost_response: float = 1.0) -> float:
    """Return the group size (not rounded) of least mean squared error at a fixed cost B (a + b G), for any B.

    Theorem (docs/derivations.md, section 35).  The error times the budget is (a + b G)(c1 + c2/G + c3/(G (G-1))). It is convex
    in G > 1 if a c2, c3 and c1 are not below 0. If b c1 and one of a c2 and c3 are above 0, its minimiser is the one root above
    1 of

        b c1 G^2 (G-1)^2 - a (c2 - c3) (G-1)^2 - (a + b) c3 G^2 = 0.

    With a = 0 it is 1 + sqrt(c3/c1). With c3 = 0 it is sqrt(a c2/(b c1)), or 1 where that is less. This is the classical answer
    for sampling in two stages (Cochran 1977, section 10.6).

    Parameters
    ----------
    law : GroupSizeLaw
        Numbers, not arrays; those below 0 are taken for 0.
    cost_prompt, cost_response : float, default 0 and 1
        a of at least 0, and b above 0.

    Returns
    -------
    float
        At least 1; infinite if c1 is 0 and a larger group is always better, and 1 if no group gains anything.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> law = gt.theory.GroupSizeLaw(c1=0.1, c2=1.0, c3=2.5)
    >>> gt.plan.cost_optimum(law), round(gt.plan.cost_optimum(law, cost_prompt=4.0), 2)
    (6.0, 9.76)
    """
    a, b = as_not_negative("cost_prompt", cost_prompt), as_positive("cost_response", cost_response)
    c1, c2, c3 = (max(float(value), 0.0) for value in (law.c1, law.c2, law.c3))
    if a * c2 == 0.0 and c3 == 0.0:
        return 1.0
    if c1 == 0.0:
        return float(np.inf)
    above = np.array([b * c1, -2.0 * b * c1, b * c1 - a * (c2 - c3) - (a + b) * c3, 2.0 * a * (c2 - c3), -a * (c2 - c3)])
    roots = np.roots(above / np.abs(above).max())
    real = roots.real[np.abs(roots.imag) <= 1e-6 * np.abs(roots)]
    return float(max(real.max(initial=1.0), 1.0))
