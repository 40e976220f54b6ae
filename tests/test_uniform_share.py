"""The share of uniform groups: by all subsets where it is measured, by all counts where it is bounded."""

from itertools import combinations
from math import factorial

import numpy as np
import pytest
from rates import drawn, expected, table
from scipy.stats import binom

import grpo_theory as gt
from grpo_theory.plan.average import mean_limits, ratio_limit
from grpo_theory.plan.brackets import RateFunction, bracket
from grpo_theory.plan.effective import share_terms

GRADED = gt.RewardCounts.from_rewards(
    [0] * 5 + [1] * 7 + [2] * 4 + [3] * 6, [0, 0, 1, 1, 2, 0, 0, 0, 0, 0, 0, 1, 2, 2, 2, 2, 0, 0.5, 1, 2, 2, 2]
)
"""Four prompts of 5, 7, 4 and 6 responses with four rewards."""


def test_a_measured_share_is_that_of_all_subsets():
    rewards = [np.repeat(GRADED.values, row) for row in GRADED.counts.toarray()]
    found = gt.plan.estimate_uniform_shares(GRADED, [1, 2, 3, 4])
    for size, estimate in zip((1, 2, 3, 4), found.interval.estimate, strict=True):
        shares = [np.mean([np.ptp(group) == 0.0 for group in combinations(one, size)]) for one in rewards]
        assert estimate == pytest.approx(np.mean(shares), abs=1e-12)
        if size > 1:
            assert found.interval.standard_error[size - 1] == pytest.approx(np.std(shares, ddof=1) / 2.0, abs=1e-12)
    np.testing.assert_array_equal(found.measured, 1.0)


def test_what_is_not_measured_says_so():
    found = gt.plan.estimate_uniform_shares(GRADED, [4, 5, 6, 8])
    np.testing.assert_array_equal(found.measured, [1.0, 0.75, 0.5, 0.0])
    np.testing.assert_array_equal(np.isnan(found.interval.standard_error), [False, True, True, True])
    assert (found.interval.low <= found.interval.estimate).all()
    assert (found.interval.estimate <= found.interval.high).all()


@pytest.mark.parametrize("group_size", [2, 5, 6, 9, 40])
@pytest.mark.parametrize("law", [(0.2, 0.3, 0.5), (0.0, 0.02, 0.98), (1 / 3, 1 / 3, 1 / 3), (0.0, 0.0, 1.0)])
def test_terms_of_three_rewards_are_on_their_sides_by_all_counts(group_size, law):
    """The exact means of the terms, over all counts of five responses with three rewards."""
    size, law = 5, np.array(law)
    counts = np.array([(a, b, size - a - b) for a in range(size + 1) for b in range(size + 1 - a)])
    chances = np.array(
        [factorial(size) * np.prod([q**k / factorial(int(k)) for q, k in zip(law, row, strict=True)]) for row in counts]
    )
    terms = share_terms(gt.RewardCounts(np.arange(3.0), counts), group_size)
    below, truth, above = chances @ terms.below, (law**group_size).sum(), chances @ terms.above
    assert terms.measured == (group_size <= size)
    if terms.measured:
        assert below == pytest.approx(truth, abs=1e-12)
    assert below <= truth + 1e-9
    assert truth <= above + 1e-9


@pytest.mark.parametrize("prompts", [32.0, 2048.0])
@pytest.mark.parametrize("size", [1, 4, 9, 40])
@pytest.mark.parametrize(
    "function",
    [
        RateFunction(lambda rate: rate**60, "sixtieth power"),
        RateFunction(np.ones_like, "one", (1.0,), 0.0, 0.2),
        RateFunction(lambda rate: 1.0 + np.sqrt(rate), "root", (), 0.35, 0.8),
    ],
    ids=lambda one: one.key,
)
def test_polynomials_are_above_and_below_everywhere_and_touch(function, size, prompts):
    below, above = bracket(function, size, 0.5, 0.5, prompts)
    rates = np.unique(np.concatenate([np.linspace(0.0, 1.0, 20_001), [function.low, function.high]]))
    chances = binom.pmf(np.arange(size + 1), size, rates[:, None])
    over, under = chances @ above - function.values(rates, True), function.values(rates, False) - chances @ below
    for slack in (over, under):
        assert slack.min() > -1e-6
        assert slack.min() < 1e-3  # one that is moved by as much fails


def test_many_prompts_predict_well_beyond_their_groups():
    rates = np.random.default_rng(1).beta(0.3, 0.5, 20_000)
    found = gt.plan.estimate_uniform_shares(drawn(rates, 8, 2), [8, 12, 16, 32]).interval
    truth = [(rates**size + (1.0 - rates) ** size).mean() for size in (8, 12, 16, 32)]
    assert found.covers(truth).all()
    assert found.width[1] < 0.03
    np.testing.assert_allclose(found.estimate, truth, atol=0.02)


def test_limits_of_a_mean_cover_by_all_counts():
    """Terms of 0 and 1: exact coverage over the binomial law, least over the probability; narrower limits do not cover."""
    size = 32
    limits = [mean_limits(np.repeat([1.0, 0.0], [k, size - k]), 0.0, 1.0, 8 * size, 0.95) for k in range(size + 1)]
    low, high = np.array(limits).T
    shares = np.linspace(0.001, 0.999, 999)[:, None]
    covered = (binom.pmf(np.arange(size + 1), size, shares) * ((low <= shares) & (shares <= high))).sum(axis=1)
    assert covered.min() >= 0.95
    narrow = 0.5 * (low + high) + 0.6 * (np.array([low, high]) - 0.5 * (low + high))
    assert (binom.pmf(np.arange(size + 1), size, shares) * ((narrow[0] <= shares) & (shares <= narrow[1]))).sum(
        axis=1
    ).min() < 0.9


def test_limits_of_a_ratio_are_where_the_test_turns():
    rng = np.random.default_rng(3)
    bottom = rng.random(40) + 0.5
    top = 0.7 * bottom + 0.2 * rng.random(40)
    low, high = ratio_limit(top, bottom, 0.95, above=False), ratio_limit(top, bottom, 0.95, above=True)
    for limit in (low, high):
        difference = top - limit * bottom
        assert abs(difference.mean() / (difference.std(ddof=1) / np.sqrt(40))) == pytest.approx(2.0226909, abs=1e-6)
    assert low < top.mean() / bottom.mean() < high
    assert ratio_limit(top, bottom - bottom.mean(), 0.95, above=True) == np.inf


@pytest.mark.parametrize(
    ("counts", "sizes", "message"),
    [
        (table([1, 0], 1), [2], "two responses"),
        (table([1], 2), [2], "at least 2 prompts"),
        (table([1, 2], 2), [0], "group_sizes"),
        (table([1, 2], 2), [2.5], "group_sizes"),
        (table([1, 2], 2), [], "group_sizes"),
    ],
)
def test_shares_that_cannot_be_had(counts, sizes, message):
    with pytest.raises(ValueError, match=message):
        gt.plan.estimate_uniform_shares(counts, sizes)


def test_all_rewards_equal_are_uniform_with_a_limit():
    found = gt.plan.estimate_uniform_shares(gt.RewardCounts.from_rewards([0, 0, 1, 1], [1.0] * 4), [2, 4]).interval
    np.testing.assert_array_equal(found.estimate, 1.0)
    assert (found.low < 1.0).all()
    assert expected(np.ones(3), 2, 0.5) == pytest.approx(1.0)
