"""How often all responses of a group get one reward: measured where groups are that large, and bounded beyond."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.arrays import Array, Integers
from grpo_theory.intervals import Interval
from grpo_theory.intervals.interval import check_level
from grpo_theory.plan.average import Reference, Terms, clipped, mean_interval, stacked, terms_of
from grpo_theory.plan.brackets import RateFunction, bracket
from grpo_theory.plan.mixing import Cells, likeliest_law
from grpo_theory.samples import RewardCounts
from grpo_theory.validation import as_count, typed


@dataclass(frozen=True, eq=False)
class UniformShares:
    """The share of uniform groups at several group sizes.

    Attributes
    ----------
    group_sizes : ndarray of int64, shape (S,)
    interval : Interval
        Shape (S,): the share of groups whose rewards are all equal. The standard error is NaN where it is not measured.
    measured : ndarray, shape (S,)
        The share of the prompts with so many responses: 1 where the estimate is measured and without bias, and less where it is
        predicted, for the other prompts.
    """

    group_sizes: Integers
    interval: Interval
    measured: Array


@typed
def estimate_uniform_shares(counts: RewardCounts, group_sizes: ArrayLike, level: float = 0.95) -> UniformShares:
    """Return the share of groups of each size whose rewards are all equal: groups that give most estimators no gradient.

    A prompt with n >= G responses measures its own share without bias: the probability that G of them, drawn without
    replacement, have one reward. For G > n the share is E[X^(G-1)], X the probability of a response's own reward, and among the
    n - 1 other responses those with that reward are binomial with rate X. Polynomials of degree n - 1 above and below x^(G-1)
    give limits that hold whatever the law of X (docs/derivations.md, section 34); the estimate is that of the likeliest law of
    X.

    Parameters
    ----------
    counts : RewardCounts
        At least two prompts; any number of rewards, groups of any sizes. The prompts are draws from all prompts, and a prompt's
        number of responses says nothing about it that matters here.
    group_sizes : array_like of int, shape (S,)
        Each at least 1.
    level : float, default 0.95
        Of each limit pair by itself, not of all together.

    Returns
    -------
    UniformShares

    Raises
    ------
    ValueError
        On fewer than two prompts, and where no prompt has two responses.
    """
    level = check_level(level)
    sizes = _group_sizes(group_sizes)
    if counts.prompts < 2:
        raise ValueError("counts must be of at least 2 prompts for an interval, got 1")
    if counts.sizes.max() < 2:
        raise ValueError("counts must have a prompt with two responses: one response a prompt says nothing about uniform groups")
    predicted = None
    found, measured = [], np.array([(counts.sizes >= size).mean() for size in sizes])
    for size, share in zip(sizes, measured, strict=True):
        terms = share_terms(counts, int(size))
        if share < 1.0:
            predicted = predicted or likeliest_law(_own_reward_cells(counts))
            beyond = float(predicted.weights @ predicted.atoms ** (size - 1.0))
            large = counts.sizes >= size
            found.append(mean_interval(terms, (terms.below[large].sum() + (~large).sum() * beyond) / counts.prompts, level))
        else:
            found.append(mean_interval(terms, np.nan, level))
    return UniformShares(sizes, clipped(stacked(found)), measured)


def _group_sizes(group_sizes: ArrayLike) -> Integers:
    sizes = np.atleast_1d(np.asarray(group_sizes))
    if sizes.ndim != 1 or sizes.size == 0 or sizes.dtype.kind not in "iu":
        raise ValueError(f"group_sizes must be whole numbers, shape (S,), got shape {sizes.shape} of type {sizes.dtype}")
    for size in sizes:
        as_count("group_sizes", int(size))
    return sizes.astype(np.int64)


def _own_reward_cells(counts: RewardCounts) -> Cells:
    """Return, for a response drawn from each prompt, how many of the prompt's others share its reward, as cells."""
    rows = np.repeat(np.arange(counts.prompts), np.diff(counts.counts.indptr))
    same, sizes = counts.counts.data, counts.sizes[rows]
    useful = sizes >= 2
    return Cells.gather(same[useful] - 1, sizes[useful] - 1, same[useful] / sizes[useful])


def share_terms(counts: RewardCounts, group_size: int, chosen_for: Reference | None = None) -> Terms:
    """Return terms of the prompts whose means are at most, and at least, the share of uniform groups."""
    power, near = group_size - 1.0, chosen_for or Reference.of(counts)
    function = RateFunction(lambda rate: rate**power, ("power", power), (0.0,) * (group_size - 1) + (1.0,))
    rows = np.repeat(np.arange(counts.prompts), np.diff(counts.counts.indptr))
    same, sizes = counts.counts.data, counts.sizes[rows]
    values = np.empty((2, same.size))
    found = {int(size): bracket(function, int(size) - 1, near.a + 1.0, near.a, near.prompts) for size in np.unique(counts.sizes)}
    for size, pair in found.items():
        here = sizes == size
        values[:, here] = np.stack(pair)[:, same[here] - 1] * (same[here] / size)
    below, above = (np.bincount(rows, value, counts.prompts).astype(np.float64) for value in values)
    return terms_of(below, above, found, int(counts.sizes.sum()))
