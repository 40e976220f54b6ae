"""The race with and without division: its problems, its draws, its grids of steps, and which settings can differ at all."""

import numpy as np
import pytest

import grpo_theory as gt
from simulations.normalisation.heads import cosines, gram
from simulations.normalisation.prompts import mixture, prompts
from simulations.normalisation.race import (
    HEADS,
    OPTIMISERS,
    PRINTED,
    PRINTED_STEPS,
    RAW,
    WHITENED,
    cases,
    gain,
    head_on,
    in_span,
    logit_reach,
    problem_of,
    raced,
    random_features,
    rates_of,
    reached,
    success,
)
from simulations.seeds import child_seed

MADE_UP = {"family": "made up", "correlation": 0.7, "mixture": "easy and hard", "batch_size": 4, "updates": 16}


def features_cosines(problem):
    """Return the cosines of all pairs of a head's features."""
    products = gram(problem)
    return cosines(products, np.ones((len(products), 1)))


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


def test_of_three_reward_values_division_turns_the_update_of_pairs():
    """Answers rewarded 0, 0.1 and 1, one logit each, chosen with probabilities 0.5, 0.3 and 0.2."""
    at = np.log([0.5, 0.3, 0.2])
    found = {}
    for low in (0.0, 0.1):
        problem = gt.Problem(gt.Bandit.from_law([0.0, 0.1, 1.0], law(low)), gt.TabularSoftmax(1, 3), theta=at)
        for size in (2, 3):
            means = [gt.gradient_mean(problem, at, name, batch_size=1, group_size=size) for name in ("dr_grpo", "grpo")]
            found[low, size] = means[0] @ means[1] / np.linalg.norm(means[0]) / np.linalg.norm(means[1])
    assert [round(found[0.1, size], 2) for size in (2, 3)] == [0.82, 0.86]
    np.testing.assert_allclose([found[0.0, 2], found[0.0, 3]], 1.0, atol=1e-12)


def law(middle):
    """Return the law (1 prompt, 3 answers, 3 values) of rewards 0, `middle` and 1, which are sure."""
    return np.array([[[value == reward for value in (0.0, 0.1, 1.0)] for reward in (0.0, middle, 1.0)]], dtype=np.float64)


@pytest.mark.parametrize("contest", OPTIMISERS)
def test_orthogonal_prompts_cannot_differ(contest):
    """The longest step is the best, whatever the arm: a prompt is learned from its first group with both rewards."""
    settings = MADE_UP | {"correlation": 0.0, "group_size": 8, "contest": contest}
    long = {"SGD": 1e4, "Adam": 1e2}[contest]
    plain, divided, slower = (
        success(settings, arm, [step], 64, np.random.SeedSequence(2))
        for arm, step in (("plain", long), ("divided", long), ("plain", long / 1e3))
    )
    np.testing.assert_allclose(plain, divided, atol=1e-9)
    assert plain.mean() > slower.mean()


@pytest.mark.parametrize("correlation", [0.0, 0.2, 0.7])
def test_with_exact_gradients_one_long_step_solves_the_made_up_prompts_divided_or_not(correlation):
    problem = problem_of(MADE_UP | {"correlation": correlation, "contest": "SGD"})
    at = gt.moments(problem, problem.theta)
    for weights in (np.ones(4), 1.0 / np.sqrt(at.reward_variance)):
        moved = problem.theta + 1e4 * (at.prompt_weights * weights) @ at.prompt_gradients
        assert gt.objective(problem, moved) > 0.999


def test_every_setting_that_is_judged_can_come_out_either_way():
    judged = [case for case in cases(False) if case["contest"] != PRINTED_STEPS]
    assert {settings["group_size"] for settings in judged} == {8, 16, 32, 64}
    for settings in judged:
        if settings["family"] == "made up":
            assert settings["correlation"] > 0.0
        elif settings["family"] == "head":
            assert np.abs(features_cosines(head_of(settings))).mean() > 0.1
    assert {settings["contest"] for settings in judged} == set(OPTIMISERS)


def head_of(settings):
    """Return a cell's head as it is before it is written out, which alone knows its features."""
    problem = head_on(settings["head"], settings["questions"], settings["features"])
    if isinstance(problem.policy, gt.SoftmaxHead):
        return problem
    features = problem.policy.jacobian().reshape(settings["questions"], 10, 10, -1)[:, 0, 0]
    return gt.Problem(problem.bandit, gt.SoftmaxHead(features, 10), theta=problem.theta)


@pytest.mark.parametrize("head", sorted({name for name, *_ in HEADS}))
def test_whitening_takes_away_most_of_what_questions_share_and_changes_no_policy(head):
    for features, low, high in ((RAW, 0.89, 0.98), (WHITENED, 0.14, 0.34)):
        problem = head_of({"head": head, "questions": 32, "features": features})
        assert low < np.abs(features_cosines(problem)).mean() < high
        assert np.diag(gram(problem)).mean() == pytest.approx(1.0)
        own = gt.gallery.problem(head)
        chosen = np.linspace(0, 499, 32).astype(int)
        expected = gt.moments(own, own.theta).value[chosen]
        np.testing.assert_allclose(gt.moments(problem, problem.theta).value, expected, rtol=1e-8)


def test_in_the_span_of_its_hidden_states_plain_ascent_is_the_same():
    whole = head_on("lm-few-shot", 32, RAW)
    small = in_span(whole)
    assert small.policy.dimension == 320
    sizes = {"batch_size": 4, "group_size": 4, "steps": 8, "replications": 4, "rng": 3}
    one, other = (
        gt.simulate_training(problem, problem.theta, "grpo", gt.Constant(4.0), **sizes).objectives for problem in (whole, small)
    )
    np.testing.assert_allclose(one, other, atol=1e-9)


def test_random_problems_are_those_of_their_dimension_and_draw():
    one, again, other = random_features(16, 0), random_features(16, 0), random_features(16, 1)
    np.testing.assert_array_equal(one.theta, again.theta)
    assert np.abs(one.theta - other.theta).max() > 0.1
    assert one.policy.dimension == 16
    values = gt.moments(one, one.theta).value
    assert len(values) == 64
    assert values.min() < 0.02
    assert values.max() > 0.8


def test_the_reach_of_a_step_is_how_far_it_can_move_a_logit():
    problem = head_on("lm-few-shot", 32, RAW)
    hidden = problem.policy.logit_map.hidden
    moved = np.array([np.sign(one) @ one for one in hidden])
    assert logit_reach(problem) == pytest.approx(moved.mean())
    whitened = head_on("lm-few-shot", 32, WHITENED)
    assert logit_reach(whitened) == pytest.approx(np.abs(whitened.policy.jacobian()[:, 0]).sum(axis=-1).mean())


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


def test_prompts_of_the_made_up_problems_are_those_of_the_dial():
    expected = prompts(0.7, mixture("easy and hard", 4))
    np.testing.assert_array_equal(problem_of(MADE_UP | {"contest": "Adam"}).theta, expected.theta)
