"""A ladder of a few rewards in place of a log's many: what simulated worlds of graded rewards pay."""

from typing import NamedTuple

import numpy as np
from scipy import sparse

from grpo_theory.intervals.ragged import RewardCounts
from grpo_theory.validation import Array, Integers

LEVELS = 6
"""The most rewards of a simulated world: of its 8 answers two may be right, and two are left for the least reward."""
CHUNKS = 256
"""Different rewards are first put together in so many runs of neighbours, so that the search is fast."""
KEPT = (0.8, 1.25)
"""How much of the log's variance within groups levels may have: a quarter more noise moves the best size by less than two."""


class Ladder(NamedTuple):
    """The levels that stand for a log's rewards, and how often each prompt got each.

    Attributes
    ----------
    rewards : ndarray, shape (L,)
        In the log's unit, ascending: of at most `LEVELS` different rewards these, and else the means of clusters.
    counts : ndarray of int, shape (B, L)
    """

    rewards: Array
    counts: Integers

    @property
    def grades(self) -> Array:
        """The levels on a scale from 0, the least, to 1, the greatest, shape (L,)."""
        return (self.rewards - self.rewards[0]) / (self.rewards[-1] - self.rewards[0])

    @property
    def pooled(self) -> Array:
        """The share of all responses at each level, shape (L,)."""
        totals = self.counts.sum(axis=0)
        return np.asarray(totals / totals.sum())


def reward_ladder(counts: RewardCounts, most: int = LEVELS) -> Ladder:
    """Return at most so many levels for a log's rewards: clusters of neighbours, with the least squared distances to their means.

    A cluster's mean stands for its rewards, so that the log's mean reward is kept. Of its variance as much is kept as so many
    levels can.

    Parameters
    ----------
    counts : RewardCounts
        Of at least two different rewards.
    most : int, default 6

    Returns
    -------
    Ladder

    Raises
    ------
    ValueError
        If the levels do not keep the variance within groups, of which advantages are made: prompts differ more than responses.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> from grpo_theory.plan.reward_levels import reward_ladder
    >>> counts = gt.RewardCounts.from_rewards([0, 0, 0, 1, 1, 1], [0.0, 0.1, 1.0, 0.0, 0.9, 0.5])
    >>> ladder = reward_ladder(counts, 3)
    >>> ladder.rewards.round(3).tolist(), ladder.counts.tolist()
    ([0.033, 0.5, 0.95], [[2, 0, 1], [1, 1, 1]])
    """
    values = counts.values
    if values.size <= most:
        return Ladder(values, counts.counts.toarray())
    weights = np.asarray(counts.counts.sum(axis=0)).ravel().astype(np.float64)
    inner = np.array_split(np.arange(1, values.size - 1), min(values.size, CHUNKS) - 2)
    firsts = np.array([0, *(chunk[0] for chunk in inner), values.size - 1])  # the ends are alone: one may be an outlier
    mass = np.add.reduceat(weights, firsts)
    centres = np.add.reduceat(weights * (values - values[0]), firsts) / mass
    cuts = firsts[best_cuts(centres / centres[-1], mass, most)]
    level = np.searchsorted(cuts, np.arange(values.size), side="right") - 1
    membership = sparse.csr_array((np.ones(values.size, dtype=np.int64), (np.arange(values.size), level)))
    sums = np.bincount(level, weights=weights * (values - values[0]))
    ladder = Ladder(values[0] + sums / np.bincount(level, weights=weights), (counts.counts @ membership).toarray())
    _check_spread(counts, ladder)
    return ladder


def _check_spread(counts: RewardCounts, ladder: Ladder) -> None:
    """Raise if a ladder's variance within groups is not the log's."""
    logged = _within(counts.values, counts.counts)
    kept = _within(ladder.rewards, sparse.csr_array(ladder.counts)) / logged if logged > 0.0 else 1.0
    if not KEPT[0] <= kept <= KEPT[1]:
        raise ValueError(
            f"rewards must differ within groups as they do between prompts. The {len(ladder.rewards)} levels that stand for them "
            f"have {kept:.2g} times the log's variance within groups; from {KEPT[0]:g} to {KEPT[1]:g} is allowed. Subtract from "
            "each reward its prompt's usual reward, which changes no advantage. Or ask for one step with --budget, which reads "
            "graded rewards as they are"
        )


def _within(values: Array, counts: sparse.csr_array) -> float:
    """Return the sum of squared distances from the means of the groups."""
    sizes, near = np.asarray(counts.sum(axis=1)).ravel(), values - values[values.size // 2]
    return float((counts @ near**2 - (counts @ near) ** 2 / np.maximum(sizes, 1)).sum())


def best_cuts(values: Array, weights: Array, clusters: int) -> Integers:
    """Return where each cluster begins, (clusters,), of those with the least squared distance from their means.

    Clusters of numbers in order are runs of neighbours, so that the best are found exactly, one cluster more at a time (Fisher
    1958).

    Parameters
    ----------
    values, weights : ndarray, shape (V,)
        Ascending, and above 0.
    clusters : int
        At most V.
    """
    size = values.size
    # Squares as far as an outlier would swamp all others.
    values = values - values[np.searchsorted(np.cumsum(weights), 0.5 * weights.sum())]
    mass, first, second = (np.append(0.0, np.cumsum(weights * values**power)) for power in range(3))
    some = np.arange(size + 1)[:, None] < np.arange(size + 1)
    total = np.where(some, mass[None, :] - mass[:, None], 1.0)
    within = (second[None, :] - second[:, None]) - (first[None, :] - first[:, None]) ** 2 / total
    cost = np.where(some, within, np.inf)  # of values i to j - 1
    best, starts = cost[0], []
    for _ in range(clusters - 1):
        through = best[:, None] + cost
        starts.append(through.argmin(axis=0))
        best = through.min(axis=0)
    cuts, end = [], size
    for start in reversed(starts):
        end = int(start[end])
        cuts.append(end)
    return np.array([0, *reversed(cuts)])
