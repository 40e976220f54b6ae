"""The studies of learned features: curvature in the few directions that have any, and phases read off made-up courses."""

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.exact import gradient, hessian
from simulations.normalisation import learned_curvature, learned_phases
from simulations.normalisation.heads import near_orthogonal
from simulations.normalisation.learned_curvature import hessian_norms, hessians
from simulations.normalisation.networks import PROMPTS, ascent, linearised, network_problem, pair_cosines

SHARES = [0.9, 0.9, 0.8, 0.6, 0.5]
UPDATES = [0, 1, 2, 3, 4]


def place_of(problem, power=0.0, updates=3):
    *_, last = ascent(problem, power, updates, 1.0)
    return last


def measures(success, shares=SHARES, deviations=(0.5, 0.5, 0.4, 0.3, 0.3)):
    filler = np.zeros(len(success))
    return np.stack([success, deviations, shares, filler, filler], axis=1)[None]


def test_curvature_is_that_of_all_parameters():
    """The eigenvalues in 2 H + K - 1 directions are those of the package's Hessian of one prompt's success that are not 0."""
    problem = network_problem(4, 3)
    place = place_of(problem)
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
    moved = place_of(problem, power, updates=1).theta - problem.theta
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
    plain = np.concatenate([measures(np.full(5, 0.5))] * 3)
    divided = np.concatenate([measures(np.linspace(0.5, end, 5)) for end in (0.6, 0.7, 0.45)])
    arms = {"plain": plain, "divided": divided}
    rows = list(learned_phases.measures({"learned": arms}, UPDATES))
    (last,) = (row for row in rows if row["quantity"] == "advantage" and row["arm"] == "divided" and row["update"] == 4)
    assert last["estimate"] == pytest.approx(0.25 / 3.0)
    assert {row["replications"] for row in rows} == {3}
    sides = learned_phases.of_learning({"learned": arms, "of the start": arms}, UPDATES)
    increase, span = sides["N12/I, learned features"]
    assert span == {"from update": 0, "to update": 2}
    assert -increase.estimate == pytest.approx(0.25 / 6.0)
    assert increase.replications == 3


def test_correlations_within_and_across_iterations_are_told_apart():
    """Curvatures that are the variance of a prompt within each iteration, and turned over the iterations."""
    rng = np.random.default_rng(0)
    variances = np.array([1.0, 2.0, 3.0])[:, None] + 1e-3 * rng.normal(size=(3, 40))
    curvature = np.array([-2.0, -4.0, -6.0])[:, None] + variances
    what = next(iter(learned_curvature.PROXIES))
    draws = {"variance": variances, what: curvature, "others": variances[:, rng.permutation(40)]}
    found = {name: np.stack([one, one]) for name, one in draws.items()}
    for how in ("Pearson", "Spearman"):
        own, wrong = (learned_curvature.proxies(found, what, how, wrong) for wrong in (False, True))
        assert own["N9/within"][0][0] == pytest.approx(1.0)
        assert abs(wrong["N9/within"][0][0]) < 0.5
        assert own["N9/across, learned features"][0][0] > 0.99
        assert wrong["N9/across, learned features"][0][0] > 0.99
        across = learned_curvature.within(*(np.swapaxes(found[name], 1, 2) for name in ("variance", what)), how)
        assert across.max() < -0.99
