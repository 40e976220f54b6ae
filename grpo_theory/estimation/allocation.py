"""Allocation rules: how many responses each prompt of a batch gets, from what is known before they are sampled.

A rule states the error a/n + c/(n (n - 1)) that it expects from n responses to a prompt.  For the leave-one-out estimator this
form is exact (docs/derivations.md, section 33.1).  The sizes are then the whole numbers that make the sum of these errors least.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from grpo_theory.jit import compiled, kernel
from grpo_theory.validation import Array, Integers, as_count, as_number, check_name, shown

KNOWN = ("value", "reward_variance", "oracle_trace", "second_order", "start_value", "seen_reward", "seen_count")
"""What a rule may know of a prompt.  There are moments of the policy that samples, and the prompt's value when the run began.
There are also the sum and the number of the rewards that the run has seen of the prompt.  Both are multiplied by the share
`memory` with each further group."""
VALUE, VARIANCE, ORACLE_TRACE, SECOND_ORDER, START_VALUE, SEEN_REWARD, SEEN_COUNT = range(len(KNOWN))
_LEAST = 1e-12
"""A success rate is taken for no less than this when it is divided by."""


def fill_equal(known, costs):
    """All prompts cost the same, so that sizes differ by 1 at most."""
    costs[:, 0], costs[:, 1] = 1.0, 0.0


def fill_true_traces(known, costs):
    """The exact error of the leave-one-out estimator."""
    # tau(n) = A/n + C/(n (n - 1)), A = E||W||^2 (Z - V)^2 - ||g||^2 and C = Var(Z) E||W||^2 + ||g||^2 (docs/derivations.md,
    # section 33.1).
    costs[:, 0], costs[:, 1] = known[:, ORACLE_TRACE], known[:, SECOND_ORDER]


def fill_printed(known, costs):
    """The printed error Var(Z)/(n - 1) is Var(Z)/n + Var(Z)/(n (n - 1))."""
    costs[:, 0], costs[:, 1] = known[:, VARIANCE], known[:, VARIANCE]


def fill_variance(known, costs):
    """The error is Var(Z)/n, so that sizes are as standard deviations of rewards."""
    # sum_q a_q/n_q with sum_q n_q = N is least at n_q in proportion to sqrt(a_q) (docs/derivations.md, section 33.1).
    costs[:, 0], costs[:, 1] = known[:, VARIANCE], 0.0


def fill_inverse(known, costs):
    """With a = 1/p^2 sizes are as 1/p, p the value at the start."""
    costs[:, 0], costs[:, 1] = 1.0 / np.maximum(known[:, START_VALUE], _LEAST) ** 2, 0.0


def fill_printed_of_seen(known, costs):
    """The printed error with the rate (k + 1)/(n + 2) of what was seen, which is never 0 or 1."""
    rate = (known[:, SEEN_REWARD] + 1.0) / (known[:, SEEN_COUNT] + 2.0)
    costs[:, 0], costs[:, 1] = rate * (1.0 - rate), rate * (1.0 - rate)


@dataclass(frozen=True, eq=False)
class AllocationRule:
    """How many responses the prompts of a batch get, decided before any is sampled.

    Parameters
    ----------
    name : str
    fill : callable
        ``fill(known, costs)``, which numba must be able to compile.  The array `known` (B, 7) has a
        column for each name in `KNOWN`.  The first four are value, reward variance, oracle trace and second order under the
        sampling policy; the two traces are 0 unless `wants_traces`.  Then come the value at the start, and the sum and the number
        of the rewards that the run has seen of the prompt.  The function fills `costs` (B, 2) with a and c, not negative.  It
        expects the error a/n + c/(n (n - 1)) from n responses.
    low, high : int, default 2 and 64
        The fewest and the most responses of a prompt; at least 2, because one has no other to compare it with.
    wants_traces : bool, default False
        Whether the rule reads the two traces, which take longest to find; it finds 0 in their places otherwise.
    memory : float, default 0.5
        The share of what was seen of a prompt that still counts once its next group is there, in [0, 1].
    wants_success : bool, default False
        Whether the rule reads success rates, so that rewards must be 0 and 1.
    weighted : bool, default True
        Whether costs are errors, which `AllocationLaw` multiplies with f^2 for a prompt of weight f, or only say what sizes there
        are to be.  In training each prompt drawn weighs the same.

    Raises
    ------
    TypeError, ValueError

    Examples
    --------
    >>> import grpo_theory as gt
    >>> gt.allocation_rules()["vip"].between(4, 32)
    AllocationRule('vip', low=4, high=32)
    """

    name: str
    fill: Callable
    low: int = 2
    high: int = 64
    wants_traces: bool = False
    memory: float = 0.5
    wants_success: bool = False
    weighted: bool = True

    def __post_init__(self) -> None:
        if not callable(self.fill):
            raise TypeError(
                f"fill of allocation rule {self.name!r} must be a function fill(known, costs), got {shown(self.fill)}"
            )
        as_count("low", self.low, 2)
        if not 0.0 <= as_number("memory", self.memory) <= 1.0:
            raise ValueError(f"memory must lie in [0, 1], got {self.memory}")
        if as_count("high", self.high, 2) < self.low:
            raise ValueError(
                f"high must be at least low = {self.low}, got {self.high}: bounds are the fewest and the most responses"
            )

    def __repr__(self) -> str:
        return f"AllocationRule({self.name!r}, low={self.low}, high={self.high})"

    def between(self, low: int, high: int) -> "AllocationRule":
        """Return the rule with other bounds."""
        return replace(self, low=low, high=high)

    def costs(self, known: Array) -> Array:
        """Return a and c, shape (B, 2), of prompts of which this is known (B, 7).

        Raises
        ------
        ValueError
            If the rule leaves a cost that is negative or not finite.

        Examples
        --------
        >>> import numpy as np, grpo_theory as gt
        >>> known = np.array([[0.5, 0.25, 0.1, 0.2, 0.5, 0.0, 0.0]])  # of one prompt, in the order of the attribute `fill`
        >>> gt.allocation_rules()["vip"].costs(known).tolist()
        [[0.25, 0.25]]
        """
        costs, known = np.full((len(known), 2), np.nan), np.array(known, dtype=np.float64, order="C")
        if not self.wants_traces:
            known[:, [ORACLE_TRACE, SECOND_ORDER]] = 0.0
        compiled(self.fill)(known, costs)
        bad = np.flatnonzero(~((costs >= 0.0) & (costs < np.inf)).all(axis=1))
        if bad.size:
            raise ValueError(cost_message(self.name, costs[bad[0]], known[bad[0]]))
        return costs

    def check_rewards(self, values: Array) -> None:
        """Raise a ValueError if the rule is not defined for rewards of these values.

        Examples
        --------
        >>> import numpy as np, grpo_theory as gt
        >>> gt.allocation_rules()["vip"].check_rewards(np.array([0.0, 0.5, 1.0]))
        >>> gt.allocation_rules()["sgpo"].check_rewards(np.array([0.0, 0.5, 1.0]))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        ValueError: allocation rule 'sgpo' needs rewards of 0 and 1, because it reads success rates, got rewards ...
        """
        if self.wants_success and not np.isin(values, (0.0, 1.0)).all():
            raise ValueError(
                f"allocation rule {self.name!r} needs rewards of 0 and 1, because it reads success rates, got rewards "
                f"{', '.join(f'{value:g}' for value in values[:4])}: use 'vip' or 'neyman'"
            )


def checked_budget(budget: int, n_prompts: int, low: int, high: int) -> int:
    """Return the budget if so many prompts can spend it within the bounds; raise a ValueError if not."""
    budget = as_count("budget", budget)
    least, most = n_prompts * low, n_prompts * high
    if not least <= budget <= most:
        raise ValueError(
            f"{n_prompts} prompts with {low} to {high} responses each take {least:,} to {most:,} responses, and "
            f"the budget is {budget:,}. Change the budget, or the bounds with rule.between(low, high)"
        )
    return budget


def cost_message(name: str, costs: Array, known: Array) -> str:
    """Say that a rule has left a cost that means nothing."""
    told = ", ".join(f"{column} {value:.3g}" for column, value in zip(KNOWN, known, strict=True))
    return (
        f"allocation rule {name!r} must fill finite costs of at least 0, got {costs.tolist()} for a prompt with {told}. "
        "The columns costs[:, 0] and costs[:, 1] are a and c of the error a/n + c/(n (n - 1))"
    )


_RULES = (
    AllocationRule("uniform", fill_equal, weighted=False),
    AllocationRule("neyman", fill_true_traces, wants_traces=True),
    AllocationRule("vip", fill_printed),
    AllocationRule("vip_seen", fill_printed_of_seen, wants_success=True),
    AllocationRule("dynamo", fill_variance, weighted=False),
    AllocationRule("sgpo", fill_inverse, wants_success=True, weighted=False),
)


def allocation_rules() -> dict[str, AllocationRule]:
    """Return the allocation rules that are known by name.

    Those that make an error least weigh it with the prompts' weights; uniform, dynamo and sgpo say sizes, whatever the weights.

    - ``"uniform"``: equal sizes, as far as the budget divides.
    - ``"neyman"``: the leave-one-out estimator's own error. Nobody knows it in practice. No rule that decides before
      sampling has less error.
    - ``"vip"``: the error printed in arXiv 2602.01601, Var(Z)/(n - 1).
    - ``"vip_seen"``: the same for rewards of 0 and 1, with the rate (k + 1)/(n + 2) of what the run has seen of the prompt.
    - ``"dynamo"``: sizes in proportion to the standard deviation of the reward, as arXiv 2602.19208 for Bernoulli rewards.
    - ``"sgpo"``: sizes in proportion to 1/p, p the success rate at the start, for rewards of 0 and 1.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> sorted(gt.allocation_rules())
    ['dynamo', 'neyman', 'sgpo', 'uniform', 'vip', 'vip_seen']
    """
    return {rule.name: rule for rule in _RULES}


def find_rule(rule: "str | AllocationRule", argument: str = "allocation") -> AllocationRule:
    """Return an allocation rule that is given by name or as the object, as an argument of this name."""
    if isinstance(rule, AllocationRule):
        return rule
    check_name(argument, rule, allocation_rules())
    return allocation_rules()[rule]


@kernel
def spread_budget(costs, budget, low, high, gains, sizes):
    """Fill the sizes (B,) that make the sum of a/n + c/(n (n - 1)) least: each response goes where it gains most.

    Gains fall with n, so these whole numbers are the best with their sum.  A response that gains equally much for several
    prompts goes to the one with fewest.  The array gains (B,) is working space.
    """
    for b in range(sizes.size):
        sizes[b] = low
        n = float(low)
        # With f(n) = a/n + c/(n (n - 1)), f(n) - f(n + 1) = a/(n (n + 1)) + 2 c/((n - 1) n (n + 1)), which falls with n.
        gains[b] = costs[b, 0] / (n * (n + 1.0)) + 2.0 * costs[b, 1] / ((n - 1.0) * n * (n + 1.0))
    for _ in range(budget - low * sizes.size):
        best = -1
        for b in range(sizes.size):
            if sizes[b] < high and (best < 0 or gains[b] > gains[best] or (gains[b] == gains[best] and sizes[b] < sizes[best])):
                best = b
        if best < 0:
            return
        sizes[best] += 1
        n = float(sizes[best])
        gains[best] = costs[best, 0] / (n * (n + 1.0)) + 2.0 * costs[best, 1] / ((n - 1.0) * n * (n + 1.0))


def spread_sizes(costs: Array, budget: int, low: int, high: int) -> Integers:
    """Return what `spread_budget` fills, shape (B,)."""
    sizes = np.empty(len(costs), dtype=np.int64)
    spread_budget(np.array(costs, dtype=np.float64, order="C"), budget, low, high, np.empty(len(costs)), sizes)
    return sizes
