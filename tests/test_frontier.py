"""Whole runs: what is measured of them, leads of arms over draws, and the curves through best group sizes."""

from types import SimpleNamespace

import numpy as np
import pytest

import grpo_theory as gt
from simulations.runs.arms import Arm, dropped_uniform, estimator_of, measured, train, world_problems
from simulations.runs.frontier import Runs, between_sizes, start_of
from simulations.runs.growth import SIZES, best_size, best_sizes, fit, saturating
from simulations.runs.worlds import LEARNED, LONG

SEED, START = np.random.SeedSequence(3), start_of("few prompts")


def public(problem, rates, steps, **how):
    """Return runs of the public simulator from the problem's start, with the seed of the tests."""
    sizes = {"batch_size": 8, "group_size": 8, "steps": steps, "rng": SEED}
    return gt.simulate_training(problem, problem.theta, "grpo", rates, **sizes, **how)


@pytest.mark.parametrize("optimiser", ["SGD", "Adam"])
def test_runs_are_those_of_the_public_simulator(optimiser):
    arm, updates = Arm("few prompts", "grpo", optimiser, responses=64), [2, 8]
    problem = world_problems("few prompts", 1)[0]
    found = train(arm, 1, 8, [0.25, 0.5], updates, 12, SEED)
    how = {"replications": 12, "optimiser": getattr(gt, optimiser)()}
    for rate, own in zip((0.25, 0.5), found, strict=True):
        runs = public(problem, gt.Constant(rate), 8, checkpoints=updates, **how)
        np.testing.assert_allclose(own[..., 0], runs.objectives, rtol=1e-9)
        np.testing.assert_allclose(own[:, 1], measured("few prompts", runs.theta, 1), rtol=1e-9)


@pytest.mark.parametrize("world", [LONG, LEARNED])
def test_runs_of_many_tokens_and_of_learned_features_are_those_of_the_public_simulator(world):
    [found] = train(Arm(world, responses=64), 0, 8, [0.5], [2, 4], 6, SEED)
    runs = public(world_problems(world)[0], gt.Constant(0.5), 4, replications=6, checkpoints=[2, 4])
    np.testing.assert_allclose(found[..., 0], runs.objectives, rtol=1e-12)
    np.testing.assert_array_equal(found[..., 4] == found[..., 0], world == LEARNED)


def test_groups_without_signal_are_left_out_of_the_mean():
    batch = SimpleNamespace(rewards=np.array([[0.0, 1.0], [1.0, 1.0], [0.0, 0.0], [1.0, 0.0]]), parameters=np.array([0.0]))
    advantages = np.full(batch.rewards.shape, 7.0)
    dropped_uniform(batch, advantages)
    step = 2.0 * np.sqrt(0.5)
    np.testing.assert_allclose(advantages, [[-step, step], [0.0, 0.0], [0.0, 0.0], [step, -step]])
    assert estimator_of("dropped").advantage.couples_groups


def test_the_best_size_is_the_vertex_of_a_parabola_and_its_resamples_spread_as_its_error():
    sizes = np.array([2, 4, 8, 16, 32])
    means = 1.0 - 0.01 * (np.log2(sizes) - 3.3) ** 2
    assert best_size(means, sizes) == pytest.approx(3.3)
    assert best_size(np.array([5.0, 4.0, 3.0, 2.0, 1.0]), sizes) == 1.0
    rng = np.random.default_rng(2)
    rates = np.array([[0.0], [-0.1]])  # the second rate is worse everywhere, and is not chosen
    samples = [means[:, None] + rates[..., None] + 0.01 * rng.normal(size=(2, 5, 100)) for _ in range(60)]
    draws = [best_sizes(one, sizes, rng) for one in samples]
    assert np.mean([one[0] for one in draws]) == pytest.approx(3.3, abs=0.05)
    truth = np.std([one[0] for one in draws])
    assert np.mean([one[1:].std() for one in draws]) == pytest.approx(truth, rel=0.4)


def made_runs(noise):
    """Return runs of sizes 4, 8 and 64 at six budgets and three rates, of which the second is best, on 12 draws.

    Groups of 8 are best at first, and groups of 64 in the end.
    """
    rng = np.random.default_rng(6)
    x = np.arange(11.0, 17.0)
    course = {4: 12.0, 8: 11.5, 64: 13.0}
    values = np.zeros((6, 6, 3, 3, 12))
    for s, (size, middle) in enumerate(course.items()):
        top = 0.9 if size == 64 else 0.7
        law = START[0] + (top - START[0]) / (1.0 + 2.0 ** (middle - x))
        values[:, 0, :, s] = law[:, None, None] - np.array([0.1, 0.0, 0.2])[:, None]
        values[:, 1:5, :, s] = values[:, :1, :, s]
        values[:, 5, :, s] = 0.5 - 0.2 * (size == 64)
    values += noise * rng.normal(size=12)  # a draw's own level, which all arms share
    return Runs([4, 8, 64], [int(2**power) for power in x], values)


def test_sides_are_leads_at_the_best_rates_and_the_level_of_a_draw_does_not_count():
    runs = made_runs(0.05)
    own, wrong = ({k: v for k, v in between_sizes(Arm("few prompts"), runs, START, on).items() if k != "P8/law"} for on in (0, 1))
    success = runs.values[:, 0, 1].mean(axis=-1).T
    planned, _ = own["P1/64 over 8"]
    assert planned.estimate == pytest.approx(success[1, -1] - success[2, -1])
    assert planned.standard_error == pytest.approx(0.0, abs=1e-9)
    assert own["P1/grows"][0].estimate == pytest.approx(success[1, -1] - success[2, -1])
    assert wrong["P1/grows"][0].estimate == pytest.approx(success[1, 0] - success[2, 0])
    lost = 0.9 * (success[2, -1] - START[0]) - (success[1, -1] - START[0])
    assert own["U9/whole runs"][0].estimate == pytest.approx(lost, abs=0.01)
    assert own["P1/interference"][0].estimate == pytest.approx(-0.2)


def test_the_law_of_success_is_judged_by_its_distance_and_draws_are_left_out_for_its_error():
    runs = made_runs(0.0)
    luck = 0.05 * np.random.default_rng(7).normal(size=12)
    runs.values[-1, 0] += luck - luck.mean()
    own, linear = (between_sizes(Arm("few prompts"), runs, START, wrong)["P8/law"] for wrong in (False, True))
    course = runs.values[:, 0, 1, 2].mean(axis=-1)
    law = saturating(np.arange(11.0, 15.0), course[:4], START[0])(np.array(16.0))
    assert own.estimate == pytest.approx(abs(course[-1] / law - 1.0), rel=1e-4)
    assert own.standard_error == pytest.approx(luck.std(ddof=1) / np.sqrt(12) / law, rel=1e-4)
    assert linear.estimate > 10.0 * own.estimate


def test_the_criterion_of_points_on_a_curve_is_what_its_parameters_cost():
    x, error = np.arange(9.0), np.ones(9)
    line, off = 2.0 + 0.5 * x, np.array([1.0] + [0.0] * 8)
    assert fit(SIZES["power law"], x, line, error)[1] == pytest.approx(4.0 + 12.0 / 6.0, abs=1e-6)
    mean = off - off.mean()
    assert fit(SIZES["constant"], x, off, error)[1] == pytest.approx(mean @ mean + 2.0 + 4.0 / 7.0)
