"""Groups whose advantages contradict the convention that the others follow, and what would explain each."""

from collections import Counter
from typing import NamedTuple

import numpy as np

from grpo_theory.checks.conventions import Fit, Groups, fit, half_spacings, tolerances, unequal_groups
from grpo_theory.estimation import Estimator
from grpo_theory.validation import Array

MOST = 1000
"""So many contradicting groups are explained; the others are counted."""
EXPLANATIONS = {
    "several groups in one": "their prompt was sampled again in the same step, and each part follows by itself",
    "repeated rows": "rows were written twice: without the repeats they follow",
    "missing rows": "rows are not in the log: the mean that was subtracted is of a larger group",
    "wrong sign": "advantages have the wrong sign",
    "other order": "advantages stand beside the rewards of other rows",
    "rounded deviation": "the one response that differs was divided by the rounding of a standard deviation that is 0",
    "unexplained": "none of the explanations above fits",
}
"""What may explain a group, in the order in which it is tried; and in words."""
HUGE = 100.0
"""An advantage of more than so many differences of reward was divided by rounding."""


class Contradictions(NamedTuple):
    """Groups that contradict the convention.

    Attributes
    ----------
    groups : tuple of int
        Their numbers in the log, at most `MOST`.
    reasons : tuple of str
        The reason of each group, of `EXPLANATIONS`.
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


def find_contradictions(groups: Groups, found: Fit | None) -> Contradictions:
    """Return the groups that do not follow a convention, and what would explain them; without one, only unequal advantages."""
    apart = unequal_groups(groups)[0]
    if found is None:
        return Contradictions((), (), 0, int(apart.sum()), apart.size)
    against = np.flatnonzero(~found.near)
    spacing, usual, reasons = half_spacings(groups.advantages), int(np.bincount(groups.sizes).argmax()), []
    coupled = found.estimator.couples_groups or "lengths" in found.estimator.advantage.reads
    for number in against[:MOST].tolist():
        rows = np.flatnonzero(groups.index == number)
        one = np.stack([groups.rewards[rows], groups.advantages[rows], spacing[rows]])
        reasons.append("unexplained" if coupled else reason(one, found.estimator, usual))  # one group alone does not tell
    unequal = int((apart & ~found.near).sum())
    return Contradictions(tuple(against[:MOST].tolist()), tuple(reasons), against.size, unequal, apart.size)


def reason(one: Array, estimator: Estimator, usual: int) -> str:
    """Return what explains a group, whose rewards, advantages and spacings are the rows of `one` (3, G); the usual size is G'."""
    rewards, advantages, _ = one
    size = rewards.size

    def follows(part: Array) -> bool:
        zeros = np.zeros(part.shape[1], dtype=np.int64)
        return bool(fit(estimator, Groups(part[0], part[1], zeros, zeros), spacing=part[2]).follows[0])

    pairs = Counter(zip(rewards.tolist(), advantages.tolist(), strict=True))
    rows = {pair: np.flatnonzero((rewards == pair[0]) & (advantages == pair[1])).tolist() for pair in pairs}
    times, rest = divmod(size, usual)
    if times > 1 and not rest:
        if all(follows(one[:, start : start + usual]) for start in range(0, size, usual)):
            return "several groups in one"
        kept = [row for same in rows.values() for row in same[: len(same) // times]]
        if all(len(same) % times == 0 for same in rows.values()) and follows(one[:, np.sort(kept)]):
            return "repeated rows"
    if size == usual + 1 and any(follows(np.delete(one, same[0], axis=1)) for same in rows.values() if len(same) > 1):
        return "repeated rows"
    if size < usual and _is_part(one, usual):
        return "missing rows"
    if follows(one * np.array([[1.0], [-1.0], [1.0]])):
        return "wrong sign"
    order = np.argsort(rewards, kind="stable")
    if follows(np.stack([rewards[order], np.sort(advantages), one[2, order]])):
        return "other order"
    values, counts = np.unique(rewards, return_counts=True)
    if values.size == 2 and counts.min() == 1 and "ddof" in estimator.advantage.parameters:
        odd = np.flatnonzero(rewards == values[np.argmin(counts)])[0]
        if abs(advantages[odd]) > HUGE * np.ptp(values):
            return "rounded deviation"
    return "unexplained"


def _is_part(one: Array, usual: int) -> bool:
    """Whether the advantages are the rewards less a mean, on some scale, that a group of the usual size can have with these rows.

    Scale and mean follow from two different rewards; the rows that are not there must then have rewards within the group's range.
    """
    rewards, advantages, spacing = one
    low, high = int(np.argmin(rewards)), int(np.argmax(rewards))
    span = rewards[high] - rewards[low]
    slope = (advantages[high] - advantages[low]) / span if span else 0.0
    if slope <= 0.0:
        return False
    mean = rewards[low] - advantages[low] / slope
    line = slope * (rewards - mean)
    straight = (np.abs(line - advantages) <= 2.0 * tolerances(line[None], rewards[None], spacing[None])[0]).all()
    absent = (usual * mean - rewards.sum()) / (usual - rewards.size)
    slack = 1e-3 * span
    return bool(straight and rewards[low] - slack <= absent <= rewards[high] + slack)
