"""The likeliest law of success rates: certificates, other algorithms, exact moments; and what groups leave open."""

import numpy as np
import pytest
from rates import drawn, table
from scipy.optimize import minimize
from scipy.stats import betabinom, binom

import grpo_theory as gt
from grpo_theory.plan.beta_rates import beta_quadrature
from grpo_theory.plan.brackets import bernstein, beta_binomial, elevated
from grpo_theory.plan.success_rates import Cells, likeliest_law

RATES = np.random.default_rng(20261122).beta(0.3, 0.5, 200)


def log_likelihood(counts, atoms, weights):
    return np.log(binom.pmf(counts.successes[:, None], counts.sizes[:, None], atoms) @ weights).sum()


@pytest.mark.parametrize("size", [1, 2, 8, 40])
def test_no_law_is_likelier_than_the_gap_allows(size):
    counts = drawn(RATES, size, 1)
    found = gt.plan.fit_success_rates(counts)
    assert found.weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert found.gap < 1e-4
    assert found.log_likelihood == pytest.approx(log_likelihood(counts, found.atoms, found.weights), rel=1e-10)
    rivals = np.random.default_rng(2).dirichlet(np.ones(30), 50), np.random.default_rng(3).random((50, 30))
    for weights, atoms in zip(*rivals, strict=True):
        for share in (1e-3, 0.1, 1.0):
            mixed = np.append((1.0 - share) * found.weights, share * weights)
            rival = log_likelihood(counts, np.append(found.atoms, atoms), mixed)
            assert rival <= found.log_likelihood + counts.prompts * found.gap


def test_another_algorithm_finds_the_same_likelihood_and_a_worse_law_is_told():
    counts = table([0, 1, 1, 2, 5, 6, 3, 0, 6, 6, 2], 6)
    found = gt.plan.fit_success_rates(counts)

    def loss(parameters):
        atoms, logits = 0.5 + np.arctan(parameters[:5]) / np.pi, parameters[5:]
        weights = np.exp(logits - logits.max())
        return -log_likelihood(counts, atoms, weights / weights.sum())

    starts = np.random.default_rng(4).normal(size=(4, 10))
    best = min(minimize(loss, start, method="BFGS").fun for start in starts)
    assert best == pytest.approx(-found.log_likelihood, abs=counts.prompts * found.gap + 1e-4)
    moved = log_likelihood(counts, np.clip(found.atoms + 0.02, 0.0, 1.0), found.weights)
    assert moved < found.log_likelihood - 100 * counts.prompts * found.gap


def test_counts_of_a_law_give_back_its_moments():
    """Counts in the proportions of a law: its first n moments are the likeliest law's."""
    atoms, weights, size = np.array([0.0, 0.5, 1.0]), np.array([0.25, 0.5, 0.25]), 4
    prompts = 64 * weights @ binom.pmf(np.arange(size + 1), size, atoms[:, None])
    np.testing.assert_allclose(prompts, np.round(prompts), rtol=1e-12)
    found = gt.plan.fit_success_rates(table(np.repeat(np.arange(size + 1), np.round(prompts).astype(int)), size))
    for power in range(size + 1):
        assert found.average(lambda rate, power=power: rate**power) == pytest.approx(weights @ atoms**power, abs=1e-4)
    assert found.mean == pytest.approx(0.5, abs=1e-4)
    assert found.variance == pytest.approx(0.125, abs=1e-4)
    assert found.moments == size


def test_cdf_and_quantiles_are_those_of_the_atoms():
    found = gt.plan.fit_success_rates(drawn(RATES, 8, 5))
    for rate in (-0.1, 0.0, 0.3, float(found.atoms[1]), 1.0, 2.0):
        assert found.cdf(rate) == pytest.approx(found.weights[found.atoms <= rate].sum(), abs=1e-12)
    for share in (0.0, 0.1, 0.5, 1.0):
        at = float(found.quantile(share))
        assert found.cdf(at) >= share - 1e-9
        assert found.cdf(at - 1e-9) <= share
    with pytest.raises(ValueError, match="share"):
        found.quantile(1.1)


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
    assert found.cdf(found.quantile(0.3)) == pytest.approx(0.3, abs=1e-10)


@pytest.mark.parametrize(("a", "b"), [(0.3, 0.5), (0.5, 0.5), (2.0, 2.0), (1e-4, 2e-4), (200.0, 1800.0), (4.5e5, 7.5e5)])
def test_quadrature_is_exact_for_polynomials(a, b):
    points, weights = beta_quadrature(a, b, 8)
    for power in range(16):
        moment = np.prod([(a + j) / (a + b + j) for j in range(power)])
        assert weights @ points**power == pytest.approx(moment, rel=1e-10)


def test_quadrature_of_two_points_misses_the_fourth_moment_by_what_theory_says():
    points, weights = beta_quadrature(1.0, 1.0, 2)
    assert weights @ points**4 == pytest.approx(1.0 / 5.0 - 1.0 / 180.0, rel=1e-12)


def test_equal_rates_leave_no_variance():
    counts = table([4] * 50, 8)  # less variation than binomial counts have
    assert gt.plan.fit_success_rates(counts).variance < 1e-4
    beta = gt.plan.fit_beta_rates(counts)
    assert beta.variance < 1e-6
    assert beta.average(lambda rate: rate**3) == pytest.approx(0.125, abs=1e-6)


def test_ragged_groups_and_a_million_prompts_are_a_few_cells():
    rng = np.random.default_rng(6)
    sizes = rng.integers(1, 20, 1_000_000)
    found = likeliest_law(Cells.of(table(rng.binomial(sizes, 0.3), sizes)))
    assert found.weights @ found.atoms == pytest.approx(0.3, abs=1e-3)
    assert found.gap < 1e-5


def test_the_counts_identify_as_many_moments_as_the_largest_group_has_responses():
    sizes = np.array([2, 5, 3])
    assert gt.plan.fit_success_rates(table(np.array([1, 4, 0]), sizes)).moments == 5


def test_polynomials_keep_their_values_in_a_higher_degree():
    rates = np.linspace(0.0, 1.0, 11)
    coefficients = np.random.default_rng(7).normal(size=5)
    values = bernstein(4, rates) @ coefficients
    for size in (4, 5, 64, 1000):
        np.testing.assert_allclose(bernstein(size, rates) @ elevated(coefficients, size), values, atol=1e-10)
    np.testing.assert_allclose(beta_binomial(7, 0.4, 2.0), betabinom.pmf(np.arange(8), 7, 0.4, 2.0), atol=1e-14)


def test_what_groups_leave_open_narrows_with_their_size_and_holds_the_truth():
    rates, wide = np.array([0.2, 0.5, 0.8]), []
    truth = (RATES[:, None] <= rates).mean(axis=0)
    for size in (2, 8, 64):
        found = gt.plan.bound_success_rates(drawn(np.tile(RATES, 50), size, 8), rates)
        assert found.covers(truth).all()
        assert ((found.low <= found.estimate) & (found.estimate <= found.high)).all()
        wide.append(found.width)
    assert (np.diff(wide, axis=0) < 0.0).all()


@pytest.mark.parametrize("function", [gt.plan.fit_success_rates, gt.plan.fit_beta_rates])
@pytest.mark.parametrize(("rewards", "message"), [([1.0, 1.0], "all are 1"), ([0.0, 0.5, 1.0], "there are 3")])
def test_rewards_that_are_not_two(function, rewards, message):
    with pytest.raises(ValueError, match=message):
        function(gt.RewardCounts.from_rewards(np.zeros(len(rewards), dtype=int), rewards))
