"""The problem on which Lemma 6(b) is nearly tight: its constants on a dense grid, its mean gap by the recursion, its verdicts."""

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.theory import gap_recursion, linearise
from simulations.training import tight_bound
from simulations.training.tight_bound import RADIUS, SIZES, one_direction, surroundings


@pytest.fixture(scope="module")
def runs():
    """Return the runs of each schedule."""
    return {
        case["offset"]: tight_bound.trained(**case | {"runs": 4096}, rng=np.random.default_rng(4), chunk=0)
        for case in tight_bound.cases(True)
    }


@pytest.mark.parametrize("offset", tight_bound.OFFSETS)
def test_constants_hold_on_a_dense_grid_of_the_one_direction(offset):
    problem, best, highest = one_direction()
    found, beta = surroundings(tight_bound.FACTOR, tight_bound.EPSILON, offset)
    _, directions = gt.exact.check_optimum(problem, best)
    assert directions.shape[1] == 1
    inside = best + np.linspace(-RADIUS, RADIUS, 200)[:, None] * directions[:, 0]
    reached = best + np.linspace(-1.0, 1.0, 200)[:, None] * (RADIUS + found.reach) * directions[:, 0]
    curvatures = [np.abs(np.linalg.eigvalsh(gt.hessian(problem, point))).max() for point in reached]
    assert found.smoothness * 0.999 < max(curvatures) <= found.smoothness * (1 + 1e-9)
    gaps = highest - gt.objective(problem, inside)
    powers = np.array([gt.moments(problem, point).gradient_power for point in inside])
    assert found.pl * (1 - 1e-6) <= (powers / (2.0 * gaps)).min() < found.pl * 1.001
    errors = [gt.gradient_mse(problem, point, "rloo", **SIZES) for point in inside]
    noise = tight_bound.noise_of(problem, best, **SIZES)
    assert noise * 0.999 < max(errors) <= noise * (1 + 1e-9)
    assert noise == pytest.approx(2.0 * tight_bound.noise_of(problem, best, **tight_bound.WRONG_SIZES), rel=1e-6)
    assert found.steepest_ray < 0.0
    assert beta * found.pl == pytest.approx(tight_bound.FACTOR)


def test_the_mean_gap_is_that_of_the_recursion_once_the_ball_is_wide_enough(runs):
    """After 1,024 steps the gaps are a tenth of the highest of the ball: to 16%, where half the noise would halve them."""
    problem, best, _ = one_direction()
    _, beta = surroundings(tight_bound.FACTOR, tight_bound.EPSILON, 16)
    linear = linearise(problem, best, "rloo", **SIZES)
    start = np.array([[(tight_bound.START * RADIUS) ** 2]])
    expected = gap_recursion(linear, gt.Harmonic(beta, 16).steps(1024), start)[-1]
    gaps = runs[16]["gap"][:, -1]
    assert abs(gaps.mean() - expected) < 0.05 * expected + 4.9 * gaps.std() / 64.0
