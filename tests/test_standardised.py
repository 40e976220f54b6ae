"""The function of the success probability that standardised rewards ascend, by enumeration and in its limits."""

from itertools import product

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import betainc

import grpo_theory as gt
from simulations.sequence.standardised import STANDARDISED, ascended


def slope(p, group_size):
    """Return h' by a step along the imaginary axis."""
    return float(ascended(np.array([p + 1e-30j]), group_size).imag[0] / 1e-30)


@pytest.mark.parametrize("group_size", [2, 3, 6])
@pytest.mark.parametrize("p", [0.03, 0.4, 0.9])
def test_slope_is_the_mean_update_over_all_groups(group_size, p):
    """Two responses, one always right and one always wrong: the score of the right one's logit is 1{right} - p."""
    total = 0.0
    for rewards in product([0.0, 1.0], repeat=group_size):
        z = np.array(rewards)
        if z.std() > 0.0:
            others = (z.sum() - z) / (group_size - 1)
            total += np.prod(np.where(z == 1.0, p, 1.0 - p)) * np.mean((z - others) / z.std(ddof=1) * (z - p))
    assert slope(p, group_size) * p * (1.0 - p) == pytest.approx(total, rel=1e-12)


def test_slope_is_the_kernels_exact_mean():
    """The same of the compiled kernel, through the package's exact law."""
    problem = gt.Problem(gt.Bandit([[0.0, 1.0]]), gt.TabularSoftmax(1, 2), theta=[0.0, 0.7])
    (p,) = problem.at(problem.theta).moments.value
    mean = gt.gradient_mean(problem, problem.theta, STANDARDISED, batch_size=1, group_size=5)
    np.testing.assert_allclose(mean, slope(p, 5) * p * (1.0 - p) * np.array([-1.0, 1.0]), rtol=1e-12)


@pytest.mark.parametrize("group_size", [2, 3, 8, 64])
def test_what_the_study_ascends_is_what_the_library_derives_from_the_kernel(group_size):
    """Two ways to h: a sum of binomial tails with closed weights, and the kernel's own advantages, multiset by multiset."""
    p = np.linspace(0.0, 1.0, 11)
    found = gt.theory.finite_group_objective(STANDARDISED, group_size)
    np.testing.assert_allclose(found.value(p), ascended(p, group_size), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(found.slope(p[1:-1]), [slope(one, group_size) for one in p[1:-1]], rtol=1e-11)


@pytest.mark.parametrize("group_size", [3, 16])
def test_value_is_a_sum_of_incomplete_betas_and_the_integral_of_its_slope(group_size):
    p, s = 0.3, np.arange(1, group_size) / group_size
    betas = betainc(np.arange(1, group_size), group_size - np.arange(1, group_size), p) / np.sqrt(s * (1.0 - s))
    value = float(ascended(np.array([p]), group_size)[0])
    assert value == pytest.approx(betas.sum() / np.sqrt(group_size * (group_size - 1)), rel=1e-12)
    assert value == pytest.approx(quad(slope, 0.0, p, args=(group_size,))[0], rel=1e-9)


def test_limits():
    """Of two responses it is sqrt(2) p; of many it tends to 2 arcsin sqrt(p), less what lies below 1/G: G^(-1/2)."""
    p = np.array([0.1, 0.5, 0.8])
    np.testing.assert_allclose(ascended(p, 2), np.sqrt(2.0) * p, rtol=1e-14)
    limit = 2.0 * np.arcsin(np.sqrt(p))
    gaps = [np.abs(ascended(p, size) - limit).max() for size in (8, 64, 512)]
    ratios = np.array(gaps[:-1]) / np.array(gaps[1:])
    np.testing.assert_allclose(ratios, np.sqrt(8.0), rtol=0.1)
