"""The objective, its Hessian, and maximisers."""

import numpy as np
import pytest
from enumeration import PENALTIES, POLICIES, REWARDS, case

import grpo_theory as gt
from grpo_theory.theory import check_optimum


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("rewards", REWARDS)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_hessian_is_the_derivative_of_the_exact_gradient(policy, rewards, penalty):
    bandit, chosen, theta, _, kl = case(policy, rewards, penalty)
    step = 1e-5
    numeric = np.stack(
        [
            (
                gt.moments(bandit, chosen, theta + step * e, kl).gradient
                - gt.moments(bandit, chosen, theta - step * e, kl).gradient
            )
            / (2.0 * step)
            for e in np.eye(chosen.dimension)
        ]
    )
    exact = gt.hessian(bandit, chosen, theta, kl)
    np.testing.assert_allclose(exact, numeric, atol=1e-8)
    np.testing.assert_allclose(exact, exact.T, atol=1e-15)
    assert np.abs(exact).max() > 1e-3


@pytest.mark.parametrize("penalty", PENALTIES)
def test_gradient_is_the_derivative_of_the_objective(penalty):
    bandit, policy, theta, _, kl = case("linear", "graded", penalty)
    thetas = theta + 1e-6 * np.stack([np.eye(policy.dimension), -np.eye(policy.dimension)])
    up, down = gt.objective(bandit, policy, thetas, kl)
    np.testing.assert_allclose((up - down) / 2e-6, gt.moments(bandit, policy, theta, kl).gradient, atol=1e-8)


@pytest.mark.parametrize("name", gt.gallery.training_names())
def test_training_problems_have_an_interior_maximiser_above_everything_sampled(name):
    problem = gt.gallery.training_problem(name)
    where = (problem.bandit, problem.policy)
    best = gt.find_optimum(*where, problem.theta, problem.kl)
    assert np.linalg.norm(gt.moments(*where, best, problem.kl).gradient) < 1e-12
    curvatures, directions = check_optimum(*where, best, problem.kl)
    assert curvatures.min() > 1e-3
    np.testing.assert_allclose(directions.T @ directions, np.eye(len(curvatures)), atol=1e-12)
    rng = np.random.default_rng(3)
    radii = np.repeat([0.1, 1.0, 5.0, 50.0], 500)
    elsewhere = best + radii[:, None] * rng.normal(size=(2000, problem.policy.dimension))
    assert gt.objective(*where, best, problem.kl) >= gt.objective(*where, elsewhere, problem.kl).max()


def test_tabular_optimum_is_the_tilted_reference_with_one_flat_direction_a_prompt():
    problem = gt.gallery.training_problem("kl-tabular")
    best = gt.find_optimum(problem.bandit, problem.policy, problem.theta, problem.kl)
    tilted = np.asarray(problem.kl.reference) * np.exp(problem.bandit.mean_reward / problem.kl.strength)
    tilted /= tilted.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(problem.policy.probabilities(best), tilted, rtol=1e-13)
    curvatures, _ = check_optimum(problem.bandit, problem.policy, best, problem.kl)
    assert len(curvatures) == problem.policy.dimension - problem.bandit.n_prompts


def test_what_is_not_a_maximiser_is_refused():
    problem = gt.gallery.training_problem("kl-linear")
    where = (problem.bandit, problem.policy)
    with pytest.raises(ValueError, match=r"optimum must be a stationary point, got a gradient of norm"):
        check_optimum(*where, problem.theta + 1.0, problem.kl)
    # The middle response is the worst: where it is likeliest, the objective is least.
    features = [[[-1.0], [0.0], [1.0]]]
    with pytest.raises(ValueError, match="optimum must be a maximiser, got a direction of positive curvature"):
        check_optimum(gt.Bandit([[0.9, 0.1, 0.9]]), gt.LinearSoftmax(features), [0.0])
    with pytest.raises(ValueError, match="flat in all"):
        check_optimum(gt.Bandit([[0.5, 0.5, 0.5]]), gt.LinearSoftmax(features), [0.0])


def test_no_interior_maximiser_is_said():
    with pytest.raises(ValueError, match="optimum must"):
        gt.find_optimum(gt.Bandit([[0.9, 0.1]]), gt.LinearSoftmax([[[1.0], [0.0]]]), [0.0])


def test_unknown_training_problem():
    with pytest.raises(ValueError, match="name must be one of kl-tabular"):
        gt.gallery.training_problem("nothing")
