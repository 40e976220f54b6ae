"""The study of the planner's group size for a run: what is left out, what is drawn, what is counted and what is claimed."""

import numpy as np
import pandas as pd
import pytest

from grpo_theory.plan.run_advice import SIZES
from simulations.best_rate import lead
from simulations.plan.planned_run import (
    AGAINST,
    REGRET,
    SAME,
    claims,
    rows,
)
from simulations.plan.run_regret import Part, lost, mean_over_kinds, spread_of_logs, summary_of

BEST = 1
"""The place of size 4, which is best in the worlds that are made up here: an octave from it costs two points."""


def world(seed, spread=0.001, draws=48):
    """Success in draws of a made up world, shape (rates, S, draws), which differ by ten points and have a best rate inside."""
    rng, rates = np.random.default_rng(seed), 0.1 * np.abs(np.arange(5) - 2)
    means = 0.5 - 0.02 * np.abs(np.log2(np.array(SIZES) / 4)) - rates[:, None]
    return means[..., None] + 0.1 * rng.normal(size=draws) + spread * rng.normal(size=(*means.shape, draws))


def table_of_logs(*told, start="easy"):
    """A table of one cell with two worlds, of logs that led to these sizes, one for each world."""
    settings = {"start": start, "estimator": "rloo", "each": 16, "logs": len(told)}
    logs = [dict(zip("ab", sizes, strict=True)) for sizes in told]
    return pd.DataFrame(rows(settings, [{"a": world(1).tolist(), "b": world(2).tolist()}, *logs]))


def test_parts_add_up_and_degrees_of_freedom_are_satterthwaites():
    found = summary_of(0.1, [Part(4.0, 3.0), Part(5.0, 10.0), Part(0.0, 1.0), Part(7.0)])
    assert (found["estimate"], found["standard_error"]) == (0.1, 4.0)
    assert found["replications"] == int(256.0 / (16.0 / 3.0 + 25.0 / 10.0)) + 1


def test_the_mean_over_kinds_has_the_error_of_independent_draws_and_of_logs_in_common():
    table = pd.DataFrame({"estimate": [0.01, 0.03], "standard_error": [0.03, 0.04], "replications": 64})
    found = mean_over_kinds(table, 0.02)
    assert (found.estimate, found.prediction, found.standard_error) == pytest.approx((0.02, 0.02, 0.025))
    # Satterthwaite: 0.0025^2 / ((0.0009^2 + 0.0016^2) / 63) = 116.8.
    assert found.replications == 117
    assert mean_over_kinds(table.assign(standard_error=0.03), 0.02).replications == 127
    with_logs = mean_over_kinds(table, 0.02, [Part(0.025**2, 5.0)])
    assert with_logs.standard_error == pytest.approx(0.025 * np.sqrt(2.0))
    assert with_logs.replications == int(4.0 / (1.0 / 5.0 + 1.0 / (0.0025**2 / ((0.0009**2 + 0.0016**2) / 63.0)))) + 1


def test_what_is_lost_is_told_from_the_best_size_in_hindsight():
    found = [lost(world(1), [place]) for place in range(len(SIZES))]
    assert [row["estimate"] for row in found] == pytest.approx([0.02, 0.0, 0.02, 0.04, 0.06, 0.08], abs=1e-3)
    assert found[BEST]["estimate"] == pytest.approx(0.0, abs=1e-12), "the best loses nothing"
    assert max(row["standard_error"] for row in found) < 3e-4, "draws differ by ten points, and not their leads"
    assert not any(row["at_end"] for row in found), "the best rate is inside, although the best size is not"
    assert lost(world(1)[:3], [BEST])["at_end"]


def test_a_choice_is_one_arm_with_one_rate_whatever_its_size_by_draw():
    values, places = world(1), np.random.default_rng(5).integers(0, len(SIZES), 48)
    found = lost(values, [places], BEST)
    own = values[:, places, np.arange(48)]
    assert found == lead([values[:, BEST], own], (1.0, -1.0))
    assert found["estimate"] == pytest.approx(0.02 * np.abs(places - BEST).mean(), abs=1e-3)


@pytest.mark.parametrize(("told", "verdict"), [((4, 4), "confirmed"), ((32, 16), "refuted")])
def test_a_good_choice_is_confirmed_and_a_bad_one_refuted(told, verdict):
    other = table_of_logs((4, 8), *((4, 4),) * 7, start="wide")
    found = list(claims(pd.concat([table_of_logs(*(told,) * 8), other])))
    assert {one.statement.id for one in found} == {REGRET.id, SAME.id, *(one.id for one in AGAINST.values())}
    regret = next(one for one in found if one.statement == REGRET and "easy" in one.setting)
    low, high = regret.evidence.interval(0.05)
    assert (high <= 0.02, low > 0.02) == (verdict == "confirmed", verdict == "refuted")
    assert regret.control.interval(0.05)[0] > 0.02
    ordering = next(one for one in found if one.statement == AGAINST[16] and "easy" in one.setting)
    assert (ordering.evidence.interval(0.05)[1] < 0.0) == (verdict == "confirmed")
    assert ordering.control.interval(0.05)[0] > 0.0


def test_no_comparison_is_certain_where_all_logs_agree():
    """The spread of logs is pooled over cells, so that two logs that lead to one size do not say that all do."""
    both = pd.concat([table_of_logs((4, 4), (4, 4)), table_of_logs((4, 8), (4, 4), start="wide")])
    logs = spread_of_logs(both)
    assert logs.free == 2
    # Of the second cell, logs end 0.02 / 2 apart; half of that squared is the variance, and a quarter that of their mean.
    assert logs.variance == pytest.approx(0.01**2 / 4.0 / 2.0, rel=0.1)
    assert all(one.evidence.standard_error > 0.0 for one in claims(both))
