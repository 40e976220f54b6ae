"""Multisets of classes: all the groups that a kernel can tell apart, and the moments of its advantages over them.

In a group with counts n_1..n_R of the R classes, a response of class r adds F features of its class to the estimate. Each is
multiplied by a logit gradient of the response. The features are its advantage, or that split by its sign, and 1 for what is
added whatever the advantage.

Let S_rf be the sum of feature f over class r. Given the counts, the responses of a class are independent draws from the class's
conditional law. An exact mean or covariance therefore needs only E[S_rf], E[S_rf S_sg] and E[sum over class r of the products of
its features].
"""

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, combinations, zip_longest
from math import comb, nan
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from grpo_theory.estimation import Estimator, KLTerm
from grpo_theory.estimation.advantage import Advantage
from grpo_theory.estimation.kernel import FIELDS, PROMPT_FIELDS, RESPONSE_FIELDS
from grpo_theory.jit import kernel
from grpo_theory.problem import Point
from grpo_theory.problem.logits import SURE, less_mean
from grpo_theory.validation import Array, Integers, read_only


class OutcomeTable(NamedTuple):
    """The fields of a batch, for every prompt and outcome.

    Attributes
    ----------
    rewards : ndarray, shape (M, O)
        The rewards, less the penalty if the estimator has it in the reward.
    squared_score_norms : ndarray, shape (M, K)
    lengths : ndarray of int64, shape (K,)
    log_probabilities : ndarray, shape (M, K)
    prompt_fields : tuple of ndarrays, shape (M,)
        Moments with these rewards: the values, standard deviations and optimal baselines are those of the rewards above.
    """

    rewards: Array
    squared_score_norms: Array
    lengths: Integers
    log_probabilities: Array
    prompt_fields: tuple[Array, Array, Array]


def outcome_table(point: Point, kl: KLTerm) -> OutcomeTable:
    """Return what the kernel of an estimator with this KL term sees of responses drawn at a point."""
    rewards, moments = point.rewards, point.moments
    if point.kl is not None and kl.name != "k1 in reward":
        penalties = np.zeros(point.probabilities.shape)
        if kl.place == "reward":
            terms = np.empty_like(point.log_ratios_to_reference)
            kl.fill(np.ascontiguousarray(point.log_ratios_to_reference), terms)
            # A response that is never drawn has no finite term.
            penalties = np.where(point.probabilities > 0.0, point.kl.strength * point.policy.paths.along(terms), 0.0)
        # Z - strength sum_t k(l_t), l_t = log(pi/reference) of token t (docs/derivations.md, section 16).
        rewards = point.rewards_less(penalties)
        moments = point.moments_of(rewards)
    paths = point.policy.paths
    logs = paths.along(point.token_log_probabilities)
    return OutcomeTable(rewards, point.squared_score_norms, paths.lengths, logs, moments.known_to_oracles)


@dataclass(frozen=True, eq=False)
class Classes:
    """The classes of the outcomes of S prompts that have R classes each, all of positive probability.

    Attributes
    ----------
    prompts : ndarray of int64, shape (S,)
    probabilities : ndarray, shape (S, R)
    fields : ndarray, shape (4, S, R)
        What a kernel sees of a member, in the order of `RESPONSE_FIELDS`; NaN for a field that it does not read.
    """

    prompts: Integers
    probabilities: Array
    fields: Array


def fields_of_rewards(values: Array) -> Array:
    """Return the fields, as of `Classes`, of classes (S, R) that are told apart by their rewards alone."""
    return np.stack([values, *np.full((len(RESPONSE_FIELDS) - 1, *values.shape), np.nan)])


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


@dataclass(frozen=True)
class DistinctPrompts:
    """The L ways in which prompts look to a kernel; equal to others that show the same numbers.

    Attributes
    ----------
    fields : ndarray, shape (4, L, R)
        As for `Classes`.
    prompt_fields : ndarray, shape (3 + S, L)
        Value, standard deviation and optimal baseline, and what is remembered; NaN for a field that the kernel does not read.
    shown : tuple
        What is compared: the shape, and the bytes of both.
    """

    fields: Array = field(compare=False)
    prompt_fields: Array = field(compare=False)
    shown: tuple[tuple[int, ...], bytes, bytes] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shown", (self.fields.shape, self.fields.tobytes(), self.prompt_fields.tobytes()))


def classes(point: Point, seen: OutcomeTable, reads: Set[str]) -> list[ListedClasses]:
    """Partition the outcomes of every prompt, drawn at a point, by the response fields in `reads`.

    Prompts that have equally many classes stand together.
    """
    prompts, outcomes = np.nonzero(point.outcome_probabilities > 0.0)
    p, responses = point.outcome_probabilities[prompts, outcomes], point.outcome_responses[outcomes]
    own = seen.squared_score_norms, np.tile(seen.lengths.astype(np.float64), (len(seen.rewards), 1)), seen.log_probabilities
    fields = seen.rewards[prompts, outcomes], *(field[prompts, responses] for field in own)
    unread = [name not in reads for name in RESPONSE_FIELDS]
    # A field that is not read is 0 while classes are told apart, because NaN differs from itself. It is NaN afterwards, so
    # that a kernel that reads more than it says gives advantages that are not finite, and is found out.
    shown = np.stack([np.zeros(p.size) if hidden else field for field, hidden in zip(fields, unread, strict=True)], axis=1)
    kind = np.zeros(p.size, dtype=np.int64)
    for column in shown.T:  # one by one, which is faster than rows
        ranked, rank = np.unique(column, return_inverse=True)
        _, kind = np.unique(kind * ranked.size + rank, return_inverse=True)
    kinds = shown[np.unique(kind, return_index=True)[1]]
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
        # Bayes: P(k | r) - pi_k = pi_k (P(r | k) - q_r)/q_r, q_r = P(r).
        leads = less_mean(given, pi) * pi / probabilities[:, None]
    counts = np.bincount(own)
    firsts = np.cumsum(counts) - counts
    partition = []
    for n_classes in np.unique(counts):
        same = np.flatnonzero(counts == n_classes)
        rows = firsts[same, None] + np.arange(n_classes)
        partition.append(ListedClasses(same, probabilities[rows], shown[:, rows], conditional[rows], leads[rows]))
    return partition


def distinct_prompts(kinds: Classes, known: Sequence[Array], reads: Set[str]) -> tuple[DistinctPrompts, Integers]:
    """Return the ways in which prompts look to a kernel, and the number of each prompt's look, shape (S,).

    Values, standard deviations and optimal baselines are `known`, and columns of memory, (M,) each.
    """
    told = zip_longest(PROMPT_FIELDS, known, fillvalue="memory")
    prompt_fields = np.stack(
        [field[kinds.prompts] if name in reads else np.full(kinds.prompts.size, np.nan) for name, field in told]
    )
    rows = np.concatenate([*kinds.fields.transpose(0, 2, 1), prompt_fields]).T
    numbers: dict[bytes, int] = {}
    # Rows are compared as bytes, because they hold NaN for what is not read, and NaN differs from itself.
    look = np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in rows])
    _, first = np.unique(look, return_index=True)
    return DistinctPrompts(kinds.fields[:, first], prompt_fields[:, first]), look


Looked = tuple[ListedClasses, DistinctPrompts, Integers]
_LOOKED: WeakKeyDictionary[Point, dict[tuple[KLTerm, frozenset[str], bytes], list[Looked]]] = WeakKeyDictionary()


def looked_at(point: Point, estimator: Estimator) -> list[Looked]:
    """Return the classes of a point, and how they look to an estimator's kernel.

    They are kept as long as the point is, because estimators are compared at one point; the tuples are classes, and what
    `distinct_prompts` returns.
    """
    kept, reads = _LOOKED.setdefault(point, {}), estimator.reads
    memory = estimator.remembered(point.policy.n_prompts)
    key = estimator.kl, reads.intersection((*FIELDS, "memory")), memory.tobytes()
    if key not in kept:
        seen = outcome_table(point, estimator.kl)
        known = *seen.prompt_fields, *memory
        kept[key] = [(kinds, *distinct_prompts(kinds, known, reads)) for kinds in classes(point, seen, reads)]
    return kept[key]


class NotEnumerableError(ValueError):
    """Raised when an estimator's exact moments cannot be enumerated; `gt.simulate_gradients` still works.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, sizes = gt.gallery.problem("sequence-shared"), {"batch_size": 8, "group_size": 4}
    >>> try:
    ...     gt.gradient_mse(problem, problem.theta, "dapo", **sizes)
    ... except gt.NotEnumerableError:
    ...     found = gt.simulate_gradients(problem, problem.theta, "dapo", **sizes, replications=256, rng=0)
    >>> found.mse.shape
    (1,)
    """


MAXIMUM_RESPONSES = 10**8
MAXIMUM_COUNTS = 10**8
_ROWS = 1 << 18
KEPT = 1 << 14
"""The most numbers of what is kept of a kernel, in case it is asked for the same again."""
LAWS_KEPT = 256
"""Of so many kernels, looks and group sizes: a curve over ten sizes of a dozen estimators, asked for again at each length."""
TOLERANCE = 1e-9
"""The difference of advantages that counts as rounding, relative to the larger of 1 and their size."""


def count_multisets(n_classes: int, group_size: int) -> int:
    """Return the number of multisets of `group_size` members from `n_classes` classes."""
    # C(G + R - 1, G) (docs/derivations.md, section 4).
    return comb(group_size + n_classes - 1, group_size)


@lru_cache(maxsize=4)
def multisets(n_classes: int, group_size: int) -> Integers:
    """List the counts of all multisets, shape (n, R), rows summing to `group_size`."""
    places, n = group_size + n_classes - 1, count_multisets(n_classes, group_size)
    # Each choice of n_classes - 1 of the places for bars parts the others into the counts of the classes.
    bars = np.fromiter(chain.from_iterable(combinations(range(places), n_classes - 1)), np.int64, n * (n_classes - 1))
    return read_only(np.diff(bars.reshape(n, n_classes - 1), axis=1, prepend=-1, append=places) - 1)


def binomial_law(counts: Integers, n: int, p: Array) -> Array:
    """Return the probabilities of counts (S,) of n, shape (..., S), for success probabilities p of any shape."""
    k, rarer = np.arange(1, n + 1), np.minimum(p, 1.0 - p)[..., None]
    # P(k)/P(k - 1) = (n - k + 1)/k p/(1 - p).  What rounding adds up to on the way to the mode is common to all that counts.
    with np.errstate(divide="ignore"):
        logs = np.cumsum(np.log((n - k + 1) / k * (rarer / (1.0 - rarer))), axis=-1)
    logs = np.concatenate([np.zeros_like(rarer), logs], axis=-1)
    law = np.exp(logs - logs.max(axis=-1, keepdims=True))
    law /= law.sum(axis=-1, keepdims=True)
    return np.where(p[..., None] > 0.5, law[..., n - counts], law[..., counts])


def members(counts: Integers) -> Integers:
    """Write out each multiset as a group of class numbers in rising order, shape (n, G)."""
    n, n_classes = counts.shape
    return np.repeat(np.tile(np.arange(n_classes), n), counts.reshape(-1)).reshape(n, -1)


def class_advantages(counts: Integers, advantages: Array) -> tuple[Array, float]:
    """Return the advantage of each class (n, R), 0 for classes without members, and the largest spread within a class."""
    firsts = np.minimum(np.cumsum(counts, axis=1) - counts, advantages.shape[1] - 1)
    by_class = np.where(counts > 0, np.take_along_axis(advantages, firsts, axis=1), 0.0)
    own = np.take_along_axis(by_class, members(counts), axis=1)
    return by_class, float((np.abs(advantages - own) / np.maximum(1.0, np.abs(own))).max())


@kernel
def add_moments(counts, log_weights, log_probabilities, look, features, mean, product, squares):
    """Add each multiset's probability at each prompt times its sums of the features (L, n, R, F) of the prompt's look."""
    _, n, n_classes, n_features = features.shape
    sums = np.empty((n_classes, n_features))
    for m in range(look.size):
        for i in range(n):
            log_p = log_weights[i]
            for r in range(n_classes):
                if counts[i, r] > 0:
                    log_p += counts[i, r] * log_probabilities[m, r]
            p = np.exp(log_p)
            for r in range(n_classes):
                for f in range(n_features):
                    feature = features[look[m], i, r, f]
                    # S_rf = n_r phi_rf and Q_rfg = n_r phi_rf phi_rg (docs/derivations.md, section 4).
                    sums[r, f] = counts[i, r] * feature
                    mean[m, r, f] += p * sums[r, f]
                    for g in range(n_features):
                        squares[m, r, f, g] += p * counts[i, r] * feature * features[look[m], i, r, g]
            for r in range(n_classes):
                for f in range(n_features):
                    for s in range(n_classes):
                        for g in range(n_features):
                            product[m, r, f, s, g] += p * sums[r, f] * sums[s, g]


def batch_of(looks: DistinctPrompts, groups: Integers) -> list[Array]:
    """Return `FIELDS`, and columns of memory, that show a kernel all `groups` of class numbers, shape (n, G), look after look."""
    rewards, norms, lengths, logs = (
        np.ascontiguousarray(field[:, groups].reshape(-1, groups.shape[1])) for field in looks.fields
    )
    # A length that is not read is NaN in a look, which integers do not have; the kernel is shown 1.
    counted = np.where(np.isnan(lengths), 1.0, lengths).astype(np.int64)
    return [rewards, norms, counted, logs, *looks.prompt_fields.repeat(len(groups), axis=1)]


class NotFiniteError(ValueError):
    """A kernel left a value that is not finite."""


def advantages_of(advantage: Advantage, fields: Sequence[Array]) -> Array:
    """Run the kernel on the fields of a batch, as `Advantage.run`; raise if it leaves a value that is not finite."""
    advantages = np.full(fields[0].shape, np.nan)
    advantage.run(fields, advantages)
    bad = ~np.isfinite(advantages).all(axis=1)
    if bad.any():
        b = int(np.argmax(bad))
        raise NotFiniteError(
            f"the kernel of estimator {advantage.name!r} must fill finite advantages, got {advantages[b].tolist()} "
            f"for a group with rewards {fields[0][b].tolist()}"
        )
    return advantages


def class_tables(advantage: Advantage, looks: DistinctPrompts, group_size: int) -> Iterator[tuple[Integers, Array]]:
    """Yield counts of multisets (n, R) and what the kernel gives each class in them by look, (L, n, R), part by part."""
    n_looks, n_classes = looks.fields.shape[1:]
    counts = multisets(n_classes, group_size)
    # What is kept is made at once, with its groups written out: those of 1,024 responses with two rewards are 2^20 numbers.
    kept = n_looks * n_classes * len(counts) <= KEPT and n_looks * group_size * len(counts) <= 8 * _ROWS
    step = len(counts) if kept else max(2, _ROWS // (group_size * n_looks))
    for start in range(0, len(counts), step):
        make = _class_table if kept else _class_table.__wrapped__
        yield counts[start : start + step], make(advantage, looks, group_size, start, step)


@lru_cache(maxsize=LAWS_KEPT)
def _class_table(advantage: Advantage, looks: DistinctPrompts, group_size: int, start: int, step: int) -> Array:
    """Return what the kernel gives each class in so many multisets from one on, by look, (L, n, R)."""
    n_looks, n_classes = looks.fields.shape[1:]
    counts = multisets(n_classes, group_size)[start : start + step]
    advantages = advantages_of(advantage, batch_of(looks, members(counts)))
    by_class, spread = class_advantages(np.tile(counts, (n_looks, 1)), advantages)
    if spread > TOLERANCE:
        raise ValueError(f"estimator {advantage.name!r} must give equal advantages to responses that it cannot tell apart")
    return read_only(by_class.reshape(n_looks, *counts.shape))


_CHECKED = 4096
_CHECKED_RESPONSES = 1 << 18
_FEWEST = 16
_ALONE = 8
"""Of so many groups, about, each is given alone, besides those at the ends."""
_DECOYS = ((0.1, 0.7), (0.3, 0.45))


@lru_cache(maxsize=LAWS_KEPT)
def check_exchangeable(advantage: Advantage, shown: tuple[DistinctPrompts, ...], group_size: int) -> None:
    """Raise unless a kernel treats responses alike, whatever their order, and each group by itself.

    The kernel is tried on some thousands of groups, or fewer if the groups are large.  Their multisets are spread evenly over
    all, and cover every look of a prompt.
    """
    wanted = min(_CHECKED, _CHECKED_RESPONSES // group_size)
    share = max(_FEWEST, wanted // sum(looks.fields.shape[1] for looks in shown))
    batches = []
    for looks in shown:
        counts = multisets(looks.fields.shape[2], group_size)
        batches.append(batch_of(looks, members(counts[:: max(1, len(counts) // share)])))
    batch = [*map(np.concatenate, zip(*batches, strict=True))]
    advantages = advantages_of(advantage, batch)
    if not (treats_alike(advantage, batch, advantages) and sees_alone(advantage, batch, advantages)):
        raise ValueError(
            f"estimator {advantage.name!r} must give each response an advantage that does not depend on its position in the "
            "group, nor on other groups. Only then are exact moments enumerated. If it couples groups, register it with "
            "couples_groups=True and simulate it"
        )


def treats_alike(advantage: Advantage, batch: Sequence[Array], advantages: Array) -> bool:
    """Whether advantages stay with the responses when the responses of each group change their order.

    They are rotated by one position, and the first two are exchanged, because these two generate all permutations.  The check
    takes the groups of the batch, all or some thousands.
    """
    order = np.arange(advantages.shape[1])
    exchanged = np.concatenate([order[:2][::-1], order[2:]])
    for permutation in (np.roll(order, 1), exchanged):
        permuted = advantages_of(advantage, [one[:, permutation] if one.ndim == 2 else one for one in map(_some, batch)])
        if not _agree(permuted, _some(advantages)[:, permutation]):
            return False
    return True


def sees_alone(advantage: Advantage, batch: Sequence[Array], advantages: Array) -> bool:
    """Whether advantages stay what they are when the groups are given last first, between groups of another prompt, and alone.

    The other groups have different rewards, score norms and fields of the prompt, because a kernel may look things up by them.
    These lie inside the range of the batch's own.  What shows only at the ends of that range is found by giving groups alone.
    """
    picked, expected = [*map(_some, batch)], _some(advantages)
    for shift, scale in _DECOYS:  # two, because any one of them leaves some value as it is
        fields = []
        for one in picked:  # among other values, not outside the range of a field if it has one
            low, width = one.min(), np.ptp(one)
            other = low + width * shift + scale * (one - low) if width > 0.0 else shift + scale * one
            decoy = one if one.dtype.kind == "i" else other
            fields.append(np.concatenate([decoy, one, decoy]))
        # The kernel need not be defined for decoys, so that their advantages may be anything.
        between = np.full(fields[0].shape, np.nan)
        advantage.run(fields, between)
        if not _agree(between[len(expected) : 2 * len(expected)], expected):
            return False
    # Some groups, and groups of one response again and again, which is at the ends of two of the fields that are read.  Such a
    # group lacks what is greatest, or least, in the batch, and it is a group that the problem can have.
    n, group_size = advantages.shape
    wide = [np.broadcast_to(field.reshape(n, -1), (n, group_size)).ravel() for field in batch]
    read = [field for name, field in zip(FIELDS, wide, strict=False) if name in advantage.reads]
    known = [field for field in read if not np.isnan(field).any()]
    ends = [field == end for field in known for end in (field.min(), field.max())]
    ones = sorted({int(np.flatnonzero(at)[end(field[at])]) for at in ends for field in known for end in (np.argmin, np.argmax)})
    some, rows, told = slice(None, None, max(1, n // _ALONE)), [one // group_size for one in ones], []
    for own, values in zip(batch, wide, strict=True):
        pure = own[rows] if own.ndim == 1 else np.repeat(values[ones][:, None], group_size, axis=1)
        told.append(np.concatenate([own[some], pure]))
    alone = np.full(told[0].shape, np.nan)
    # Each group is a batch of its own: what a kernel took from other groups is missing there.
    for b in range(len(alone)):
        advantage.run([field[b : b + 1] for field in told], alone[b : b + 1])
    # A group of one response again and again may have no finite advantage (0/0, if there is no epsilon); it tells nothing.
    finite = np.isfinite(alone).all(axis=1)
    together = np.full(alone[finite].shape, np.nan)
    if finite.any():
        advantage.run([field[finite] for field in told], together)
    return _agree(together, alone[finite])


def check_alone(advantage: Advantage, batch: Sequence[Array], advantages: Array) -> None:
    """Raise unless the kernel sees each group by itself."""
    if not sees_alone(advantage, batch, advantages):
        raise ValueError(
            f"estimator {advantage.name!r} must give a group the same advantages whatever the other groups of the batch are; "
            "if it couples groups, register it with couples_groups=True"
        )


def _agree(given: Array, expected: Array) -> bool:
    return bool((np.abs(given - expected) <= TOLERANCE * max(1.0, np.abs(expected).max(initial=0.0))).all())


def _some(array: np.ndarray) -> np.ndarray:
    """Some thousands of the groups, the last first."""
    # In reverse order, so that a kernel which looks at a group's position in the batch is found out.
    return np.ascontiguousarray(array[:: -max(1, len(array) // _CHECKED)])


LARGEST_TABLE = 1 << 22
"""The most responses that a kernel is shown for the sake of a table: a tenth of a second."""


PromptFields = tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]
"""Values, standard deviations and optimal baselines of M prompts."""
UNREAD: PromptFields = ((nan,), (nan,), (nan,))
"""For a kernel that reads none of them."""


class ClassAdvantages(NamedTuple):
    """Advantages by the counts n_1..n_L of the group's responses with each reward value.

    Attributes
    ----------
    advantages : ndarray, shape (P, n, L)
        The axes are the prompt (P = M, or 1 if the kernel reads nothing of the prompt), the multiset of reward values, and the
        value. The entry is 0 for a value that no response of the multiset has.
    ranks : ndarray of int64, shape (L - 1, G + 1)
        The number of a multiset is sum_l ranks[l, n_1 + ... + n_l] over l < L, its rank among all in colexicographic order.
    """

    advantages: Array
    ranks: Integers


def multiset_lines(counts: Integers, ranks: Integers) -> Integers:
    """Return the line of a table that each multiset (n, L) has, shape (n,).

    `multisets` lists in lexicographic order, and drivers find a line by its rank in colexicographic order.
    """
    lines = np.zeros(len(counts), dtype=np.int64)
    for level, reached in enumerate(np.cumsum(counts[:, :-1], axis=1).T):
        # rank = sum_l C(n_1 + .. + n_l + l - 1, l): how many multisets come before, in colexicographic order.
        lines += ranks[level, reached]
    return lines


class TableSizeWarning(RuntimeWarning):
    """Warns that a kernel's table would be too large, so the kernel is called for every group, which is slower.

    Examples
    --------
    >>> import warnings, grpo_theory as gt
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", gt.exact.TableSizeWarning)  # slower is all right here
    ...     problem = gt.gallery.problem("graded")
    ...     found = gt.simulate_gradients(problem, problem.theta, "rloo", batch_size=2, group_size=4, replications=64, rng=0)
    """


@lru_cache(maxsize=64)
def advantage_table(
    advantage: Advantage, values: tuple[float, ...], group_size: int, prompt_fields: PromptFields
) -> ClassAdvantages | None:
    """Return a kernel's table; made once, because many calls ask for the same.

    None if the kernel reads more than a table knows, if the table would be too large, or if responses are not treated alike.

    Parameters
    ----------
    advantage : Advantage
    values : tuple of float
        The L reward values, in rising order.
    group_size : int
    prompt_fields : tuple of three tuples of float
        Values, standard deviations and optimal baselines of M prompts, or `UNREAD` if the kernel reads none of them.

    Raises
    ------
    ValueError
        If the kernel does not see each group by itself, or leaves a value that is not finite.
    """
    n_values, fields = len(values), np.array(prompt_fields)
    if advantage.couples_groups or advantage.reads & set(RESPONSE_FIELDS[1:]):
        return None
    rows = fields.shape[1]
    if (rows if advantage.reads & set(PROMPT_FIELDS) else 1) * count_multisets(n_values, group_size) * group_size > LARGEST_TABLE:
        return None
    counts = multisets(n_values, group_size)
    ranks = np.array(
        [[comb(s + level - 1, level) for s in range(group_size + 1)] for level in range(1, n_values)], dtype=np.int64
    )
    ranks = ranks.reshape(n_values - 1, group_size + 1)
    batch = batch_of(DistinctPrompts(fields_of_rewards(np.tile(values, (rows, 1))), fields), members(counts))
    advantages = advantages_of(advantage, batch)
    check_alone(advantage, batch, advantages)
    by_value, spread = class_advantages(np.tile(counts, (rows, 1)), advantages)
    if spread > 0.0 or not treats_alike(advantage, batch, advantages):
        return None
    table = np.empty((rows, *counts.shape))
    table[:, multiset_lines(counts, ranks)] = by_value.reshape(table.shape)
    return ClassAdvantages(table, ranks)


@lru_cache(maxsize=64)
def advantages_beside(estimator: Estimator, values: tuple[float, ...], group_size: int, others: int) -> tuple[Integers, Array]:
    """Return multisets of `others` rewards (n, L), and the advantage of each reward in a group of these, itself, and more.

    The advantages have shape (n, L) if `others` is G - 1.  If it is G - 2, another reward completes the group, and their shape is
    (n, L, L): reward, then the one that completes the group.
    """
    table = None
    if not estimator.advantage.reads - {"rewards", "parameters"}:
        table = advantage_table(estimator.advantage, values, group_size, UNREAD)
    if table is None:
        raise NotEnumerableError(
            f"estimator {estimator.name!r} must treat responses alike, read only rewards and see each group by itself, and "
            f"groups of {group_size} with {len(values)} rewards must not be too large for a table of all of them"
        )
    n = len(values)
    counts = multisets(n, others)
    added = counts[:, None] + np.eye(n, dtype=np.int64)
    if others < group_size - 1:
        added = added[:, :, None] + np.eye(n, dtype=np.int64)
    lines = multiset_lines(added.reshape(-1, n), table.ranks).reshape(added.shape[:-1])
    own = np.arange(n) if added.ndim == 3 else np.arange(n)[:, None]
    return read_only(counts), read_only(table.advantages[0][lines, own])
