"""Limits that allow for heavy tails: quantiles against draws, L-skewness against its definition, and the study's truths."""

from itertools import combinations

import numpy as np
import pytest
from pilots import draw, gentle_case, pick
from scipy.special import stdtrit

from grpo_theory.intervals.interval import (
    LARGEST,
    SPREADS,
    l_skewness,
    student_coverage,
    tail_quantiles,
    tail_table,
)
from grpo_theory.plan import Limits, choose_group_size
from grpo_theory.plan.group_size import choose


def test_l_skewness_is_the_mean_over_triples():
    """Of three: the mean of (largest - 2 middle + smallest)/3 over that of (larger - smaller)/2 of pairs (Hosking 1990)."""
    values = np.random.default_rng(1).lognormal(0.0, 1.0, 9)
    third = np.mean([(c - 2.0 * b + a) / 3.0 for a, b, c in combinations(np.sort(values), 3)])
    second = np.mean([(b - a) / 2.0 for a, b in combinations(np.sort(values), 2)])
    assert float(l_skewness(values)) == pytest.approx(third / second, rel=1e-12)
    assert float(l_skewness(-3.0 * values + 2.0)) == pytest.approx(-third / second, rel=1e-12)
    np.testing.assert_allclose(l_skewness(np.array([[1.0, 1.0, 1.0], [0.0, 1.0, 2.0]])), [0.0, 0.0], atol=1e-15)


@pytest.mark.parametrize(("prompts", "tolerance"), [(30, 0.004), (LARGEST, 0.006), (1000, 0.012)])
def test_the_quantiles_leave_out_what_they_say_of_lognormal_draws(prompts, tolerance):
    """On draws of their own. Beyond 256 prompts the quantiles are extrapolated, which the wider tolerance shows."""
    (skewness, lower, upper, coverage), rng = tail_table(prompts, 0.95), np.random.default_rng(20261126)
    for spread in (0.5, 1.0, 1.5):
        place = list(SPREADS).index(spread)
        samples = np.exp(spread * rng.standard_normal((40_000 if prompts < 500 else 12_000, prompts)))
        statistic = (samples.mean(axis=1) - np.exp(spread**2 / 2.0)) / (samples.std(axis=1, ddof=1) / np.sqrt(prompts))
        assert (statistic < lower[place]).mean() == pytest.approx(0.025, abs=tolerance)
        assert (statistic > upper[place]).mean() <= 0.025 + tolerance
        plain = np.abs(statistic) <= stdtrit(prompts - 1, 0.975)
        assert plain.mean() == pytest.approx(coverage[place], abs=3.0 * tolerance)
        assert float(l_skewness(samples[: 1 << 12].ravel()[: 1 << 18])) == pytest.approx(skewness[place], abs=0.01)


def test_quantiles_are_never_nearer_than_students_and_turn_with_the_influences():
    influence = np.random.default_rng(2).lognormal(0.0, 1.0, (20, 40))
    influence -= influence.mean(axis=1, keepdims=True)
    (lower, upper), (turned_lower, turned_upper) = (tail_quantiles(one, 0.9) for one in (influence, -influence))
    assert (lower < -stdtrit(39, 0.95)).all()
    assert (upper >= stdtrit(39, 0.95)).all()
    np.testing.assert_allclose((turned_lower, turned_upper), (-upper, -lower))
    assert (student_coverage(influence, 0.9) < 0.9).all()


def test_influences_without_skewness_are_taken_for_skewed_by_what_so_few_cannot_tell():
    """Of 31 symmetric influences the limits are those of an L-skewness of 1/sqrt(31), and wider than Student's."""
    limits, (skewness, lower, upper, _) = np.sort(np.abs(tail_quantiles(np.linspace(-1.0, 1.0, 31), 0.95))), tail_table(31, 0.95)
    expected = [np.interp(1.0 / np.sqrt(31.0), skewness, one) for one in (upper, -lower)]
    assert limits == pytest.approx(expected)  # rounding decides which side is which
    assert limits[1] > 1.1 * stdtrit(30, 0.975)


def test_the_planners_limits_contain_students():
    drawn, _ = draw(gentle_case(), 5, 24, 8, np.random.default_rng(4))
    limits = Limits(budget=240, max_group_size=12)
    for i in range(5):
        found = choose_group_size(pick(drawn, i), limits)
        plain = choose(found.estimates, limits, heavy=False)
        for one, other in ((found.constants, plain.constants), (found.mse, plain.mse), (found.loss, plain.loss)):
            assert (one.high >= other.high).all()
        assert (found.constants.low <= plain.constants.low).all()
        assert found.risk == plain.risk
        assert (found.candidates == plain.candidates).all()
