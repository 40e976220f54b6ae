"""The study of the planner's group size for a run: what is left out, what is drawn, and what is claimed of a table."""

import numpy as np
import pandas as pd
import pytest

import grpo_theory as gt
from grpo_theory.plan.run_advice import SIZES, RunAdvice, WorldRuns
from simulations.plan.planned_run import (
    AGAINST,
    LOGGED,
    NETWORKS,
    PROMPTS,
    REGRET,
    claims,
    drawn_log,
    less_than,
    lost,
    network,
    problems,
    without,
)


def frame(told, worst, worlds=("a", "b")):
    """A table of one cell, in which size 4 is best everywhere and each octave from it costs two points."""
    settings = {"start": "easy", "estimator": "rloo", "each": 16}
    return pd.DataFrame(
        settings
        | {"world": world, "told": told, "worst": worst, "group_size": size, "estimate": 0.5 - 0.02 * abs(np.log2(size / 4))}
        | {"standard_error": 0.0005}
        for world in worlds
        for size in SIZES
    )


def test_what_is_lost_is_told_from_the_best_size():
    table = frame(8, 64)
    assert lost(table, "told")[0] == pytest.approx(0.02)
    assert lost(table, "worst")[0] == pytest.approx(0.08)
    assert lost(table, 4) == (0.0, 0.0)
    assert lost(table, "told")[1] == pytest.approx(0.0005)  # two worlds, two arms each: sqrt(4)/2 errors of one arm
    assert less_than(table, "told", 16).estimate == pytest.approx(-0.02)
    assert less_than(table, "told", 8).standard_error == 0.0


@pytest.mark.parametrize(("told", "verdict"), [(4, "confirmed"), (32, "refuted")])
def test_a_good_choice_is_confirmed_and_a_bad_one_refuted(told, verdict):
    found = {one.statement.id: one for one in claims(frame(told, 64))}
    assert set(found) == {REGRET.id, *(one.id for one in AGAINST.values())}
    low, high = found[REGRET.id].evidence.interval(1e-5)
    assert (high <= 0.02) == (verdict == "confirmed")
    assert (low > 0.02) == (verdict == "refuted")
    assert found[REGRET.id].control.interval(1e-5)[0] > 0.02


def test_a_kind_of_world_is_left_out_with_both_its_readings():
    success, errors = np.array([0.4, 0.5]), np.zeros(2)
    worlds = tuple(
        WorldRuns(title, floor, weight, 0.1, success, errors)
        for title, floor, weight in (("a", 0.1, 0.2), ("a", 0.01, 0.3), ("b", 0.1, 0.1), ("b", 0.01, 0.4))
    )
    advice = RunAdvice("rloo", 100.0, 10, 10.0, np.array([2, 4]), worlds, None)
    left = without(advice, "a")
    assert [world.title for world in left.worlds] == ["b", "b"]
    np.testing.assert_allclose(left.weights, [0.2, 0.8])
    assert len(without(advice, "a network").worlds) == 4


def test_a_log_is_drawn_from_the_rates_of_the_start():
    log = drawn_log(np.array([0.2, 0.4]), np.random.default_rng(1))
    assert (log.prompts, set(log.sizes.tolist())) == (LOGGED[0], {LOGGED[1]})
    assert log.means.mean() == pytest.approx(0.3, abs=4 * 0.5 / np.sqrt(LOGGED[0] * LOGGED[1]))


@pytest.mark.parametrize("start", ["easy", *NETWORKS])
def test_what_is_judged_starts_where_it_says(start):
    for problem in problems(start).values():
        rates = (problem.policy.probabilities(problem.theta) * problem.bandit.mean_reward).sum(axis=-1)
        assert rates.shape == (PROMPTS,)
        if start == "easy":
            np.testing.assert_allclose(rates, np.geomspace(0.5, 0.1, PROMPTS), rtol=1e-9)
        else:
            assert rates.min() < 1e-3 < 0.3 < rates.max()


def test_networks_learn_their_features():
    assert isinstance(network(16).policy, type(gt.TwoLayerSoftmax(np.ones((2, 3)), 2, 3)))
