"""The studies of length: what they yield, against sums done another way, and chains that other tests do not see."""

from types import SimpleNamespace

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.harness.sides import joined
from grpo_theory.problem.chains import KINDS
from simulations.length import drifts, ratios_by_length, score_power


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_task_has_the_success_rate_that_is_asked_for(kind):
    for rate in (0.55, 0.7):
        problem = KINDS[kind](32, rate)
        assert problem.bandit.prompt_weights @ gt.moments(problem, problem.theta).value == pytest.approx(rate, abs=1e-9)


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


def test_the_growth_of_a_ratios_second_moment_is_that_of_a_matrix_power():
    """By the powers of the matrix of sums of p^2/p_0, three tokens from one another."""
    growth, eigenvalue, _ = score_power.growth("bigram text", 0.55, length=64)
    assert growth == pytest.approx(eigenvalue, rel=1e-12)
    average, same, _ = score_power.growth("bigram text", 0.55, over_states=True, length=64)
    assert same == eigenvalue
    assert abs(average - eigenvalue) > 1e-9
    short, eigenvalue, _ = score_power.growth("bigram text", 0.55, length=3)
    assert abs(short / eigenvalue - 1.0) > 1e-9  # the first state is not forgotten yet


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
