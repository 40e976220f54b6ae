"""The study of the time to a level: how times are read off runs, how a step is chosen, and what the arms differ in."""

from itertools import product

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.estimation.kernel import Batch
from grpo_theory.exact import gradient
from grpo_theory.harness.sides import study_of
from grpo_theory.harness.study import Cell, cell_seed
from grpo_theory.plan.run_simulation import best_step
from simulations.training import time_to_level
from simulations.training.contests import ARMS, behind, updates_to_level
from simulations.training.time_to_level import LEVELS, race_problem
from tests.made_up import judged


def test_times_are_interpolated_and_runs_that_fail_count_as_all_updates():
    objectives = [
        [0.2, 0.6, 0.1],
        [0.2, 0.2, 0.6],
        [0.2, 0.3, 0.4],
        [0.2, 0.5, np.nan],
        [0.2, np.nan, np.nan],
        [0.5, 0.1, 0.6],
        [0.2, 0.5, 0.7],
    ]
    found = updates_to_level(np.array(objectives), np.array([0, 4, 12]), 0.5)
    np.testing.assert_allclose(found, [3.0, 10.0, 12.0, 4.0, 12.0, 0.0, 4.0])


def test_an_arm_is_behind_by_its_time_less_the_allowed_one_of_the_rival_each_at_its_best_step():
    noise = np.random.default_rng(0).normal(size=(1, 64))
    arm, rival = (noise + np.reshape(means, (3, 1)) for means in ([70.0, 50.0, 80.0], [40.0, 60.0, 90.0]))
    found = behind(arm, rival, 1.05)
    assert found["estimate"] == pytest.approx(8.0 - 0.05 * noise.mean())
    assert found["standard_error"] == pytest.approx(0.05 * noise.std(ddof=1) / 8.0)
    assert found["at_end"], "the rival's best step is the first"


def test_the_best_step_is_the_vertex_of_a_parabola_in_the_log_of_the_step():
    steps = 2.0 ** np.arange(7)
    assert best_step(steps, 20.0 + np.log(steps / 5.0) ** 2) == pytest.approx(5.0)
    lucky = 20.0 + np.log(steps / 5.0) ** 2 - 7.0 * (steps == 64.0)
    assert lucky.argmin() == 6
    assert best_step(steps, lucky) == pytest.approx(5.0)
    assert best_step(steps, -steps) == pytest.approx(32.0)
    assert best_step(steps, steps) == pytest.approx(1.0)
    cliff = np.array([1.2, 0.9, 10.0, 1.2, 1.1, 1.3, 3.0])  # its least loss has a neighbour that is far too large
    assert 8.0 <= best_step(2.0 ** np.arange(7.0), cliff) <= 32.0


@pytest.mark.parametrize("name", LEVELS)
def test_the_level_is_two_thirds_of_the_way(name):
    problem = race_problem(name)
    theta = np.array(problem.theta)
    start = gt.objective(problem, theta)
    for _ in range(1024):
        theta = theta + 16.0 * gradient(problem, theta)
    share = (LEVELS[name] - start) / (gt.objective(problem, theta) - start)
    assert share == pytest.approx(2.0 / 3.0, abs=0.01)


def differs_in(one, other):
    parts = ("ratio", "clip", "aggregation", "kl")
    found = {part for part in parts if not getattr(ARMS[one], part).is_same(getattr(ARMS[other], part))}
    return found | ({"advantage"} if ARMS[one].advantage.function is not ARMS[other].advantage.function else set())


@pytest.mark.parametrize(
    ("one", "other", "part"),
    [
        ("neither", "ratio alone", "ratio"),
        ("neither", "clip alone", "clip"),
        ("TIC", "ratio alone", "clip"),
        ("TIC", "clip alone", "ratio"),
        ("TIC", "no clip", "clip"),
        ("no clip", "no ratio", "ratio"),
        ("GSPO", "GSPO, wide clip", "clip"),
        ("TIC", "broken", "advantage"),
    ],
)
def test_arms_that_are_compared_differ_in_one_part(one, other, part):
    assert differs_in(one, other) == {part}


def test_the_published_ones_are_as_registered():
    assert ARMS["TIC"] is gt.estimators()["tic_grpo"]
    assert ARMS["GSPO"] is gt.estimators()["gspo"]
    assert differs_in("GRPO", "neither") == {"advantage", "aggregation"}
    assert (ARMS["GRPO"].clip.name, ARMS["GRPO"].ratio.name) == ("by sign", "token")


def test_the_broken_arm_has_a_mean_update_of_zero_and_the_right_one_has_not():
    """By all groups of four rewards that are right with probability 0.3: the mean of A (Z - 0.3)."""
    means = []
    for kernel in (ARMS["broken"].advantage.function, ARMS["TIC"].advantage.function):
        total = 0.0
        for group in product([0.0, 1.0], repeat=4):
            z, advantages = np.array([group]), np.empty((1, 4))
            kernel(Batch(z, z, z, z[:, 0], z[:, 0], z[:, 0], np.empty(0)), advantages)
            total += np.prod(np.where(z == 1.0, 0.3, 0.7)) * (advantages * (z - 0.3)).mean()
        means.append(total)
    assert means[0] == pytest.approx(0.0, abs=1e-15)
    assert means[1] == pytest.approx(0.75 * 0.3 * 0.7, rel=1e-12)


SMALL = dict(time_to_level.trained.cell(time_to_level.cases(True)[0]).settings)


def results(settings, *chunks):
    """Return what the run finds of some arms."""
    seed = cell_seed("time_to_level", Cell(settings), 0)
    return [time_to_level.trained(np.random.default_rng(seed), chunk, **settings)["arms"][0] for chunk in chunks]


def test_verdicts_follow_the_evidence_and_controls_without_a_fault_survive():
    """Dropping the ratio is sooner by far; an arm is no sooner than itself; a control that is the right arm is not refuted."""
    settings = SMALL | {"pilot_steps": [32.0, 64.0, 128.0, 256.0, 512.0]}
    arms = dict(zip(ARMS, results(settings, *range(len(ARMS))), strict=True))
    verdicts = judged([time_to_level.sooner], {"arms": list(arms.values())})
    assert set(verdicts.index) == set(study_of(time_to_level).decides)
    assert verdicts.loc["T8/training", ["verdict", "control"]].tolist() == ["reproduced here", "refuted"]
    assert verdicts.loc["T14/against no ratio", "verdict"] != "confirmed"
    instead = {"GRPO": arms["TIC"] | {"arm": "GRPO"}, "broken": arms["TIC"] | {"arm": "broken"}}
    same = judged([time_to_level.sooner], {"arms": list((arms | instead).values())})
    assert same.loc["T14/against GRPO", "verdict"] == "inconclusive"
    assert same.loc["T8/training", "control"] != "refuted"


def test_arms_see_the_same_draws():
    """The place of an arm among the arms, which is the number of its chunk, says nothing of its draws."""
    few = {"pilot_steps": [16.0, 32.0, 64.0], "arms": ["TIC", "no ratio", "TIC"], "runs": 8}
    first, last = results(SMALL | few, 0, 2)
    np.testing.assert_array_equal(first["times"], last["times"])
    assert first["rows"] == last["rows"]
