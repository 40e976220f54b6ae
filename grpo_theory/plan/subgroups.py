"""What the subgroups of a logged group say of an estimator at every group size up to the logged one.

A subgroup of G of a prompt's n responses, drawn without replacement, is a group of G. The mean over all of them of an estimator's
estimate, and of its squared norm, is unbiased for a group of G (docs/derivations.md, section 35.4).
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from grpo_theory.estimation import Estimator
from grpo_theory.exact.multisets import UNREAD, advantage_table, count_multisets, multiset_lines, multisets
from grpo_theory.intervals.rollouts import Groups
from grpo_theory.validation import Argument, ArgumentError, Array, Integers, read_only, shown

MOST_VALUES = 8
"""Sums of scores are kept for each reward value: of more values they would take more room than the scores."""
FEW_COUNTS = 64
"""Of groups of 8 with up to three reward values, and of 63 with two."""
MOST_TERMS = 1 << 20
"""The most multisets of rewards, times prompts with different counts of rewards, that are gone through for one group size."""


class RewardClasses(NamedTuple):
    """The responses to B prompts, added up by their reward, of L values.

    Attributes
    ----------
    values : tuple of float
        The rewards, ascending.
    counts : ndarray of int64, shape (U, L)
        The different counts of rewards that prompts have; where there are few, all that they could have.
    which : ndarray of int64, shape (B,)
        Which of them each prompt has.
    sums : ndarray, shape (B, L, J)
        Of the scores.
    squares : ndarray, shape (B, L)
        Sums of the scores' squared norms.
    products : ndarray, shape (B, L, L)
        Inner products of the sums.
    """

    values: tuple[float, ...]
    counts: Integers
    which: Integers
    sums: Array
    squares: Array
    products: Array

    @classmethod
    def of(cls, rollouts: Groups) -> "RewardClasses":
        """Add up one batch; raise ValueError if it has more than `MOST_VALUES` different rewards."""
        values = np.unique(rollouts.rewards)
        if values.size > MOST_VALUES:
            raise ValueError(
                f"rollouts must have at most {MOST_VALUES} different rewards for the law of an estimator that does more than "
                f"subtract a baseline, got {values.size}"
            )
        counts = rollouts.by_prompt(lambda group: (group.rewards[..., None] == values).sum(axis=-2))
        sums = rollouts.by_prompt(
            lambda group: np.einsum("...gl,...gj->...lj", (group.rewards[..., None] == values).astype(float), group.known_scores)
        )
        squares = rollouts.by_prompt(
            lambda group: np.einsum(
                "...gl,...gj,...gj->...l",
                (group.rewards[..., None] == values).astype(float),
                group.known_scores,
                group.known_scores,
            )
        )
        products = np.einsum("blj,bmj->blm", sums, sums)
        distinct, which = _distinct(np.asarray(counts, dtype=np.int64))
        return cls(tuple(values.tolist()), distinct, which, sums, squares, products)


def _distinct(counts: Integers) -> tuple[Integers, Integers]:
    """Return the different rows of counts (B, L), and which of them each is.

    If all prompts have equally many responses, these are all possible rows, unless these are more than `FEW_COUNTS`. What is
    made of them is then the same for every log, and made once.
    """
    width, size = counts.shape[1], int(counts[0].sum())
    if (counts.sum(axis=1) != size).any() or count_multisets(width, size) > FEW_COUNTS:
        distinct, which = np.unique(counts, axis=0, return_inverse=True)
        return distinct, which.ravel()
    numbering, every = (size + 1) ** np.arange(width), multisets(width, size).astype(np.int64)
    order = np.argsort(every @ numbering)
    return every[order], np.searchsorted((every @ numbering)[order], counts @ numbering)


class PairedGroups(NamedTuple):
    """An estimator's advantages in groups of one size: multisets (n, L) of reward values, and what each value gets (n, L)."""

    multisets: Integers
    advantages: Array


def check_reads_own_rewards(estimator: Estimator) -> None:
    """Raise ValueError unless the advantages depend on the rewards of a response's own group alone."""
    advantage = estimator.advantage
    others = sorted(advantage.reads - {"rewards", "parameters"})
    if advantage.couples_groups:
        found = "depend on the other groups of the batch"
    elif others:
        found = f"depend on {' and '.join(name.replace('_', ' ') for name in others)}"
    else:
        return
    raise ArgumentError(
        Argument("estimator"),
        f" must be one whose advantages depend on the rewards of their own group alone, and those of {estimator.name!r} {found}. "
        "Name another, or leave the name out",
    )


@lru_cache(maxsize=256)
def group_table(estimator: Estimator, values: tuple[float, ...], group_size: int) -> PairedGroups:
    """Return what an estimator gives each reward value, for every number of responses with each; made once.

    Raises
    ------
    ValueError
        If the advantages are not defined for these rewards. If they depend on more than the rewards of their own group, or on
        the order of the responses.
    """
    check_reads_own_rewards(estimator)
    estimator.check_defined(group_size, np.array(values))
    table = advantage_table(estimator.advantage, values, group_size, UNREAD)
    if table is None:
        raise ValueError(
            f"estimator must give responses with equal rewards equal advantages, and {shown(estimator.name)} does not in groups "
            f"of {group_size}"
        )
    counts = multisets(len(values), group_size)
    return read_only(PairedGroups(counts, table.advantages[0][multiset_lines(counts, table.ranks)]))


def can_be_averaged(classes: RewardClasses, group_size: int) -> bool:
    """Whether all prompts have so many responses, and there are not too many multisets of rewards of this size."""
    fits = int(classes.counts.sum(axis=1).min()) >= group_size
    return fits and len(classes.counts) * count_multisets(len(classes.values), group_size) <= MOST_TERMS


class Shares(NamedTuple):
    """Of one class of responses, by the counts of rewards in its group: means over all subgroups of what one member adds.

    Attributes
    ----------
    first : ndarray, shape (U, L)
        To the sum of the advantages: the advantage, and 0 where the member is not drawn.
    own : ndarray, shape (U, L)
        Its square.
    pairs : ndarray, shape (U, L, L)
        The product of two different members' advantages.
    """

    first: Array
    own: Array
    pairs: Array


def average_over_subgroups(classes: RewardClasses, estimator: Estimator, group_size: int) -> tuple[Array, Array]:
    """Return, for each prompt, the means over all subgroups of the estimate, shape (B, J), and of its squared norm, (B,)."""
    counts, which = classes.counts, classes.which
    shares = _shares_of_members(estimator, classes.values, group_size, counts.shape, counts.tobytes())
    means = np.einsum("bl,blj->bj", shares.first[which], classes.sums) / group_size
    distinct_pairs = classes.products - classes.squares[:, :, None] * np.eye(len(classes.values))
    powers = (shares.own[which] * classes.squares).sum(axis=1) + (shares.pairs[which] * distinct_pairs).sum(axis=(1, 2))
    return means, powers / group_size**2


@lru_cache(maxsize=256)
def _shares_of_members(
    estimator: Estimator, values: tuple[float, ...], group_size: int, shape: tuple[int, int], counts: bytes
) -> Shares:
    """Return what the means over subgroups need of counts of rewards, int64 of a shape (U, L); made once.

    The numbers of a subgroup's responses with each reward are hypergeometric. Given them, each response of a class is as likely
    to be in the subgroup as another, and so is each pair of two.
    """
    table, members = group_table(estimator, values, group_size), np.frombuffer(counts, dtype=np.int64).reshape(shape)
    k, width = table.multisets, len(values)
    given, weights = table.advantages * k, _hypergeometric(members, k)
    own = weights @ (table.advantages * given)
    pairs = weights @ (given[:, :, None] * given[:, None, :]).reshape(len(k), -1)
    pairs = pairs.reshape(-1, width, width) - own[:, :, None] * np.eye(width)
    n = members.astype(np.float64)
    of_pairs = n[:, :, None] * n[:, None, :] - n[:, :, None] * np.eye(width)
    return Shares(*(read_only(_shares(*part)) for part in ((weights @ given, n), (own, n), (pairs, of_pairs))))


def mean_advantages(counts: Integers, table: PairedGroups) -> Array:
    """Return the mean advantage of a response of each value over all subgroups of groups with counts (U, L), shape (U, L)."""
    weights = _hypergeometric(counts, table.multisets)
    return _shares(weights @ (table.advantages * table.multisets), counts.astype(np.float64))


def _hypergeometric(counts: Integers, drawn: Integers) -> Array:
    """Return the probability of each multiset (n, L) among subgroups of groups with counts (U, L), shape (U, n)."""
    size, total = int(drawn[0].sum()), counts.sum(axis=1, keepdims=True)
    left = counts[:, None, :] - drawn
    # The logarithm of the factorial of a number below 0 is infinite: such a multiset cannot be drawn.
    logs = gammaln(counts + 1.0)[:, None, :] - gammaln(drawn + 1.0) - gammaln(left + 1.0)
    ways = gammaln(total + 1.0) - gammaln(size + 1.0) - gammaln(total - size + 1.0)
    return np.where((left >= 0).all(axis=2), np.exp(logs.sum(axis=2) - ways), 0.0)


def _shares(sums: Array, members: Array) -> Array:
    """Return sums over the members of a class as those of one member; 0 where there is none."""
    return np.divide(sums, members, out=np.zeros_like(sums), where=members > 0.0)
