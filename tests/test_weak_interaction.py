"""Prompts that interact: the assumptions' constants, the gains of a step, sums along paths, and the pair that needs R2."""

from decimal import Decimal, localcontext

import numpy as np
import pytest

import grpo_theory as gt
from simulations.normalisation import weak_interaction, weak_sums
from simulations.normalisation.ascent import Prompts
from simulations.normalisation.interaction import course, gains, interaction, opposed, shortfall, step_of
from simulations.normalisation.prompts import mixture, prompts


def library(problem):
    """Return prompts as a problem of the library."""
    return gt.Problem(gt.Bandit(problem.right), gt.LinearSoftmax(problem.features), theta=problem.theta)


def test_the_least_constants_satisfy_the_assumptions_and_no_smaller_ones_do():
    problem = Prompts.of(prompts(0.3, [0.5, 0.02]))
    found = interaction(problem, problem.at(problem.theta[None]))
    assert found.strength == pytest.approx(0.3 * 0.25 / (0.02 * 0.98), rel=1e-12)
    assert found.gradients == pytest.approx(0.25 / (0.02 * 0.98), rel=1e-12)
    assert found.deviations == pytest.approx(np.sqrt(0.25 / (0.02 * 0.98)), rel=1e-12)
    orthogonal = Prompts.of(prompts(0.0, mixture("easy", 8)))
    assert interaction(orthogonal, orthogonal.at(orthogonal.theta[None])).strength == pytest.approx(1.0)
    conflict = Prompts.of(prompts(0.05, mixture("easy", 8)))
    assert np.isnan(interaction(conflict, conflict.at(conflict.theta[None])).strength)


def test_gains_of_moves_are_differences_of_success():
    problem = Prompts.of(prompts(0.3, [0.5, 0.02, 0.9]))
    moves = 0.3 * np.random.default_rng(4).normal(size=(6, problem.theta.size))
    expected = problem.at(problem.theta + moves).success - problem.at(problem.theta[None]).success
    np.testing.assert_allclose(gains(problem, problem.theta, moves), expected, atol=1e-14)


@pytest.mark.parametrize("neighbour", weak_interaction.OPPOSED.values())
def test_the_opposed_pair_satisfies_the_assumptions_and_loses(neighbour):
    """Its constants from the library's gradients, and the mean gain in fifty digits."""
    problem = opposed(neighbour, weak_interaction.LEAN)
    moments = gt.moments(library(problem), problem.theta)
    own, other = moments.prompt_gradients
    deviations = np.sqrt(moments.value * (1.0 - moments.value))
    inner, norms = own @ other, [np.linalg.norm(own), np.linalg.norm(other)]
    seen = [np.linalg.norm(x @ g) ** 2 / np.linalg.norm(x, 2) ** 2 for x, g in zip(problem.features, (other, own), strict=True)]
    assert inner > 0.0
    strength, r1, r2 = max(seen) / inner, max(norms) / min(norms), max(deviations) / min(deviations)
    found = interaction(problem, problem.at(problem.theta[None]))
    np.testing.assert_allclose(found, (strength, r1, r2), rtol=1e-9)
    assert r1 * r2 < strength / 2.0  # so that the appendix has M/2
    size = strength / 2.0
    step, guarantee = step_of("divided, appendix", problem, size)
    with localcontext() as context:
        context.prec = 50

        def success(theta):
            logits = [sum(Decimal(float(x)) * t for x, t in zip(row, theta, strict=True)) for row in problem.features[0]]
            return logits[0].exp() / sum(one.exp() for one in logits)

        at = [Decimal(float(t)) for t in problem.theta]
        scales = [Decimal(float(step.size / deviation)) for deviation in deviations]
        moved = [
            [t + s * Decimal(float(x)) for t, x in zip(at, g, strict=True)] for s, g in zip(scales, (own, other), strict=True)
        ]
        gain = float(sum(success(theta) - success(at) for theta in moved) / 2)
    wanted = guarantee * norms[0] ** 2 / (2.0 * deviations[0])
    assert gain / wanted < -10.0
    assert shortfall(problem, problem.theta, step, guarantee) == pytest.approx(1.0 - gain / wanted, rel=1e-6)


def test_a_step_on_a_neighbour_is_its_two_orders():
    """What section 31 says of the opposed pair: the factor 1 - eta M X^2 V_i/(4 sqrt(V_j)) of the first order."""
    problem = opposed(0.001, weak_interaction.LEAN)
    state = problem.at(problem.theta[None])
    strength = interaction(problem, state).strength
    first, deviation = state.gradients[0, 0] @ state.gradients[0, 1], np.sqrt(state.variance[0, 1])
    for eta in (0.1 / strength, 0.5 / strength, 1.0 / strength):
        change = gains(problem, problem.theta, eta / deviation * state.gradients[0, 1:])[0, 0]
        factor = 1.0 - eta * strength * state.variance[0, 0] / (4.0 * deviation)
        assert change / (eta / deviation * first) == pytest.approx(factor, abs=1e-3)


def test_sums_along_paths_are_those_of_the_library():
    """All orders of five draws of two prompts, each by moments of the library."""
    whole = prompts(0.3, [0.3, 0.6])
    problem, constant = Prompts.of(whole), 4.0
    orders = np.array(np.meshgrid(*[[0, 1]] * 5)).reshape(5, -1)
    for update, power, size in (("plain", 0.0, 1.0 / constant), ("divided", 0.5, 0.5 / constant)):
        (all_squares, _, all_deviations, all_weighted), worst = course(problem, orders, update, constant)
        for run, order in enumerate(orders.T):
            theta, squares, deviations, weighted = whole.theta.copy(), np.zeros(2), np.zeros(2), np.zeros(2)
            for drawn in order:
                moments = gt.moments(whole, theta)
                variance, square = moments.value * (1.0 - moments.value), (moments.prompt_gradients**2).sum(axis=1)
                squares, deviations, weighted = squares + square, deviations + variance**0.5, weighted + square / variance**0.5
                theta = theta + size * moments.prompt_gradients[drawn] / variance[drawn] ** power
            np.testing.assert_allclose(all_squares[run], squares, rtol=1e-12)
            np.testing.assert_allclose(all_deviations[run], deviations, rtol=1e-12)
            np.testing.assert_allclose(all_weighted[run], weighted, rtol=1e-12)
        assert worst.deviations >= np.sqrt(0.24 / 0.21)


def test_one_prompt_of_two_answers_passes_the_printed_sum_44_times():
    """By its log odds alone: they rise by sqrt(V) with an update, and the gradient's square is 2 V^2."""
    log_odds, squares, deviations = 0.0, 0.0, 0.0
    for _ in range(4096):
        variance = 1.0 / (2.0 + 2.0 * np.cosh(log_odds))
        squares, deviations, log_odds = squares + 2.0 * variance**2, deviations + variance**0.5, log_odds + variance**0.5
    expected = squares / (2.0 * 0.5 * 8.0 / (3.0 * 4096) * deviations)
    problem = Prompts.of(prompts(0.0, [0.5], 2))
    sums, _, constant = weak_sums.settled(problem, np.zeros((4096, 1), dtype=int), "divided")
    assert constant == pytest.approx(1.0)
    found = weak_sums.quotients(sums, 4096, 0.5 * constant)["N8/divided sum"][0]
    assert found[0] == pytest.approx(expected, rel=1e-9)
    assert expected == pytest.approx(44.35, abs=0.01)


def test_standard_errors_of_quotients_are_those_of_the_jackknife():
    problem = Prompts.of(prompts(0.3, [0.3, 0.3]))
    drawn = np.random.default_rng(5).integers(2, size=(100, 64))
    whole, _ = course(problem, drawn, "divided", 4.0, stops=True)
    left_out = [weak_sums.quotients(np.delete(whole, run, axis=1), 100, 1.0) for run in range(64)]
    for name, (_, added) in weak_sums.quotients(whole, 100, 1.0).items():
        values = np.array([one[name][0] for one in left_out])
        jackknife = np.sqrt(63.0 / 64.0 * ((values - values.mean(axis=0)) ** 2).sum(axis=0))
        np.testing.assert_allclose(added.std(axis=0, ddof=1) / 8.0, jackknife, rtol=0.05)
