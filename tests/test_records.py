"""Records of training runs: the runs themselves, and the estimates of Hessian and noise, by enumeration of all groups."""

import numpy as np
import pytest
from dense import TREES, Dense, token_case
from enumeration import PENALTIES, POLICIES, case, groups, prompts
from streams_by_numpy import uniforms_of_runs

import grpo_theory as gt
from grpo_theory import TrainingRecord
from grpo_theory.samples import rollout_hessian
from grpo_theory.simulate.draw.prompt_tables import alias_rows

SIZES = {"batch_size": 2, "group_size": 3}
CASES = (*POLICIES, *TREES)


def records(c, **changes):
    options = {**SIZES, "steps": 40, "replications": 134, "rng": 8} | changes
    schedule, estimator = options.pop("schedule", gt.Power(0.8, 0.6)), options.pop("estimator", "rloo")
    return list(gt.simulate_records(c.problem, c.theta, estimator, schedule, **options))


@pytest.mark.parametrize("policy", ["linear", "head tree"])
def test_the_runs_are_those_of_simulate_training(policy):
    c = token_case(policy, "kl")
    found = records(c)
    assert [len(record.path) for record in found] == [128, 6]
    paths = np.concatenate([record.path for record in found])
    options = {**SIZES, "replications": 134, "rng": 8}
    for n in (1, 17, 40):
        training = gt.simulate_training(c.problem, c.theta, "rloo", gt.Power(0.8, 0.6), steps=n, **options)
        np.testing.assert_array_equal(paths[:, n], training.theta)
    np.testing.assert_array_equal(paths[:, 0], np.tile(c.theta, (134, 1)))
    for one, other in zip(found, records(c, workers=1), strict=True):
        np.testing.assert_array_equal(one.path, other.path)
        np.testing.assert_array_equal(one.hessian, other.hessian)
        np.testing.assert_array_equal(one.mean_rewards, other.mean_rewards)


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
    uniforms = uniforms_of_runs(2, 2, 3, 40)
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
    exact = gt.gradient_covariance(c.problem, c.theta, "rloo", **sizes)
    error = estimates.std(axis=0, ddof=1) / np.sqrt(len(estimates))
    assert (np.abs(estimates.mean(axis=0) - exact) < 4.9 * error).all()
    diagonal = np.diag(exact)
    assert (np.abs(np.diag(estimates.mean(axis=0)) - 1.1 * diagonal) > 4.9 * np.diag(error)).all(), "no power against 10%"


STEPS = np.full(20, 0.1)


def record(steps=STEPS, path=np.zeros((21, 2)), mean_rewards=np.zeros(20), **more):  # noqa: B008
    return TrainingRecord(steps, path, mean_rewards, **more)


def in_loss():
    return gt.Estimator("penalised", gt.estimators()["rloo"].advantage, kl=gt.estimation.KL_TERMS["k3 in loss"])


def large():
    return gt.Problem(gt.Bandit(np.full((100, 3), 0.5)), gt.TabularSoftmax(100, 3), theta=np.zeros(300))


def not_run(problem=None, estimator="rloo", **changes):
    """Ask for records and read none: mistakes are to be told before anything runs."""
    problem, how = problem or case(penalty="kl").problem, {"steps": 20, "replications": 1, "rng": 0} | changes
    gt.simulate_records(problem, problem.theta, estimator, np.full(how["steps"], 0.1), **SIZES, **how)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: record(STEPS[:5], np.zeros((6, 2)), np.zeros(5)), "path must have at least 20 steps, got 5"),
        (lambda: record(path=np.zeros(21)), r"path must have shape \(..., n \+ 1, d\)"),
        (lambda: record(-STEPS), "step_sizes must have steps above 0, got -0.1 at step 1"),
        (lambda: record(hessian=np.eye(3)), r"hessian must have shape \(2, 2\)"),
        (lambda: record(path=np.full((21, 2), np.nan)), r"path must be finite, and is not at index \(0, 0\)"),
        (lambda: rollout_hessian(np.zeros((3, 1)), np.zeros((3, 1, 2))), "rewards must have shape .* with G at least 2"),
        (lambda: not_run(steps=10), "steps must be at least 20, got 10"),
        (lambda: not_run(tail=2.0), r"tail must lie in \(0, 1\], got 2"),
        (lambda: not_run(estimator=in_loss()), "estimator must have the penalty as 'k1 in reward' for records, got 'k3 in loss'"),
        (lambda: not_run(large()), "policy must have at most 256 parameters for records, got 300"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()
