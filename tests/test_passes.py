"""Training with several passes over a rollout: its draws and updates are the package's, and verdicts follow the evidence."""

import numpy as np
import pytest

import grpo_theory as gt
from simulations.sequence.off_policy import Pairs
from simulations.sequence.parts import random_problem
from simulations.training import passes
from simulations.training.passes import CLIP, GROUP_SIZE, NONE, success_of

RUNS = 1 << 14


@pytest.fixture(scope="module")
def problem():
    return random_problem(np.random.default_rng(2), 2, 2, None, n_prompts=3, dimension=4)


def test_a_rollouts_sums_have_their_expectations(problem):
    """By prompt and response ``E[sum] = B G f p z (1 - V)``, with -(1 - z) V for wrong ones, at |z| < 4.9; no sign is other."""
    reached = np.exp(problem.policy.paths.along(problem.at(problem.theta).token_log_probabilities))
    many = np.broadcast_to(reached, (1, RUNS, *reached.shape))
    right, wrong = passes.rollout_of(problem, many, 4, np.random.default_rng(0))
    success = problem.bandit.mean_reward
    value = (reached * success).sum(axis=1, keepdims=True)
    share = 4 * GROUP_SIZE * problem.bandit.prompt_weights[:, None] * reached
    for sums, mean in ((right, share * success * (1.0 - value)), (wrong, -share * (1.0 - success) * value)):
        errors = (sums - mean).reshape(RUNS, -1)
        assert np.abs(errors.mean(axis=0) / errors.std(axis=0) * np.sqrt(RUNS)).max() < 4.9
    assert (right >= 0.0).all()
    assert (wrong <= 0.0).all()
    np.testing.assert_allclose((right + wrong).sum(axis=(2, 3)), 0.0, atol=1e-10)


@pytest.mark.parametrize("estimator", [CLIP, NONE], ids=["clip", "none"])
def test_sampled_updates_have_the_exact_mean_as_theirs(problem, estimator):
    """The same sums, with what is expected of them in their place."""
    rng = np.random.default_rng(1)
    old = problem.theta + rng.normal(size=(3, 4))
    pairs = Pairs(problem, old + 0.4 * rng.normal(size=(3, 4)), old)
    success, weights = problem.bandit.mean_reward, problem.bandit.prompt_weights[:, None]
    value = (pairs.reached * success).sum(axis=-1, keepdims=True)
    sums = weights * pairs.reached * success * (1.0 - value), -weights * pairs.reached * (1.0 - success) * value
    np.testing.assert_allclose(pairs.updates(estimator, *sums), pairs.mean_updates(estimator), atol=1e-14)


@pytest.mark.parametrize("minibatches", [4, 16])
def test_one_pass_is_what_the_simulator_does(minibatches, monkeypatch):
    """The mean objective at the end, at |z| < 4.9; without ratio it is tens of standard errors away."""
    monkeypatch.setattr(passes, "ROLLOUTS", 6)
    problem = random_problem(np.random.default_rng(2), 2, 3, None, n_prompts=3, dimension=4)
    settings, step = {"passes": 1, "minibatches": minibatches}, 0.5
    mine = {
        name: success_of(settings, estimator, problem, np.array([step]), 2048, np.random.SeedSequence(3))[0]
        for name, estimator in (("clip", CLIP), ("none", NONE))
    }
    sizes = {"batch_size": 16, "group_size": GROUP_SIZE, "steps": 6 * minibatches, "inner_steps": minibatches}
    where = (problem, problem.theta, CLIP, gt.Constant(step))
    runs = gt.simulate_training(*where, **sizes, replications=8192, rng=4, optimiser=gt.Adam(), workers=1).objectives[:, -1]
    error = {name: np.hypot(sample.std() / np.sqrt(2048), runs.std() / np.sqrt(8192)) for name, sample in mine.items()}
    z = {name: (sample.mean() - runs.mean()) / error[name] for name, sample in mine.items()}
    assert abs(z["clip"]) < 4.9
    assert abs(z["none"]) > 10.0


def test_step_sizes_side_by_side_see_the_draws_that_each_sees_alone(problem):
    steps, arm = np.array([0.05, 0.4]), ({"passes": 2, "minibatches": 4}, CLIP, problem)
    both = success_of(*arm, steps, 8, np.random.SeedSequence(5))
    alone = [success_of(*arm, steps[[s]], 8, np.random.SeedSequence(5))[0] for s in range(2)]
    np.testing.assert_allclose(both, alone, rtol=1e-9)
    assert np.abs(both[1] - both[0]).max() > 1e-3


def test_at_the_clips_step_the_arm_without_ratio_takes_the_step_that_is_best_for_the_clip():
    """The clip is best at the second step. There the other arm has half of what it has at the third."""
    noise = 0.01 * np.random.default_rng(0).normal(size=(3, 16))
    clip = np.array([0.2, 0.8, 0.5])[:, None] + noise
    none = np.array([0.1, 0.4, 0.8])[:, None] + noise
    own, (at_clips, facts) = passes.ahead({"clip": clip, "none": none}, [1.0, 2.0, 4.0]).values()
    assert at_clips.estimate == pytest.approx(0.4, abs=1e-12)
    assert facts["step, clip's"] == 2.0
    assert own[0].estimate == pytest.approx(0.0, abs=0.01)
    assert own[1]["step, own"] == 4.0
