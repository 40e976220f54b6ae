"""The convention that a log's advantages follow: every registered kernel that reads rewards, in the logged or in other groups."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd

from grpo_theory.checks import sentences
from grpo_theory.estimation import Estimator, estimators
from grpo_theory.logs.group_advantages import READABLE, logged_advantages
from grpo_theory.validation import Array, Flags, Integers

VARIANTS = {"ddof": (0.0, 1.0), "epsilon": (0.0, 1e-9, 1e-8, 1e-6, 1e-4)}
"""Values of parameters that trainers differ in, tried for every kernel that has such a parameter."""
ROUNDING = 16.0 * 2.0**-24
"""So far sixteen roundings of float32 may carry a number of size 1: sums of a group, its mean, its deviation."""
MANTISSAS = ((16, 2.0**-9), (13, 2.0**-12), (0, 2.0**-24))
"""The last bits of a float32 that are 0 in bfloat16, in float16 and in itself, and half the distance from 1 to the next."""
EXACT = 2.0**10
"""Rewards that are multiples of 1/1024, such as 0 and 1, are added up without rounding."""
NEAR = 1e-3
"""Advantages that are off by this share of the largest of their group contradict nothing."""
FOLLOWED = 0.5
"""More than this share of the groups must follow a convention."""
TRIED = 500
"""Of more groups so many are tried first; conventions that fewer of them follow are left out."""
LARGEST_BATCH = 4096
"""In steps of more groups, conventions that look at other groups are not tried: some compare every two groups."""
LARGEST_BLOCK = 64
"""The most neighbouring rows that are tried as a group."""
CENTRED = 1e-3
"""Blocks of sizes that no group has are tried where most have sums of advantages below this share of their absolute sum."""


@dataclass(frozen=True, eq=False)
class Groups:
    """The rows of a log whose advantages are compared, in the order of the log.

    Attributes
    ----------
    rewards, advantages, spacing : ndarray, shape (N,)
        The spacing is half the distance from an advantage to the next that the log could hold.
    index, steps : ndarray of int64, shape (N,)
        The group and the step of each row, numbered from 0.
    lengths : ndarray, shape (N,), or None
    """

    rewards: Array
    advantages: Array
    spacing: Array
    index: Integers
    steps: Integers
    lengths: Array | None = None

    @property
    def sizes(self) -> Integers:
        """The number of rows of each group, shape (B,)."""
        return np.bincount(self.index)

    def largest(self, values: Array) -> Array:
        """Return the largest of values (N,) in each group (B,)."""
        found = np.full(self.sizes.size, -np.inf)
        np.maximum.at(found, self.index, values)
        return found

    def spread(self, values: Array) -> Array:
        """Return the largest less the smallest of values (N,) in each group (B,)."""
        return self.largest(values) + self.largest(-values)

    def having(self, rows: Flags) -> Flags:
        """Return which groups have one of the rows (N,) that are marked, shape (B,)."""
        return np.bincount(self.index, rows) > 0

    def taken(self, rows: Integers) -> "Groups":
        """Return some rows, which may repeat, with their groups numbered anew."""
        columns = (self.rewards, self.advantages, self.spacing, self.index, self.steps, self.lengths)
        rewards, advantages, spacing, index, steps, lengths = (None if one is None else one[rows] for one in columns)
        return Groups(rewards, advantages, spacing, np.unique(index, return_inverse=True)[1], steps, lengths)

    def tolerances(self, expected: Array, beside: float = 0.0) -> Array:
        """Return how far logged advantages may be from the expected ones (N,).

        The advantages carry the rounding of the rewards, multiplied by a scale. The scale is the largest advantage of the group
        divided by the largest deviation of a reward from the group's mean, but at least 1. `beside` is the largest reward of
        other groups that the convention looks at.
        """
        means = np.bincount(self.index, self.rewards) / self.sizes
        deviations, largest = self.largest(np.abs(self.rewards - means[self.index])), self.largest(np.abs(expected))
        gain = np.maximum(1.0, np.divide(largest, deviations, out=np.ones_like(largest), where=deviations > 0.0))
        carried = ROUNDING * gain * np.maximum(beside, self.largest(np.abs(self.rewards)))
        return self.spacing + carried[self.index] + ROUNDING * np.abs(expected)


@dataclass(frozen=True, eq=False)
class Fit:
    """Which groups follow a convention.

    Attributes
    ----------
    estimator : Estimator
    names : tuple of str
        The registered names of the kernel; empty for a variant that has no name of its own.
    follows : ndarray of bool, shape (B,)
    telling : ndarray of bool, shape (B,)
        Groups that tell conventions apart. In these an advantage is not 0, by the log or by the convention.
    near : ndarray of bool, shape (B,)
        Groups that follow up to a thousandth of their largest advantage, which does not matter.
    factor : float
        The logged advantages are the convention's times this.
    """

    estimator: Estimator
    names: tuple[str, ...]
    follows: Flags
    telling: Flags
    near: Flags
    factor: float = 1.0

    @property
    def label(self) -> str:
        """The first registered name, or that of the kernel with its parameters."""
        return (*self.names, self.estimator.name)[0]

    @property
    def count(self) -> int:
        """How many telling groups follow."""
        return int((self.follows & self.telling).sum())

    @property
    def share(self) -> float:
        """The share of the telling groups that follow the convention; 0 if none tells."""
        return self.count / max(int(self.telling.sum()), 1)


class Explanation(NamedTuple):
    """What most advantages follow where they follow no convention in the logged groups.

    Attributes
    ----------
    name : str
        "factor", "sign", "batch" (one baseline for a whole step), or one of `sentences.PLACES`.
    share : float
        The share of the telling groups that it explains.
    size : int
        The largest group that it takes.
    said : str
        What is wrong, in words.
    """

    name: str
    share: float
    size: int
    said: str


def half_spacings(values: Array) -> Array:
    """Return half the distance between neighbours in the coarsest format that holds all values (N,): decimals or short floats."""
    for decimals in range(2, 7):
        if np.allclose(values, np.round(values, decimals), rtol=1e-14, atol=1e-14):
            if np.allclose(values, np.round(values, 1), rtol=1e-14, atol=1e-14):
                break  # all are likely to be exact, as 1 and -0.5 are
            return np.full(values.shape, 0.5 * 10.0**-decimals)
    bits = values.astype(np.float32).view(np.uint32)
    single = np.array_equal(values.astype(np.float32).astype(np.float64), values)
    share = next(share for empty, share in MANTISSAS if not empty or (single and not (bits & np.uint32(2**empty - 1)).any()))
    return np.abs(values) * share


def candidates(has_lengths: bool) -> list[tuple[Estimator, tuple[str, ...]]]:
    """Return all kernels that read rewards, and lengths if the log has them, with their names, and variants of parameters."""
    found: dict[tuple, tuple[Estimator, dict[str, None]]] = {}
    readable = READABLE if has_lengths else READABLE - {"lengths"}
    tried = [(one, {one.advantage.name: None}) for one in estimators().values() if one.advantage.reads <= readable]
    for one, _ in tuple(tried):
        numbers = {name: values for name, values in VARIANTS.items() if name in one.advantage.parameters}
        tried += [(one.with_parameters(**dict(zip(numbers, few, strict=True))), {}) for few in product(*numbers.values()) if few]
    for one, names in tried:
        key = one.advantage.function, tuple(sorted(one.advantage.parameters.items()))
        found.setdefault(key, (one, {}))[1].update(names)
    return [(one, tuple(names)) for one, names in found.values()]


def fit(estimator: Estimator, groups: Groups, names: tuple[str, ...] = (), free: bool = False) -> Fit:
    """Compare the logged advantages with a convention's, or if `free` with a constant multiple of it, group by group.

    Each step is a batch of its own.
    """
    expected, sizes = np.full(groups.rewards.size, np.nan), groups.sizes[groups.index]  # NaN where it is not defined
    defined = sizes >= estimator.advantage.minimum_group_size
    for step in np.unique(groups.steps) if estimator.couples_groups else [None]:
        inside = np.flatnonzero(defined if step is None else defined & (groups.steps == step))
        if inside.size and not (estimator.couples_groups and np.ptp(sizes[inside])):
            index = np.unique(groups.index[inside], return_inverse=True)[1]
            lengths = None if groups.lengths is None else np.maximum(groups.lengths[inside], 1.0)
            expected[inside] = logged_advantages(estimator, groups.rewards[inside], index, lengths)
    known, logged, factor = np.nan_to_num(expected), groups.advantages, 1.0
    if free:
        products, squares = np.bincount(groups.index, known * logged), np.bincount(groups.index, known**2)
        ratios = products[squares > 0.0] / squares[squares > 0.0]
        factor = float(np.median(ratios)) if ratios.size else 1.0
    known, off = known * factor, np.abs(expected * factor - logged)
    allowed = groups.tolerances(known, float(np.abs(groups.rewards).max()) if estimator.couples_groups else 0.0)
    most = groups.largest(np.abs(logged))
    # what is left of a rounded mean, over a deviation of its own size, is at most 1 and the same for all
    rounds = (groups.sizes > 1) & (groups.spread(groups.rewards) == 0.0) & groups.having(groups.rewards * EXACT % 1.0 != 0.0)
    rounds &= (groups.spread(logged) <= groups.largest(allowed)) & (most <= 1.0)
    follows, near = (
        ~groups.having(~(off <= limit)) | rounds  # NaN is near to nothing
        for limit in (allowed, allowed + NEAR * most[groups.index])
    )
    # equal rewards of an advantage that is not 0 contradict most conventions, and tell for those that give it
    telling = groups.having((np.abs(logged) > allowed) | (np.abs(known) > allowed)) & ~rounds
    return Fit(estimator, names, follows, telling, near, factor)


def named(fits: Sequence[Fit], most: int = 4) -> str:
    """Return the names of conventions that a log does not tell apart: the first ones, and how many more."""
    names = [name for one in fits for name in one.names] or [fits[0].label]
    rest = len(names) - most
    return " or ".join(names[:most]) + (f" or {rest} more" if rest > 0 else "")


def best_fits(groups: Groups, free: bool = False) -> tuple[Fit, ...]:
    """Return the conventions that most of the telling groups follow, named ones first; all of the others follow fewer."""
    tried = candidates(groups.lengths is not None)
    if groups.sizes.size > TRIED:
        first_rows = np.unique(groups.index, return_index=True)[1]
        by_step = np.bincount(groups.steps[first_rows])
        most, steps = by_step.max(), by_step.size
        if most > LARGEST_BATCH or (steps == 1 and most > TRIED):  # groups, evenly spread, or else whole steps
            chosen = np.isin(groups.index, np.linspace(0, first_rows.size - 1, TRIED).astype(np.int64))
        else:
            number = max(1, round(TRIED / by_step.mean()))
            chosen = np.isin(groups.steps, np.linspace(0, steps - 1, number).astype(np.int64))
        part = groups.taken(np.flatnonzero(chosen))
        tried = [one for one in tried if most <= LARGEST_BATCH or not one[0].couples_groups]
        first = [fit(one, part, names, free) for one, names in tried]
        most = max(one.count for one in first)
        tried = [(one.estimator, one.names) for one in first if one.count == most > 0]
    fits = [fit(one, groups, names, free) for one, names in tried]
    for best in ("count", "share"):
        most = max((getattr(one, best) for one in fits), default=0)
        fits = [one for one in fits if getattr(one, best) == most > 0]
    return tuple(sorted(fits, key=lambda one: not one.names))


def explain(groups: Groups, share: float, turns: Array | None = None) -> Explanation | None:
    """Return what explains more than half of the groups, and more than a convention in the logged groups does (`share`)."""
    found = [one_line(groups), _refitted("factor", groups, free=True)]
    if turns is not None and np.ptp(turns):
        found.append(_refitted("turns", groups.taken(np.repeat(np.arange(turns.size), turns.astype(np.int64)))))
    if max(one.share for one in found) <= FOLLOWED:
        found += [_refitted(name, other) for name, other in regroupings(groups)]
    best = max(found, key=lambda one: one.share)
    return best if best.share > max(share, FOLLOWED) else None


def _refitted(name: str, groups: Groups, free: bool = False) -> Explanation:
    fits, size = best_fits(groups, free), int(groups.sizes.max())
    if not fits:
        return Explanation(name, 0.0, size, "")
    names, factor = named(fits, 2), fits[0].factor
    said = sentences.multiple(factor, names) if free else sentences.other_groups(name, size, names)
    return Explanation("sign" if free and factor <= 0.0 else name, fits[0].share, size, said)


def regroupings(groups: Groups) -> Iterator[tuple[str, Groups]]:
    """Yield the same rows in other groups, if they are other ones in which equal rewards mostly have equal advantages."""
    places, inside = (pd.Series(one).groupby(one).cumcount().to_numpy() for one in (groups.index, groups.steps))
    sizes, rows = groups.sizes, groups.index.size
    most = int(sizes.max())
    kinds = [("parts", k, groups.index * most + places // k) for k in range(most // 2, 1, -1) if not (sizes % k).any()]
    blocks = sorted(range(2, min(LARGEST_BLOCK, rows // 2) + 1), key=lambda k: (k not in sizes, k))
    kinds += [("consecutive", k, groups.steps * rows + inside // k) for k in blocks]
    kinds += [("strided", most, groups.steps * rows + places)]
    for name, size, index in kinds:
        other = replace(groups, index=np.unique(index, return_inverse=True)[1])
        pairs = np.unique(index * sizes.size + groups.index).size
        apart, judged = unequal_groups(other)
        sums, all_of_them = (np.bincount(other.index, one) for one in (other.advantages, np.abs(other.advantages)))
        centred = size in sizes or (np.abs(sums) <= CENTRED * all_of_them).mean() > FOLLOWED
        alike = not judged.any() or apart[judged].mean() <= FOLLOWED
        if centred and alike and not pairs == sizes.size == other.sizes.size:
            yield name, other


def unequal_groups(groups: Groups) -> tuple[Flags, Flags]:
    """Return where equal rewards of a group got different advantages (B,), and where rewards are equal at all (B,)."""
    order = np.lexsort((groups.rewards, groups.index))
    index, rewards, logged = groups.index[order], groups.rewards[order], groups.advantages[order]
    equal = (index[1:] == index[:-1]) & (rewards[1:] == rewards[:-1])
    allowed = groups.largest(groups.tolerances(groups.advantages))
    apart = equal & (np.abs(np.diff(logged)) > 2.0 * allowed[index[1:]])
    apart, judged = (np.bincount(index[1:], one, groups.sizes.size) > 0 for one in (apart, equal))
    return apart, judged


def one_line(groups: Groups) -> Explanation:
    """Return whether all advantages of a step are one line over its rewards: a baseline that does not know the groups."""
    rewards, logged, steps = groups.rewards, groups.advantages, groups.steps
    number = np.bincount(steps)
    means, levels = (np.bincount(steps, one) / number for one in (rewards, logged))
    away = rewards - means[steps]
    squares = np.bincount(steps, away**2)
    slopes = np.divide(np.bincount(steps, away * logged), squares, out=np.zeros(number.size), where=squares > 0.0)
    line = levels[steps] + slopes[steps] * away
    allowed = 2.0 * replace(groups, index=np.zeros_like(steps)).tolerances(line)
    near = ~groups.having(np.abs(line - logged) > allowed)
    several = number[steps] > groups.sizes[groups.index]
    telling = groups.having((away != 0.0) & several)
    rising = slopes > 0.0
    if not telling.any() or not rising.any() or (slopes < 0.0).any():
        return Explanation("batch", 0.0, 0, "")
    baselines = (means - levels / np.where(rising, slopes, 1.0))[rising]
    is_mean = bool(np.allclose(baselines, means[rising], atol=1e-4 * float(np.abs(rewards).max())))
    said = sentences.one_baseline(float(np.median(baselines)), is_mean)
    return Explanation("batch", float(near[telling].mean()), int(number.max()), said)
