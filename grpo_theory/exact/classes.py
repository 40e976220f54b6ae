"""What a kernel sees of responses, and the classes of outcomes that it cannot tell apart.

A kernel that reads only rewards gives two responses with equal rewards equal advantages.  Given the number of responses of each
class in a group, the scores are independent draws from the classes' conditional laws.  The multisets of classes therefore suffice
for exact expectations.  With binary rewards there are G + 1 of them, whatever the number of responses K.
"""

from collections.abc import Set
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np

from grpo_theory.arrays import Array, Integers
from grpo_theory.estimation import KLTerm
from grpo_theory.estimation.kernel import PROMPT_FIELDS, RESPONSE_FIELDS
from grpo_theory.problem import Moments, Point
from grpo_theory.problem.paths import SURE, less_mean


@dataclass(frozen=True, eq=False)
class Seen:
    """The fields of a batch, for every prompt and outcome.

    Attributes
    ----------
    rewards : ndarray, shape (M, O)
        The rewards, less the penalty if the estimator has it in the reward.
    squared_score_norms : ndarray, shape (M, K)
    lengths : ndarray of int64, shape (K,)
    moments : Moments
        Moments with these rewards: the values, standard deviations and optimal baselines are those of the rewards above.
    """

    rewards: Array
    squared_score_norms: Array
    lengths: Integers
    moments: Moments

    @property
    def prompt_fields(self) -> tuple[Array, Array, Array]:
        """Values, standard deviations and optimal baselines, shape (M,) each."""
        return self.moments.known_to_oracles


def seen_at(point: Point, kl: KLTerm) -> Seen:
    """Return what the kernel of an estimator with this KL term sees of responses drawn at a point."""
    rewards, moments = point.rewards, point.moments
    if point.kl is not None and kl.name != "k1 in reward":
        rewards = point.rewards_less(reward_penalties(point, kl))
        moments = point.moments_of(rewards)
    return Seen(rewards, point.squared_score_norms, point.policy.paths.lengths, moments)


def reward_penalties(point: Point, kl: KLTerm) -> Array:
    """Return what an estimator with this KL term subtracts from the responses' rewards, (M, K): 0 if the term is in the loss.

    It is 0, too, for a response of probability 0, whose estimate of the divergence may be infinite.
    """
    if point.kl is None or kl.place != "reward":
        return np.zeros(point.probabilities.shape)
    terms = np.empty_like(point.log_ratios_to_reference)
    kl.fill(np.ascontiguousarray(point.log_ratios_to_reference), terms)
    return np.where(point.probabilities > 0.0, point.kl.strength * point.policy.paths.along(terms), 0.0)


@dataclass(frozen=True, eq=False)
class Classes:
    """The classes of the outcomes of S prompts that have R classes each, all of positive probability.

    Attributes
    ----------
    prompts : ndarray of int64, shape (S,)
    probabilities : ndarray, shape (S, R)
    fields : ndarray, shape (3, S, R)
        What a kernel sees of a member: reward, squared score norm and length; NaN for a field that it does not read.
    """

    prompts: Integers
    probabilities: Array
    fields: Array


@dataclass(frozen=True, eq=False)
class ListedClasses(Classes):
    """Classes of responses that are listed.

    Attributes
    ----------
    responses : ndarray, shape (S, R, K)
        P(response | prompt, class).
    leads : ndarray, shape (S, R, K)
        The same less P(response | prompt).
    """

    responses: Array
    leads: Array


@dataclass(frozen=True, eq=False)
class Looks:
    """The L ways in which prompts look to a kernel; equal to others that show the same numbers.

    Attributes
    ----------
    fields : ndarray, shape (3, L, R)
        As for `Classes`.
    prompt_fields : ndarray, shape (3, L)
        Value, standard deviation and optimal baseline; NaN for a field that the kernel does not read.
    """

    fields: Array
    prompt_fields: Array

    @cached_property
    def _shown(self) -> tuple[tuple[int, ...], bytes, bytes]:
        return self.fields.shape, self.fields.tobytes(), self.prompt_fields.tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Looks) and self._shown == other._shown

    def __hash__(self) -> int:
        return hash(self._shown)


def classes(point: Point, seen: Seen, reads: Set[str]) -> list[ListedClasses]:
    """Partition the outcomes of every prompt, drawn at a point, by the response fields in `reads`.

    Prompts that have equally many classes stand together.
    """
    prompts, outcomes = np.nonzero(point.outcome_probabilities > 0.0)
    p, responses = point.outcome_probabilities[prompts, outcomes], point.outcome_responses[outcomes]
    fields = seen.rewards[prompts, outcomes], seen.squared_score_norms[prompts, responses], seen.lengths[responses]
    unread = [name not in reads for name in RESPONSE_FIELDS]
    # A field that is not read is 0 while classes are told apart, because NaN differs from itself. It is NaN afterwards, so
    # that a kernel that reads more than it says gives advantages that are not finite, and is found out.
    shown = np.stack([np.zeros(p.size) if hidden else field for field, hidden in zip(fields, unread, strict=True)], axis=1)
    kinds, kind = _distinct(shown)
    codes, member = np.unique(prompts * len(kinds) + kind, return_inverse=True)
    own, shown = codes // len(kinds), kinds[codes % len(kinds)].T
    shown[unread] = np.nan
    probabilities = np.bincount(member, p)
    conditional, pi = np.zeros((codes.size, point.policy.n_responses)), point.probabilities[own]
    np.add.at(conditional, (member, responses), p)
    conditional /= probabilities[:, None]
    leads = conditional - pi
    if (pi > SURE).any():
        given = np.zeros(pi.shape)
        np.add.at(given, (member, responses), point.bandit.probabilities.reshape(len(point.probabilities), -1)[prompts, outcomes])
        leads = less_mean(given, pi) * pi / probabilities[:, None]
    counts = np.bincount(own)
    firsts = np.cumsum(counts) - counts
    partition = []
    for n_classes in np.unique(counts):
        same = np.flatnonzero(counts == n_classes)
        rows = firsts[same, None] + np.arange(n_classes)
        partition.append(ListedClasses(same, probabilities[rows], shown[:, rows], conditional[rows], leads[rows]))
    return partition


def _distinct(rows: Array) -> tuple[Array, Integers]:
    """Return the distinct rows in lexicographic order, and the number of each row's; columns are sorted one by one."""
    code = np.zeros(len(rows), dtype=np.int64)
    for column in rows.T:
        values, rank = np.unique(column, return_inverse=True)
        _, code = np.unique(code * values.size + rank, return_inverse=True)
    _, first = np.unique(code, return_index=True)
    return rows[first], code


def looks_of(kinds: Classes, known: tuple[Array, Array, Array], reads: Set[str]) -> tuple[Looks, Integers]:
    """Return the ways in which prompts look to a kernel, and the number of each prompt's look, shape (S,).

    Values, standard deviations and optimal baselines are `known`, (M,) each.
    """
    told = zip(PROMPT_FIELDS, known, strict=True)
    prompt_fields = np.stack(
        [field[kinds.prompts] if name in reads else np.full(kinds.prompts.size, np.nan) for name, field in told]
    )
    rows = np.concatenate([*kinds.fields.transpose(0, 2, 1), prompt_fields]).T
    numbers: dict[bytes, int] = {}
    # Rows are compared as bytes, because they hold NaN for what is not read, and NaN differs from itself.
    look = np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in rows])
    _, first = np.unique(look, return_index=True)
    return Looks(kinds.fields[:, first], prompt_fields[:, first]), look


Looked = list[tuple[ListedClasses, Looks, Integers]]
_LOOKED: WeakKeyDictionary[Point, dict[tuple[KLTerm, frozenset[str]], Looked]] = WeakKeyDictionary()


def looked_at(point: Point, kl: KLTerm, reads: frozenset[str]) -> Looked:
    """Return the classes of a point, and how they look to a kernel that reads these fields, of an estimator with this KL term.

    They are kept as long as the point is, because estimators are compared at one point; the tuples are classes, and what
    `looks_of` returns.
    """
    kept = _LOOKED.setdefault(point, {})
    key = kl, reads.intersection(RESPONSE_FIELDS + PROMPT_FIELDS)
    if key not in kept:
        seen = seen_at(point, kl)
        kept[key] = [(kinds, *looks_of(kinds, seen.prompt_fields, reads)) for kinds in classes(point, seen, reads)]
    return kept[key]
