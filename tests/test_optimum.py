"""The objective, its Hessian, and maximisers."""

import numpy as np
import pytest
from enumeration import PENALTIES, POLICIES, REWARDS, case

import grpo_theory as gt
from grpo_theory.exact import directional_derivatives
from grpo_theory.exact.objective import gradient
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
    # A small gradient is no small distance where the curvature is as small.
    small = gt.Bandit.from_law([0.0, 1e-9], np.stack([1.0 - problem.bandit.mean_reward, problem.bandit.mean_reward], axis=-1))
    with pytest.raises(ValueError, match=r"optimum must be a stationary point, got a gradient of norm"):
        check_optimum(small, problem.policy, problem.theta + 1.0)
    # The middle response is the worst: where it is likeliest, the objective is least.
    features = [[[-1.0], [0.0], [1.0]]]
    with pytest.raises(ValueError, match="optimum must be a maximiser, got a direction of positive curvature"):
        check_optimum(gt.Bandit([[0.9, 0.1, 0.9]]), gt.LinearSoftmax(features), [0.0])
    with pytest.raises(ValueError, match="flat in all"):
        check_optimum(gt.Bandit([[0.5, 0.5, 0.5]]), gt.LinearSoftmax(features), [0.0])


def test_no_interior_maximiser_is_said():
    with pytest.raises(ValueError, match="optimum must"):
        gt.find_optimum(gt.Bandit([[0.9, 0.1]]), gt.LinearSoftmax([[[1.0], [0.0]]]), [0.0])


def test_a_maximum_at_infinity_beside_an_interior_one_is_refused():
    """Two prompts in conflict share theta_1; a third wants theta_2 at infinity, where the objective looks flat in it."""
    features = np.zeros((3, 3, 2))
    features[0, :, 0], features[1, :, 0], features[2, 0, 1] = [-1.0, 0.0, 2.0], [-2.0, 0.0, 1.0], 1.0
    success = [[0.1, 0.9, 0.2], [0.1, 0.9, 0.2], [1.0, 0.0, 0.0]]
    with pytest.raises(ValueError, match="optimum must be interior, and the policy is deterministic along 1 of its directions"):
        gt.find_optimum(gt.Bandit(success), gt.LinearSoftmax(features), np.zeros(2))
    # Luck alone, and a prompt that never comes, leave a direction truly flat.
    for bandit in (gt.Bandit([*success[:2], [0.5, 0.5, 0.5]]), gt.Bandit(success, [0.5, 0.5, 0.0])):
        best = gt.find_optimum(bandit, gt.LinearSoftmax(features), np.zeros(2))
        curvatures, directions = check_optimum(bandit, gt.LinearSoftmax(features), best)
        np.testing.assert_allclose(np.abs(directions), [[1.0], [0.0]], atol=1e-9)
        assert len(curvatures) == 1


class SteepTabular(gt.TabularSoftmax):
    """A tabular policy whose logits are twice its parameters."""

    def logits(self, theta):
        return 2.0 * super().logits(theta)

    def adjoint(self, covectors):
        return 2.0 * super().adjoint(covectors)

    def congruence(self, forms):
        return 4.0 * super().congruence(forms)

    def gram(self):
        return 4.0 * super().gram()


def test_the_closed_form_is_not_used_for_a_policy_that_is_not_tabular():
    problem = gt.gallery.training_problem("kl-tabular")
    policy = SteepTabular(2, 3)
    best = gt.find_optimum(problem.bandit, policy, np.zeros(6), problem.kl)
    np.testing.assert_allclose(gt.moments(problem.bandit, policy, best, problem.kl).gradient, 0.0, atol=1e-12)
    tabular = gt.find_optimum(problem.bandit, problem.policy, problem.theta, problem.kl)
    np.testing.assert_allclose(policy.probabilities(best), problem.policy.probabilities(tabular), rtol=1e-10)


TWO = gt.Bandit([[0.5, 0.5], [0.1, 0.2]]), gt.TabularSoftmax(2, 2)
NARROW = gt.KL(1.0, [[0.5, 0.5]])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: gt.find_optimum(*TWO, np.zeros(4), NARROW), ValueError, r"reference must have shape \(2, 2\)"),
        (lambda: gt.find_optimum(*TWO, np.zeros(3), gt.KL(1.0, [[0.5, 0.5]] * 2)), ValueError, r"theta must have shape \(4,\)"),
        (lambda: gt.find_optimum(TWO[0], gt.TabularSoftmax(3, 2), np.zeros(6), NARROW), ValueError, "policy must have"),
        (lambda: gt.objective(*TWO, np.zeros(4), NARROW), ValueError, r"reference must have shape \(2, 2\)"),
        (lambda: gradient(*TWO, np.zeros(4), NARROW), ValueError, r"reference must have shape \(2, 2\)"),
        (lambda: gt.objective(*TWO, np.zeros(5)), ValueError, r"theta must have shape \(..., d\) with d = 4, got \(5,\)"),
        (lambda: gt.objective(*TWO, np.zeros(4), 0.1), TypeError, "kl must be a KL"),
        (lambda: gt.hessian(*TWO, np.zeros(4), 0.1), TypeError, "kl must be a KL"),
        (lambda: gradient(*TWO, np.full(4, np.nan)), ValueError, r"theta must be finite, got nan at index \(0,\)"),
        (
            lambda: directional_derivatives(*TWO, np.zeros(4), np.zeros((2, 3))),
            ValueError,
            r"directions must have shape \(..., d\) with d = 4, got \(2, 3\)",
        ),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_unknown_training_problem():
    with pytest.raises(ValueError, match="name must be one of kl-tabular"):
        gt.gallery.training_problem("nothing")
