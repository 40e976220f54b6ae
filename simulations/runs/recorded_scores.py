"""Efficiency of an estimator from recorded moments of scores: success, gradients' inner products, mean squared scores by reward.

Rewards are 0 and 1, and the estimator sees each group by itself. With k right answers in a group of G, advantages are functions
of k and the reward alone. The scores of right answers have mean grad p / p, and those of wrong ones -grad p / (1 - p). So the
law's mean and squared length are sums over k (docs/derivations.md, section 4).
"""

from typing import NamedTuple

import numpy as np

from grpo_theory.estimation import find
from grpo_theory.exact.multisets import UNREAD, advantage_table, multiset_lines
from grpo_theory.validation import Array

FOLLOWED = 4
"""The group size of the runs along which efficiencies are worked out."""
PLACES = {"start": ("plain", 0), "update 24": (f"{{}}, G = {FOLLOWED}", 0), "update 96": (f"{{}}, G = {FOLLOWED}", 1)}
"""The courses' policies at which efficiencies are worked out."""


class Scores(NamedTuple):
    """Moments of M questions' scores at a policy.

    Attributes
    ----------
    success : ndarray, shape (M,)
    gram : ndarray, shape (M, M)
        Inner products of the gradients of success.
    powers : ndarray, shape (M, 2)
        Mean squared length of the score given a wrong and given a right answer.
    """

    success: Array
    gram: Array
    powers: Array


def advantages_by_count(estimator: str, group_size: int) -> Array:
    """Return the advantages of wrong and right answers with k right ones in a group, (2, G + 1); 0 where there is none."""
    table = advantage_table(find(estimator).advantage, (0.0, 1.0), group_size, UNREAD)
    if table is None:
        raise ValueError(f"estimator must read rewards alone and see each group by itself, got {estimator!r}")
    right = np.arange(group_size + 1)
    lines = multiset_lines(np.stack([group_size - right, right], axis=1), table.ranks)
    return np.asarray(table.advantages[0, lines].T)


def efficiency(scores: Scores, estimator: str, batch_size: int, group_size: int) -> float:
    """Return (g . E ghat)^2 / (||g||^2 E ||ghat||^2) of a batch of groups, of questions drawn with replacement."""
    from scipy.stats import binom  # slow to import, and seldom wanted

    success, gram, powers = scores
    k = np.arange(group_size + 1)
    chances = binom.pmf(k, group_size, success[:, None])
    wrong, right = advantages_by_count(estimator, group_size)
    slopes = np.stack([-1.0 / (1.0 - success), 1.0 / success], axis=1)  # mean scores are these times grad p
    counts = np.stack([group_size - k, k])
    advantages = np.stack([wrong, right])
    mean = (chances @ (counts * advantages).T * slopes).sum(axis=1) / group_size
    own = chances @ (counts * advantages**2).T
    pairs = np.stack([counts[0] * (counts[0] - 1), counts[1] * (counts[1] - 1)]) * advantages**2
    apart = (chances @ pairs.T * slopes**2).sum(axis=1)
    apart += 2.0 * (chances @ (counts[0] * counts[1] * wrong * right)) * slopes.prod(axis=1)
    lengths = ((own * powers).sum(axis=1) + apart * np.diag(gram)) / group_size**2
    count = len(success)
    gradient, average = np.full(count, 1.0 / count), mean / count
    between = average @ gram @ average
    power = float(lengths.mean() / batch_size + (1.0 - 1.0 / batch_size) * between)
    return float((gradient @ gram @ average) ** 2 / (gradient @ gram @ gradient * power))
