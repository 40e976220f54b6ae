"""The convention that a log's advantages follow, and the groups that contradict it.

Every registered kernel that reads rewards is tried, in the logged groups or in others.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from grpo_theory.checks import sentences
from grpo_theory.estimation import Estimator, estimators
from grpo_theory.logs.group_advantages import READABLE, logged_advantages
from grpo_theory.user_text import printable
from grpo_theory.validation import Array, Flags, Integers, counted

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


class Groups(NamedTuple):
    """The rows of a log whose advantages are compared, in the order of the log.

    Attributes
    ----------
    rewards, advantages, spacing : ndarray, shape (N,)
        The spacing is half the distance from an advantage to the next that the log could hold.
    numbers, steps : ndarray of int64, shape (N,)
        The group and the step of each row, numbered from 0.
    lengths : ndarray, shape (N,), or None
    """

    rewards: Array
    advantages: Array
    spacing: Array
    numbers: Integers
    steps: Integers
    lengths: Array | None = None

    @property
    def sizes(self) -> Integers:
        """The number of rows of each group, shape (B,)."""
        return np.bincount(self.numbers)

    def largest(self, values: Array) -> Array:
        """Return the largest of values (N,) in each group (B,)."""
        found = np.full(self.sizes.size, -np.inf)
        np.maximum.at(found, self.numbers, values)
        return found

    def spread(self, values: Array) -> Array:
        """Return the largest less the smallest of values (N,) in each group (B,)."""
        return self.largest(values) + self.largest(-values)

    def having(self, rows: Flags) -> Flags:
        """Return which groups have one of the rows (N,) that are marked, shape (B,)."""
        return np.bincount(self.numbers, rows) > 0

    def taken(self, rows: Integers) -> "Groups":
        """Return some rows, which may repeat, with their groups numbered anew."""
        part = Groups._make(None if one is None else one[rows] for one in self)
        return part._replace(numbers=np.unique(part.numbers, return_inverse=True)[1])

    def tolerances(self, expected: Array, beside: float = 0.0) -> Array:
        """Return how far logged advantages may be from the expected ones (N,).

        The advantages carry the rounding of the rewards, multiplied by a scale. The scale is the largest advantage of the group
        divided by the largest deviation of a reward from the group's mean, but at least 1. `beside` is the largest reward of
        other groups that the convention looks at.
        """
        means = np.bincount(self.numbers, self.rewards) / self.sizes
        deviations, largest = self.largest(np.abs(self.rewards - means[self.numbers])), self.largest(np.abs(expected))
        gain = np.maximum(1.0, np.divide(largest, deviations, out=np.ones_like(largest), where=deviations > 0.0))
        carried = ROUNDING * gain * np.maximum(beside, self.largest(np.abs(self.rewards)))
        return self.spacing + carried[self.numbers] + ROUNDING * np.abs(expected)


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
    count : int
        How many telling groups follow.
    share : float
        The share of the telling groups that follow the convention; 0 if none tells.
    """

    estimator: Estimator
    names: tuple[str, ...]
    follows: Flags
    telling: Flags
    near: Flags
    factor: float
    count: int
    share: float

    @property
    def summary(self) -> dict[str, Any]:
        """What JSON holds of it."""
        kernel, told = self.estimator.advantage, int(self.telling.sum())
        own = {"kernel": kernel.name, "parameters": dict(kernel.parameters), "telling_groups": told}
        return own | {name: getattr(self, name) for name in ("names", "factor", "share")}


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


class Contradictions(NamedTuple):
    """Groups that contradict the convention.

    Attributes
    ----------
    groups : tuple of int
        Their numbers in the log, at most `MOST`.
    prompts : tuple of str
        Their prompts.
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
    prompts: tuple[str, ...]
    reasons: tuple[str, ...]
    total: int
    unequal: int
    judged: int

    @property
    def counts(self) -> dict[str, int]:
        """How many groups each reason explains, the commonest first."""
        return dict(Counter(self.reasons).most_common())


def fit(estimator: Estimator, groups: Groups, names: tuple[str, ...] = (), free: bool = False) -> Fit:
    """Compare the logged advantages with a convention's, or if `free` with a constant multiple of it, group by group.

    Each step is a batch of its own.
    """
    expected, sizes = np.full(groups.rewards.size, np.nan), groups.sizes[groups.numbers]  # NaN where it is not defined
    defined = sizes >= estimator.advantage.minimum_group_size
    for step in np.unique(groups.steps) if estimator.couples_groups else [None]:
        inside = np.flatnonzero(defined if step is None else defined & (groups.steps == step))
        if inside.size and not (estimator.couples_groups and np.ptp(sizes[inside])):
            index = np.unique(groups.numbers[inside], return_inverse=True)[1]
            lengths = None if groups.lengths is None else np.maximum(groups.lengths[inside], 1.0)
            expected[inside] = logged_advantages(estimator, groups.rewards[inside], index, lengths)
    known, logged, factor = np.nan_to_num(expected), groups.advantages, 1.0
    if free:
        products, squares = np.bincount(groups.numbers, known * logged), np.bincount(groups.numbers, known**2)
        ratios = products[squares > 0.0] / squares[squares > 0.0]
        factor = float(np.median(ratios)) if ratios.size else 1.0
    known, off = known * factor, np.abs(expected * factor - logged)
    allowed = groups.tolerances(known, float(np.abs(groups.rewards).max()) if estimator.couples_groups else 0.0)
    most = groups.largest(np.abs(logged))
    # what is left of a rounded mean, over a deviation of its own size, is at most 1 and the same for all
    rounds = (groups.sizes > 1) & (groups.spread(groups.rewards) == 0.0) & groups.having(groups.rewards * EXACT % 1.0 != 0.0)
    rounds &= (groups.spread(logged) <= groups.largest(allowed)) & (most <= 1.0)
    limits = allowed, allowed + NEAR * most[groups.numbers]
    follows, near = (~groups.having(~(off <= limit)) | rounds for limit in limits)  # NaN is near to nothing
    # equal rewards of an advantage that is not 0 contradict most conventions, and tell for those that give it
    telling = groups.having((np.abs(logged) > allowed) | (np.abs(known) > allowed)) & ~rounds
    count = int((follows & telling).sum())
    return Fit(estimator, names, follows, telling, near, factor, count, count / max(int(telling.sum()), 1))


def named(fits: Sequence[Fit], most: int = 4) -> str:
    """Return the names of conventions that a log does not tell apart: the first ones, and how many more."""
    names = [name for one in fits for name in one.names] or [fits[0].estimator.name]
    rest = len(names) - most
    return " or ".join(names[:most]) + (f" or {rest} more" if rest > 0 else "")


def best_fits(groups: Groups, free: bool = False) -> tuple[Fit, ...]:
    """Return the conventions that most of the telling groups follow, named ones first; all of the others follow fewer."""
    readable = READABLE if groups.lengths is not None else READABLE - {"lengths"}
    own = [(one, {one.advantage.name: None}) for one in estimators().values() if one.advantage.reads <= readable]
    for one, _ in tuple(own):
        numbers = {name: values for name, values in VARIANTS.items() if name in one.advantage.parameters}
        own += [(one.with_parameters(**dict(zip(numbers, few, strict=True))), {}) for few in product(*numbers.values()) if few]
    found: dict[tuple, tuple[Estimator, dict[str, None]]] = {}
    for one, names in own:
        key = one.advantage.function, tuple(sorted(one.advantage.parameters.items()))
        found.setdefault(key, (one, {}))[1].update(names)
    tried = [(one, tuple(names)) for one, names in found.values()]
    if groups.sizes.size > TRIED:
        by_step = np.bincount(groups.steps[np.unique(groups.numbers, return_index=True)[1]])
        large = by_step.max() > LARGEST_BATCH
        # groups, evenly spread, or whole steps, of which conventions that look at other groups need all
        units, number = (groups.numbers, TRIED) if large else (groups.steps, max(1, round(TRIED / by_step.mean())))
        part = groups.taken(np.flatnonzero(np.isin(units, np.linspace(0, units.max(), number).astype(np.int64))))
        first = [fit(one, part, names, free) for one, names in tried if not (large and one.couples_groups)]
        most = max(one.count for one in first)
        tried = [(one.estimator, one.names) for one in first if one.count == most > 0]
    fits = [fit(one, groups, names, free) for one, names in tried]
    best = max(((one.count, one.share) for one in fits), default=(0, 0.0))
    return tuple(sorted((one for one in fits if (one.count, one.share) == best > (0, 0.0)), key=lambda one: not one.names))


def explain(groups: Groups, share: float, turns: Array | None = None) -> Explanation | None:
    """Return what explains more than half of the groups, and more than a convention in the logged groups does (`share`)."""
    found, first = [one_line(groups)], [("factor", groups)]
    if turns is not None and np.ptp(turns):
        first.append(("turns", groups.taken(np.repeat(np.arange(turns.size), turns.astype(np.int64)))))
    for others in (first, regroupings(groups)):
        for name, other in others:
            if fits := best_fits(other, free=name == "factor"):
                names, factor, size = named(fits, 2), fits[0].factor, int(other.sizes.max())
                said = sentences.multiple(factor, names)
                if name in sentences.PLACES:
                    place = sentences.PLACES[name].format(size)
                    said = f"Repair the advantages, or name the groups: {place}. They then follow {names}."
                found.append(Explanation(name if factor > 0.0 else "sign", fits[0].share, size, said))
        best = max(found, key=lambda one: one.share)
        if best.share > FOLLOWED:
            return best if best.share > share else None
    return None


def regroupings(groups: Groups) -> Iterator[tuple[str, Groups]]:
    """Yield the same rows in other groups, if they are other ones in which equal rewards mostly have equal advantages."""
    places, inside = (pd.Series(one).groupby(one).cumcount().to_numpy() for one in (groups.numbers, groups.steps))
    sizes, rows = groups.sizes, groups.numbers.size
    most = int(sizes.max())
    kinds = [("parts", k, groups.numbers * most + places // k) for k in range(most // 2, 1, -1) if not (sizes % k).any()]
    blocks = sorted(range(2, min(LARGEST_BLOCK, rows // 2) + 1), key=lambda k: (k not in sizes, k))
    kinds += [("consecutive", k, groups.steps * rows + inside // k) for k in blocks]
    kinds += [("strided", most, groups.steps * rows + places)]
    for name, size, index in kinds:
        other = groups._replace(numbers=np.unique(index, return_inverse=True)[1])
        pairs = np.unique(index * sizes.size + groups.numbers).size
        apart, judged = unequal_groups(other)
        sums, all_of_them = (np.bincount(other.numbers, one) for one in (other.advantages, np.abs(other.advantages)))
        centred = size in sizes or (np.abs(sums) <= CENTRED * all_of_them).mean() > FOLLOWED
        alike = not judged.any() or apart[judged].mean() <= FOLLOWED
        if centred and alike and not pairs == sizes.size == other.sizes.size:
            yield name, other


def unequal_groups(groups: Groups) -> tuple[Flags, Flags]:
    """Return where equal rewards of a group got different advantages (B,), and where rewards are equal at all (B,)."""
    order = np.lexsort((groups.rewards, groups.numbers))
    index, rewards, logged = groups.numbers[order], groups.rewards[order], groups.advantages[order]
    equal = (index[1:] == index[:-1]) & (rewards[1:] == rewards[:-1])
    allowed = groups.largest(groups.tolerances(groups.advantages))
    apart = equal & (np.abs(np.diff(logged)) > 2.0 * allowed[index[1:]])
    apart, judged = (np.bincount(index[1:], one, groups.sizes.size) > 0 for one in (apart, equal))
    return apart, judged


def lines(groups: Groups) -> tuple[Array, Array, Flags]:
    """Return each group's slope (B,) of advantages over rewards, the reward (B,) where the line is 0, and rows near it (N,)."""
    rewards, logged, at = groups.rewards, groups.advantages, groups.numbers
    means, levels = (np.bincount(at, one) / groups.sizes for one in (rewards, logged))
    away = rewards - means[at]
    squares = np.bincount(at, away**2)
    slopes = np.divide(np.bincount(at, away * logged), squares, out=np.zeros_like(means), where=squares > 0.0)
    line = levels[at] + slopes[at] * away
    near = np.abs(line - logged) <= 2.0 * groups.tolerances(line)
    return slopes, means - levels / np.where(slopes > 0.0, slopes, 1.0), near


def one_line(groups: Groups) -> Explanation:
    """Return whether all advantages of a step are one line over its rewards: a baseline that does not know the groups."""
    batches = groups._replace(numbers=groups.steps)
    (slopes, baselines, near), number = lines(batches), batches.sizes
    means = np.bincount(groups.steps, groups.rewards) / number
    telling = groups.having((groups.rewards != means[groups.steps]) & (number[groups.steps] > groups.sizes[groups.numbers]))
    rising = slopes > 0.0
    if not telling.any() or not rising.any() or (slopes < 0.0).any():
        return Explanation("batch", 0.0, 0, "")
    is_mean = bool(np.allclose(baselines[rising], means[rising], atol=1e-4 * float(np.abs(groups.rewards).max())))
    said = sentences.one_baseline(float(np.median(baselines[rising])), is_mean)
    return Explanation("batch", float((~groups.having(~near))[telling].mean()), int(number.max()), said)


def reason(one: Groups, estimator: Estimator, usual: int) -> str:
    """Return what explains a group; the usual size is G'. One group alone does not tell where others or lengths are read."""
    if estimator.couples_groups or "lengths" in estimator.advantage.reads:
        return "unexplained"
    rewards, advantages, size = one.rewards, one.advantages, one.rewards.size
    pairs = Counter(zip(rewards.tolist(), advantages.tolist(), strict=True))
    rows = [np.flatnonzero((rewards == reward) & (advantages == advantage)) for reward, advantage in pairs]
    times, rest = divmod(size, usual)
    fewer = [np.delete(np.arange(size), same[0]) for same in rows if same.size > 1] if size == usual + 1 else []
    if times > 1 and not rest:
        if all(fit(estimator, one.taken(part)).follows[0] for part in np.split(np.arange(size), times)):
            return "several groups in one"
        if all(same.size % times == 0 for same in rows):
            fewer.append(np.sort(np.concatenate([same[: same.size // times] for same in rows])))
    if any(fit(estimator, one.taken(kept)).follows[0] for kept in fewer):
        return "repeated rows"
    (slope,), (mean,), near = lines(one)
    if size < usual and slope > 0.0 and near.all():  # a mean that a group of the usual size can have with these rows
        absent, slack = (usual * mean - rewards.sum()) / (usual - size), 1e-3 * np.ptp(rewards)
        if rewards.min() - slack <= absent <= rewards.max() + slack:
            return "missing rows"
    if fit(estimator, one._replace(advantages=-advantages)).follows[0]:
        return "wrong sign"
    if fit(estimator, one.taken(np.argsort(advantages))._replace(rewards=np.sort(rewards))).follows[0]:
        return "other order"
    values, counts = np.unique(rewards, return_counts=True)
    if values.size == 2 and counts.min() == 1 and "ddof" in estimator.advantage.parameters:
        odd = advantages[rewards == values[np.argmin(counts)]]
        if abs(odd[0]) > HUGE * np.ptp(values):
            return "rounded deviation"
    return "unexplained"


@dataclass(frozen=True, eq=False)
class AdvantageCheck:
    """What the logged advantages follow.

    Attributes
    ----------
    groups : Groups
        The groups in which every row has an advantage.
    prompts : list of str
        The prompt of each group.
    left_out : int
        How many groups have a row without one.
    fits : tuple of Fit
        The conventions that most groups follow, which this log does not tell apart.
    explanation : Explanation or None
        What explains most groups if no convention does: other groups, a common baseline, a constant factor.
    most_wrong : str or None
        What is wrong with most groups, in a sentence or two; None if they follow a convention, or the log does not tell.
    text : str
        What the advantages follow, in a line.
    """

    groups: Groups
    prompts: list[str]
    left_out: int
    fits: tuple[Fit, ...]
    explanation: Explanation | None
    most_wrong: str | None
    text: str

    @property
    def followed(self) -> bool:
        """Whether more than half of the groups that tell conventions apart follow one."""
        return bool(self.fits) and self.fits[0].share > FOLLOWED

    @cached_property
    def contradictions(self) -> Contradictions:
        """The groups that do not follow the convention, and what would explain them; without one, only unequal advantages."""
        groups, apart = self.groups, unequal_groups(self.groups)[0]
        if not self.followed:
            return Contradictions((), (), (), 0, int(apart.sum()), apart.size)
        near, usual = self.fits[0].near, int(np.bincount(groups.sizes).argmax())
        against = np.flatnonzero(~near).tolist()
        first = against[:MOST]
        ones = [groups.taken(np.flatnonzero(groups.numbers == number)) for number in first]
        reasons = tuple(reason(one, self.fits[0].estimator, usual) for one in ones)
        prompts = tuple(printable(self.prompts[number]) for number in first)
        return Contradictions(tuple(first), prompts, reasons, len(against), int((apart & ~near).sum()), apart.size)

    @cached_property
    def wrong(self) -> str | None:
        """What is wrong, in a sentence or two: with most groups, or else with those that contradict the others."""
        found = self.contradictions
        if self.most_wrong or found.total + found.unequal == 0:
            return self.most_wrong
        if found.total == 0:
            return sentences.unequal(found.unequal, found.judged)
        return sentences.contradicting(found.total, found.judged, found.prompts, found.counts)


def whole(rows: pd.DataFrame, name: str) -> Array | None:
    """Return a column of numbers if every row has one."""
    return rows[name].to_numpy(float) if name in rows and rows[name].notna().all() else None


def check_advantages(rows: pd.DataFrame) -> AdvantageCheck | None:
    """Return what the advantages of a log's rows follow; None without advantages or rewards."""
    if not {"advantage", "reward"} <= set(rows) or rows["advantage"].isna().all():
        return None
    kept = rows[rows["advantage"].notna().groupby(rows["group"]).transform("all")]
    if kept.empty:
        raise ValueError("advantage must be a number in every row of a group at least, and each group lacks one")
    rewards, logged = (kept[name].to_numpy(float) for name in ("reward", "advantage"))
    if not np.isfinite(logged).all():
        raise ValueError("advantage must be finite numbers, and has inf; --advantage '' reads none")
    index, steps = (np.unique(kept[name], return_inverse=True)[1] for name in ("group", "step"))
    # Half the distance between neighbours in the coarsest format that holds all values: decimals or short floats.
    decimals = next((n for n in range(1, 7) if np.allclose(logged, np.round(logged, n), rtol=1e-14, atol=1e-14)), 1)
    bits = logged.astype(np.float32).view(np.uint32)
    single = np.array_equal(logged.astype(np.float32).astype(np.float64), logged)
    share = next(one for empty, one in MANTISSAS if not empty or (single and not (bits & np.uint32(2**empty - 1)).any()))
    # With one decimal all are likely to be exact, as 1 and -0.5 are.
    spacing = np.full(logged.shape, 0.5 * 10.0**-decimals) if decimals > 1 else np.abs(logged) * share
    groups = Groups(rewards, logged, spacing, index, steps, whole(kept, "length"))
    fits = best_fits(groups)
    share, told, wrong = fits[0].share if fits else 0.0, None, None
    if share > FOLLOWED:
        near, telling = int((fits[0].near & fits[0].telling).sum()), int(fits[0].telling.sum())
        text = f"{named(fits)} in {near:,} of {counted(telling, 'group')} that tell"
        if set(fits[0].names) == {"reinforce"} and int(groups.sizes.max()) > 1:  # rewards themselves, in groups
            wrong = sentences.one_baseline(0.0, False)
    else:
        text, told = "not as they should be, see above", explain(groups, share, whole(kept, "turns")) if logged.any() else None
        if told:
            wrong = told.said
        elif not fits and not groups.spread(rewards).any():
            text = "all rewards of each group are equal: every convention gives 0"
        elif logged.any():
            wrong = "Look at the advantages: no registered convention gives them."
        else:
            wrong = "All logged advantages are 0: nothing is learned, or the column is another."
    prompts = kept.groupby("group")["prompt"].first().tolist()
    return AdvantageCheck(groups, prompts, int(rows["group"].nunique()) - len(prompts), fits, told, wrong, text)
