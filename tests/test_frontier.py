"""Whole runs: what is measured of them, how arms are tuned, and the curves through best group sizes."""

from types import SimpleNamespace

import numpy as np
import pytest

import grpo_theory as gt
from simulations.runs.arms import MEASURES, Arm, dropped_uniform, estimator_of, measured, train, world_problems
from simulations.runs.chosen_steps import choice_variance_of, chosen_steps, same_shares, trained_with_each
from simulations.runs.growth import SIZES, best_size, best_sizes, fit, saturating
from simulations.runs.other_worlds import LEARNED, LONG
from simulations.runs.tuning import FOLDS, choice_variance, tuned, tuned_summary
from simulations.runs.worlds import WORLDS


@pytest.mark.parametrize("optimiser", ["SGD", "Adam"])
def test_runs_are_those_of_the_public_simulator(optimiser):
    arm, updates = Arm("few prompts", "grpo", optimiser, responses=64), [2, 8]
    problem = world_problems("few prompts")[0]
    found = train(arm, 8, 0.5, updates, 12, np.random.SeedSequence(3))
    how = {"batch_size": 8, "group_size": 8, "steps": 8, "replications": 12, "optimiser": getattr(gt, optimiser)()}
    runs = gt.simulate_training(
        problem, problem.theta, "grpo", gt.Constant(0.5), checkpoints=updates, rng=np.random.SeedSequence(3), **how
    )
    np.testing.assert_allclose(found[..., 0], runs.objectives, rtol=1e-12)
    np.testing.assert_allclose(found[:, 1], measured("few prompts", runs.theta), rtol=1e-12)


def test_a_learning_rate_that_decays_ends_with_each_budget():
    arm = Arm("few prompts", decaying=True, responses=64)
    problem = world_problems("few prompts")[0]
    found = train(arm, 8, 2.0, [2, 4], 8, np.random.SeedSequence(3))
    for c, steps in enumerate((2, 4)):
        rates = 2.0 * (1.0 - np.arange(steps) / steps)
        how = {"batch_size": 8, "group_size": 8, "steps": steps, "replications": 8, "rng": np.random.SeedSequence(3)}
        runs = gt.simulate_training(problem, problem.theta, "grpo", rates, **how)
        np.testing.assert_allclose(found[:, c, 0], runs.objectives[:, 0], rtol=1e-12)


def test_measures_of_the_start_of_success_everywhere_and_of_a_run_that_diverged():
    problem = world_problems("tabular")[0]
    solved = np.where(problem.bandit.mean_reward > 0.0, 50.0, 0.0).reshape(-1)
    start, end, lost = measured("tabular", np.stack([problem.theta, solved, np.full(solved.size, np.nan)]))
    rates = np.geomspace(0.5, 1e-3, 128)
    by_hand = [rates.mean(), (rates**8).mean(), (1 - (1 - rates) ** 8).mean(), (rates > 0.5).mean(), rates.mean()]
    np.testing.assert_allclose(start[:5], by_hand, atol=0.01)
    np.testing.assert_allclose(end, [1.0, 1.0, 1.0, 1.0, 1.0, 0.0], atol=1e-12)
    np.testing.assert_array_equal(lost, [0.0, 0.0, 0.0, 0.0, 0.0, 1.0])
    assert MEASURES[-1] == "harmed"


def test_runs_see_wrong_rewards_and_are_measured_by_right_ones():
    arm, updates = Arm("wrong rewards", responses=64), [8]
    found = train(arm, 8, 3.0, updates, 12, np.random.SeedSequence(3))
    problem = WORLDS["wrong rewards"].graded()
    how = {"batch_size": 8, "group_size": 8, "steps": 8, "replications": 12, "rng": np.random.SeedSequence(3)}
    runs = gt.simulate_training(problem, problem.theta, "grpo", gt.Constant(3.0), **how)
    # A share of 0.05 of right rewards is wrong, and of wrong ones right: J = 0.05 + 0.9 times success.
    np.testing.assert_allclose(0.05 + 0.9 * found[:, 0, 0], runs.objectives[:, 0], rtol=1e-12)
    assert world_problems("wrong rewards")[0].bandit.mean_reward.max() == 1.0


@pytest.mark.parametrize("world", [LONG, LEARNED])
def test_runs_of_many_tokens_and_of_learned_features_are_those_of_the_public_simulator(world):
    problem = world_problems(world)[0]
    found = train(Arm(world, responses=64), 8, 0.5, [2, 4], 6, np.random.SeedSequence(3))
    how = {
        "batch_size": 8,
        "group_size": 8,
        "steps": 4,
        "replications": 6,
        "checkpoints": [2, 4],
        "rng": np.random.SeedSequence(3),
    }
    runs = gt.simulate_training(problem, problem.theta, "grpo", gt.Constant(0.5), **how)
    np.testing.assert_allclose(found[..., 0], runs.objectives, rtol=1e-12)
    np.testing.assert_array_equal(found[..., 4] == found[..., 0], world == LEARNED)


def test_groups_without_signal_are_left_out_of_the_mean():
    batch = SimpleNamespace(rewards=np.array([[0.0, 1.0], [1.0, 1.0], [0.0, 0.0], [1.0, 0.0]]), parameters=np.array([0.0]))
    advantages = np.full(batch.rewards.shape, 7.0)
    dropped_uniform(batch, advantages)
    step = 2.0 * np.sqrt(0.5)
    np.testing.assert_allclose(advantages, [[-step, step], [0.0, 0.0], [0.0, 0.0], [step, -step]])
    assert estimator_of("dropped").advantage.couples_groups


def test_an_arm_is_tuned_budget_by_budget_on_other_runs_than_it_is_judged_on():
    rates, best = [1.0, 2.0, 4.0, 8.0, 16.0], {0: 4.0, 1: 8.0}
    asked = []

    def course(rate, budgets, runs, seed):
        asked.append((rate, budgets, runs, seed.spawn_key))
        losses = np.array([np.log(rate / best[c]) ** 2 for c in range(budgets)])
        noise = np.random.default_rng(seed).normal(scale=0.01, size=(runs, 2, 1))[:, :budgets]
        return 1.0 - losses[None, :, None] + noise

    found = tuned(course, 2, rates, (8, 40), np.random.SeedSequence(1))
    np.testing.assert_array_equal(found.chosen, [[2, 3]] * FOLDS)
    np.testing.assert_allclose(found.judged.mean(axis=0), 1.0, atol=0.01)
    judging = [one for one in asked if one[2] == 40]
    assert [one[:2] for one in judging] == [(4.0, 1), (8.0, 2)]
    assert {one[3] for one in judging}.isdisjoint(one[3] for one in asked if one[2] == 8)


def test_the_best_size_is_the_vertex_of_a_parabola_and_its_resamples_spread_as_its_error():
    sizes = np.array([2, 4, 8, 16, 32])
    means = 1.0 - 0.01 * (np.log2(sizes) - 3.3) ** 2
    assert best_size(means, sizes) == pytest.approx(3.3)
    assert best_size(np.array([5.0, 4.0, 3.0, 2.0, 1.0]), sizes) == 1.0
    rng = np.random.default_rng(2)
    draws = [best_sizes(means + 0.01 * rng.normal(size=(100, 5)), sizes, rng) for _ in range(60)]
    truth = np.std([one[0] for one in draws])
    assert np.mean([one[1:].std() for one in draws]) == pytest.approx(truth, rel=0.4)


@pytest.mark.parametrize(
    ("name", "parameters"), [("constant", [3.0]), ("power law", [1.0, 0.6]), ("sigmoid", [2.0, 4.0, 0.7, 13.0])]
)
def test_akaikes_criterion_prefers_the_curve_that_the_points_are_on(name, parameters):
    x = np.arange(10.0, 19.0)
    truth = SIZES[name].at(x, np.array(parameters))
    rng = np.random.default_rng(5)
    chosen = []
    for _ in range(20):
        y = truth + 0.1 * rng.normal(size=x.size)
        criteria = {curve: fit(one, x, y, np.full(x.size, 0.1))[1] for curve, one in SIZES.items()}
        chosen.append(min(criteria, key=criteria.get))
    assert chosen.count(name) >= 15


def test_the_criterion_of_points_on_a_curve_is_what_its_parameters_cost():
    x, error = np.arange(9.0), np.ones(9)
    line, off = 2.0 + 0.5 * x, np.array([1.0] + [0.0] * 8)
    assert fit(SIZES["power law"], x, line, error)[1] == pytest.approx(4.0 + 12.0 / 6.0, abs=1e-6)
    mean = off - off.mean()
    assert fit(SIZES["constant"], x, off, error)[1] == pytest.approx(mean @ mean + 2.0 + 4.0 / 7.0)


def test_the_law_of_success_is_found_again_and_predicts():
    x = np.arange(10.0, 17.0)
    y = 0.1 + (0.8 - 0.1) / (1.0 + 2.0 ** (0.9 * (12.5 - x)))
    law = saturating(x, y, 0.1)
    assert law(np.array(20.0)) == pytest.approx(0.1 + 0.7 / (1.0 + 2.0 ** (0.9 * -7.5)), rel=1e-4)


def test_an_interval_counts_what_choosing_the_learning_rate_adds():
    """Runs of four shares, each moved by its choice: the variance between choices is found, and it does not average out."""
    rng = np.random.default_rng(5)
    runs, arms = 4 * 400, 200
    moved = np.repeat(rng.normal(0.0, 0.3, (FOLDS, arms)), runs // FOLDS, axis=0)
    noise = rng.normal(size=(runs, arms))
    assert choice_variance(noise) < 1e-3
    assert choice_variance(noise + moved) == pytest.approx(0.09, rel=0.25)
    exact = np.repeat([[0.0], [1.0], [2.0], [3.0]], 3, axis=0)
    assert choice_variance(exact) == pytest.approx(5.0 / 3.0, rel=1e-12)
    means = (noise + moved).mean(axis=0)
    counted = tuned_summary((noise + moved)[:, 0], 0.09)
    assert counted["standard_error"] == pytest.approx(np.std(means), rel=0.2)
    assert tuned_summary(noise[:, 0], 0.0)["standard_error"] < 0.3 * counted["standard_error"]


def test_steps_are_chosen_share_by_share_and_train_their_own_share_on_the_same_draws():
    steps = [1.0, 2.0, 4.0, 8.0, 16.0]
    best = np.repeat([2.0, 4.0, 4.0, 8.0], 3)
    tried = -(np.log(np.array(steps)[:, None] / best) ** 2)
    chosen = chosen_steps(steps, tried)
    np.testing.assert_allclose(chosen, [2.0, 4.0, 4.0, 8.0])
    asked = []

    def trained(step, runs, seed):
        asked.append((step, runs))
        return np.random.default_rng(seed).random(runs)

    seed = np.random.SeedSequence(3)
    found = trained_with_each(chosen, trained, 10, seed)
    assert asked == [(pytest.approx(step), runs) for step, runs in zip(chosen, (3, 3, 2, 2), strict=True)]
    fewer = trained_with_each(np.ones(4), trained, 6, seed)
    np.testing.assert_array_equal(same_shares(found, fewer), 0.0)
    assert len(same_shares(found, fewer)) == 6
    assert len(np.unique(found)) == 10


def test_what_a_choice_adds_is_pooled_over_arms_of_any_number_of_runs():
    exact = [np.repeat([0.0, 1.0, 2.0, 3.0], 3), np.repeat([0.0, 0.0, 0.0, 4.0], 2)]
    assert choice_variance_of(exact) == pytest.approx((5.0 / 3.0 + 4.0) / 2.0)
    assert choice_variance_of([]) == 0.0
    noise = np.random.default_rng(1).normal(size=(30, 400))
    assert choice_variance_of(list(noise)) < 2e-3
