"""What noise costs the learned policy: against all batches of two steps, with the noise scaled down."""

import numpy as np
import pytest
from enumeration import case

import grpo_theory as gt
from grpo_theory.theory import TrainingLaw, leave_one_out_parts, noise_free_path, training_law


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
    law = law_of_steps([constants])
    assert law.optimum == optimum
    grid = np.linspace(2.0, 50.0, 481)
    least = grid[np.argmin([law.loss(100, size) for size in grid])]
    assert least == pytest.approx(min(optimum, 50.0), abs=1e-9)


def test_a_group_size_a_step_costs_what_its_steps_cost():
    law = law_of_steps([[1.0, 2.0, 3.0], [0.5, 0.0, 4.0]])
    assert law.loss(10, [2, 5]) == pytest.approx((2.0 + 2.0 + 3.0 + 2.5 + 1.0) / 10.0)
    assert law.loss(10, 5) == law.loss(10, [5, 5])
    with pytest.raises(ValueError, match=r"group_sizes must have shape \(2,\) = \(n,\), the steps, got \(3,\)"):
        law.loss(10, [2, 5, 5])


def test_the_best_schedule_takes_the_least_of_every_step():
    law = law_of_steps([[1.0, 2.0, 9.0], [-1.0, 0.0, 1.0], [1.0, 0.0, -1.0]])
    sizes = [2, 3, 4, 8, 16]
    found = law.best_schedule(sizes)
    np.testing.assert_array_equal(found, [4.0, 16.0, 2.0])
    assert law.loss(48, found) < min(law.loss(48, size) for size in sizes)
