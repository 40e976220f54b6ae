"""Limits that allow for heavy tails: quantiles against draws, L-skewness against its definition, and the study's truths."""

from itertools import combinations

import numpy as np
import pytest
from pilots import draw, gentle_case, pick
from scipy.special import stdtrit

from grpo_theory.harness.sides import joined
from grpo_theory.intervals.interval import (
    ALLOWANCE,
    LARGEST,
    SPREADS,
    l_skewness,
    student_coverage,
    tail_quantiles,
    tail_table,
)
from grpo_theory.intervals.u_statistics import prompt_terms
from grpo_theory.plan import Limits, choose_group_size
from grpo_theory.plan.baseline_gain import choose_baseline
from grpo_theory.plan.group_size import choose
from simulations.plan import plan_coverage as study
from simulations.plan.pilot_problems import LAWS, SIGNAL, draw_pilot, exact_law, rate_nodes


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
    table, rng = tail_table(prompts, 0.95), np.random.default_rng(20261126)
    for place, spread in enumerate(SPREADS):
        if spread not in (0.5, 1.0, 1.5):
            continue
        samples = np.exp(spread * rng.standard_normal((40_000 if prompts < 500 else 12_000, prompts)))
        statistic = (samples.mean(axis=1) - np.exp(spread**2 / 2.0)) / (samples.std(axis=1, ddof=1) / np.sqrt(prompts))
        assert (statistic < table.lower[place]).mean() == pytest.approx(0.025, abs=tolerance)
        assert (statistic > table.upper[place]).mean() <= 0.025 + tolerance
        plain = np.abs(statistic) <= stdtrit(prompts - 1, 0.975)
        assert plain.mean() == pytest.approx(table.coverage[place], abs=3.0 * tolerance)
        found = float(l_skewness(samples[: 1 << 12].ravel()[: 1 << 18]))
        assert found == pytest.approx(table.skewness[place], abs=0.01)


def test_quantiles_are_never_nearer_than_students_and_turn_with_the_influences():
    influence = np.random.default_rng(2).lognormal(0.0, 1.0, (20, 40))
    influence -= influence.mean(axis=1, keepdims=True)
    (lower, upper), (turned_lower, turned_upper) = (tail_quantiles(one, 0.9) for one in (influence, -influence))
    t = stdtrit(39, 0.95)
    assert (lower < -t).all()
    assert (upper >= t).all()
    np.testing.assert_allclose(turned_lower, -upper)
    np.testing.assert_allclose(turned_upper, -lower)
    assert ALLOWANCE == 1.0
    assert (student_coverage(influence, 0.9) < 0.9).all()


def test_influences_without_skewness_are_taken_for_skewed_by_what_so_few_cannot_tell():
    """Of 31 symmetric influences the limits are those of an L-skewness of 1/sqrt(31), and wider than Student's."""
    symmetric = np.linspace(-1.0, 1.0, 31)
    lower, upper = tail_quantiles(symmetric, 0.95)
    table, t = tail_table(31, 0.95), stdtrit(30, 0.975)
    wide, narrow = max(-lower, upper), min(-lower, upper)  # rounding decides which side is which
    assert wide == pytest.approx(-np.interp(1.0 / np.sqrt(31.0), table.skewness, table.lower))
    assert narrow == pytest.approx(np.interp(1.0 / np.sqrt(31.0), table.skewness, table.upper))
    assert wide > 1.1 * t


def test_the_planners_limits_contain_students():
    drawn, _ = draw(gentle_case(), 5, 24, 8, np.random.default_rng(4))
    limits = Limits(budget=240, max_group_size=12)
    for i in range(5):
        found = choose_group_size(pick(drawn, i), limits)
        plain = choose(found.constants.law, found.constants.covariance, 24, limits)
        for one, other in ((found.constants, plain.constants), (found.mse, plain.mse), (found.loss, plain.loss)):
            assert (one.high >= other.high).all()
        assert (found.constants.low <= plain.constants.low).all()
        assert found.risk == plain.risk
        assert (found.candidates == plain.candidates).all()


@pytest.mark.parametrize("name", LAWS)
def test_the_studys_constants_are_the_means_of_unbiased_estimates(name):
    """Of 20,000 prompts of 8: within five standard errors; a law of other lengths is far off."""
    rollouts, _ = draw_pilot(name, 20_000, False, np.random.default_rng([5, len(name)]))
    terms = prompt_terms(rollouts, 3)
    law, found = exact_law(name), terms.components()
    errors = np.sqrt(np.diagonal(terms.covariance()))
    difference = np.array([found.c1 - law.c1, found.c2 - law.c2, found.c3 - law.c3])
    assert (np.abs(difference) <= 5.0 * errors).all(), difference / errors


def test_controls_are_told_apart():
    counted = joined([study.counted_tails("tails, point", study.HEAVY, 30, True, 150, np.random.default_rng(1))])
    found = {row["quantity"]: row for row in study.shares(counted, 150)}
    assert found["c1"]["estimate"] > 0.9 > 0.87 > found["c1"]["plugged_in"]
    assert found["warned"]["estimate"] > 0.9 > 0.2 > found["warned"]["plugged_in"]


def exact_error(name, pair):
    """The error of a pair by the moments of the pilots' law: section 35's noise with Cov(P, Z) = L^2 A^2 p (1-p)(1-2p)."""
    p, weights = rate_nodes()
    law, lengths = exact_law(name), LAWS[name]
    variance, signal = p * (1.0 - p), SIGNAL**2 * lengths.square
    noise = 1.0 if lengths.signal else lengths.square
    if pair.name == "none":
        c2, c3 = weights @ (signal * p * (1.0 - p) ** 2 + noise * p) - signal * (weights @ variance**2), 0.0
    else:
        away = p - weights @ p
        tilt, offset = signal * variance * (1.0 - 2.0 * p) * away, (signal * variance + noise) * away**2
        c2 = law.c2 + 2.0 * pair.share * (weights @ tilt) + pair.share**2 * (weights @ offset)
        c3 = (1.0 - pair.share) ** 2 * law.c3
    batch, size = pair.batch_size, pair.group_size
    return law.c1 / batch + c2 / (batch * size) + c3 / (batch * size * (size - 1.0))


@pytest.mark.parametrize("name", [study.LIGHT, study.HEAVY, study.SIGNAL])
def test_another_baseline_is_recommended_only_where_its_error_is_less(name):
    """If a limit should miss in one of 60 pilots, 9 misses in 80 or fewer have a chance of at most 1e-4."""
    rng, limits, missed, others = np.random.default_rng([10, len(name)]), Limits(budget=1024, max_group_size=64), 0, 0
    for _ in range(80):
        rollouts, _ = draw_pilot(name, 30, True, rng)
        found = choose_baseline(rollouts, limits, choose_group_size(rollouts, limits))
        if found.pair.name == "leave-one-out mean":
            continue
        others += 1
        usual = found.rivals[0]
        gain = 1.0 - exact_error(name, found.pair) / exact_error(name, usual.pair)
        assert gain > 0.0
        missed += float(usual.gain.low) > gain
    assert others > 0
    assert missed < 9
