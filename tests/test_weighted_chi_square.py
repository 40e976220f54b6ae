"""The weighted chi-square against scipy's chi2, Imhof's integral, and its own moments by sampling."""

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

import grpo_theory as gt

LEVELS = np.array([1e-12, 1e-9, 1e-4, 0.01, 0.3, 0.5, 0.7, 0.99])


def imhof(weights, q):
    """P(Q > q) by Imhof's (1961) oscillating integral, for at least four weights."""

    def integrand(u):
        angle = 0.5 * np.arctan(weights * u).sum() - 0.5 * q * u
        return np.sin(angle) / (u * np.prod((1.0 + (weights * u) ** 2) ** 0.25))

    return 0.5 + quad(integrand, 0.0, np.inf, limit=2000, epsabs=1e-11)[0] / np.pi


@pytest.mark.parametrize("n", [1, 2, 3, 10, 200])
@pytest.mark.parametrize("weight", [1.0, 1e-6, 37.0])
def test_equal_weights_are_a_scaled_chi_square(n, weight):
    law, reference = gt.WeightedChiSquare(np.full(n, weight)), stats.chi2(n, scale=weight)
    q = np.concatenate([reference.ppf(LEVELS), reference.isf(LEVELS)])
    np.testing.assert_allclose(law.cdf(q), reference.cdf(q), rtol=1e-11)
    np.testing.assert_allclose(law.sf(q), reference.sf(q), rtol=1e-11)
    np.testing.assert_allclose(law.pdf(q), reference.pdf(q), rtol=1e-11)
    np.testing.assert_allclose(law.ppf(LEVELS), reference.ppf(LEVELS), rtol=1e-11)
    assert law.mean() == pytest.approx(reference.mean())
    assert law.std() == pytest.approx(reference.std())
    assert law.skewness() == pytest.approx(float(reference.stats("s")))


def test_two_different_weights_against_convolution():
    law = gt.WeightedChiSquare([1.0, 0.2])
    for q in (0.05, 1.0, 4.0, 20.0):
        exact = quad(lambda x, q=q: stats.chi2(1).pdf(x) * stats.chi2(1).sf((q - x) / 0.2), 0.0, q, limit=500, epsabs=1e-13)[0]
        assert law.sf(q) == pytest.approx(exact + stats.chi2(1).sf(q), rel=1e-7)


@pytest.mark.parametrize("weights", [[3.0, 2.0, 1.0, 0.5, 0.1], 2.0 ** -np.arange(12), np.linspace(0.5, 1.5, 40)])
def test_different_weights_against_imhof(weights):
    law = gt.WeightedChiSquare(weights)
    for q in law.mean() * np.array([0.4, 1.0, 2.0]):
        assert law.sf(q) == pytest.approx(imhof(np.asarray(weights), q), abs=1e-8)


def test_far_tail_decays_as_its_largest_weight():
    law = gt.WeightedChiSquare([1.0, 0.5, 0.25])
    # P(Q > q) -> P(chi2 > q) prod (1 - w_k)^(-1/2) for the weights below the largest, 1.
    limit = stats.chi2(1).sf(200.0) / np.sqrt(0.5 * 0.75)
    assert law.sf(200.0) == pytest.approx(limit, rel=2e-2)
    assert 0.0 < law.sf(1000.0) < 1e-200


def test_tiny_weights_shift_by_their_mean():
    law = gt.WeightedChiSquare(np.append(np.full(1000, 1e-9), 1.0))
    np.testing.assert_allclose(law.sf([1.0, 9.0]), stats.chi2(1).sf(np.array([1.0, 9.0]) - 1e-6), rtol=1e-6)


def test_edges_and_inverse():
    law = gt.WeightedChiSquare([1.0, 0.0, 0.3])
    assert law.weights.tolist() == [1.0, 0.3]
    assert law.cdf([-1.0, 0.0, np.inf]).tolist() == [0.0, 0.0, 1.0]
    assert law.sf([-1.0, 0.0, np.inf]).tolist() == [1.0, 1.0, 0.0]
    assert law.ppf([0.0, 1.0]).tolist() == [0.0, np.inf]
    assert law.pdf(0.0) == pytest.approx(0.5 / np.sqrt(0.3))
    assert gt.WeightedChiSquare([2.0]).pdf(0.0) == np.inf
    assert gt.WeightedChiSquare([1.0, 1.0, 1.0]).pdf(0.0) == 0.0
    np.testing.assert_allclose(law.cdf(law.ppf([1e-9, 0.2, 0.9])), [1e-9, 0.2, 0.9], rtol=1e-12)
    assert "n=2" in repr(law)


def test_draws_follow_the_law_and_a_wrong_law_is_told_apart(seed):
    law = gt.WeightedChiSquare([1.0, 0.4, 0.1])
    draws = law.rvs(20_000, rng=seed(17))
    assert stats.kstest(draws[:4000], law.cdf).pvalue > 1e-6
    assert stats.kstest(draws[:4000], gt.WeightedChiSquare([1.15, 0.46, 0.115]).cdf).pvalue < 1e-6
    assert abs(draws.mean() - law.mean()) < 4.9 * law.std() / np.sqrt(20_000)
    assert np.array_equal(draws, law.rvs(20_000, rng=seed(17)))
    assert law.rvs(rng=1).shape == ()
    assert law.rvs((2, 3), rng=1).shape == (2, 3)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([-1.0, 2.0], "weights must not be negative, got -1"),
        ([0.0, 0.0], "weights must have at least one above 0"),
        ([np.nan], "weights must be finite"),
        ([], "weights must not be empty"),
    ],
)
def test_bad_weights(weights, message):
    with pytest.raises(ValueError, match=message):
        gt.WeightedChiSquare(weights)


def test_bad_arguments():
    law = gt.WeightedChiSquare([1.0])
    with pytest.raises(ValueError, match=r"p must lie in \[0, 1\]"):
        law.ppf(1.5)
    with pytest.raises(ValueError, match="q must not be NaN"):
        law.cdf(np.nan)


def test_beyond_the_smallest_number_the_tail_is_zero_at_once():
    law = gt.WeightedChiSquare(np.linspace(0.5, 1.0, 32))
    assert law.sf(1480.0) > 0.0
    assert law.sf(5e4) == 0.0
    assert law.cdf(5e4) == 1.0
    assert law.cdf(1e-60) == 0.0
