"""Rollouts drawn from the policy of some rollouts ago: against a plain transcription, an enumeration, and two theorems."""

import itertools

import numpy as np
import pytest
from compiled_stages import compiled
from dense import Dense, token_case
from streams_by_numpy import uniforms_of_runs
from test_training import ascend, transcription

import grpo_theory as gt
from grpo_theory.compiler.lanes import WIDTH
from grpo_theory.simulate.records import simulate_iterates
from grpo_theory.simulate.update.advance import copy_iterates

LIMIT = 4.9
PARTS = {
    "clipped tokens": {"ratio": "token", "clip": "by sign", "aggregation": "batch tokens"},
    "truncated trajectories": {"ratio": "trajectory", "clip": "cap", "kl": "k3 in loss"},
    "no ratio": {"ratio": "none", "aggregation": "own length"},
}


def composed(name):
    """Compose an estimator with a narrow clip, so that ratios meet it."""
    parts = {"clip": "none"} | PARTS[name]
    clip = gt.estimation.CLIPS[parts.pop("clip")].with_widths(0.02, 0.03)
    return gt.compose("stale_for_one_test", advantage="rloo", clip=clip, **parts)


@pytest.mark.parametrize("policy", ["linear", "tree", "linear tree", "head tree"])
@pytest.mark.parametrize(("inner_steps", "lag"), [(1, 1), (1, 3), (2, 2), (4, 1), (1, 40)])
@pytest.mark.parametrize("parts", PARTS)
def test_iterates_are_those_of_the_algorithm(parts, inner_steps, lag, policy, registry):
    c, found = token_case(policy, "kl"), composed(parts)
    b, g, n = 4, 3, 24
    options = {"batch_size": b, "group_size": g, "steps": n, "replications": 3, "rng": 5}
    options |= {"inner_steps": inner_steps, "lag": lag}
    training = gt.simulate_training(c.problem, c.theta, found, gt.Power(0.4, 0.3), **options)
    uniforms, steps = uniforms_of_runs(5, b, g, n // inner_steps), gt.Power(0.4, 0.3).steps(n)
    paths = next(simulate_iterates(c.problem, c.theta, found, gt.Power(0.4, 0.3), **options))
    for run in range(3):
        expected = transcription(Dense(c), c.theta, found, steps, uniforms[run], inner_steps, ascend, lag)
        np.testing.assert_allclose(training.theta[run], expected.path[-1], atol=1e-10)
        np.testing.assert_allclose(paths[run], expected.path, atol=1e-10)
    nearest = transcription(Dense(c), c.theta, found, steps, uniforms[0], inner_steps, ascend, lag - 1)
    told = np.abs(nearest.path[-1] - training.theta[0]).max() > 1e-4
    assert told == (lag < n // inner_steps), "a lag that is one less is told from this, but where all rollouts are the start's"


def test_a_lag_that_no_memory_holds_is_told():
    problem = gt.gallery.problem("tabular")
    for lag in (10**7, 10**12):
        with pytest.raises(ValueError, match=r"lag must be at most .* iterates of each run are held in memory, got"):
            gt.simulate_training(
                problem, problem.theta, "gspo", gt.Constant(1.0), batch_size=2, group_size=4, steps=4, replications=2, lag=lag
            )


def test_no_lag_is_the_default_and_changes_no_bit():
    problem = gt.gallery.problem("kl-sequence")
    options = {"batch_size": 4, "group_size": 4, "steps": 12, "replications": 5, "rng": 1, "inner_steps": 2}
    one, other = (
        gt.simulate_training(problem, problem.theta, "gspo", gt.Constant(1.0), **options, **lag) for lag in ({}, {"lag": 0})
    )
    np.testing.assert_array_equal(one.theta, other.theta)


def test_many_blocks_go_on_as_one_does():
    """Ten blocks of runs, in calls of two blocks and of one, on one thread and on two."""
    problem, sizes = gt.gallery.problem("kl-tabular"), {"batch_size": 2, "group_size": 4, "steps": 30, "rng": 2, "lag": 2}

    def train(**how):
        return gt.simulate_training(problem, problem.theta, "dapo", gt.Constant(0.5), **sizes, **how)

    whole = train(replications=1200, workers=1)
    for other in (train(replications=1200, workers=2, checkpoints=[3, 17, 30]), train(replications=300, workers=2)):
        np.testing.assert_array_equal(other.theta, whole.theta[: len(other.theta)])


@pytest.mark.parametrize("function", [compiled(copy_iterates), copy_iterates.function], ids=["compiled", "plain"])
def test_the_ring_holds_the_iterates_of_the_last_rollouts(function):
    theta, past = np.arange(3.0 * WIDTH).reshape(3, WIDTH), np.zeros((2, 3, WIDTH))
    for number in range(5):
        function(theta + number, past[number % 2])
    np.testing.assert_array_equal(past, [theta + 4.0, theta + 3.0])


# ---- two updates, enumerated

TINY = gt.Problem(gt.Bandit([[0.9, 0.2, 0.4]]), gt.TabularSoftmax(1, 3), theta=[0.3, -0.2, 0.4])
STEP, GROUP = 1.5, 2


def first_updates():
    """Return the iterates after one update and their probabilities: all groups of two responses, right or wrong."""
    point = TINY.at(TINY.theta)
    outcomes = [(k, z) for k in range(3) for z in (0.0, 1.0)]
    chance = {(k, z): point.probabilities[0, k] * abs(1.0 - z - TINY.bandit.mean_reward[0, k]) for k, z in outcomes}
    for group in itertools.product(outcomes, repeat=GROUP):
        advantages = [group[0][1] - group[1][1], group[1][1] - group[0][1]]
        estimate = sum(a * (np.eye(3)[k] - point.probabilities[0]) for a, (k, _) in zip(advantages, group, strict=True)) / GROUP
        yield TINY.theta + STEP * estimate, np.prod([chance[outcome] for outcome in group])


def mean_after_two(estimator, lag):
    """Return E theta_2, by the exact mean of the second update given the first."""
    total, mass = np.zeros(3), 0.0
    for theta, probability in first_updates():
        behaviour = TINY.theta if lag else theta
        second = gt.gradient_mean(TINY, theta, estimator, batch_size=1, group_size=GROUP, behaviour=behaviour)
        total, mass = total + probability * (theta + STEP * second), mass + probability
    assert mass == pytest.approx(1.0, abs=1e-12)
    return total


@pytest.mark.parametrize("clip", ["none", "cap", "by sign"])
def test_two_updates_have_the_mean_that_an_enumeration_gives(clip, registry):
    found = gt.compose("stale_for_one_test", advantage="rloo", ratio="token", clip=clip)
    own, none = mean_after_two(found, lag=1), mean_after_two(found, lag=0)
    options = {"batch_size": 1, "group_size": GROUP, "steps": 2, "replications": 240_000, "rng": 3, "lag": 1}
    theta = gt.simulate_training(TINY, TINY.theta, found, gt.Constant(STEP), **options).theta
    error = theta.std(axis=0) / np.sqrt(len(theta))
    assert (np.abs(theta.mean(axis=0) - own) < LIMIT * error).all()
    if clip != "none":
        assert (np.abs(none - own) > 2 * LIMIT * error).any(), "no lag is told from this one"
    else:
        np.testing.assert_allclose(own, none, atol=1e-12)


# ---- what a lag does to the mean, exactly


def test_whole_ratios_leave_the_mean_where_it_is_and_no_ratio_delays_it(registry):
    """Rloo with the ratio of the whole response is unbiased however old the rollout."""
    rng = np.random.default_rng(0)
    ratio = gt.compose("stale_for_one_test", advantage="rloo", ratio="trajectory")
    for policy in (gt.LinearSoftmax(rng.normal(size=(2, 4, 3))), gt.TokenTree(2, vocabulary_size=2, horizon=2)):
        problem = gt.Problem(gt.Bandit(rng.uniform(size=(2, 4))), policy)
        now, then = rng.normal(size=(2, policy.dimension))
        at = {"batch_size": 1, "group_size": 3}
        whole = gt.gradient_mean(problem, now, ratio, behaviour=then, **at)
        np.testing.assert_allclose(whole, gt.moments(problem, now).gradient, atol=1e-12)
        stale = gt.gradient_mean(problem, now, "rloo", behaviour=then, **at)
        apart = np.abs(stale - gt.moments(problem, then).gradient).max()
        assert apart < 1e-12 if policy.paths.horizon == 1 else apart > 1e-3
