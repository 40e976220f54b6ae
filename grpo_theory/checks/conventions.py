"""The conventions that a log's advantages may follow: every registered kernel that reads rewards, and near variants of it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from grpo_theory.checks.resolution import half_spacings, tolerances
from grpo_theory.estimation import Estimator, estimators
from grpo_theory.logs.group_advantages import READABLE, logged_advantages
from grpo_theory.validation import Array, Flags, Integers

VARIANTS = {"ddof": (0.0, 1.0), "epsilon": (0.0, 1e-9, 1e-8, 1e-6, 1e-4)}
"""Values of parameters that trainers differ in, tried for every kernel that has such a parameter."""
EXACT = 2.0**10
"""Rewards that are multiples of 1/1024, such as 0 and 1, are added up without rounding."""
UNIFORM_NOISE = 1.0
"""The largest advantage that rounding gives to equal rewards: a deviation that is left of a rounded mean, over its own size."""

TRIED = 500
"""Of more groups so many, evenly spread, are tried first; conventions that none of these follows are left out."""
LARGEST_BATCH = 4096
"""In batches of more groups, conventions that look at other groups are not tried: some compare every two groups."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A kernel with its parameters, and the registered names under which it is known.

    Attributes
    ----------
    estimator : Estimator
    names : tuple of str
        Empty for a variant that has no name of its own.
    """

    estimator: Estimator
    names: tuple[str, ...]

    @property
    def label(self) -> str:
        """The first registered name, or that of the kernel with its parameters."""
        return self.names[0] if self.names else self.estimator.name


@dataclass(frozen=True, eq=False)
class GroupTable:
    """The groups of a log whose advantages are compared, step by step.

    Attributes
    ----------
    rewards, advantages : ndarray, shape (N,)
    index : ndarray of int64, shape (N,)
        The group of each response, 0 to B - 1.
    batches : ndarray of int64, shape (B,)
        The step of each group, by number.
    lengths : ndarray, shape (N,), or None
    """

    rewards: Array
    advantages: Array
    index: Integers
    batches: Integers
    lengths: Array | None

    @property
    def sizes(self) -> Integers:
        """The number of responses of each group, shape (B,)."""
        return np.bincount(self.index, minlength=self.batches.size)

    def by_size(self) -> Iterator[tuple[Integers, Integers]]:
        """Yield groups of one size (b,), and their rows (b, G) in the order of the log."""
        order, sizes = np.argsort(self.index, kind="stable"), self.sizes
        ends = np.cumsum(sizes)
        for size in np.unique(sizes[sizes > 0]).tolist():
            groups = np.flatnonzero(sizes == size)
            yield groups, order[(ends[groups] - size)[:, None] + np.arange(size)]

    def evenly(self, count: int) -> Integers:
        """Return the numbers of at most so many groups, evenly spread over the log."""
        return np.unique(np.linspace(0, self.batches.size - 1, count).astype(np.int64))

    def part(self, groups: Integers) -> "GroupTable":
        """Return some of the groups, given by ascending numbers."""
        rows = np.isin(self.index, groups)
        lengths = None if self.lengths is None else self.lengths[rows]
        index = np.searchsorted(groups, self.index[rows])
        return GroupTable(self.rewards[rows], self.advantages[rows], index, self.batches[groups], lengths)

    def negated(self) -> "GroupTable":
        """Return the same groups with the signs of all advantages reversed."""
        return replace(self, advantages=-self.advantages)

    def regrouped(self, index: Integers, batches: Integers) -> "GroupTable":
        """Return the same rows in other groups."""
        return GroupTable(self.rewards, self.advantages, index, batches, self.lengths)


@dataclass(frozen=True, eq=False)
class Fit:
    """Which groups follow a convention.

    Attributes
    ----------
    candidate : Candidate
    follows : ndarray of bool, shape (B,)
    telling : ndarray of bool, shape (B,)
        Groups in which the convention, or the log, gives an advantage that is not 0: only these tell conventions apart.
    """

    candidate: Candidate
    follows: Flags
    telling: Flags

    @property
    def share(self) -> float:
        """The share of the telling groups that follow the convention; 0 if none tells."""
        return float(self.follows[self.telling].mean()) if self.telling.any() else 0.0


def candidates(has_lengths: bool) -> list[Candidate]:
    """Return all kernels that read rewards, and lengths if the log has them, with variants of their parameters."""
    found: dict[tuple, tuple[Estimator, list[str]]] = {}
    readable = READABLE if has_lengths else READABLE - {"lengths"}
    kernels = [one for one in estimators().values() if one.advantage.reads <= readable]
    for one in kernels:
        key = _key(one)
        found.setdefault(key, (one, []))[1].append(one.advantage.name)
    for one in kernels:
        tried = {name: values for name, values in VARIANTS.items() if name in one.advantage.parameters}
        for values in product(*tried.values()) if tried else ():
            variant = one.with_parameters(**dict(zip(tried, values, strict=True)))
            found.setdefault(_key(variant), (variant, []))
    return [Candidate(one, tuple(dict.fromkeys(names))) for one, names in found.values()]


def _key(one: Estimator) -> tuple:
    return one.advantage.function, tuple(sorted(one.advantage.parameters.items()))


def fit(candidate: Candidate, table: GroupTable, spacing: Array | None = None) -> Fit:
    """Compare the logged advantages with a convention's, group by group.

    Groups that are too small for the convention, and groups of several sizes where it couples them, do not follow it.
    """
    spacing = half_spacings(table.advantages) if spacing is None else spacing
    expected = expected_advantages(candidate.estimator, table)
    follows = np.zeros(table.batches.size, dtype=np.bool_)
    telling = np.zeros(table.batches.size, dtype=np.bool_)
    beside = float(np.abs(table.rewards).max()) if candidate.estimator.couples_groups else 0.0
    for groups, rows in table.by_size():
        rewards, logged, own = table.rewards[rows], table.advantages[rows], expected[rows]
        allowed = tolerances(np.nan_to_num(own), rewards, spacing[rows], beside)
        near = (np.abs(own - logged) <= allowed).all(axis=1)  # NaN is near to nothing
        follows[groups] = near | _rounded_zeros(rewards, logged, allowed)
        uniform = rewards.max(axis=1) == rewards.min(axis=1)
        telling[groups] = ~uniform & ((np.abs(logged) > allowed) | (np.abs(np.nan_to_num(own)) > allowed)).any(axis=1)
    return Fit(candidate, follows, telling)


def _rounded_zeros(rewards: Array, logged: Array, allowed: Array) -> Flags:
    """Whether all rewards of a group are equal, and all advantages, to no more than what is left of a mean that was rounded."""
    uniform = rewards.max(axis=1) == rewards.min(axis=1)
    rounds = np.abs(rewards[:, 0] * EXACT % 1.0) > 0.0
    alike = np.ptp(logged, axis=1) <= allowed.max(axis=1)
    return uniform & rounds & alike & (np.abs(logged).max(axis=1) <= UNIFORM_NOISE) & (rewards.shape[1] > 1)


def expected_advantages(estimator: Estimator, table: GroupTable) -> Array:
    """Return what a convention gives (N,), each step a batch of its own; NaN where it is not defined."""
    expected = np.full(table.rewards.size, np.nan)
    sizes = table.sizes[table.index]
    defined = sizes >= estimator.advantage.minimum_group_size
    steps = table.batches[table.index]
    batches = np.unique(steps) if estimator.couples_groups else [None]
    for batch in batches:
        rows = np.flatnonzero(defined if batch is None else defined & (steps == batch))
        if rows.size and not (estimator.couples_groups and np.ptp(sizes[rows])):
            index = np.unique(table.index[rows], return_inverse=True)[1]
            lengths = None if table.lengths is None else np.maximum(table.lengths[rows], 1.0)
            expected[rows] = logged_advantages(estimator, table.rewards[rows], index, lengths)
    return expected


def _likely(table: GroupTable, tried: list[Candidate], spacing: Array) -> list[Candidate]:
    """Leave out the conventions that none of a few groups follows, and those that take too long for large batches."""
    if table.batches.size <= TRIED:
        return tried
    coupled = [one for one in tried if one.estimator.couples_groups]
    groups = table.evenly(TRIED)
    few = table.part(groups)
    own = spacing[np.isin(table.index, groups)]  # the log's rounding is that of all its values
    fits = [fit(one, few, own) for one in tried if not one.estimator.couples_groups]
    likely = [one.candidate for one in fits if (one.follows & one.telling).any() or not one.telling.any()]
    return likely + (coupled if np.bincount(table.batches).max() <= LARGEST_BATCH else [])


def best_fits(table: GroupTable) -> list[Fit]:
    """Return the conventions that most of the telling groups follow, named ones first; all of the others follow fewer."""
    spacing = half_spacings(table.advantages)
    fits = [fit(one, table, spacing) for one in _likely(table, candidates(table.lengths is not None), spacing)]
    if not any(one.telling.any() for one in fits):
        return []
    most = max(int((one.follows & one.telling).sum()) for one in fits)
    best = [one for one in fits if int((one.follows & one.telling).sum()) == most] if most else []
    overall = max((int(one.follows.sum()) for one in best), default=0)
    best = [one for one in best if int(one.follows.sum()) == overall]
    return sorted(best, key=lambda one: not one.candidate.names)
