"""Slope and curvature of success probabilities, and the softmax bandit: closed forms, sharp constants, and their studies."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit

import grpo_theory as gt
from grpo_theory.theory import (
    GREATEST_CURVATURE,
    GREATEST_LOCAL_CURVATURE,
    GREATEST_SLOPE,
    curvature_bound,
    local_curvature_bound,
    softmax_gap_bound,
    softmax_gap_limit,
    success_gradient,
    success_hessian,
)
from simulations.normalisation import softmax_bandit
from simulations.normalisation.families import Family
from simulations.normalisation.policies import Policy

SHAPES = [(2, 1, 1), (2, 1, 3), (3, 1, 2), (4, 2, 4), (5, 1, 3), (10, 4, 6)]
"""Responses, correct ones among them, parameters."""


def policy(shape, seed=0):
    n_responses, n_correct, dimension = shape
    rng = np.random.default_rng(seed)
    correct = np.zeros(n_responses, dtype=bool)
    correct[rng.choice(n_responses, n_correct, replace=False)] = True
    features, theta = rng.normal(size=(n_responses, dimension)), rng.normal(size=dimension)
    return correct, features, theta


def softmax(logits):
    grown = np.exp(logits - logits.real.max())
    return grown / grown.sum()


def norm(matrix):
    return float(np.linalg.norm(matrix, 2))


@pytest.mark.parametrize("shape", SHAPES)
def test_slope_and_curvature_are_those_of_the_success_probability(shape):
    """The gradient by a step along the imaginary axis, and the Hessian by such a step of the gradient's definition."""
    correct, features, theta = policy(shape)
    axes = 1e-30j * np.eye(len(theta))

    def slope(point):
        pi = softmax(features @ point)
        return (pi * correct) @ (features - pi @ features)

    pi = softmax(features @ theta)
    exact = [softmax(features @ (theta + axis))[correct].sum().imag / 1e-30 for axis in axes]
    np.testing.assert_allclose(success_gradient(pi, correct, features), exact, atol=1e-14)
    np.testing.assert_allclose(slope(theta), exact, atol=1e-14)
    twice = [slope(theta + axis).imag / 1e-30 for axis in axes]
    np.testing.assert_allclose(success_hessian(pi, correct, features), twice, atol=1e-13)


@pytest.mark.parametrize("p", [0.01, 0.2113, 0.3, 0.45, 0.5, 0.6, 0.9])
@pytest.mark.parametrize("several", [False, True])
def test_the_bound_of_the_curvature_is_attained_at_every_success_probability(p, several):
    """Two responses that share nearly all of the mass, or the mass even on two responses of one side."""
    rare = 1e-12
    two = np.array([p, 1.0 - p])
    laws = [np.array([p, rare, rare, 1.0 - p]), np.array([p, rare, (1 - p) / 2, (1 - p) / 2])]
    correct = np.array([True, several, False, False])
    assert norm(success_hessian(two, [True, False], np.eye(2))) == pytest.approx(curvature_bound(p, 2), rel=1e-9, abs=1e-15)
    found = max(norm(success_hessian(law / law.sum(), correct, np.eye(4))) for law in laws)
    assert found == pytest.approx(curvature_bound(p, 4), rel=1e-9)


def test_the_greatest_constants_are_the_greatest():
    p = np.linspace(0.0, 1.0, 200001)[1:-1]
    assert np.sqrt(2.0) * (p * (1 - p)).max() == pytest.approx(GREATEST_SLOPE, rel=1e-9)
    for n in (2, 3):
        assert curvature_bound(p, n).max() == pytest.approx(GREATEST_CURVATURE, rel=1e-9)
        assert (local_curvature_bound(p, np.sqrt(p * (1 - p)), n) / np.sqrt(p * (1 - p))).max() <= GREATEST_LOCAL_CURVATURE

    def attained(x):
        p = expit(x)
        return -curvature_bound(expit(x + np.sqrt(2.0 * p * (1 - p))), 2) / np.sqrt(p * (1 - p))

    best = minimize_scalar(attained, bounds=(-3.0, -1.5), method="bounded", options={"xatol": 1e-10})
    assert -best.fun == pytest.approx(GREATEST_LOCAL_CURVATURE, rel=1e-12)
    assert expit(best.x) == pytest.approx(0.10251, abs=1e-4)


@pytest.mark.parametrize("n_responses", [2, 3])
@pytest.mark.parametrize("p", [1e-3, 0.1, 0.25, 0.5, 0.77, 0.999])
@pytest.mark.parametrize("radius", [0.0, 0.2, 1.0, 5.0])
def test_the_most_within_a_radius_is_the_most_on_a_grid(n_responses, p, radius):
    reach = np.sqrt(2.0) * radius
    grid = expit(np.linspace(logit(p) - reach, logit(p) + reach, 200001))
    most = curvature_bound(grid, n_responses).max()
    assert local_curvature_bound(p, radius, n_responses) == pytest.approx(most, rel=1e-8)


def ascend(rewards, step, updates, divided=False):
    """Return the gaps of exact gradient ascent from equal logits, as the definition has it."""
    logits, gaps = np.zeros(len(rewards)), []
    for _ in range(updates):
        pi = softmax(logits)
        slope = pi * (rewards - pi @ rewards)
        gaps.append(pi @ (rewards.max() - rewards))
        logits = logits + step * slope / (np.sqrt(pi @ (rewards - pi @ rewards) ** 2) if divided else 1.0)
    return np.array(gaps)


@pytest.mark.parametrize(("n_responses", "n_best"), [(2, 1), (4, 1), (4, 2), (4, 3), (6, 1)])
def test_the_gap_of_a_softmax_bandit_has_its_limit(n_responses, n_best):
    rewards = np.r_[np.full(n_best, 0.9), np.linspace(0.1, 0.6, n_responses - n_best)]
    gaps = ascend(rewards, 0.4, 8001)
    growth = (1.0 / gaps[8000] - 1.0 / gaps[4000]) / 4000
    assert growth * softmax_gap_limit(n_responses, 0.4, n_best) == pytest.approx(1.0, abs=0.01)
    updates = np.arange(1, 8001)
    assert (gaps[1:] <= softmax_gap_bound(n_responses, 0.4) / updates).all()


def test_arguments_are_checked(check_refused):
    all_right = "correct must be true for some responses and false for others"
    check_refused(
        (lambda: success_hessian([0.5, 0.5], [True, True], np.eye(2)), all_right),
        (lambda: success_gradient([0.5, 0.5], [True, False], np.eye(3)), r"features must have shape \(2, 3\)"),
        (lambda: softmax_gap_bound(3, 11.0), "step must be below 2/beta"),
    )


@pytest.mark.parametrize("family", [(2, 1), (4, 1), (5, 3)])
def test_policies_written_out_are_those_of_the_library(family):
    here, near = Family(*family).draw(np.random.default_rng(5), Policy)
    assert np.linalg.norm(near.logits - here.logits) <= np.sqrt(here.variance) + 1e-12
    for one in (here, near):
        problem = gt.Problem(gt.Bandit(one.correct[None].astype(float)), gt.LinearSoftmax(one.features[None]))
        theta = np.linalg.lstsq(one.features, one.logits, rcond=None)[0]
        moments = gt.moments(problem, theta)
        assert one.success == pytest.approx(moments.value[0], rel=1e-10)
        np.testing.assert_allclose(one.gradient, moments.gradient, atol=1e-12)
        np.testing.assert_allclose(one.hessian, gt.hessian(problem, theta), atol=1e-12)


def test_paths_of_the_softmax_bandit_are_those_of_the_definition():
    rewards = np.array([0.9, 0.1, 0.4, 0.6])
    for power, divided in ((0.0, False), (1.0, True)):
        found = softmax_bandit.gaps_along(rewards, 50, power=power)
        np.testing.assert_allclose(found, ascend(rewards, softmax_bandit.STEP, 50, divided), rtol=1e-10)


def test_a_bandits_parts_are_those_of_the_library():
    logits, rewards = np.array([0.3, -0.5, 1.0]), np.array([0.2, 0.9, 0.4])
    problem = gt.Problem(gt.Bandit(rewards[None]), gt.TabularSoftmax(1, 3))
    slope, curvature, promise = softmax_bandit.measured(logits, rewards)
    assert slope == pytest.approx(np.linalg.norm(gt.moments(problem, logits).gradient), rel=1e-12)
    assert curvature == pytest.approx(norm(gt.hessian(problem, logits)), rel=1e-11)
    gap = 0.9 - gt.objective(problem, logits)
    assert promise == pytest.approx(softmax(logits)[1] * gap, rel=1e-12)
