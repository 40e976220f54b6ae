"""What rewards alone tell: the likeliest law of success rates, shares of groups that are all alike, what groups leave open."""

from itertools import combinations

import numpy as np
import pytest
from rates import drawn, table
from scipy.optimize import linprog
from scipy.stats import beta, betabinom, binom, multinomial, norm
from scipy.stats import t as student
from statsmodels.stats.power import TTestIndPower

import grpo_theory as gt
from grpo_theory.plan import success_rates
from grpo_theory.plan.advice import check_informative

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
    assert (found.mean, found.variance) == pytest.approx(beta.stats(found.a, found.b), rel=1e-12)


def measured(terms, responses=0):
    """Return terms of means between 0 and 1 that are measured."""
    return success_rates.Terms(terms, terms, (0.0, 1.0), (0.0, 1.0), responses)


def test_limits_of_a_mean_cover_by_all_counts():
    """Terms of 0 and 1: exact coverage over the binomial law, least over the probability; narrower limits do not cover."""
    size, shares = 32, np.linspace(0.001, 0.999, 999)[:, None]
    terms = np.tril(np.ones((size + 1, size)), -1)  # of every count
    low, high = success_rates.mean_limits(measured(terms, 8 * size), 0.95)
    middle, chances = 0.5 * (low + high), binom.pmf(np.arange(size + 1), size, shares)
    for factor, least in ((1.0, 0.95), (0.6, 0.0)):
        inside = np.abs(shares - middle) <= factor * (high - middle)
        covered = (chances * inside).sum(axis=1).min()
        assert covered >= least
    assert covered < 0.9
    # Eight equal terms in the middle: four unseen ones leave a variance of 1/11, which is worth 22 draws (Korn and Graubard).
    worth = 22.0 * (norm.ppf(0.025) / student.ppf(0.025, 7)) ** 2
    low = success_rates.mean_limits(measured(np.full(8, 0.5), 10**6), 0.95)[0]
    assert low == pytest.approx(beta.ppf(0.025, worth / 2, worth / 2 + 1))


def test_limits_of_a_ratio_are_where_the_test_turns():
    rng = np.random.default_rng(3)
    bottom = rng.random(40) + 0.5
    top = 0.7 * bottom + 0.2 * rng.random(40)
    low, high = success_rates.ratio_limits(measured(top), measured(bottom), 0.95, (-np.inf, np.inf))
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
    told = np.isfinite(found.interval.estimate)
    assert told[:4].all()
    assert ((found.interval.low <= found.interval.estimate) & (found.interval.estimate <= found.interval.high))[told].all()
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
    chances = multinomial.pmf(counts, size, law)
    for group_size in (2, 5, 6, 9, 40):
        terms = success_rates.share_terms(gt.RewardCounts(np.arange(3.0), counts), group_size)
        below, truth, above = chances @ terms.below, (law**group_size).sum(), chances @ terms.above
        measured = terms.below is terms.above
        assert measured == (group_size <= size)
        assert below == pytest.approx(truth, abs=1e-12) or not measured
        assert below - 1e-9 <= truth <= above + 1e-9


def test_the_limit_without_a_success_is_where_the_chance_of_none_is_the_rest():
    """Prompts that are either always or never solved: B failures have probability (1 - mean)^B."""
    assert (1.0 - success_rates.most_success(40, 0.9)) ** 40 == pytest.approx(0.1, rel=1e-12)


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


def equal(rates, size):
    """Return the chance that a group of a size has one reward."""
    return np.asarray(rates) ** size + (1.0 - np.asarray(rates)) ** size


def counts_of(law, size, prompts):
    """Return the counts of a law of atoms and weights, of so many prompts in whole numbers."""
    atoms, weights = np.array(law).T
    each = prompts * weights @ binom.pmf(np.arange(size + 1), size, atoms[:, None])
    assert np.abs(each - each.round()).max() < 1e-9
    return table(np.repeat(np.arange(size + 1), each.round().astype(int)), size)


@pytest.mark.parametrize("group_size", [4, 8, 16])
@pytest.mark.parametrize(
    ("law", "size", "prompts", "u"),
    [
        (((0.0, 0.25), (0.5, 0.5), (1.0, 0.25)), 2, 64, 0.125),
        (((0.25, 0.5), (0.75, 0.5)), 2, 64, 0.1875),
        (((0.0, 0.25), (0.5, 0.5), (1.0, 0.25)), 3, 64, 0.125),
        (((0.5, 1.0),), 2, 64, 0.25),
    ],
)
def test_the_range_of_the_likeliest_laws_is_attained_by_known_ones(law, size, prompts, u, group_size):
    """Pairs and triples of a law that is even about 1/2 show E u, u = p (1-p), and nothing else of what p^G + (1-p)^G means.

    It is convex in u. The most is that of u at 0 and 1/4 alone, the least that of one u (Jensen), (1 -+ sqrt(1 - 4 u))/2.
    """
    counts = counts_of(law, size, prompts)
    low, high = success_rates.likeliest_range(counts, group_size, gt.plan.fit_success_rates(counts))
    rate = 0.5 - np.sqrt(0.25 - u)
    assert high == pytest.approx((1.0 - 4.0 * u) + 4.0 * u * equal(0.5, group_size), abs=1e-12)
    on_the_grid = rate in (0.25, 0.5)
    assert low == pytest.approx(equal(rate, group_size), abs=1e-12 if on_the_grid else 2e-6)
    truth = np.array(law)[:, 1] @ equal(np.array(law)[:, 0], group_size)
    assert low - 1e-9 <= truth <= high + 1e-9


def test_what_pairs_do_not_tell_is_not_told():
    """F22 and F11 of the logs that were read wrong: limits for all laws, an estimate where these leave little open."""
    found = gt.plan.estimate_uniform_shares(table([0] * 25 + [2] * 25 + [1] * 50, 2), [2, 4, 8, 16])
    np.testing.assert_allclose(found.identified[1:, 1], 0.5 ** np.array([3.0, 7.0, 15.0]), atol=1e-9)
    assert found.interval.estimate[1] == pytest.approx(0.125, abs=1e-6)
    assert found.interval.high[1] < 0.31, "98 of 100 laws: 40% of 100 pairs mixed leave 1 - 3.5 (0.4/2)"
    pairs = drawn(np.full(536, 0.18), 2, 11)
    found = gt.plan.estimate_uniform_shares(pairs, [2, 4, 8, 16])
    truth = equal(0.18, np.array([2, 4, 8, 16]))
    assert ((found.interval.low <= truth) & (truth <= found.interval.high)).all()
    assert found.interval.high[3] - found.interval.low[3] > 0.3
    assert found.responses.tolist() == [2, 2, 4, 6]
    wide = counts_of(((0.0, 0.25), (0.5, 0.5), (1.0, 0.25)), 2, 64)
    assert np.isnan(gt.plan.estimate_uniform_shares(wide, [8]).interval.estimate[0])


def test_limits_of_shares_fall_with_the_size_as_shares_do():
    """Of 64 responses those of 128 would be wider than those of 64, which are measured: 30 tables, sizes in any order."""
    sizes = [64, 2, 128, 16]
    for seed in range(30):
        counts = drawn(RATES[:30], 64, [9, seed])
        alone = [gt.plan.estimate_uniform_shares(counts, [size]).interval for size in sizes]
        found = gt.plan.estimate_uniform_shares(counts, sizes).interval
        order = np.argsort(sizes)
        assert (np.diff([found.high[order], found.low[order]]) <= 0.0).all()
        assert (found.high[2], found.low[1]) == (min(one.high[0] for one in alone), max(one.low[0] for one in alone))
        assert not (found.estimate > found.high).any()
        if alone[2].high > alone[0].high:
            return
    pytest.fail("no table in which it matters")


@pytest.mark.parametrize("group_size", [4, 6, 11])
def test_no_two_laws_of_the_same_moments_differ_by_more_than_the_theorem_says(group_size):
    """Against a linear program over pairs of laws with n common moments: the greatest difference of the two shares."""
    grid = np.sin(np.linspace(0.0, np.pi / 2.0, 201)) ** 2
    places = np.arange(2 * group_size + 1)
    walk, steps = binom.pmf(places, 2 * group_size, 0.5), np.abs(places - group_size)
    for n in range(2, group_size):
        powers = np.polynomial.chebyshev.chebvander(2.0 * grid - 1.0, n).T
        total = np.repeat(np.eye(2), grid.size, axis=1)
        kept, value = np.vstack([np.hstack([powers, -powers]), total]), equal(grid, group_size)
        wide = -linprog(np.append(-value, value), A_eq=kept, b_eq=np.append(np.zeros(n + 1), np.ones(2))).fun
        bound = 4.0 * walk[(steps > n) & (steps % 2 == 0)].sum()
        assert wide <= bound + 1e-9
        assert wide >= 0.5 * bound - 1e-9, "no more than twice what it is"
        assert (bound <= 0.05) == (success_rates.responses_to_tell(group_size) <= n)


def test_what_cannot_be_had_is_refused(check_refused):
    check_refused(
        (lambda: gt.plan.fit_success_rates(gt.RewardCounts.from_rewards([0, 0], [1.0, 1.0])), "different rewards.*got 1"),
        (lambda: gt.plan.fit_beta_rates(gt.RewardCounts.from_rewards([0, 0, 0], [0.0, 0.5, 1.0])), "got 3"),
        (lambda: gt.plan.estimate_uniform_shares(table([1, 0], 1), [2]), "two responses"),
        (lambda: gt.plan.split_variance(table([1], 4)), "at least 2 prompts"),
        (lambda: check_informative(gt.RewardCounts.from_rewards(np.repeat(np.arange(59), 8), np.zeros(472))),
         r"mean success rate is at most 0\.05\. So is .* up to 8 responses"),
    )  # fmt: skip
