"""Groups whose advantages contradict the convention that the others follow, and what would explain each."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from grpo_theory.checks.conventions import Fit, GroupTable
from grpo_theory.checks.resolution import half_spacings, tolerances
from grpo_theory.estimation import Estimator
from grpo_theory.logs.group_advantages import logged_advantages
from grpo_theory.validation import Array, Flags, Integers

MOST = 1000
"""So many contradicting groups are explained; the others are counted."""


@dataclass(frozen=True, eq=False)
class Sample:
    """A group that contradicts a convention.

    Attributes
    ----------
    rewards, advantages, spacing : ndarray, shape (G,)
    estimator : Estimator
    usual : int
        The commonest size of a group in the log.
    """

    rewards: Array
    advantages: Array
    spacing: Array
    estimator: Estimator
    usual: int

    def part(self, rows: slice | Integers) -> "Sample":
        """Return some of the rows, or all in another order."""
        return Sample(self.rewards[rows], self.advantages[rows], self.spacing[rows], self.estimator, self.usual)

    @property
    def follows(self) -> bool:
        """Whether the advantages are the convention's."""
        return self.differs_by(self.advantages) is False

    def differs_by(self, advantages: Array) -> bool | None:
        """Whether advantages (G,) differ from the convention's; None where it is not defined."""
        if self.rewards.size < self.estimator.advantage.minimum_group_size:
            return None
        expected = logged_advantages(self.estimator, self.rewards, np.zeros(self.rewards.size, dtype=np.int64))
        allowed = tolerances(expected[None], self.rewards[None], self.spacing[None])[0]
        return bool((np.abs(expected - advantages) > allowed).any())


def two_groups(one: Sample) -> bool:
    """Whether the group is several of the usual size, one after the other, each of which follows the convention."""
    size, rest = one.rewards.size, one.rewards.size % one.usual
    starts = range(0, size, one.usual)
    return size > one.usual and not rest and all(one.part(slice(start, start + one.usual)).follows for start in starts)


def repeated_rows(one: Sample) -> bool:
    """Whether the group follows the convention without rows that repeat others of it."""
    extra = one.rewards.size - one.usual
    pairs = Counter(zip(one.rewards.tolist(), one.advantages.tolist(), strict=True))
    if extra <= 0:
        return False
    times = one.rewards.size // one.usual
    if one.rewards.size == times * one.usual and all(count % times == 0 for count in pairs.values()):
        kept = [row for pair, count in pairs.items() for row in _rows(one, pair)[: count // times]]
        return one.part(np.sort(kept)).follows
    if extra > 1:
        return False
    return any(one.part(np.delete(np.arange(one.rewards.size), _rows(one, pair)[0])).follows for pair in pairs if pairs[pair] > 1)


def _rows(one: Sample, pair: tuple[float, float]) -> list[int]:
    same = (one.rewards == pair[0]) & (one.advantages == pair[1])
    return np.flatnonzero(same).tolist()


def missing_rows(one: Sample) -> bool:
    """Whether the advantages are the rewards less a mean, on some scale, that a group of the usual size can have with these rows.

    Scale and mean follow from two different rewards; the rows that are not there must then have rewards within the group's range.
    """
    lost = one.usual - one.rewards.size
    low, high = int(np.argmin(one.rewards)), int(np.argmax(one.rewards))
    span = one.rewards[high] - one.rewards[low]
    if lost <= 0 or span == 0.0:
        return False
    slope = (one.advantages[high] - one.advantages[low]) / span
    if not slope > 0.0:
        return False
    mean = one.rewards[low] - one.advantages[low] / slope
    allowed = tolerances((slope * (one.rewards - mean))[None], one.rewards[None], one.spacing[None])[0]
    straight = (np.abs(slope * (one.rewards - mean) - one.advantages) <= 2.0 * allowed).all()
    absent = (one.usual * mean - one.rewards.sum()) / lost
    slack = 1e-3 * span
    return bool(straight and one.rewards[low] - slack <= absent <= one.rewards[high] + slack)


def other_order(one: Sample) -> bool:
    """Whether the advantages are those of the group's other rows: sorted, they follow the convention of the sorted rewards."""
    order = np.argsort(one.rewards, kind="stable")
    sorted_rows = Sample(one.rewards[order], np.sort(one.advantages), one.spacing[order], one.estimator, one.usual)
    return sorted_rows.follows


def wrong_sign(one: Sample) -> bool:
    """Whether the advantages have the other sign."""
    return one.differs_by(-one.advantages) is False


def rounded_deviation(one: Sample) -> bool:
    """Whether one response got more than 100 times its advantage, beside others whose rewards are all equal.

    Their deviation, as the root of a difference of two rounded means, is then rounding, and divides that one advantage.
    """
    values, counts = np.unique(one.rewards, return_counts=True)
    if values.size != 2 or counts.min() != 1 or "ddof" not in one.estimator.advantage.parameters:
        return False
    odd = int(np.flatnonzero(one.rewards == values[np.argmin(counts)])[0])
    spread = abs(values[1] - values[0])
    return bool(abs(one.advantages[odd]) > 100.0 * spread)


EXPLANATIONS: dict[str, tuple[Callable[[Sample], bool], str]] = {
    "several groups in one": (two_groups, "their prompt was sampled again in the same step, and each part follows by itself"),
    "repeated rows": (repeated_rows, "rows were written twice: without the repeats they follow"),
    "missing rows": (missing_rows, "rows are not in the log: the mean that was subtracted is of a larger group"),
    "wrong sign": (wrong_sign, "advantages have the wrong sign"),
    "other order": (other_order, "advantages stand beside the rewards of other rows"),
    "rounded deviation": (
        rounded_deviation,
        "the one response that differs was divided by the rounding of a standard deviation that is 0",
    ),
}
"""What may explain a group, in the order in which it is tried; and in words."""
UNEXPLAINED = "unexplained"


@dataclass(frozen=True, eq=False)
class Contradictions:
    """Groups that contradict the convention.

    Attributes
    ----------
    groups : tuple of int
        Their numbers in the log, at most `MOST`.
    reasons : tuple of str
        The reason of each group: one of `EXPLANATIONS`, or "unexplained".
    total : int
        How many there are.
    unequal : int
        Groups in which responses with equal rewards got different advantages; of those that follow no convention.
    judged : int
        How many groups were compared.
    """

    groups: tuple[int, ...]
    reasons: tuple[str, ...]
    total: int
    unequal: int
    judged: int

    @property
    def counts(self) -> dict[str, int]:
        """How many groups each reason explains, the commonest first."""
        return dict(Counter(self.reasons).most_common())


def find_contradictions(table: GroupTable, found: Fit | None) -> Contradictions:
    """Return the groups that do not follow a convention, and what would explain them; without one, only unequal advantages."""
    spacing = half_spacings(table.advantages)
    unequal = 0
    against: list[int] = []
    reasons: list[str] = []
    usual = int(np.bincount(table.sizes).argmax())
    for groups, rows in table.by_size():
        apart = _unequal(table.rewards[rows], table.advantages[rows], spacing[rows])
        unequal += int((apart if found is None else apart & ~found.follows[groups]).sum())
        if found is not None:
            for k in np.flatnonzero(~found.follows[groups]).tolist():
                against.append(int(groups[k]))
                if len(reasons) < MOST:
                    where = rows[k]
                    one = Sample(table.rewards[where], table.advantages[where], spacing[where], found.candidate.estimator, usual)
                    reasons.append(_reason(one))
    return Contradictions(tuple(against[:MOST]), tuple(reasons), len(against), unequal, table.batches.size)


def _reason(one: Sample) -> str:
    if one.estimator.couples_groups or "lengths" in one.estimator.advantage.reads:
        return UNEXPLAINED  # one group by itself does not tell
    return next((name for name, (explains, _) in EXPLANATIONS.items() if explains(one)), UNEXPLAINED)


def _unequal(rewards: Array, advantages: Array, spacing: Array) -> Flags:
    """Whether equal rewards of a group (b, G) got different advantages."""
    order = np.argsort(rewards, axis=1, kind="stable")
    sorted_rewards = np.take_along_axis(rewards, order, axis=1)
    sorted_advantages = np.take_along_axis(advantages, order, axis=1)
    allowed = tolerances(advantages, rewards, spacing).max(axis=1, keepdims=True)
    equal = np.diff(sorted_rewards, axis=1) == 0.0
    return (equal & (np.abs(np.diff(sorted_advantages, axis=1)) > 2.0 * allowed)).any(axis=1)
