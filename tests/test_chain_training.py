"""Training on chains: the listed twin's training, to within chance, and the objective that both have exactly."""

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.exact.derivatives import LARGEST_RECURSION, StabilityWarning, stability_message
from grpo_theory.schedule import Constant, Harmonic

LIMIT = 4.9
CONSTANT = Constant(0.5)
SIZES = {"batch_size": 4, "group_size": 4}


def short(horizon=4, seed=0, **parts):
    """A chain of three states with an end token, few enough responses to be listed."""
    rng = np.random.default_rng(seed)
    chain = gt.TokenChain([[0, 1, 2], [1, 2, 0], [2, 0, 1]], horizon, end_token=2, starts=[0, 1], **parts)
    return gt.Problem(gt.StateRewards([0.1, 0.8, 0.4], [0.3, 0.7]), chain, theta=rng.normal(size=chain.dimension))


def train(problem, estimator, schedule=CONSTANT, steps=8, replications=800, rng=3, **more):
    sizes = SIZES | more
    return gt.simulate_training(
        problem, problem.theta, estimator, schedule, steps=steps, replications=replications, rng=rng, **sizes
    )


def z_scores(one, other):
    """Return how far two sets of runs are apart, in standard errors: objectives, their averages' and how far they went."""
    z = []
    for field in ("objectives", "average_objectives", "farthest", "theta"):
        a, b = np.atleast_2d(getattr(one, field).T), np.atleast_2d(getattr(other, field).T)
        error = np.sqrt(a.var(axis=1) / a.shape[1] + b.var(axis=1) / b.shape[1])
        z.append((a.mean(axis=1) - b.mean(axis=1))[error > 0.0] / error[error > 0.0])
    return np.concatenate(z)


HOW = {
    "rloo": {},
    "grpo": {"optimiser": gt.Adam(), "schedule": Constant(0.1)},
    "dapo": {"inner_steps": 4, "schedule": Harmonic(8.0, 2)},
    "gspo": {"inner_steps": 2},
    "trl_rloo_loss": {"inner_steps": 4, "schedule": Constant(0.3)},
    "cispo": {"inner_steps": 2, "optimiser": gt.Adam((0.5, 0.9)), "schedule": Constant(0.1)},
    "oracle": {},
    "james_stein": {"inner_steps": 2},
    "tic_grpo": {"lag": 3, "schedule": Constant(8.0)},
}


@pytest.mark.filterwarnings("ignore::grpo_theory.exact.derivatives.StabilityWarning")
@pytest.mark.parametrize("name", HOW)
def test_runs_have_the_means_of_the_listed_twins(name):
    problem, checkpoints = short(horizon=3), [0, 4, 8]
    one = train(problem, name, checkpoints=checkpoints, **HOW[name])
    other = train(problem.listed(), name, checkpoints=checkpoints, **HOW[name])
    z = z_scores(one, other)
    assert np.abs(z).max() < LIMIT, z
    gain = one.objectives[:, 2].mean() - one.objectives[0, 0]
    assert gain > 2 * LIMIT * one.objectives[:, 2].std() / np.sqrt(800), "they move by more than chance could hide"


def test_a_kernel_that_reads_norms_and_a_ball_train_as_the_listed_twin_does():
    problem = short(horizon=2)
    ball = gt.Ball(problem.theta, 0.3)
    one, other = (train(p, "optimal_loo", ball=ball) for p in (problem, problem.listed()))
    assert np.abs(z_scores(one, other)).max() < LIMIT
    assert 0.25 < one.farthest.max() <= 0.3 + 1e-12


def test_another_estimator_trains_otherwise():
    problem = short(horizon=3)
    one, other = train(problem, "grpo"), train(problem.listed(), "rloo")
    assert np.abs(z_scores(one, other)).max() > 2 * LIMIT


def test_objectives_are_those_of_the_listed_twin():
    problem, rng = short(), np.random.default_rng(1)
    twin, thetas = problem.listed(), rng.normal(size=(2, 3, 9))
    np.testing.assert_allclose(gt.objective(problem, thetas), gt.objective(twin, thetas), rtol=1e-13)
    assert gt.objective(problem, problem.theta).shape == ()
    thetas[0, 1, 4] = np.nan
    assert np.array_equal(np.isnan(gt.objective(problem, thetas)), np.isnan(thetas).any(axis=-1))
    with pytest.raises(ValueError, match=r"theta must have shape \(..., d\) with d = 9, got \(4,\)"):
        gt.objective(problem, np.zeros(4))


@pytest.mark.parametrize("features", [None, np.random.default_rng(5).normal(size=(3, 3, 4))])
def test_derivatives_of_the_objective_are_those_of_the_listed_twin(features):
    problem = short(features=features)
    twin, theta = problem.listed(), problem.theta
    np.testing.assert_allclose(gt.exact.gradient(problem, theta), gt.exact.gradient(twin, theta), atol=1e-14)
    np.testing.assert_allclose(gt.hessian(problem, theta), gt.hessian(twin, theta), atol=1e-14)
    directions = np.random.default_rng(2).normal(size=(3, theta.size))
    found = gt.exact.directional_derivatives(problem, [theta, 2.0 * theta], directions)
    np.testing.assert_allclose(found, gt.exact.directional_derivatives(twin, [theta, 2.0 * theta], directions), atol=1e-13)


def test_runs_are_the_same_bits_for_any_workers_number_and_checkpoints():
    problem = short()
    whole = train(problem, "gspo", replications=9, inner_steps=2, workers=1)
    for workers, replications, checkpoints in ((2, 9, None), (5, 9, [2, 8]), (1, 4, [0, 8]), (2, 4, None)):
        run = train(problem, "gspo", replications=replications, inner_steps=2, workers=workers, checkpoints=checkpoints)
        for field in ("theta", "average", "farthest"):
            assert np.array_equal(getattr(run, field), getattr(whole, field)[:replications])
        assert np.array_equal(run.objectives[:, -1], whole.objectives[:replications, -1])
    assert not np.array_equal(train(problem, "gspo", replications=9, inner_steps=2, rng=4).theta, whole.theta)


def test_averages_are_those_of_the_iterates_and_each_run_has_its_start():
    problem, starts = short(), np.random.default_rng(3).normal(size=(5, 9))
    runs = [gt.simulate_training(problem, starts, "rloo", CONSTANT, steps=n, replications=5, rng=1, **SIZES) for n in (1, 2, 3)]
    iterates = np.stack([run.theta for run in runs])
    np.testing.assert_allclose(runs[2].average, iterates.mean(axis=0), atol=1e-14)
    far = np.linalg.norm(iterates - starts, axis=2).max(axis=0)
    np.testing.assert_allclose(runs[2].farthest, far, rtol=1e-12)
    np.testing.assert_array_equal(runs[2].objectives[:, 0], gt.objective(problem, runs[2].theta))


def test_runs_that_leave_the_finite_numbers_are_nan_from_there_on():
    law = np.array([[0.5, 0.5], [0.1, 0.9], [0.7, 0.3]])
    problem = gt.Problem(gt.StateRewards.from_law([0.0, 1e10], law), short().policy)
    with pytest.warns(StabilityWarning):
        run = train(problem, "reinforce", Constant(1e300), steps=4, replications=6, checkpoints=[0, 4])
    assert run.diverged.any()
    assert np.isfinite(run.objectives[:, 0]).all()
    assert np.array_equal(np.isnan(run.objectives[:, 1]), run.diverged)


def test_training_at_a_thousand_tokens_learns():
    chain = gt.TokenChain([[0, 1], [1, 0]], 1024)
    problem = gt.Problem(gt.StateRewards([0.0, 1.0]), chain, theta=[0.0, -7.0, 0.0, -5.0])
    run = train(problem, "rloo", Constant(2.0), steps=20, replications=10, checkpoints=[0, 20], group_size=16)
    assert run.objectives[:, 1].mean() > run.objectives[0, 0] + 0.1


def test_what_cannot_be_trained_is_refused():
    problem = short()
    with pytest.raises(ValueError, match="inner_steps must divide batch_size = 4, got 3"):
        train(problem, "rloo", inner_steps=3, steps=9)
    with pytest.raises(TypeError, match=r"ball must be a Ball\(centre, radius\) or None"):
        train(problem, "rloo", ball=3.0)
    with pytest.raises(TypeError, match=r"optimiser must be an object, got the class Adam. Write Adam\(\)"):
        train(problem, "rloo", optimiser=gt.Adam)


def test_a_step_that_is_too_large_is_warned_of_where_the_hessian_is_quickly_had():
    problem = short()
    assert "too large for stability" in stability_message(problem, problem.theta, np.array([1e4]))
    long = gt.gallery.problem("chain-copy")
    assert 3.0 * 64 * 4 * 2 * long.policy.n_logits**3 < LARGEST_RECURSION
    large = gt.gallery.problem("chain-bigram-text")
    assert stability_message(large, large.theta, np.array([1e4])) is None
    longer = gt.Problem(long.bandit, gt.TokenChain(long.policy.transitions, 1 << 16, starts=long.policy.starts))
    assert stability_message(longer, longer.theta, np.array([1e4])) is None
