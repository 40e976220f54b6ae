"""What noise costs the learned policy: against all batches of two steps, with the noise scaled down."""

import dataclasses

import numpy as np
import pytest
from enumeration import case, groups, prompts

import grpo_theory as gt
from grpo_theory.theory import TrainingLaw, leave_one_out_parts, noise_free_path, training_law

STEPS = np.array([0.9, 0.6])
GROUP_SIZE = 2


def noisy_steps(c, theta, step, scale):
    """Return every next iterate and its probability, the estimate's deviation from its mean scaled (B = 1)."""
    tables = prompts(c.replace(theta=theta))
    f = c.bandit.prompt_weights
    gradient = sum(weight * table.gradient for weight, table in zip(f, tables, strict=True))
    for weight, table in zip(f, tables, strict=True):
        for rows, probability in zip(*groups(table, GROUP_SIZE), strict=True):
            rewards, scores = table.rewards[rows], table.scores[rows]
            estimate = 0.5 * (scores[0] - scores[1]) * (rewards[0] - rewards[1])
            yield theta + step * (gradient + scale * (estimate - gradient)), weight * probability


def expected_objective(c, scale):
    """Return E J(theta_2) by enumeration of both steps."""
    total = 0.0
    for first, probability in noisy_steps(c, c.theta, STEPS[0], scale):
        ends, weights = zip(*noisy_steps(c, first, STEPS[1], scale), strict=True)
        total += probability * (np.array(weights) @ gt.objective(c.problem, np.array(ends)))
    return total


@pytest.mark.parametrize(("policy", "rewards", "penalty"), [("linear", "binary", "plain"), ("tabular", "binary", "kl")])
def test_the_loss_is_the_first_order_of_the_noise(policy, rewards, penalty):
    """Halving the noise divides what is left over by 8 or more; with a third constant 10% off, by 4."""
    c = case(policy, rewards, penalty)
    law = training_law(c.problem, c.theta, STEPS, steps=2)

    def left(scale, factor=1.0):
        wrong = dataclasses.replace(law, constants=law.constants * [1.0, 1.0, factor])
        return expected_objective(c, scale) - law.objective + scale**2 * wrong.loss(GROUP_SIZE, GROUP_SIZE)

    assert abs(left(0.05)) > 7.0 * abs(left(0.025))
    assert abs(left(0.05, 1.1)) < 5.0 * abs(left(0.025, 1.1))
    assert abs(left(0.025)) < 0.05 * 0.025**2 * abs(law.loss(GROUP_SIZE, GROUP_SIZE))


@pytest.mark.parametrize("penalty", ["plain", "kl"])
def test_constants_are_second_differences_of_the_noise_free_run(penalty):
    """Minus half the step squared times the second derivative of the final objective along each part's eigenvectors."""
    c = case("linear", "graded", penalty)
    steps = np.array([1.5, 0.7, 1.1, 0.4])
    law = training_law(c.problem, c.theta, steps, steps=4)
    for i in range(4):

        def final(theta, i=i):
            end = noise_free_path(c.problem, theta, steps[i + 1 :])[-1]
            return float(gt.objective(c.problem, end))

        at, h = law.path[i + 1], 1e-3
        slope = [(final(at + h * e) - final(at - h * e)) / (2 * h) for e in np.eye(3)]
        np.testing.assert_allclose(law.slopes[i], slope, atol=1e-6)
        np.testing.assert_allclose(law.curvatures[i] @ slope, _along(final, at, np.array(slope)), atol=1e-4)
        for constant, part in zip(law.constants[i], leave_one_out_parts(c.problem, law.path[i]), strict=True):
            values, vectors = np.linalg.eigh(part)
            second = [(final(at + h * v) - 2 * final(at) + final(at - h * v)) / h**2 for v in vectors.T]
            assert constant == pytest.approx(-0.5 * steps[i] ** 2 * (values @ second), abs=2e-6)


def _along(final, at, direction, h=1e-3):
    """Return the second derivative of a function applied to a direction, by differences."""
    plus, minus = at + h * direction, at - h * direction

    def slope(point):
        return np.array([(final(point + h * e) - final(point - h * e)) / (2 * h) for e in np.eye(len(at))])

    return (slope(plus) - slope(minus)) / (2 * h)


def law_of_steps(constants):
    n = len(constants)
    return TrainingLaw(
        gt.gallery.problem("two-arms"),
        np.ones(n),
        np.zeros((n + 1, 1)),
        0.0,
        np.zeros((n, 1)),
        np.array(constants),
        np.zeros((n, 1, 1)),
    )


def law_of(c1, c2, c3):
    return law_of_steps([[c1, c2, c3]])


@pytest.mark.parametrize(
    ("constants", "optimum"),
    [
        ((1.0, 5.0, 9.0), 4.0),
        ((1.0, -5.0, 0.25), 2.0),
        ((0.0, 1.0, 1.0), np.inf),
        ((-1.0, 1.0, 1.0), np.inf),
        ((1.0, 1.0, -1.0), 2.0),
        ((0.0, 1.0, -1.0), 2.0),
    ],
)
def test_the_optimum_is_the_least_loss(constants, optimum):
    law = law_of(*constants)
    assert law.optimum == optimum
    grid = np.linspace(2.0, 50.0, 481)
    least = grid[np.argmin([law.loss(100, size) for size in grid])]
    assert least == pytest.approx(min(optimum, 50.0), abs=1e-9)


def test_a_group_size_a_step_costs_what_its_steps_cost():
    law = law_of_steps([[1.0, 2.0, 3.0], [0.5, 0.0, 4.0]])
    assert law.loss(10, [2, 5]) == pytest.approx((2.0 + 2.0 + 3.0 + 2.5 + 1.0) / 10.0)
    assert law.loss(10, 5) == law.loss(10, [5, 5])
    for sizes, message in (([1, 2, 4], "be at least 2, got 1"), (4, "have 1 dimensions"), ([2, np.nan], "be finite, got nan")):
        with pytest.raises(ValueError, match=f"group_sizes must {message}"):
            law.best_schedule(sizes)
    with pytest.raises(ValueError, match=r"group_sizes must be at least 2, got 1"):
        law.loss(10, [1, 5])
    with pytest.raises(ValueError, match=r"group_sizes must have shape \(2,\) = \(n,\), the steps, got \(3,\)"):
        law.loss(10, [2, 5, 5])


def test_the_best_schedule_takes_the_least_of_every_step():
    law = law_of_steps([[1.0, 2.0, 9.0], [-1.0, 0.0, 1.0], [1.0, 0.0, -1.0]])
    sizes = [2, 3, 4, 8, 16]
    found = law.best_schedule(sizes)
    np.testing.assert_array_equal(found, [4.0, 16.0, 2.0])
    assert law.loss(48, found) < min(law.loss(48, size) for size in sizes)


def test_two_speeds_by_hand():
    """One step from the maximiser weighs by curvature, 1 + sqrt(2 + 8 * 8); the gradient's error by 1, 1 + sqrt(2 + 8)."""
    problem = gt.gallery.problem("two-speeds")
    law = training_law(problem, problem.theta, gt.Constant(0.05), steps=1)
    assert law.optimum == pytest.approx(1.0 + np.sqrt(66.0), rel=1e-12)
    assert gt.group_size_law(problem, problem.theta).optimum == pytest.approx(1.0 + np.sqrt(10.0), rel=1e-12)
