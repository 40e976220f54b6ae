"""Groups whose advantages contradict the convention that the others follow, and what would explain each."""

from collections import Counter
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from grpo_theory.checks.conventions import Fit, Groups, fit, unequal_groups
from grpo_theory.estimation import Estimator

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
    against, usual = np.flatnonzero(~found.near), int(np.bincount(groups.sizes).argmax())
    ones = [groups.taken(np.flatnonzero(groups.index == number)) for number in against[:MOST]]
    reasons = tuple(reason(one, found.estimator, usual) for one in ones)
    return Contradictions(tuple(against[:MOST].tolist()), reasons, against.size, int((apart & ~found.near).sum()), apart.size)


def reason(one: Groups, estimator: Estimator, usual: int) -> str:
    """Return what explains a group; the usual size is G'. One group alone does not tell where others or lengths are read."""
    if estimator.couples_groups or "lengths" in estimator.advantage.reads:
        return "unexplained"
    rewards, advantages, size = one.rewards, one.advantages, one.rewards.size

    def follows(part: Groups) -> bool:
        return bool(fit(estimator, part).follows[0])

    pairs = Counter(zip(rewards.tolist(), advantages.tolist(), strict=True))
    rows = [np.flatnonzero((rewards == reward) & (advantages == advantage)) for reward, advantage in pairs]
    times, rest = divmod(size, usual)
    if times > 1 and not rest:
        if all(follows(one.taken(part)) for part in np.split(np.arange(size), times)):
            return "several groups in one"
        kept = np.sort(np.concatenate([same[: same.size // times] for same in rows]))
        if all(same.size % times == 0 for same in rows) and follows(one.taken(kept)):
            return "repeated rows"
    if size == usual + 1 and any(follows(one.taken(np.delete(np.arange(size), same[0]))) for same in rows if same.size > 1):
        return "repeated rows"
    if size < usual and _is_part(one, usual):
        return "missing rows"
    if follows(replace(one, advantages=-advantages)):
        return "wrong sign"
    if follows(replace(one.taken(np.argsort(advantages)), rewards=np.sort(rewards))):
        return "other order"
    values, counts = np.unique(rewards, return_counts=True)
    if values.size == 2 and counts.min() == 1 and "ddof" in estimator.advantage.parameters:
        odd = advantages[rewards == values[np.argmin(counts)]]
        if abs(odd[0]) > HUGE * np.ptp(values):
            return "rounded deviation"
    return "unexplained"


def _is_part(one: Groups, usual: int) -> bool:
    """Whether the advantages are the rewards less a mean, on some scale, that a group of the usual size can have with these rows.

    Scale and mean follow from two different rewards; the rows that are not there must then have rewards within the group's range.
    """
    rewards, advantages = one.rewards, one.advantages
    low, high = int(np.argmin(rewards)), int(np.argmax(rewards))
    span = rewards[high] - rewards[low]
    slope = (advantages[high] - advantages[low]) / span if span else 0.0
    if slope <= 0.0:
        return False
    mean = rewards[low] - advantages[low] / slope
    line = slope * (rewards - mean)
    absent = (usual * mean - rewards.sum()) / (usual - rewards.size)
    straight = (np.abs(line - advantages) <= 2.0 * one.tolerances(line)).all()
    return bool(straight and rewards[low] - 1e-3 * span <= absent <= rewards[high] + 1e-3 * span)
