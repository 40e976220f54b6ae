"""What a group of a prompt holds, and how many runs tell two settings apart: against enumeration, and other packages."""

from itertools import product

import numpy as np
import pytest
from statsmodels.stats.power import TTestIndPower

import grpo_theory as gt
from grpo_theory.plan.advice import check_informative
from grpo_theory.plan.met_prompts import chance_of_signal, chance_of_success, most_success
from grpo_theory.samples import RewardCounts


@pytest.mark.parametrize("rate", [0.0, 1e-4, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_chances_are_sums_over_all_groups(rate, size):
    groups = list(product([0, 1], repeat=size))
    chance = [np.prod([rate if one else 1.0 - rate for one in group]) for group in groups]
    met = sum(p for p, group in zip(chance, groups, strict=True) if any(group))
    mixed = sum(p for p, group in zip(chance, groups, strict=True) if 0 < sum(group) < size)
    assert chance_of_success(rate, size) == pytest.approx(met, abs=1e-12)
    assert chance_of_signal(rate, size) == pytest.approx(mixed, abs=1e-12)


def test_a_success_that_is_far_rarer_than_rounding_is_met_as_often_as_it_should_be():
    assert chance_of_success(1e-20, 8) == pytest.approx(8e-20, rel=1e-12)


@pytest.mark.parametrize("call", [chance_of_success, chance_of_signal])
@pytest.mark.parametrize(("rates", "size"), [([1.5], 4), ([np.nan], 4), ([0.5], 0)])
def test_bad_input_is_refused(call, rates, size):
    with pytest.raises(ValueError, match="must"):
        call(rates, size)


def test_the_limit_without_a_success_is_where_the_chance_of_none_is_the_rest():
    """Prompts that are either always or never solved: B failures have probability (1 - mean)^B."""
    limit = most_success(40, 0.9)
    assert (1.0 - limit) ** 40 == pytest.approx(0.1, rel=1e-12)
    for size in (1, 8):
        for split in (0.2, 1.0):  # a share of the prompts has all of the mean
            rate = limit / split
            assert (1.0 - split + split * (1.0 - rate) ** size) ** 40 <= 0.1 + 1e-12


def test_a_log_of_failures_says_how_much_success_there_can_be():
    failures = RewardCounts.from_rewards(np.repeat(np.arange(59), 8), np.zeros(472))
    with pytest.raises(ValueError, match=r"mean success rate is at most 0\.05\. So is .* up to 8 responses"):
        check_informative(failures)
    with pytest.raises(ValueError, match=r"all are 1: they say nothing about a gradient$"):
        check_informative(RewardCounts.from_rewards(np.repeat(np.arange(59), 8), np.ones(472)))


@pytest.mark.parametrize(("spread", "difference"), [(1.0, 1.0), (2.0, -1.0), (0.3, 1.0), (5.0, 0.7)])
def test_unpaired_seeds_are_those_of_another_package(spread, difference):
    runs = gt.plan.unpaired_seeds_needed(spread, difference)
    power = TTestIndPower()
    at = [power.power(abs(difference) / spread, count, 0.05) for count in (runs, max(runs - 1, 2))]
    assert at[0] >= 0.8 - 1e-4
    assert runs == 2 or at[1] < 0.8 + 1e-4


def test_the_error_of_an_evaluation_is_the_spread_of_evaluations():
    rng = np.random.default_rng(4)
    laws = rng.choice([0.1, 0.7], 4000)
    rewards = (rng.random((4000, 6)) < laws[:, None]).astype(float)
    counts = RewardCounts.from_rewards(np.repeat(np.arange(4000), 6), rewards.ravel())
    exact = np.sqrt((0.09 + 0.15 / 3) / 50)
    assert gt.plan.evaluation_error(counts, 50, 3) == pytest.approx(exact, rel=0.02)
