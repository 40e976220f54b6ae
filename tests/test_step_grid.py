"""Runs at several step sizes side by side: each is the run that has its step size alone."""

import numpy as np
import pytest
from compiled_stages import compiled

import grpo_theory as gt
from grpo_theory.simulate.draw.policy_draw import Words, repeat_words
from grpo_theory.simulate.draw.streams import LANES
from grpo_theory.simulate.records import simulate_iterates
from grpo_theory.simulate.step_grid import StepGrid
from grpo_theory.simulate.update.advance import copy_iterates, stretch_step

RATES = np.array([0.05, 0.3, 0.11])
"""Neither in order nor powers of two, so that a factor is no exact number."""
LOOKS = [4, 12]


def alone(problem, name, rate, layout, runs, **options):
    batch_size, group_size, inner_steps, lag = layout
    sizes = {"batch_size": batch_size, "group_size": group_size, "inner_steps": inner_steps, "lag": lag, "steps": 12}
    where = problem, problem.theta, name, gt.Constant(float(rate))
    return gt.simulate_training(*where, **sizes, replications=runs, checkpoints=LOOKS, rng=7, workers=1, **options)


@pytest.mark.parametrize("optimiser", [gt.SGD(), gt.Adam()])
@pytest.mark.parametrize("layout", [(4, 4, 1, 0), (8, 5, 4, 0), (4, 4, 2, 2)])
@pytest.mark.parametrize(("name", "estimator"), [("single", "grpo"), ("sequence-shared", "rloo"), ("tabular", "grpo")])
def test_runs_at_each_step_size_are_those_that_have_it_alone(name, estimator, layout, optimiser):
    """Up to rounding, for numbers of runs that fill a vector, or a block, and that do not; another step size is far away."""
    problem = gt.gallery.problem(name)
    grid = StepGrid.of(problem, gt.estimators()[estimator], RATES, np.ones(12), layout, optimiser)
    for runs in (1, 5, 32, 50):
        found = grid.objectives(runs, rng=7, checkpoints=LOOKS)
        wanted = np.stack([alone(problem, estimator, rate, layout, runs, optimiser=optimiser).objectives for rate in RATES])
        np.testing.assert_allclose(found, wanted, rtol=1e-10)
        assert np.abs(found[0] - wanted[1]).max() > 1e-4


def test_a_block_of_runs_and_more_have_the_bits_of_those_that_are_alone():
    """Runs that leave no room for another step size take no detour by a factor, and those of a second block have its words."""
    problem, layout = gt.gallery.problem("tabular"), (4, 4, 1, 0)
    found = StepGrid.of(problem, gt.estimators()["rloo"], RATES, np.ones(12), layout).objectives(128 + 90, 7, LOOKS)
    for rate, own in zip(RATES, found, strict=True):
        np.testing.assert_array_equal(own, alone(problem, "rloo", rate, layout, 128 + 90).objectives)


def test_steps_of_no_length_stay_at_the_start():
    problem = gt.gallery.problem("single")
    grid = StepGrid.of(problem, gt.estimators()["rloo"], [0.0, 0.0], np.ones(12), (4, 4, 1, 0), keeps=True)
    assert (grid.iterates(8, rng=7) == problem.theta).all()


def test_a_head_of_many_parameters_runs_by_itself():
    problem, layout = gt.gallery.problem("lm-few-shot"), (2, 4, 1, 0)
    found = StepGrid.of(problem, gt.estimators()["rloo"], RATES, np.ones(12), layout, gt.Adam()).objectives(2, 7, LOOKS)
    wanted = [alone(problem, "rloo", rate, layout, 2, optimiser=gt.Adam()).objectives for rate in RATES]
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_step_sizes_are_the_rate_times_the_shape_and_iterates_are_kept():
    problem, falling = gt.gallery.problem("sequence-shared"), 1.0 / np.arange(1.0, 13.0)
    grid = StepGrid.of(problem, gt.estimators()["rloo"], RATES, falling, (8, 4, 4), keeps=True)
    found = grid.iterates(6, rng=2)
    sizes = {"batch_size": 8, "group_size": 4, "inner_steps": 4, "steps": 12, "replications": 6, "rng": 2}
    for rate, own in zip(RATES, found, strict=True):
        (wanted,) = simulate_iterates(problem, problem.theta, "rloo", rate * falling, **sizes)
        np.testing.assert_allclose(own, wanted, rtol=1e-10, atol=1e-12)
        assert (own[:, 0] == problem.theta).all()


def test_the_stages_of_a_grid_are_those_of_plain_python():
    rng = np.random.default_rng(0)
    theta, before, factors = rng.normal(size=(3, 32)), rng.normal(size=(3, 32)), rng.normal(size=32)
    for stretch, copy in ((compiled(stretch_step), compiled(copy_iterates)), (stretch_step.function, copy_iterates.function)):
        moved, kept = theta.copy(), np.empty((3, 32))
        stretch(moved, before, factors)
        np.testing.assert_allclose(moved, before + factors * (theta - before), rtol=1e-15)
        copy(moved, kept)
        np.testing.assert_array_equal(kept, moved)


def test_words_repeat_after_a_period_and_the_first_runs_keep_theirs():
    """Two rollouts of two prompts' words, and then three words for the responses, each of two halves."""
    for repeat in (compiled(repeat_words), repeat_words.function):
        words = np.random.default_rng(0).integers(0, 1 << 62, size=(11, LANES)).astype(np.uint64)
        first = words.copy()
        repeat(Words(5, words, words.view(np.int32).reshape(-1, LANES), np.empty(2)), 2, 2, 3, 9)
        for rollout in (0, 5):
            own = words[rollout : rollout + 2], words[rollout + 2 : rollout + 5].view(np.int32).reshape(-1, LANES)
            old = first[rollout : rollout + 2], first[rollout + 2 : rollout + 5].view(np.int32).reshape(-1, LANES)
            for now, then in zip(own, old, strict=True):
                np.testing.assert_array_equal(now[:, :9], np.tile(then[:, :3], 3))
                np.testing.assert_array_equal(now[:, 9:], then[:, 9:])
        np.testing.assert_array_equal(words[10], first[10])
