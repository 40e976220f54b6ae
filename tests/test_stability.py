"""The warning about steps that are too large: before running, with the right largest step."""

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.exact import StabilityWarning, spectral_radius
from simulations.maximum import curvatures, maximum


@pytest.mark.parametrize(("factor", "stable"), [(0.98, True), (1.02, False)])
def test_radius_says_whether_ascent_without_noise_comes_back(factor, stable):
    (problem, best, _), (bent, directions) = maximum("kl-linear"), curvatures("kl-linear")
    step = factor * 2.0 / bent.max()
    radius = spectral_radius(problem, best, step)
    assert radius == pytest.approx(abs(1.0 - step * bent.max()))
    assert (radius < 1.0) == stable
    theta = best + 1e-4 * directions[:, bent.argmax()]
    for _ in range(40):
        theta = theta + step * gt.moments(problem, theta).gradient
    assert (np.linalg.norm(theta - best) < 1e-4) == stable


def test_training_warns_before_it_runs_and_names_the_largest_step():
    where, largest = (*maximum("kl-linear")[:2], "rloo"), 2.0 / curvatures("kl-linear")[0].max()
    how = {"batch_size": 1, "group_size": 4, "steps": 3, "replications": 2, "rng": 0}
    with pytest.warns(StabilityWarning, match=f"step of 50, too large.*step there is {largest:.4g}"):
        gt.simulate_training(*where, gt.Constant(50.0), **how)
    # The last step counts: a decreasing schedule may begin with large ones.
    gt.simulate_training(*where, np.array([50.0, 10.0, 1.0]), **how)


def test_directions_that_bend_up_or_are_flat_do_not_count():
    """A single prompt far on the wrong side: the objective is convex there, and ascent is to move away."""
    problem = gt.Problem(gt.Bandit([[1.0, 0.0]]), gt.TabularSoftmax(1, 2))
    assert spectral_radius(problem, [-4.0, 4.0], 100.0) == 1.0
    assert spectral_radius(problem, [1.0, -1.0], 1.0) < 1.0
