"""Prompts that interact: the assumptions' constants, the gains of a step, sums along paths, and the pair that needs R2."""

from decimal import Decimal, localcontext

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.exact import gradient, hessian
from simulations.normalisation import learned_phases, one_step, path_sums, weak_interaction, weak_sums
from simulations.normalisation.ascent import Prompts
from simulations.normalisation.heads import ascent, cosines, gram, near_orthogonal
from simulations.normalisation.interaction import course, interaction, opposed, shortfall, step_of
from simulations.normalisation.learned_curvature import hessian_norms, hessians
from simulations.normalisation.networks import PROMPTS, linearised, network_problem, pair_cosines
from simulations.normalisation.networks import ascent as network_ascent
from simulations.normalisation.phases import phases
from simulations.normalisation.prompts import mixture, prompts


def test_the_least_constants_satisfy_the_assumptions_and_no_smaller_ones_do():
    problem = Prompts.of(prompts(0.3, [0.5, 0.02]))
    found = interaction(problem, problem.at(problem.theta[None]))
    assert found.strength == pytest.approx(0.3 * 0.25 / (0.02 * 0.98), rel=1e-12)
    orthogonal = Prompts.of(prompts(0.0, mixture("easy", 8)))
    assert interaction(orthogonal, orthogonal.at(orthogonal.theta[None])).strength == pytest.approx(1.0)
    conflict = Prompts.of(prompts(0.05, mixture("easy", 8)))
    assert np.isnan(interaction(conflict, conflict.at(conflict.theta[None])).strength)


@pytest.mark.parametrize("neighbour", weak_interaction.OPPOSED.values())
def test_the_opposed_pair_satisfies_the_assumptions_and_loses(neighbour):
    """Its constants from the library's gradients, and the mean gain in fifty digits."""
    problem = opposed(neighbour, weak_interaction.LEAN)
    policy = gt.LinearSoftmax(problem.features)
    moments = gt.moments(gt.Problem(gt.Bandit(problem.right), policy), problem.theta)
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


@pytest.mark.parametrize("arm", ["plain", "divided"])
def test_exact_means_along_paths_are_those_of_runs(arm):
    """All prompts trained together, one drawn at a time, against the law of how often each is drawn; 2,000 runs, 4.9 errors."""
    rates, horizon, runs = [0.5, 0.02, 0.5, 0.02], 60, 2000
    problem, step, rng = Prompts.of(prompts(0.0, rates)), path_sums.ARMS[arm], np.random.default_rng(1)
    theta, total = np.tile(problem.theta, (runs, 1)), np.zeros((runs, 4))
    for _ in range(horizon):
        state = problem.at(theta)
        total += state.squares
        theta = problem.step(theta, state, rng.integers(4, size=runs), step)
    law = path_sums.counts_law(horizon, 4)
    success = problem.at(theta).success
    for i, rate in enumerate(rates[:2]):
        own = path_sums.own_path(rate, step, law.shape[1])
        for drawn, exact in ((total[:, i], (law @ own[2])[:-1].sum()), (success[:, i], (law @ own[0])[-1])):
            assert abs(drawn.mean() - exact) < 4.9 * drawn.std(ddof=1) / np.sqrt(runs)


@pytest.mark.parametrize("answers", [2, 5])
def test_gains_of_one_step_are_those_of_the_library(answers):
    features, theta = one_step.draw(answers, 20, np.random.default_rng(2))
    theta /= 4.0
    np.testing.assert_allclose(np.linalg.norm(features, 2, axis=(1, 2)), 1.0, rtol=1e-12)
    for step in one_step.STEPS.values():
        exact, first_order = one_step.gains(features, theta, step)
        for i, (x, at) in enumerate(zip(features, theta, strict=True)):
            problem = gt.Problem(gt.Bandit(np.eye(answers)[:1]), gt.LinearSoftmax(x[None]))
            before = gt.moments(problem, at)
            p = before.value[0]
            moved = at + step.size * before.gradient / (p * (1.0 - p)) ** step.power
            np.testing.assert_allclose(exact[i], gt.moments(problem, moved).value[0] - p, atol=1e-14)
            np.testing.assert_allclose(first_order[i], before.gradient @ (moved - at), rtol=1e-9)


@pytest.mark.parametrize(
    ("increase", "deviation", "share", "found"),
    [
        ([0.05, 0.04, 0.0, 0.0, -0.02], [0.3, 0.3, 0.2, 0.1, 0.1, 0.1], [0.98, 0.9, 0.8, 0.7, 0.5, 0.4], "I I II II III"),
        ([0.0] * 5, [0.3] * 6, [0.98] * 6, "    "),
        ([0.0, 0.0, 0.05, 0.05, 0.05], [0.3, 0.2, 0.1, 0.1, 0.1, 0.1], [0.98] * 6, "    "),
        ([0.05] * 5, [0.3] * 6, [0.2] * 6, "    "),
        ([-0.02] * 5, [0.3] * 6, [0.2] * 6, "III III III III III"),
    ],
)
def test_the_criterion_finds_the_phases_that_are_there_and_no_others(increase, deviation, share, found):
    """Three phases, no gain, a gain at low deviation, one without orthogonality, and prompts that never are orthogonal."""
    assert phases(np.array(increase) - 0.001, np.array(increase) + 0.001, deviation, share) == found.split(" ")


@pytest.mark.parametrize("power", [-1.0, 1.0])
def test_gradients_are_divided_and_multiplied_by_deviations(power):
    problem = prompts(0.3, [0.5, 0.02, 0.3])
    moments = gt.moments(problem, problem.theta)
    push = (moments.prompt_gradients * np.sqrt(moments.reward_variance)[:, None] ** power).sum(axis=0)
    theta = problem.theta + 0.1 * np.sqrt(3.0) * push / np.linalg.norm(push)
    first, last = ascent(problem, power, 1, stride=0.1)
    np.testing.assert_allclose(last.logits, problem.policy.logits(theta), atol=1e-12)
    unit = moments.prompt_gradients / np.linalg.norm(moments.prompt_gradients, axis=1, keepdims=True)
    np.testing.assert_allclose(cosines(gram(problem), first.logit_gradients), (unit @ unit.T)[np.triu_indices(3, 1)], atol=1e-12)
    assert near_orthogonal(np.array([-0.5, 0.05, 0.2, -0.09])) == 0.5


def test_curvature_is_that_of_all_parameters():
    """The eigenvalues in 2 H + K - 1 directions are those of the package's Hessian of one prompt's success that are not 0."""
    problem = network_problem(4, 3)
    *_, place = network_ascent(problem, 0.0, 3, 1.0)
    found, norms = hessians(problem, place), hessian_norms(problem, place)
    for prompt in (0, 1, PROMPTS - 1):
        whole = np.linalg.eigvalsh(hessian(problem.at_prompt(prompt), place.theta))
        own = np.linalg.eigvalsh(found[prompt])
        padded = np.sort(np.concatenate([own, np.zeros(whole.size - own.size)]))
        np.testing.assert_allclose(padded, whole, atol=1e-12)
        assert norms[prompt] == pytest.approx(np.abs(whole).max(), rel=1e-12)


@pytest.mark.parametrize("power", [0.0, -1.0])
def test_first_updates_have_one_length_and_go_along_divided_gradients(power):
    problem = network_problem(4, 3)
    moments = gt.moments(problem, problem.theta)
    push = (moments.prompt_gradients * np.sqrt(moments.reward_variance)[:, None] ** power).sum(axis=0)
    *_, last = network_ascent(problem, power, 1, 1.0)
    moved = last.theta - problem.theta
    assert moved @ push == pytest.approx(np.linalg.norm(moved) * np.linalg.norm(push), rel=1e-12)
    slopes = problem.policy.logit_slopes(problem.theta, moved)
    assert np.sqrt((slopes**2).sum(axis=1).mean()) == pytest.approx(1.0, rel=1e-12)


def test_courses_are_those_of_exact_gradients():
    """Two updates of the network, and of the linear policy with the features of its start, by the package's gradient."""
    network = network_problem(4, 3)
    for problem in (network, linearised(network)):
        theta, step = problem.theta, 0.0
        successes = [gt.objective(problem, theta)]
        for _ in range(2):
            push = PROMPTS * gradient(problem, theta)
            step = step or learned_phases.STRIDE * np.sqrt(PROMPTS) / np.linalg.norm(problem.policy.logit_slopes(theta, push))
            theta = theta + step * push
            successes.append(gt.objective(problem, theta))
        found = np.array(learned_phases.course(problem, "plain", [0, 1, 2]))
        np.testing.assert_allclose(found[:, 0], successes, rtol=1e-12)
        gradients = gt.moments(problem, theta).prompt_gradients
        assert found[-1, learned_phases.SHARE] == near_orthogonal(pair_cosines(gradients))


def test_limits_count_draws():
    """Advantages are means over draws, each row with as many of them; and so is the increase while deviations are high."""

    def measures(success):
        shares, deviations = [0.9, 0.9, 0.8, 0.6, 0.5], [0.5, 0.5, 0.4, 0.3, 0.3]
        return np.stack([success, deviations, shares, np.zeros(5), np.zeros(5)], axis=1)

    divided = np.array([measures(np.linspace(0.5, end, 5)) for end in (0.6, 0.7, 0.45)])
    arms, updates = {"plain": np.array([measures(np.full(5, 0.5))] * 3), "divided": divided}, [0, 1, 2, 3, 4]
    rows = list(learned_phases.measures({"learned": arms}, updates))
    (last,) = (row for row in rows if row["quantity"] == "advantage" and row["arm"] == "divided" and row["update"] == 4)
    assert (last["estimate"], last["replications"]) == (pytest.approx(0.25 / 3.0), 3)
    increase, span = learned_phases.of_learning({"learned": arms, "of the start": arms}, updates)["N12/I, learned features"]
    assert span == {"from update": 0, "to update": 2}
    assert (-increase.estimate, increase.replications) == (pytest.approx(0.25 / 6.0), 3)
