"""What rewards alone tell: the likeliest law of success rates, shares of groups that are all alike, what groups leave open."""

from itertools import combinations, product
from math import factorial

import numpy as np
import pytest
from rates import drawn, table
from scipy.stats import beta, betabinom, binom, norm
from scipy.stats import t as student
from statsmodels.stats.power import TTestIndPower

import grpo_theory as gt
from grpo_theory.plan.advice import check_informative
from grpo_theory.plan.average import mean_limits, ratio_limit
from grpo_theory.plan.beta_rates import beta_quadrature
from grpo_theory.plan.effective import share_terms
from grpo_theory.plan.success_chances import chance_of_signal, chance_of_success, most_success

RATES = np.random.default_rng(20261122).beta(0.3, 0.5, 200)
GRADED = gt.RewardCounts.from_rewards(
    [0] * 5 + [1] * 7 + [2] * 4 + [3] * 6, [0, 0, 1, 1, 2, 0, 0, 0, 0, 0, 0, 1, 2, 2, 2, 2, 0, 0.5, 1, 2, 2, 2]
)
"""Four prompts of 5, 7, 4 and 6 responses with four rewards."""


def log_likelihood(counts, atoms, weights):
    return np.log(binom.pmf(counts.successes[:, None], counts.sizes[:, None], atoms) @ weights).sum()


@pytest.mark.parametrize("size", [1, 2, 8, 40])
def test_no_law_is_likelier_than_the_gap_allows(size):
    counts = drawn(RATES, size, 1)
    found = gt.plan.fit_success_rates(counts)
    assert found.gap < 1e-4
    assert found.log_likelihood == pytest.approx(log_likelihood(counts, found.atoms, found.weights), rel=1e-10)
    rng = np.random.default_rng(2)
    for share in (1e-3, 0.1, 1.0) * 10:
        weights = np.append((1.0 - share) * found.weights, share * rng.dirichlet(np.ones(30)))
        rival = log_likelihood(counts, np.append(found.atoms, rng.random(30)), weights)
        assert rival <= found.log_likelihood + counts.prompts * found.gap
    for share in (0.0, 0.1, 0.5, 1.0):
        at = float(found.quantile(share))
        assert found.cdf(at - 1e-9) <= share <= found.cdf(at) + 1e-9


def test_counts_of_a_law_give_back_its_moments():
    """Counts in the proportions of a law: its first n moments are the likeliest law's."""
    atoms, weights, size = np.array([0.0, 0.5, 1.0]), np.array([0.25, 0.5, 0.25]), 4
    prompts = np.round(64 * weights @ binom.pmf(np.arange(size + 1), size, atoms[:, None])).astype(int)
    found = gt.plan.fit_success_rates(table(np.repeat(np.arange(size + 1), prompts), size))
    for power in range(size + 1):
        assert found.average(lambda rate, power=power: rate**power) == pytest.approx(weights @ atoms**power, abs=1e-4)
    assert (found.mean, found.variance) == (pytest.approx(0.5, abs=1e-4), pytest.approx(0.125, abs=1e-4))
    equal = table([4] * 50, 8)  # less variation than binomial counts have
    assert gt.plan.fit_success_rates(equal).variance < 1e-4
    assert gt.plan.fit_beta_rates(equal).variance < 1e-6
    assert gt.plan.fit_success_rates(table([1, 4, 0], [2, 5, 3])).moments == 5, "those of the largest group"


def test_the_beta_law_is_the_likeliest_of_its_kind():
    prompts = np.round(1e5 * betabinom.pmf(np.arange(9), 8, 0.7, 1.6)).astype(int)
    counts = table(np.repeat(np.arange(9), prompts), 8)
    found = gt.plan.fit_beta_rates(counts)
    assert (found.a, found.b) == pytest.approx((0.7, 1.6), rel=2e-3)
    likelihood = prompts @ betabinom.logpmf(np.arange(9), 8, found.a, found.b)
    assert found.log_likelihood == pytest.approx(likelihood, rel=1e-10)
    for a, b in ((1.02, 1.0), (1.0, 1.02), (0.98, 0.98)):
        assert prompts @ betabinom.logpmf(np.arange(9), 8, a * found.a, b * found.b) < likelihood
    assert gt.plan.fit_success_rates(counts).log_likelihood >= found.log_likelihood - prompts.sum() * 1e-6
    assert found.average(lambda rate: rate**2) == pytest.approx(found.variance + found.mean**2, rel=1e-10)
    for a, b in ((0.3, 0.5), (2.0, 2.0), (1e-4, 2e-4), (200.0, 1800.0), (4.5e5, 7.5e5)):
        points, weights = beta_quadrature(a, b, 8)
        for power in range(16):
            moment = np.prod([(a + j) / (a + b + j) for j in range(power)])
            assert weights @ points**power == pytest.approx(moment, rel=1e-10)


def test_limits_of_a_mean_cover_by_all_counts():
    """Terms of 0 and 1: exact coverage over the binomial law, least over the probability; narrower limits do not cover."""
    size, shares = 32, np.linspace(0.001, 0.999, 999)[:, None]
    low, high = np.array([mean_limits(np.repeat([1.0, 0.0], [k, size - k]), 0.0, 1.0, 8 * size, 0.95) for k in range(size + 1)]).T
    middle, chances = 0.5 * (low + high), binom.pmf(np.arange(size + 1), size, shares)
    for factor, least in ((1.0, 0.95), (0.6, 0.0)):
        inside = np.abs(shares - middle) <= factor * (high - middle)
        covered = (chances * inside).sum(axis=1).min()
        assert covered >= least
    assert covered < 0.9
    # Eight equal terms in the middle: four unseen ones leave a variance of 1/11, which is worth 22 draws (Korn and Graubard).
    worth = 22.0 * (norm.ppf(0.025) / student.ppf(0.025, 7)) ** 2
    assert mean_limits(np.full(8, 0.5), 0.0, 1.0, 10**6, 0.95)[0] == pytest.approx(beta.ppf(0.025, worth / 2, worth / 2 + 1))


def test_limits_of_a_ratio_are_where_the_test_turns():
    rng = np.random.default_rng(3)
    bottom = rng.random(40) + 0.5
    top = 0.7 * bottom + 0.2 * rng.random(40)
    low, high = (ratio_limit(top, bottom, 0.95, above=above) for above in (False, True))
    for limit in (low, high):
        difference = top - limit * bottom
        assert abs(difference.mean() / (difference.std(ddof=1) / np.sqrt(40))) == pytest.approx(2.0226909, abs=1e-6)
    assert low < top.mean() / bottom.mean() < high


def test_what_groups_leave_open_narrows_with_their_size_and_holds_the_truth():
    rates, wide = np.array([0.2, 0.5, 0.8]), []
    truth = (RATES[:, None] <= rates).mean(axis=0)
    for size in (2, 8, 64):
        found = gt.plan.bound_success_rates(drawn(np.tile(RATES, 50), size, 8), rates)
        assert found.covers(truth).all()
        assert ((found.low <= found.estimate) & (found.estimate <= found.high)).all()
        wide.append(found.width)
    assert (np.diff(wide, axis=0) < 0.0).all()


def test_a_measured_share_is_that_of_all_subsets_and_what_is_not_measured_says_so():
    rewards = [np.repeat(GRADED.values, row) for row in GRADED.counts.toarray()]
    found = gt.plan.estimate_uniform_shares(GRADED, [1, 2, 3, 4, 5, 6, 8])
    np.testing.assert_array_equal(found.measured, [1.0, 1.0, 1.0, 1.0, 0.75, 0.5, 0.0])
    assert ((found.interval.low <= found.interval.estimate) & (found.interval.estimate <= found.interval.high)).all()
    for size in (1, 2, 3, 4):
        shares = [np.mean([np.ptp(group) == 0.0 for group in combinations(one, size)]) for one in rewards]
        assert found.interval.estimate[size - 1] == pytest.approx(np.mean(shares), abs=1e-12)
        if size > 1:
            assert found.interval.standard_error[size - 1] == pytest.approx(np.std(shares, ddof=1) / 2.0, abs=1e-12)


@pytest.mark.parametrize("law", [(0.2, 0.3, 0.5), (0.0, 0.02, 0.98), (1 / 3, 1 / 3, 1 / 3), (0.0, 0.0, 1.0)])
def test_terms_of_three_rewards_are_on_their_sides_by_all_counts(law):
    """The exact means of the terms, over all counts of five responses with three rewards."""
    size, law = 5, np.array(law)
    counts = np.array([(a, b, size - a - b) for a in range(size + 1) for b in range(size + 1 - a)])
    orders = np.array([factorial(size) / np.prod([factorial(int(k)) for k in row]) for row in counts])
    chances = orders * (law**counts).prod(axis=1)
    for group_size in (2, 5, 6, 9, 40):
        terms = share_terms(gt.RewardCounts(np.arange(3.0), counts), group_size)
        below, truth, above = chances @ terms.below, (law**group_size).sum(), chances @ terms.above
        assert terms.measured == (group_size <= size)
        assert below == pytest.approx(truth, abs=1e-12) or not terms.measured
        assert below - 1e-9 <= truth <= above + 1e-9


@pytest.mark.parametrize("size", [1, 2, 5])
def test_chances_are_sums_over_all_groups(size):
    groups = np.array(list(product([0, 1], repeat=size)))
    for rate in (0.0, 1e-4, 0.3, 0.9, 1.0):
        chance = np.prod(np.where(groups == 1, rate, 1.0 - rate), axis=1)
        solved = groups.sum(axis=1)
        assert chance_of_success(rate, size) == pytest.approx(chance[solved > 0].sum(), abs=1e-12)
        assert chance_of_signal(rate, size) == pytest.approx(chance[(solved > 0) & (solved < size)].sum(), abs=1e-12)
    assert chance_of_success(1e-20, 8) == pytest.approx(8e-20, rel=1e-12), "far rarer than rounding"


def test_the_limit_without_a_success_is_where_the_chance_of_none_is_the_rest():
    """Prompts that are either always or never solved: B failures have probability (1 - mean)^B."""
    limit = most_success(40, 0.9)
    assert (1.0 - limit) ** 40 == pytest.approx(0.1, rel=1e-12)


def test_limits_of_the_mean_reward_hold_for_prompts_and_not_for_their_repeated_groups():
    """Of 300 tables 95% are 285, with a standard deviation of 4; the control counts every group of 12 prompts as a prompt."""
    rng, held = np.random.default_rng(20261122), np.zeros((300, 2))
    for k in range(300):
        rates = rng.beta(0.5, 0.5, 12)
        every = drawn(np.tile(rates, 20), 8, [k, 1])
        for place, counts in enumerate((table(every.successes[:12], 8), every)):
            found = gt.plan.effective_sample_size(counts).mean_reward
            held[k, place] = found.low <= 0.5 <= found.high
    assert held[:, 0].mean() >= 0.9
    assert held[:, 1].mean() < 0.6


@pytest.mark.parametrize(("spread", "difference"), [(1.0, 1.0), (2.0, -1.0), (0.3, 1.0), (5.0, 0.7)])
def test_unpaired_seeds_are_those_of_another_package(spread, difference):
    runs = gt.plan.unpaired_seeds_needed(spread, difference)
    at = [TTestIndPower().power(abs(difference) / spread, count, 0.05) for count in (runs, max(runs - 1, 2))]
    assert at[0] >= 0.8 - 1e-4
    assert runs == 2 or at[1] < 0.8 + 1e-4


def test_the_error_of_an_evaluation_is_the_spread_of_evaluations():
    rng = np.random.default_rng(4)
    counts = table(rng.binomial(6, rng.choice([0.1, 0.7], 4000)), 6)
    assert gt.plan.evaluation_error(counts, 50, 3) == pytest.approx(np.sqrt((0.09 + 0.15 / 3) / 50), rel=0.02)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gt.plan.fit_success_rates(gt.RewardCounts.from_rewards([0, 0], [1.0, 1.0])), "all are 1"),
        (lambda: gt.plan.fit_beta_rates(gt.RewardCounts.from_rewards([0, 0, 0], [0.0, 0.5, 1.0])), "there are 3"),
        (lambda: gt.plan.estimate_uniform_shares(table([1, 0], 1), [2]), "two responses"),
        (lambda: check_informative(gt.RewardCounts.from_rewards(np.repeat(np.arange(59), 8), np.zeros(472))),
         r"mean success rate is at most 0\.05\. So is .* up to 8 responses"),
    ],
)  # fmt: skip
def test_what_cannot_be_had_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
