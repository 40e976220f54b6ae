"""What the rewards and the order of a log's rows say against it: a filter before logging, tiny differences, two groups as one."""

from collections.abc import Mapping

import numpy as np
from scipy.special import comb

from grpo_theory.arrays import Integers
from grpo_theory.samples.reward_counts import RewardCounts

TINY = 1e-3
"""Rewards of a group that differ by no more than this share of the range of all rewards are remarked on."""
EXPECTED_AT_LEAST = 5.0
"""A log without uniform groups has been filtered if by the least chance that any policy has so many were to be expected: none
come with a chance below exp(-5) = 0.7%."""
EXPECTED = 7.0
"""The same where the number expected is itself an estimate."""


def filtered(counts: RewardCounts) -> float:
    """Return how many groups with equal rewards were to be expected, if there are none and a filter is the likely reason; else 0.

    Of L rewards a group of n responses is uniform with a chance of at least L^(1-n), whatever the policy. Of two rewards, E[p^k
    (1-p)^(n-k)] is log-convex in k, so that from the numbers N_1 and N_2 of groups with one and two successes of n at least
    N_1^2/N_2 (n-1)/(2n) groups without success are to be expected, whatever the law of p; and likewise at the other end. One is
    added to N_2, against its noise.
    """
    if counts.uniform.any() or counts.values.size < 2:
        return 0.0
    sizes = counts.sizes.astype(np.float64)
    least = float((float(counts.values.size) ** (1.0 - sizes)).sum())
    if least >= EXPECTED_AT_LEAST:
        return least
    likely = _expected_uniform(counts) if counts.binary else 0.0
    return likely if likely >= EXPECTED else 0.0


def _expected_uniform(counts: RewardCounts) -> float:
    total = 0.0
    for size in np.unique(counts.sizes).tolist():
        if size >= 3:
            seen = np.bincount(counts.successes[counts.sizes == size], minlength=size + 1)
            for one, two in ((seen[1], seen[2]), (seen[size - 1], seen[size - 2])):
                total += one**2 / (two + 1.0) * comb(size, 2) / size**2
    return float(total)


def nearly_equal(counts: RewardCounts) -> int:
    """Return in how many groups the rewards differ, and by no more than a thousandth of the range of all rewards."""
    starts, ends = counts.counts.indptr[:-1], counts.counts.indptr[1:]
    by_row = counts.counts.copy()
    by_row.sort_indices()
    spans = counts.values[by_row.indices[ends - 1]] - counts.values[by_row.indices[starts]]
    return int(((spans > 0.0) & (spans <= TINY * (counts.values[-1] - counts.values[0]))).sum())


def reward_remarks(counts: RewardCounts) -> list[str]:
    """Return what the rewards say: a sentence each."""
    remarks = []
    expected = filtered(counts)
    if expected:
        remarks.append(
            f"No group has rewards that are all equal, and about {expected:.0f} or more of {counts.prompts} were to be expected: "
            "groups of equal rewards were left out before logging (dynamic sampling). What is said is about the groups that were "
            "kept; how many had equal rewards, this log cannot tell."
        )
    near = nearly_equal(counts) if counts.values.size > 2 else 0
    if near:
        uniform = int(counts.uniform.sum())
        tolerance = TINY * float(counts.values[-1] - counts.values[0])
        remarks.append(
            f"In {near} of {counts.prompts} groups rewards differ by {tolerance:.3g} at most, a thousandth of their range. They "
            f"count as different. reward_tolerance={tolerance:.3g} (--reward-tolerance {tolerance:.3g}) takes them for equal: "
            f"{near + uniform} and not {uniform} groups then have rewards that are all equal."
        )
    return remarks


def order_remark(runs: Mapping[int, int], sizes: Integers, group_of: int | None) -> str | None:
    """Return what the order of the rows says: several blocks of a prompt's rows may be several groups.

    Parameters
    ----------
    runs : mapping of int to int
        How often so many rows of a group come one after another.
    sizes : ndarray, shape (B,)
        Of all groups.
    group_of : int, optional
        The size that was asked for.
    """
    several = sum(runs.values())
    if group_of is not None or several <= sizes.size:
        return None
    usual = max(runs, key=lambda size: runs[size])
    if usual < 2 or runs[usual] < 0.9 * several or (sizes % usual).any():
        return None
    many = int((sizes > usual).sum())
    return (
        f"The rows of {many} of {sizes.size} groups come in several blocks of {usual} rows: each block may be a group of its own "
        f"(group_of={usual}, --group-of {usual}, reads them so)."
    )


def size_remark(sizes: Mapping[int, int], group_of: int | None) -> str | None:
    """Return that some groups have twice the usual size, or more, of which each may be several groups."""
    usual = max(sizes, key=lambda size: sizes[size])
    larger = {size: count for size, count in sizes.items() if size > usual and size % usual == 0}
    if group_of is not None or usual < 2 or not larger or sizes[usual] < 2 * sum(larger.values()):
        return None
    found = ", ".join(f"{count} of {size}" for size, count in larger.items())
    return (
        f"Most groups have {usual} responses, and some a multiple of that ({found}): a prompt that came twice at a step looks so "
        f"(group_of={usual}, --group-of {usual}, reads {usual} rows one after another as a group)."
    )
