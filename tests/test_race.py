"""The race with and without division: its problems, its draws, its grids of steps, and which settings can differ at all."""

import numpy as np
import pytest

import grpo_theory as gt
from simulations.normalisation import learned_division
from simulations.normalisation.heads import near_orthogonal
from simulations.normalisation.networks import network_problem, pair_cosines
from simulations.normalisation.prompts import mixture, prompts
from simulations.normalisation.race import (
    OPTIMISERS,
    PRINTED,
    PRINTED_STEPS,
    RAW,
    gain,
    head_on,
    in_span,
    logit_reach,
    raced,
    random_features,
    rates_of,
    reached,
    success,
)
from simulations.seeds import child_seed

MADE_UP = {"family": "made up", "correlation": 0.7, "mixture": "easy and hard", "batch_size": 4, "updates": 16}


@pytest.mark.parametrize(("group_size", "factor"), [(2, np.sqrt(2.0)), (3, np.sqrt(3.0))])
@pytest.mark.parametrize("contest", OPTIMISERS)
def test_in_groups_of_two_and_three_division_is_a_factor_of_the_step(contest, group_size, factor):
    settings = MADE_UP | {"group_size": group_size, "contest": contest}
    undone = factor if contest == "SGD" else 1.0  # grpo adds 1e-6 to the deviation
    plain = success(settings, "plain", [0.1 * undone], 16, np.random.SeedSequence(1))
    divided = success(settings, "divided", [0.1], 16, np.random.SeedSequence(1))
    np.testing.assert_allclose(plain, divided, atol=1e-5)
    four = [success(settings | {"group_size": 4}, arm, [0.1], 16, np.random.SeedSequence(1)) for arm in ("plain", "divided")]
    assert np.abs(four[0] - four[1]).max() > 1e-4, "and in groups of four it is none"


def test_in_the_span_of_its_hidden_states_plain_ascent_is_the_same():
    whole = head_on("lm-few-shot", 32, RAW)
    small = in_span(whole)
    assert small.policy.dimension == 320
    sizes = {"batch_size": 4, "group_size": 4, "steps": 8, "replications": 4, "rng": 3}
    one, other = (
        gt.simulate_training(problem, problem.theta, "grpo", gt.Constant(4.0), **sizes).objectives for problem in (whole, small)
    )
    np.testing.assert_allclose(one, other, atol=1e-9)


def test_a_unit_of_random_features_is_a_draw_at_the_step_of_all_draws():
    settings = {"family": "random", "dimension": 16, "contest": "Adam", "powers": [0, 1, 2], "draws": 2, "runs": 3}
    settings |= {"batch_size": 4, "updates": 8, "group_size": 4}
    seed, steps = np.random.SeedSequence(3), rates_of(settings, "divided")
    np.testing.assert_allclose(steps, np.array([1.0, 2.0, 4.0]) / logit_reach(random_features(16, 0)))
    assert rates_of(settings, "broken").tolist() == [steps[1]]
    found = reached(settings, "divided", seed)
    for draw in range(2):
        own = success(settings, "divided", steps, 3, child_seed(seed, draw), draw)
        np.testing.assert_array_equal(found[:, draw], own.mean(axis=1))
    assert rates_of(settings | {"contest": PRINTED_STEPS}, "broken").tolist() == [PRINTED["divided"]]


def test_rows_tell_the_best_step_and_the_lead():
    """Of pairs at steps that undo the factor of division there is no lead; the broken arm ends where it started or below."""
    settings = MADE_UP | {"group_size": 2, "contest": "SGD", "powers": [2, 2.5, 3, 3.5, 4, 4.5, 5, 5.5, 6], "runs": 64}
    found = raced(np.random.default_rng(0), **settings)
    (own, facts), (broken, _) = (gain(found, "SGD", arm)["division/pays"] for arm in ("divided", "broken"))
    assert facts["step, plain"] == pytest.approx(np.sqrt(2.0) * facts["step, divided"])
    assert own.estimate == pytest.approx(0.0, abs=0.01)
    assert own.replications == 64
    assert broken.interval(0.05)[0] > 0.05
    assert gain.label(settings) == "correlation 0.7, easy and hard, SGD, G = 2"


def test_measures_are_those_of_the_package_and_a_run_that_left_the_numbers_has_no_success():
    problem = network_problem(4, 3)
    theta = problem.theta + 0.1 * np.random.default_rng(0).normal(size=(9, problem.theta.size))
    theta[8] = np.inf
    found = learned_division.measured(problem, theta, 4)
    np.testing.assert_allclose(found[:8, 0], gt.objective(problem, theta[:8]), rtol=1e-12)
    assert found[8].tolist() == [0.0, 1.0]
    assert np.flatnonzero(found[:, 1] < 1.0).tolist() == [0, 4], "one of four is looked at"
    for run in (0, 4):
        gradients = gt.moments(problem, theta[run]).prompt_gradients
        assert found[run, 1] == pytest.approx(near_orthogonal(pair_cosines(gradients)))


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.9])
def test_prompts_have_the_success_rates_and_correlations_that_are_asked_for(correlation):
    rates = mixture("easy and hard", 6)
    problem = prompts(correlation, rates)
    np.testing.assert_allclose(gt.moments(problem, problem.theta).value, rates, rtol=1e-12)
    x = problem.policy.logit_map.features
    products = np.einsum("iad,jbd->ijab", x, x)
    between = np.where(np.eye(6, dtype=bool), 1.0, correlation)
    np.testing.assert_allclose(products, between[:, :, None, None] * np.eye(4), atol=1e-14)
