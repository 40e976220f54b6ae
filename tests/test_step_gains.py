"""Gains of single steps on a head: directions and gains against the package's own policy, estimates against their exact mean."""

import numpy as np
import pytest

import grpo_theory as gt
from simulations.gradient import step_gain
from simulations.gradient.step_gain import Head

PROBLEM = gt.gallery.problem("lm-few-shot")


@pytest.fixture(scope="module")
def head():
    return Head(PROBLEM)


def test_a_step_along_the_gradient_gains_what_the_objective_says(head):
    gradient = gt.moments(PROBLEM, PROBLEM.theta).gradient
    direction = PROBLEM.policy.logits(gradient)
    np.testing.assert_allclose(head.exact_direction(), direction, atol=1e-10 * np.abs(direction).max())
    steps = np.array([0.1, 1.0, 5.0]) / np.abs(direction).max()
    reached = [gt.objective(PROBLEM, PROBLEM.theta + step * gradient) for step in steps]
    expected = np.array(reached) - gt.objective(PROBLEM, PROBLEM.theta)
    np.testing.assert_allclose(head.gains(direction[None], steps)[0], expected, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("name", step_gain.ESTIMATORS)
def test_estimates_have_the_exact_mean_gain_to_first_order_and_mixed_up_groups_none(name, head):
    """g . ghat over 600 draws, |z| < 4.9; with the advantages of another group it is told from that by as much."""
    gradient = gt.moments(PROBLEM, PROBLEM.theta).gradient
    mean = gt.gradient_mean(PROBLEM, PROBLEM.theta, name, batch_size=128, group_size=8)
    pull = head.probabilities * (head.success - (head.probabilities * head.success).sum(axis=1, keepdims=True)) / len(head.logits)
    rng = np.random.default_rng(3)
    for shift in (0, 1):
        gains = np.concatenate([(pull * some).sum(axis=(1, 2)) for some in head.estimates(name, 8, rng, 600, shift)])
        z = (gains.mean() - gradient @ mean) / (gains.std(ddof=1) / np.sqrt(600))
        assert (abs(z) < 4.9) != bool(shift)
