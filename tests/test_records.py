"""Records of training runs: the runs themselves, and the estimates of Hessian and noise, by enumeration of all groups."""

import numpy as np
import pytest
from dense import TREES, Dense, token_case
from enumeration import PENALTIES, POLICIES, case, groups, prompts
from runs_by_hand import composed
from streams_by_numpy import alias_rows, uniforms_of_runs

import grpo_theory as gt
from grpo_theory import TrainingRecord
from grpo_theory.intervals.records import rollout_hessian

SIZES = {"batch_size": 2, "group_size": 3}
CASES = (*POLICIES, *TREES)


def records(c, **changes):
    options = {**SIZES, "steps": 40, "replications": 134, "rng": 8} | changes
    schedule, estimator = options.pop("schedule", gt.PowerLaw(0.8, 0.6)), options.pop("estimator", "rloo")
    return list(gt.simulate_records(c.problem, c.theta, estimator, schedule, **options))


@pytest.mark.parametrize("policy", ["linear", "head tree"])
def test_the_runs_are_those_of_simulate_training(policy):
    c = token_case(policy, "kl")
    found = records(c)
    paths = np.concatenate([record.path for record in found])
    for n in (1, 17, 40):
        how = {**SIZES, "steps": n, "replications": 134, "rng": 8}
        training = gt.simulate_training(c.problem, c.theta, "rloo", gt.PowerLaw(0.8, 0.6), **how)
        np.testing.assert_array_equal(paths[:, n], training.theta)
    np.testing.assert_array_equal(paths[:, 0], np.tile(c.theta, (134, 1)))
    for one, other in zip(found, records(c, workers=1), strict=True):
        np.testing.assert_array_equal(one.path, other.path)
        np.testing.assert_array_equal(one.hessian, other.hessian)


def test_an_experiments_block_is_what_the_simulator_records():
    problem, how = gt.gallery.problem("conflict"), {"batch_size": 1, "group_size": 4, "steps": 200}
    start, schedule = problem.theta + 0.1, gt.Harmonic(17.0, 80)
    experiment = gt.RecordedTraining("rloo", schedule, **how, theta0=start)
    block = experiment.sample(problem, 5, 7)
    expected = next(gt.simulate_records(problem, start, "rloo", schedule, **how, replications=7, rng=5))
    one = experiment.take(block, 3)
    for name in ("path", "mean_rewards", "hessian", "noise", "average"):
        np.testing.assert_array_equal(getattr(block, name), getattr(expected, name))
        np.testing.assert_array_equal(getattr(one, name), getattr(expected, name)[3])
    assert one.tail == expected.tail


def dense_hessian(dense, at, prompts, outcomes, rewards, strength):
    """Estimate the Hessian from a batch of groups (B, G), token by token.

    A response contributes ``A (W W' - F) - strength W W'``. A is its reward less the mean of the group's others. F, minus the
    derivative of W, is the sum of the tokens' covariances of scores at the prefixes that it visits.
    """
    group_size, total = outcomes.shape[1], 0.0
    tokens, scores = dense.by_prefix(at.tokens), dense.by_prefix(at.token_scores)
    for m, row, z in zip(prompts, outcomes, rewards, strict=True):
        for g, k in enumerate(row // dense.bandit.values.size):
            advantage = z[g] - np.delete(z, g).mean() if group_size > 1 else z[g]
            visited = np.array(dense.edges[k]) // dense.vocabulary_size
            spread = np.einsum("pv,pvi,pvj->ij", tokens[m, visited], scores[m, visited], scores[m, visited])
            square = np.outer(at.scores[m, k], at.scores[m, k])
            total = total + advantage * (square - spread) - strength * square
    return total / outcomes.size


@pytest.mark.parametrize("policy", CASES)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_rewards_and_hessian_are_those_of_the_rollouts(policy, penalty):
    c = token_case(policy, penalty)
    dense, rloo, table = Dense(c), gt.estimators()["rloo"], alias_rows(c.bandit.prompt_weights)
    record = records(c, replications=2, tail=0.25, rng=2)[0]
    assert record.tail_start == 30
    strength = c.kl.strength if c.kl else 0.0
    uniforms = uniforms_of_runs(2, c.bandit.n_prompts, 2, 3, 40)
    for run in range(2):
        estimates = []
        for i in range(40):
            at = dense.at(record.path[run, i])
            chosen, outcomes = dense.draw(at, table, uniforms[run][i])
            rewards = dense.seen(at, rloo).rewards[chosen[:, None], outcomes]
            assert record.mean_rewards[run, i] == pytest.approx(rewards.mean(), abs=1e-12)
            estimates.append(dense_hessian(dense, at, chosen, outcomes, rewards, strength))
            if policy in POLICIES:
                scores = at.scores[chosen[:, None], outcomes // c.bandit.values.size]
                np.testing.assert_allclose(estimates[-1], rollout_hessian(rewards, scores, strength), atol=1e-12)
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
@pytest.mark.parametrize(("rewards", "penalty", "group_size"), [("binary", "kl", 2), ("graded", "plain", 3)])
def test_the_hessian_estimate_is_unbiased(policy, rewards, penalty, group_size):
    c = case(policy, rewards, penalty)
    exact = gt.hessian(c.problem, c.theta)
    strength = c.kl.strength if c.kl else 0.0
    np.testing.assert_allclose(expected_hessian(c, group_size, strength), exact, atol=1e-12)
    # With the own sample in the mean, and without the term of the penalty, it is not.
    assert np.abs(expected_hessian(c, group_size, strength, 1.0 - 1.0 / group_size) - exact).max() > 1e-4
    if c.kl:
        assert np.abs(expected_hessian(c, group_size, 0.0) - exact).max() > 1e-2


def test_noise_and_average_by_hand():
    steps, gradients = gt.Harmonic(3.0, 2).steps(40), np.random.default_rng(0).normal(size=(40, 2))
    path = np.array([1.0, -2.0]) + np.vstack([np.zeros(2), np.cumsum(steps[:, None] * gradients, axis=0)])
    for tail, first in ((0.5, 20), (1.0, 0)):
        record = TrainingRecord(steps, path, np.zeros(40), tail=tail)
        np.testing.assert_allclose(record.noise, np.cov(gradients[first:].T), atol=1e-12)
        np.testing.assert_allclose(record.average, path[first + 1 :].mean(axis=0))


def record(steps=np.full(20, 0.1), path=np.zeros((21, 2)), **more):  # noqa: B008
    return TrainingRecord(steps, path, np.zeros(len(steps)), **more)


def not_run(problem=case(penalty="kl").problem, estimator="rloo", **changes):  # noqa: B008
    """Ask for records and read none: mistakes are to be told before anything runs."""
    how = {"steps": 20, "replications": 1, "rng": 0} | changes
    gt.simulate_records(problem, problem.theta, estimator, gt.Constant(0.1), **SIZES, **how)


def test_bad_input(check_refused, registry):
    check_refused(
        (lambda: record(np.full(5, 0.1), np.zeros((6, 2))), "path must have at least 20 steps"),
        (lambda: record(hessian=np.eye(3)), r"hessian must have shape \(2, 2\)"),
        (lambda: not_run(steps=10), "steps must be at least 20"),
        (lambda: not_run(estimator=composed({"kl": "k3 in loss"})), "estimator must have the penalty as 'k1 in reward'"),
        (lambda: not_run(gt.Problem(gt.Bandit(np.full((100, 3), 0.5)), gt.TabularSoftmax(100, 3))), "at most 256 parameters"),
    )
