"""The function of the success probability that standardised rewards ascend, by enumeration and in its limits."""

from itertools import product

import numpy as np
import pytest

import grpo_theory as gt
from simulations.sequence.parts import composed
from simulations.sequence.standardised import STANDARDISED, ascended
from simulations.training import standardised_optimum


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


@pytest.mark.parametrize("group_size", [2, 3, 8, 64])
def test_what_the_study_ascends_is_what_the_library_derives_from_the_kernel(group_size):
    """Two ways to h: a sum of binomial tails with closed weights, and the kernel's own advantages, multiset by multiset."""
    p = np.linspace(0.0, 1.0, 11)
    found = gt.theory.finite_group_objective(STANDARDISED, group_size)
    np.testing.assert_allclose(found.value(p), ascended(p, group_size), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(found.slope(p[1:-1]), [slope(one, group_size) for one in p[1:-1]], rtol=1e-11)


@pytest.mark.parametrize("name", standardised_optimum.PROBLEMS)
def test_each_slip_of_the_printed_objective_is_told_apart_by_the_librarys_updates(name):
    """Where one part is corrected alone the library's mean update for it, and its gradient of the other part, cancel."""
    problem, sizes = gt.gallery.problem(name), {"batch_size": 1, "group_size": 4}
    plain = gt.Problem(problem.bandit, problem.policy, theta=problem.theta)
    without, with_k3 = composed(STANDARDISED, "none"), composed(STANDARDISED, "none", kl="k3 in loss")

    at = standardised_optimum.maximise(problem, standardised_optimum.objective(problem, 4, printed_penalty=True))
    printed_penalty = gt.moments(problem, at).gradient - gt.moments(plain, at).gradient
    groups = gt.gradient_mean(plain, at, without, **sizes)
    assert np.abs(groups).max() > 0.01
    np.testing.assert_allclose(groups, -printed_penalty, atol=1e-8)

    at = standardised_optimum.maximise(problem, standardised_optimum.objective(problem, None, printed_penalty=False))
    penalty = gt.gradient_mean(problem, at, with_k3, **sizes) - gt.gradient_mean(plain, at, without, **sizes)
    found = gt.moments(plain, at)
    slopes = found.prompt_gradients / np.sqrt(found.value * (1.0 - found.value))[:, None]
    np.testing.assert_allclose(problem.bandit.prompt_weights @ slopes, -penalty, atol=1e-8)
