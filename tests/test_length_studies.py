"""The studies of length: what they yield, against sums done another way, and chains that other tests do not see."""

from types import SimpleNamespace

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.problem.chains import KINDS
from simulations.length import drifts, efficiency_by_length, ratios_by_length, score_power
from simulations.length.points import chain_point


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_task_has_the_success_rate_that_is_asked_for(kind):
    for rate in (0.55, 0.7):
        problem = KINDS[kind](32, rate)
        assert problem.bandit.prompt_weights @ gt.moments(problem, problem.theta).value == pytest.approx(rate, abs=1e-9)


def test_a_rate_that_a_task_cannot_have_is_refused_with_those_it_can():
    with pytest.raises(ValueError, match=r"success must be a rate that this chain can have, 0\.\d+ to 1, got 0\.1"):
        KINDS["copy"](16, 0.1)


def test_a_short_walk_has_the_best_sizes_of_its_listed_twin():
    """At 8 tokens all walks can be listed, and efficiencies enumerated."""
    problem = gt.Problem(
        gt.StateRewards([0.0, 0.0, 1.0]), gt.TokenChain([[0, 1], [0, 2], [-1, -1]], 8), theta=[0.0, 0.3, 0.2, 0.0, 0, 0]
    )
    listed = problem.listed()
    for size in (2, 16):
        sizes = {"batch_size": 1024 // size, "group_size": size}
        both = [gt.efficiency(one, problem.theta, "trl_grpo_loss", **sizes) for one in (problem, listed)]
        assert both[0] == pytest.approx(both[1], rel=1e-11)


def yielded(study, settings):
    """Return the comparisons and the rows that a study yields."""
    found = list(study.compare(settings))
    return [one for one in found if not isinstance(one, dict)], [one for one in found if isinstance(one, dict)]


def test_the_share_that_groups_of_sixteen_lose_is_that_of_the_table():
    settings = {"kind": "goal walk", "success": 0.55, "lengths": [16, 64, 1024]}
    comparisons, rows = yielded(efficiency_by_length, settings)
    assert len(rows) == 3 * len(efficiency_by_length.ESTIMATORS) * len(efficiency_by_length.GROUP_SIZES)
    own = {(row["length"], row["group_size"]): row["estimate"] for row in rows if row["estimator"] == "rloo"}
    lost = max(
        1.0 - own[length, 16] / max(own[length, size] for size in efficiency_by_length.GROUP_SIZES) for length in (16, 64, 1024)
    )
    (claim,) = (one for one in comparisons if "(rloo)" in one.setting)
    assert claim.estimate == pytest.approx(lost, rel=1e-12)
    assert claim.broken > claim.estimate


def test_the_growth_of_a_ratios_second_moment_is_that_of_a_matrix_power():
    """By the powers of the matrix of sums of p^2/p_0, three tokens from one another."""
    problem = KINDS["bigram text"](64, 0.55)
    comparison = score_power._ratio("text", chain_point(problem))
    assert comparison.estimate == pytest.approx(comparison.prediction, rel=1e-12)
    assert abs(comparison.broken - comparison.prediction) > 1e-9
    short = score_power._ratio("text", chain_point(KINDS["bigram text"](3, 0.55)))
    assert abs(short.estimate / short.prediction - 1.0) > 1e-9  # the first state is not forgotten yet


def test_score_power_is_seen_to_come_from_uncertain_tokens():
    settings = {"kind": "copy", "success": 0.55, "lengths": [16, 64, 1024]}
    comparisons, rows = yielded(score_power, settings)
    power = {row["length"]: row["estimate"] for row in rows if row["quantity"] == "score_power"}
    assert power[1024] == pytest.approx(power[64], rel=0.02)
    by_id = {one.statement: one for one in comparisons}
    assert np.isclose(by_id["length/score power"].estimate, 1.0, rtol=1e-10)
    assert by_id["length/larger groups"].estimate > 0.0  # it does not double here


def test_a_drift_is_as_long_as_it_is_said_to_be():
    """The divergence of a response, over the listed twin's responses."""
    chain = gt.TokenChain([[0, 1], [0, 2], [1, 0]], 6, end_token=0, starts=[0, 1])
    point = chain_point(gt.Problem(gt.StateRewards([0.0, 1.0, 0.5]), chain, theta=[0.0, 0.3, 0.2, 0.0, -0.1, 0.4]))
    theta = drifts.drifted(point, 0.3, np.random.default_rng(1))
    listed = gt.Problem(point.bandit, chain).listed()
    before, after = (listed.policy.probabilities(one) for one in (point.theta, theta))
    assert (before * np.log(before / after)).sum(axis=1).mean() == pytest.approx(0.3, rel=1e-9)


def test_an_update_that_points_back_counts_below_nothing():
    settings = {"kind": "think until sure", "lengths": [64, 1024], "directions": 3}
    comparisons, rows = yielded(ratios_by_length, settings)
    own = {(row["length"], row["direction"], row["ratio"], row["quantity"]): row["estimate"] for row in rows}
    assert drifts.ahead(SimpleNamespace(efficiency=0.4, cosine=-0.6)) == -0.4
    (clip,) = (one for one in comparisons if one.statement == "length/clip")
    lost = [1.0 - own[64, d, "token, clipped", "efficiency"] / own[64, d, "token", "efficiency"] for d in range(3)]
    assert clip.broken == pytest.approx(max(lost))
    (whole,) = (one for one in comparisons if one.statement == "length/whole ratio")
    behind = [np.log(own[1024, d, "token", "efficiency"] / own[1024, d, "trajectory", "efficiency"]) for d in range(3)]
    assert whole.estimate == pytest.approx(max(behind))
