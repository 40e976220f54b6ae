"""The weighted chi-square against scipy's chi2, Ruben's mixture, Imhof's integral, itself, and its own moments by sampling."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import gamma

import grpo_theory as gt

LEVELS = np.array([1e-12, 1e-9, 1e-4, 0.01, 0.3, 0.5, 0.7, 0.99])


def ruben(weights, q, terms):
    """P(Q <= q), P(Q > q) and the density by Ruben's (1962) mixture of chi-squares: positive terms only, so no digit is lost."""
    weights, q = np.asarray(weights), np.asarray(q)
    least, rest = weights.min(), 1.0 - weights.min() / weights
    powers = np.array([(rest**m).sum() for m in range(1, terms)])
    shares = np.zeros(terms)
    shares[0] = np.prod(np.sqrt(least / weights))
    for k in range(1, terms):
        shares[k] = powers[:k][::-1] @ shares[:k] / (2.0 * k)
    assert shares.sum() == pytest.approx(1.0, abs=1e-13)
    mixed = stats.chi2(len(weights) + 2.0 * np.arange(terms)[:, None], scale=least)
    return shares @ mixed.cdf(q), shares @ mixed.sf(q), shares @ mixed.pdf(q)


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


@pytest.mark.parametrize(
    ("weights", "terms"),
    [([1.0, 0.2], 300), ([1.0, 1.0, 0.3, 0.3], 300), ([3.0, 2.0, 1.0, 0.5, 0.1], 1500), (np.linspace(0.5, 1.5, 40), 600)],
)
def test_different_weights_against_a_mixture_in_both_tails(weights, terms):
    law = gt.WeightedChiSquare(weights)
    mean, deviation = law.mean(), law.std()
    q = np.concatenate([mean * 10.0 ** -np.arange(0.0, 9.0), mean + deviation * np.array([1.0, 3.0, 8.0, 15.0])])
    for found, expected in zip((law.cdf(q), law.sf(q), law.pdf(q)), ruben(weights, q, terms), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-11)
    assert law.cdf(q).min() < 2e-8
    assert law.sf(q).min() < 1e-5


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


def many_weights(shape):
    """Weights over ten orders of magnitude, some 0, some equal."""
    rng = np.random.default_rng(23)
    weights = 10.0 ** rng.uniform(-10.0, 0.0, size=shape) * (rng.random(shape) < 0.8)
    weights[..., 0], weights[..., 1] = 1.0, weights[..., 2]
    return weights


def test_many_laws_at_once_are_each_their_own():
    weights = many_weights((4, 3, 6))
    weights[0, 0] = 2.5
    weights[0, 1, 1:] = 0.0
    together = gt.WeightedChiSquare(weights)
    alone = [[gt.WeightedChiSquare(row) for row in rows] for rows in weights]
    q = together.mean() * np.geomspace(1e-12, 30.0, 5)[:, None, None]
    p = np.array([1e-300, 1e-9, 0.3, 0.99])[:, None, None]
    for name, arguments in (("cdf", q), ("sf", q), ("pdf", q), ("ppf", p)):
        found = getattr(together, name)(arguments)
        assert found.shape == (len(arguments), 4, 3)
        for i, j in np.ndindex(4, 3):
            expected = getattr(alone[i][j], name)(np.broadcast_to(arguments, found.shape)[:, i, j])
            np.testing.assert_allclose(found[:, i, j], expected, rtol=1e-12, err_msg=name)
    for name in ("mean", "var", "std", "skewness"):
        expected = [[getattr(law, name)() for law in laws] for laws in alone]
        np.testing.assert_allclose(getattr(together, name)(), expected, rtol=1e-14, err_msg=name)
    assert repr(together) == "WeightedChiSquare(laws=(4, 3), n=6)"


@pytest.mark.parametrize("weights", [[1.0], [2.0, 0.5], [1.0, 0.5, 0.25], [1.0, 1.0, 1e-8, 1e-8]])
def test_tiny_arguments(weights):
    """P(Q <= q) = q^(n/2) / {2^(n/2) Gamma(n/2 + 1) prod sqrt(w)} to the last digit, and its inverse."""
    law, n = gt.WeightedChiSquare(weights), len(weights)
    volume = 1.0 / (2.0 ** (n / 2) * gamma(n / 2 + 1) * np.prod(np.sqrt(weights)))
    for q in (1e-160, 1e-100, 1e-40):
        expected = np.exp(np.log(volume) + n / 2 * np.log(q))
        assert law.cdf(q) == pytest.approx(expected, rel=1e-12, abs=1e-322)
        assert law.pdf(q) == pytest.approx(0.5 * n * volume * q ** (n / 2 - 1), rel=1e-12, abs=0.0)
        assert law.sf(q) == 1.0 - expected
    for p in (1e-300, 1e-200, 1e-100):
        q = law.ppf(p)
        assert q == pytest.approx((p / volume) ** (2 / n), rel=1e-11, abs=0.0)
        assert q == 0.0 or law.cdf(q) == pytest.approx(p, rel=1e-12)


def test_limits_of_a_distance_are_those_of_massarts_inequality():
    """P(distance of the distribution functions > h) <= 2 exp(-2 R h^2) (Massart 1990)."""
    law = gt.WeightedChiSquare([1.0, 0.4])
    found = law.compare(2.0 * law.rvs(400, rng=3), level=0.9)
    assert 2.0 * np.exp(-2.0 * 400 * (found.high - found.estimate) ** 2) == pytest.approx(0.1, rel=1e-12)
    assert found.estimate - found.low == pytest.approx(found.high - found.estimate, rel=1e-12)
