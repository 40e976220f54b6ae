"""The objective, its Hessian, and maximisers."""

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.exact import check_optimum
from grpo_theory.exact.maximiser import best_step, minimise


def test_what_is_not_a_maximiser_is_refused(check_refused):
    problem, three = gt.gallery.problem("kl-linear"), gt.LinearSoftmax([[[-1.0], [0.0], [1.0]]])
    small = gt.Bandit.from_law([0.0, 1e-9], np.stack([1.0 - problem.bandit.mean_reward, problem.bandit.mean_reward], axis=-1))
    far, moved = problem.theta + 1.0, "optimum must be a stationary point, got a gradient of norm"
    worst = "optimum must be a maximiser, got a direction of positive curvature"
    check_refused(
        (lambda: check_optimum(problem, far), moved),
        # A small gradient is no small distance where the curvature is as small.
        (lambda: check_optimum(gt.Problem(small, problem.policy), far), moved),
        # The middle response is the worst: where it is likeliest, the objective is least.
        (lambda: check_optimum(gt.Problem(gt.Bandit([[0.9, 0.1, 0.9]]), three), [0.0]), worst),
        (lambda: check_optimum(gt.Problem(gt.Bandit([[0.5, 0.5, 0.5]]), three), [0.0]), "flat in every direction"),
    )


def test_a_search_with_restarts_finds_the_higher_of_two_maxima():
    """One parameter, two prompts in conflict: maxima at -0.62 and, lower, at 0.71."""
    rng = np.random.default_rng(11)
    bandit, features = gt.Bandit(rng.uniform(0.0, 1.0, (2, 4))), 3.0 * rng.normal(size=(2, 4, 1))
    problem = gt.Problem(bandit, gt.LinearSoftmax(features), gt.KL(0.05, np.full((2, 4), 0.25)))
    highest = gt.objective(problem, np.linspace(-30.0, 30.0, 6001)[:, None]).max()
    local = gt.objective(problem, gt.find_optimum(problem, [1.0]))
    found = gt.exact.search_optimum(problem, [1.0], restarts=12, rng=3)
    assert local < highest - 0.04
    assert highest <= found.objective < highest + 1e-4
    assert found.objective == found.highest == gt.objective(problem, found.theta)
    assert 1 < found.agreeing < found.restarts == 12
    assert not found.is_global
    np.testing.assert_array_equal(gt.exact.search_optimum(problem, [1.0], restarts=12, rng=3).theta, found.theta)
    alone = gt.exact.search_optimum(problem, [1.0], restarts=1)
    assert (alone.objective, alone.agreeing, alone.restarts) == (local, 1, 1)


def test_a_maximum_at_infinity_beside_an_interior_one_is_refused():
    """Two prompts in conflict share theta_1; a third wants theta_2 at infinity, where the objective looks flat in it."""
    features = np.zeros((3, 3, 2))
    features[0, :, 0], features[1, :, 0], features[2, 0, 1] = [-1.0, 0.0, 2.0], [-2.0, 0.0, 1.0], 1.0
    success = [[0.1, 0.9, 0.2], [0.1, 0.9, 0.2], [1.0, 0.0, 0.0]]
    with pytest.raises(ValueError, match=r"theta0 must .* interior, and the policy is deterministic along 1 of its directions"):
        gt.find_optimum(gt.Problem(gt.Bandit(success), gt.LinearSoftmax(features)), np.zeros(2))
    # Luck alone, and a prompt that never comes, leave a direction truly flat.
    for bandit in (gt.Bandit([*success[:2], [0.5, 0.5, 0.5]]), gt.Bandit(success, [0.5, 0.5, 0.0])):
        problem = gt.Problem(bandit, gt.LinearSoftmax(features))
        curvatures, directions = check_optimum(problem, gt.find_optimum(problem, np.zeros(2)))
        np.testing.assert_allclose(np.abs(directions), [[1.0], [0.0]], atol=1e-9)
        assert len(curvatures) == 1


def test_the_closed_form_for_sequences_is_what_the_search_finds():
    """The tilted reference over whole sequences, as a table and, searched for, with the same one-hot features."""
    rng = np.random.default_rng(8)
    bandit, reference = gt.Bandit(rng.uniform(0.1, 0.9, (2, 7))), rng.dirichlet(np.ones(7), size=2)
    made = {"n_prompts": 2, "vocabulary_size": 3, "horizon": 2, "end_token": 0}
    tree = gt.TokenTree(**made)
    one_hot = gt.TokenTree(**made, features=np.eye(2 * tree.n_logits).reshape(2, tree.n_logits, -1))
    problem, searched = (gt.Problem(bandit, policy, gt.KL(0.7, reference)) for policy in (tree, one_hot))
    best, found = gt.find_optimum(problem, problem.theta), gt.find_optimum(searched, searched.theta)
    tilted = reference * np.exp(bandit.mean_reward / 0.7)
    tilted /= tilted.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(problem.policy.probabilities(best), tilted, rtol=1e-12)
    np.testing.assert_allclose(searched.policy.probabilities(found), tilted, rtol=1e-9)
    by_prefix = best.reshape(2, -1, 3)
    np.testing.assert_allclose(by_prefix.sum(axis=-1), 0.0, atol=1e-14)
    curvatures, _ = check_optimum(problem, best)
    assert len(curvatures) == tree.dimension - by_prefix[..., 0].size


@pytest.mark.parametrize(
    "curvatures", [(2.0, 0.5), (1.0, -1.0), (-2.0, -0.5), (1.0, 0.0), (0.0, 0.0), (1e-17, 3.0), (-1e-17, 1.0)]
)
@pytest.mark.parametrize("slope", [(1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1e-18), (1e-3, 1e-3)])
def test_no_step_within_the_radius_is_better(curvatures, slope):
    """Among them the hard case, in which the slope has no part along the lowest curvature."""
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    hessian, gradient = turn @ np.diag(curvatures) @ turn.T, turn @ np.array(slope)
    angles = np.linspace(0.0, 2.0 * np.pi, 2001)
    around = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    for radius in (1e-6, 0.5, 40.0):
        points = (radius * np.linspace(0.0, 1.0, 101)[:, None, None] * around).reshape(-1, 2)
        values = points @ gradient + 0.5 * np.einsum("pi,ij,pj->p", points, hessian, points)
        step = best_step(gradient, hessian, radius)
        value = step @ gradient + 0.5 * step @ hessian @ step
        assert np.linalg.norm(step) <= radius * (1.0 + 1e-12)
        assert value <= values.min() + 1e-9 * abs(values.min())


@pytest.mark.parametrize(
    "loss", [lambda theta: np.nan, lambda theta: 1.0, lambda theta: float(theta @ theta), lambda theta: float(theta.sum())]
)
def test_a_search_ends_whatever_the_function_says(loss):
    """The function and its slope contradict each other, so that no step is good enough, or good for nothing; or it has no end."""
    asked = []

    def counted(theta):
        asked.append(theta)
        return loss(theta)

    end = minimise(counted, lambda theta: np.ones(3), lambda theta: -np.eye(3), np.zeros(3), 1e-10)
    assert np.isfinite(end).all()
    assert 1 < len(asked) <= 601
