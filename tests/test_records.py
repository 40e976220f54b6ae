"""Records of training runs: the runs themselves, and the estimates of Hessian and noise, by enumeration of all groups."""

import numpy as np
import pytest
from enumeration import PENALTIES, POLICIES, case, groups, prompts
from test_training import draw

import grpo_theory as gt
from grpo_theory.inference import TrainingRecord, rollout_hessian
from grpo_theory.simulate.streams import as_seed_sequence, block_generator
from grpo_theory.simulate.trainer import add_hessian
from grpo_theory.simulate.training import BLOCK_RUNS, CHUNK_UNIFORMS

SIZES = {"batch_size": 2, "group_size": 3}


def records(c, **changes):
    options = {**SIZES, "steps": 40, "replications": 70, "rng": 8, "kl": c.kl} | changes
    schedule = options.pop("schedule", gt.Power(0.8, 0.6))
    return list(gt.simulate_records(c.bandit, c.policy, c.theta, "rloo", schedule, **options))


@pytest.mark.parametrize("policy", POLICIES)
def test_the_runs_are_those_of_simulate_training(policy):
    c = case(policy, "graded", "kl")
    found = records(c)
    assert [len(record.path) for record in found] == [64, 6]
    paths = np.concatenate([record.path for record in found])
    options = {**SIZES, "replications": 70, "rng": 8, "kl": c.kl}
    for n in (1, 17, 40):
        training = gt.simulate_training(c.bandit, c.policy, c.theta, "rloo", gt.Power(0.8, 0.6), steps=n, **options)
        np.testing.assert_array_equal(paths[:, n], training.theta)
    np.testing.assert_array_equal(paths[:, 0], np.tile(c.theta, (70, 1)))
    for one, other in zip(found, records(c, workers=1), strict=True):
        np.testing.assert_array_equal(one.path, other.path)
        np.testing.assert_array_equal(one.hessian, other.hessian)
        np.testing.assert_array_equal(one.mean_rewards, other.mean_rewards)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_rewards_and_hessian_are_those_of_the_rollouts(policy, penalty):
    c = case(policy, "graded", penalty)
    record = records(c, replications=2, tail=0.25)[0]
    generator = block_generator(as_seed_sequence(8), 0)
    chunk = CHUNK_UNIFORMS // (BLOCK_RUNS * 2 * 4)
    prompt_uniforms, response_uniforms = generator.random((BLOCK_RUNS, chunk, 2)), generator.random((BLOCK_RUNS, chunk, 2, 3))
    assert record.tail_start == 30
    strength = c.kl.strength if c.kl else 0.0
    for run in range(2):
        estimates = []
        for i in range(40):
            theta = record.path[run, i]
            drawn = draw(c.bandit, c.policy, theta, prompt_uniforms[run, i], response_uniforms[run, i], c.kl)
            chosen, responses, rewards = drawn
            assert record.mean_rewards[run, i] == pytest.approx(rewards.mean(), abs=1e-12)
            estimates.append(rollout_hessian(rewards, c.policy.scores(theta)[chosen[:, None], responses], strength))
        np.testing.assert_allclose(record.hessian[run], np.mean(estimates[30:], axis=0), atol=1e-12)
        assert np.abs(record.hessian[run] - np.mean(estimates, axis=0)).max() > 1e-3


def expected_hessian(c, group_size, strength, scale=1.0):
    """The mean of the estimate over all prompts and all groups."""
    total = 0.0
    for weight, prompt in zip(c.bandit.prompt_weights, prompts(c), strict=True):
        rows, chances = groups(prompt, group_size)
        estimates = rollout_hessian(scale * prompt.rewards[rows][:, None], prompt.scores[rows][:, None], strength)
        total = total + weight * np.einsum("n,nij->ij", chances, estimates)
    return total


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("rewards", ["binary", "graded"])
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("group_size", [2, 3])
def test_the_hessian_estimate_is_unbiased(policy, rewards, penalty, group_size):
    c = case(policy, rewards, penalty)
    exact = gt.hessian(c.bandit, c.policy, c.theta, c.kl)
    strength = c.kl.strength if c.kl else 0.0
    np.testing.assert_allclose(expected_hessian(c, group_size, strength), exact, atol=1e-12)
    # With the own sample in the mean, and without the term of the penalty, it is not.
    assert np.abs(expected_hessian(c, group_size, strength, 1.0 - 1.0 / group_size) - exact).max() > 1e-4
    if c.kl:
        assert np.abs(expected_hessian(c, group_size, 0.0) - exact).max() > 1e-2


@pytest.mark.parametrize("group_size", [1, 2])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_the_driver_estimates_it_from_single_responses_too(group_size, penalty):
    c = case("linear", "graded", penalty)
    values = c.bandit.values.size
    total = np.zeros((3, 3))
    for m, (weight, prompt) in enumerate(zip(c.bandit.prompt_weights, prompts(c), strict=True)):
        pi = prompt.probabilities.reshape(-1, values).sum(axis=1)
        for row, chance in zip(*groups(prompt, group_size), strict=True):
            share = weight * chance / group_size
            strength = c.kl.strength if c.kl else 0.0
            add_hessian.py_func(total, c.features[m], pi, row // values, prompt.rewards[row], strength, share)
    np.testing.assert_allclose(total, gt.hessian(c.bandit, c.policy, c.theta, c.kl), atol=1e-12)


def test_noise_and_average_by_hand():
    steps = gt.Harmonic(3.0, 2).steps(40)
    gradients = np.random.default_rng(0).normal(size=(40, 2))
    path = np.array([1.0, -2.0]) + np.vstack([np.zeros(2), np.cumsum(steps[:, None] * gradients, axis=0)])
    record = TrainingRecord(steps, path, np.zeros(40))
    np.testing.assert_allclose(record.noise, np.cov(gradients[20:].T), atol=1e-12)
    np.testing.assert_allclose(record.average, path[21:].mean(axis=0))
    whole = TrainingRecord(steps, path, np.zeros(40), tail=1.0)
    np.testing.assert_allclose(whole.noise, np.cov(gradients.T), atol=1e-12)
    np.testing.assert_allclose(whole.average, path[1:].mean(axis=0))


@pytest.mark.parametrize("batch_size", [1, 3])
def test_noise_has_the_exact_covariance_as_its_mean(batch_size, seed):
    c = case("linear", "binary", "kl")
    sizes = {"batch_size": batch_size, "group_size": 3}
    found = records(c, **sizes, replications=2048, schedule=gt.Constant(1e-9), steps=60, rng=seed(2))
    estimates = np.concatenate([record.noise for record in found])
    exact = gt.gradient_covariance(c.bandit, c.policy, c.theta, "rloo", **sizes, kl=c.kl)
    error = estimates.std(axis=0, ddof=1) / np.sqrt(len(estimates))
    assert (np.abs(estimates.mean(axis=0) - exact) < 4.9 * error).all()
    diagonal = np.diag(exact)
    assert (np.abs(np.diag(estimates.mean(axis=0)) - 1.1 * diagonal) > 4.9 * np.diag(error)).all(), "no power against 10%"


STEPS = np.full(20, 0.1)


def not_run(**changes):
    """Ask for records and read none: mistakes are to be told before anything runs."""
    c = case()
    gt.simulate_records(c.bandit, c.policy, c.theta, "rloo", STEPS, **SIZES, steps=20, replications=1, rng=0, **changes)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TrainingRecord(STEPS[:5], np.zeros((6, 2)), np.zeros(5)), "path must have at least 20 steps, got 5"),
        (lambda: TrainingRecord(STEPS, np.zeros(21), np.zeros(20)), r"path must have shape \(..., n \+ 1, d\)"),
        (lambda: TrainingRecord(STEPS, np.zeros((21, 2)), np.zeros(21)), r"mean_rewards must have shape \(20,\)"),
        (lambda: TrainingRecord(STEPS[1:], np.zeros((21, 2)), np.zeros(20)), r"step_sizes must have shape \(20,\)"),
        (
            lambda: TrainingRecord(-STEPS, np.zeros((21, 2)), np.zeros(20)),
            "step_sizes must have steps above 0, got -0.1 at step 1",
        ),
        (lambda: TrainingRecord(STEPS, np.zeros((21, 2)), np.zeros(20), np.eye(3)), r"hessian must have shape \(2, 2\)"),
        (
            lambda: TrainingRecord(STEPS, np.full((21, 2), np.nan), np.zeros(20)),
            r"path must be finite, and is not at index \(0, 0\)",
        ),
        (lambda: TrainingRecord(STEPS, np.zeros((21, 2)), np.zeros(20), tail=0.0), r"tail must lie in \(0, 1\], got 0"),
        (lambda: rollout_hessian(np.zeros((3, 1)), np.zeros((3, 1, 2))), "rewards must have shape .* with G at least 2"),
        (lambda: rollout_hessian(np.zeros((3, 2)), np.zeros((3, 4, 2))), "scores must have shape"),
        (lambda: records(case(), steps=10), "steps must be at least 20, got 10"),
        (lambda: not_run(tail=2.0), r"tail must lie in \(0, 1\], got 2"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()
