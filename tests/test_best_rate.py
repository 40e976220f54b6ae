"""Leads of arms at their best rates: limits hold, the luck of choosing is taken off, and what is known is exact."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from grpo_theory.evidence.reading import evidence
from simulations.best_rate import halves, lead
from simulations.worst_cases import worst_of

LEVEL = [0.8, 0.8, 0.8, 0.8]
PEAKED = [0.6, 0.7, 0.8, 0.7]


def sample(means: list[float], units: int, rng: np.random.Generator, common: np.ndarray) -> np.ndarray:
    """Return successes (rates, units): each unit has a level of its own, and all arms share it."""
    return np.array(means)[:, None] + common + 0.06 * rng.normal(size=(len(means), units))


@pytest.mark.parametrize("units", [5, 10, 24])
def test_limits_hold_and_luck_is_taken_off(units: int) -> None:
    """The hardest case: where all rates are level the largest mean is luck, and the other arm has none.

    Limits that hold in more than 92% of 400 samples are within three errors of 95%. Plain means are off by more. Without the
    common level of a unit, limits would be twice as wide: pairs are used.
    """
    rng = np.random.default_rng(units)
    held, errors, plain, widths = [], [], [], []
    for _ in range(400):
        common = 0.2 * rng.normal(size=units)
        arms = [sample(means, units, rng, common) for means in (LEVEL, PEAKED)]
        row = lead(arms, (1.0, -1.0))
        held.append(row["low"] <= 0.0 <= row["high"])
        errors.append(row["estimate"])
        plain.append(arms[0].mean(axis=1).max() - arms[1].mean(axis=1).max())
        widths.append(row["standard_error"])
    assert np.mean(held) > 0.92
    assert abs(np.mean(errors)) < 0.7 * np.mean(plain)
    assert np.mean(widths) < 0.1 / np.sqrt(units)


def test_one_rate_gives_the_paired_t_interval() -> None:
    """Where there is nothing to choose, estimate and limits are those of the paired t test."""
    rng = np.random.default_rng(1)
    arms = rng.normal(size=(2, 1, 24))
    row, (low, high) = lead(list(arms), (1.0, -1.0)), stats.ttest_rel(arms[0, 0], arms[1, 0]).confidence_interval()
    assert [row["estimate"], row["low"], row["high"]] == pytest.approx([np.diff(arms[::-1, 0], axis=0).mean(), low, high])
    assert row["other_sign"] == np.mean((arms[0, 0] - arms[1, 0]) * row["estimate"] < 0.0)
    assert row["replications"] == 24


def test_another_measure_is_judged_by_the_half_that_did_not_choose() -> None:
    """A measure equal to the one that chooses would be too high by luck; what the halves that did not choose say is not."""
    rng = np.random.default_rng(2)
    found = [lead([arm], judged=[arm])["estimate"] for arm in rng.normal(size=(300, 4, 10))]
    assert np.mean(found) == pytest.approx(0.0, abs=0.1)
    arm = np.array([[1.0] * 6, [0.0] * 6])
    assert lead([arm], judged=[arm[::-1]])["estimate"] == 0.0


def test_a_choice_at_the_end_of_a_grid_is_told() -> None:
    """The last of three rates is best in one arm, the middle one in the other."""
    middle, last = np.array([[0.0], [2.0], [1.0]]) + np.zeros(6), np.array([[0.0], [1.0], [2.0]]) + np.zeros(6)
    assert not lead([middle])["at_end"]
    assert lead([middle, last], (1.0, -1.0))["at_end"]
    assert lead([middle, last], (1.0, -1.0))["estimate"] == 0.0


def test_several_arms_are_one_side_whose_rates_come_first() -> None:
    """The best of two arms is the better one, and at the end of the grid only if its own rate is."""
    middle, last = np.array([[0.0], [2.0], [1.0]]) + np.zeros(6), np.array([[0.0], [1.0], [3.0]]) + np.zeros(6)
    both = lead([np.stack([last - 2.0, middle], axis=1)])
    assert (both["estimate"], both["at_end"]) == (2.0, False)
    assert lead([np.stack([last, middle], axis=1), middle], (1.0, -1.0))["at_end"]


@pytest.mark.parametrize("units", [4, 5, 13, 24])
def test_halves_choose_evenly(units: int) -> None:
    """Each unit chooses in half of the halves, or in all of a unit more."""
    chooses = halves(units)
    assert set(chooses.sum(axis=1)) <= {units // 2, units - units // 2}
    assert chooses.mean() == pytest.approx(0.5)


def test_limits_of_a_leads_verdict_allow_for_the_skewness_of_leads():
    """And those of any other mean for that of a squared normal, also where rows of both kinds stand in one table."""
    rng = np.random.default_rng(4)
    own = lead([rng.normal(size=(1, 24))])
    table = pd.DataFrame([own, {"estimate": 1.0, "standard_error": 0.1, "replications": 24}])
    found = [evidence(row, 0.0) for row in table.to_dict("records")]
    assert [one.skewness for one in found] == [1.5, 8.0**0.5]
    assert found[0].half_width(1e-4, 24) / found[0].standard_error == pytest.approx(8.6, abs=0.05)
    assert found[1].half_width(1e-4, 24) / found[1].standard_error == pytest.approx(14.8, abs=0.05)


@pytest.mark.parametrize(("starts", "facts"), [(0, {"random": 1.0}), (8, {"random": 1.0, "sought": 1.25})])
def test_sides_of_a_bound_are_the_worst_of_what_was_drawn_and_sought(starts, facts):
    rng = np.random.default_rng(0)
    left, right, beside = worst_of([(1.0, 4.0), (3.0, 6.0)], lambda x: (x[0], 1.6), [(0.0, 1.0)], rng, starts, 1, bound=2.0)
    assert (left, right) == (pytest.approx(max(facts.values())), 2.0)
    assert beside == pytest.approx(facts)


def test_a_ratio_that_is_no_number_is_an_error():
    """Python's max would pass it over, if it does not stand first."""
    with pytest.raises(ValueError, match="must be numbers"):
        worst_of([(1.0, 2.0), (np.nan, 1.0)], lambda x: (x[0], 1.0), [(0.0, 1.0)], np.random.default_rng(0), 0, 1)
