"""The function of the success probability that standardised rewards ascend, by enumeration and in its limits."""

from itertools import product

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import betainc

import grpo_theory as gt
from docs.making.places import DOCS
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


def test_the_note_says_what_each_slip_costs():
    """Group sizes and divergence alone, and both, in percent of success at the printed maximiser."""
    note = (DOCS / "findings" / "standardised_objective.md").read_text(encoding="utf-8")

    def success(problem, size, printed_penalty):
        made = standardised_optimum.objective(problem, size, printed_penalty)
        theta = standardised_optimum.maximise(problem, made)
        return problem.bandit.prompt_weights @ gt.moments(gt.Problem(problem.bandit, problem.policy), theta).value

    for name in standardised_optimum.PROBLEMS:
        problem, groups, both = gt.gallery.problem(name), [], []
        printed = success(problem, None, True)
        penalty = 100.0 * (1.0 - success(problem, None, False) / printed)
        for size in standardised_optimum.GROUP_SIZES:
            alone = standardised_optimum.apart(problem, size)
            assert alone["with the penalty that is descended alone"] == pytest.approx(success(problem, None, False), rel=1e-6)
            groups.append(100.0 * (1.0 - alone["with groups of this size alone"] / printed))
            both.append(100.0 * (1.0 - success(problem, size, False) / printed))
            assert f"| `{name}` | {size} | {groups[-1]:.1f} | {penalty:.1f} | {both[-1]:.1f} |" in note
