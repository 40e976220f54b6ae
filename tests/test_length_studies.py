"""The studies of length: what they yield, against sums done another way, and chains that other tests do not see."""

from types import SimpleNamespace

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.harness.sides import joined
from grpo_theory.problem.gallery import KINDS
from simulations.length import drifts, efficiency_by_length, ratios_by_length, score_power
from simulations.length.grid import point_of


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


def test_the_share_that_groups_of_sixteen_lose_is_that_of_the_table():
    study, lengths = efficiency_by_length, [16, 64, 1024]
    found = study.efficiencies("goal walk", 0.55, lengths)
    rows = list(study.by_length(found, lengths))
    assert len(rows) == 3 * len(study.ESTIMATORS) * len(study.GROUP_SIZES)
    own = {(row["length"], row["group_size"]): row["estimate"] for row in rows if row["estimator"] == "rloo"}
    lost = [1.0 - own[length, 16] / max(own[length, size] for size in study.GROUP_SIZES) for length in lengths]
    left, _, _ = study.sixteen(found, "rloo", lengths)
    assert left.ravel() == pytest.approx(lost, rel=1e-12)
    assert study.sixteen(found, "rloo", lengths, study.ENDS)[0].max() > max(lost)


def test_the_growth_of_a_ratios_second_moment_is_that_of_a_matrix_power():
    """By the powers of the matrix of sums of p^2/p_0, three tokens from one another."""
    growth, eigenvalue, _ = score_power.growth("bigram text", 0.55, length=64)
    assert growth == pytest.approx(eigenvalue, rel=1e-12)
    average, same, _ = score_power.growth("bigram text", 0.55, over_states=True, length=64)
    assert same == eigenvalue
    assert abs(average - eigenvalue) > 1e-9
    short, eigenvalue, _ = score_power.growth("bigram text", 0.55, length=3)
    assert abs(short / eigenvalue - 1.0) > 1e-9  # the first state is not forgotten yet


def test_score_power_is_seen_to_come_from_uncertain_tokens():
    power = [point_of("copy", length, 0.55).moments.score_power.mean() for length in (64, 1024)]
    assert power[1] == pytest.approx(power[0], rel=0.02)
    assert score_power.power("copy", 0.55)[0] == pytest.approx(1.0, rel=1e-10)
    assert score_power.larger("copy", 0.55, [16, 64, 1024])[0] > 0.0  # it does not double here


def test_a_drift_is_as_long_as_it_is_said_to_be():
    """The divergence of a response, over the listed twin's responses."""
    chain = gt.TokenChain([[0, 1], [0, 2], [1, 0]], 6, end_token=0, starts=[0, 1])
    problem = gt.Problem(gt.StateRewards([0.0, 1.0, 0.5]), chain, theta=[0.0, 0.3, 0.2, 0.0, -0.1, 0.4])
    point = problem.at(problem.theta)
    theta = drifts.drifted(point, 0.3, 1)
    listed = gt.Problem(point.bandit, chain).listed()
    before, after = (listed.policy.probabilities(one) for one in (point.theta, theta))
    assert (before * np.log(before / after)).sum(axis=1).mean() == pytest.approx(0.3, rel=1e-9)


def test_an_update_that_points_back_counts_below_nothing():
    assert drifts.ahead(SimpleNamespace(efficiency=0.4, cosine=-0.6)) == -0.4
    found = joined([ratios_by_length.laws("think until sure", 64, 3)])
    own = {(row["direction"], row["ratio"]): row["estimate"] for row in ratios_by_length.efficiencies(found)}
    lost = [1.0 - own[d, "token, clipped"] / own[d, "token"] for d in range(3)]
    assert ratios_by_length.clip(found)[0] == pytest.approx(lost)
    behind = [np.log(own[d, "token"] / own[d, "trajectory"]) for d in range(3)]
    assert ratios_by_length.whole(found)[0] == pytest.approx(behind)
