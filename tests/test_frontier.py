"""Whole runs: what is measured of them, leads of arms over draws, and the curves through best group sizes."""

from types import SimpleNamespace

import numpy as np
import pytest

import grpo_theory as gt
from simulations.runs.arms import MEASURES, Arm, dropped_uniform, estimator_of, measured, train, world_problems
from simulations.runs.frontier import Runs, _may_be_best, between_sizes, ceiling, start_of
from simulations.runs.growth import SIZES, best_size, best_sizes, fit, saturating
from simulations.runs.worlds import LEARNED, LONG, WORLDS

SEED, START = np.random.SeedSequence(3), start_of("few prompts")


def public(problem, rates, steps, **how):
    """Return runs of the public simulator from the problem's start, with the seed of the tests."""
    sizes = {"batch_size": 8, "group_size": 8, "steps": steps, "rng": SEED}
    return gt.simulate_training(problem, problem.theta, "grpo", rates, **sizes, **how)


@pytest.mark.parametrize("optimiser", ["SGD", "Adam"])
def test_runs_are_those_of_the_public_simulator(optimiser):
    arm, updates = Arm("few prompts", "grpo", optimiser, responses=64), [2, 8]
    problem = world_problems("few prompts", 1)[0]
    found = train(arm, 1, 8, [0.25, 0.5], updates, 12, SEED)
    how = {"replications": 12, "optimiser": getattr(gt, optimiser)()}
    for rate, own in zip((0.25, 0.5), found, strict=True):
        runs = public(problem, gt.Constant(rate), 8, checkpoints=updates, **how)
        np.testing.assert_allclose(own[..., 0], runs.objectives, rtol=1e-9)
        np.testing.assert_allclose(own[:, 1], measured("few prompts", runs.theta, 1), rtol=1e-9)


def test_a_learning_rate_that_decays_ends_with_each_budget():
    found = train(Arm("few prompts", decaying=True, responses=64), 0, 8, [2.0], [2, 4], 8, SEED)
    for c, steps in enumerate((2, 4)):
        rates = 2.0 * (1.0 - np.arange(steps) / steps)
        runs = public(world_problems("few prompts")[0], rates, steps, replications=8)
        np.testing.assert_allclose(found[0, :, c, 0], runs.objectives[:, 0], rtol=1e-12)


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
    found = train(Arm("wrong rewards", responses=64), 1, 8, [3.0], [8], 12, SEED)
    runs = public(WORLDS["wrong rewards"].graded(1), gt.Constant(3.0), 8, replications=12)
    # A share of 0.05 of right rewards is wrong, and of wrong ones right: J = 0.05 + 0.9 times success.
    np.testing.assert_allclose(0.05 + 0.9 * found[0, :, 0, 0], runs.objectives[:, 0], rtol=1e-12)
    assert world_problems("wrong rewards")[0].bandit.mean_reward.max() == 1.0


@pytest.mark.parametrize("world", [LONG, LEARNED])
def test_runs_of_many_tokens_and_of_learned_features_are_those_of_the_public_simulator(world):
    [found] = train(Arm(world, responses=64), 0, 8, [0.5], [2, 4], 6, SEED)
    runs = public(world_problems(world)[0], gt.Constant(0.5), 4, replications=6, checkpoints=[2, 4])
    np.testing.assert_allclose(found[..., 0], runs.objectives, rtol=1e-12)
    np.testing.assert_array_equal(found[..., 4] == found[..., 0], world == LEARNED)


def test_groups_without_signal_are_left_out_of_the_mean():
    batch = SimpleNamespace(rewards=np.array([[0.0, 1.0], [1.0, 1.0], [0.0, 0.0], [1.0, 0.0]]), parameters=np.array([0.0]))
    advantages = np.full(batch.rewards.shape, 7.0)
    dropped_uniform(batch, advantages)
    step = 2.0 * np.sqrt(0.5)
    np.testing.assert_allclose(advantages, [[-step, step], [0.0, 0.0], [0.0, 0.0], [step, -step]])
    assert estimator_of("dropped").advantage.couples_groups


def test_the_best_size_is_the_vertex_of_a_parabola_and_its_resamples_spread_as_its_error():
    sizes = np.array([2, 4, 8, 16, 32])
    means = 1.0 - 0.01 * (np.log2(sizes) - 3.3) ** 2
    assert best_size(means, sizes) == pytest.approx(3.3)
    assert best_size(np.array([5.0, 4.0, 3.0, 2.0, 1.0]), sizes) == 1.0
    rng = np.random.default_rng(2)
    rates = np.array([[0.0], [-0.1]])  # the second rate is worse everywhere, and is not chosen
    samples = [means[:, None] + rates[..., None] + 0.01 * rng.normal(size=(2, 5, 100)) for _ in range(60)]
    draws = [best_sizes(one, sizes, rng) for one in samples]
    assert np.mean([one[0] for one in draws]) == pytest.approx(3.3, abs=0.05)
    truth = np.std([one[0] for one in draws])
    assert np.mean([one[1:].std() for one in draws]) == pytest.approx(truth, rel=0.4)


def test_a_size_may_be_best_unless_another_leads_it_for_certain():
    rng = np.random.default_rng(4)
    success = np.array([0.81, 0.5, 0.8])[:, None] + 0.05 * rng.normal(size=(4, 3, 24))
    np.testing.assert_array_equal(_may_be_best(success), [True, False, True])


def made_runs(noise):
    """Return runs of sizes 4, 8 and 64 at six budgets and three rates, of which the second is best, on 12 draws.

    Groups of 8 are best at first, and groups of 64 in the end.
    """
    rng = np.random.default_rng(6)
    x = np.arange(11.0, 17.0)
    course = {4: 12.0, 8: 11.5, 64: 13.0}
    values = np.zeros((6, 6, 3, 3, 12))
    for s, (size, middle) in enumerate(course.items()):
        top = 0.9 if size == 64 else 0.7
        law = START[0] + (top - START[0]) / (1.0 + 2.0 ** (middle - x))
        values[:, 0, :, s] = law[:, None, None] - np.array([0.1, 0.0, 0.2])[:, None]
        values[:, 1:5, :, s] = values[:, :1, :, s]
        values[:, 5, :, s] = 0.5 - 0.2 * (size == 64)
    values += noise * rng.normal(size=12)  # a draw's own level, which all arms share
    return Runs([4, 8, 64], [int(2**power) for power in x], values)


def test_sides_are_leads_at_the_best_rates_and_the_level_of_a_draw_does_not_count():
    runs = made_runs(0.05)
    own, wrong = ({k: v for k, v in between_sizes(Arm("few prompts"), runs, START, on).items() if k != "P8/law"} for on in (0, 1))
    success = runs.values[:, 0, 1].mean(axis=-1).T
    planned, _ = own["P1/64 over 8"]
    assert planned.estimate == pytest.approx(success[1, -1] - success[2, -1])
    assert planned.standard_error == pytest.approx(0.0, abs=1e-9)
    assert own["P1/grows"][0].estimate == pytest.approx(success[1, -1] - success[2, -1])
    assert wrong["P1/grows"][0].estimate == pytest.approx(success[1, 0] - success[2, 0])
    lost = 0.9 * (success[2, -1] - START[0]) - (success[1, -1] - START[0])
    assert own["U9/whole runs"][0].estimate == pytest.approx(lost, abs=0.01)
    assert own["P1/interference"][0].estimate == pytest.approx(-0.2)


def test_the_law_of_success_is_judged_by_its_distance_and_draws_are_left_out_for_its_error():
    runs = made_runs(0.0)
    luck = 0.05 * np.random.default_rng(7).normal(size=12)
    runs.values[-1, 0] += luck - luck.mean()
    own, linear = (between_sizes(Arm("few prompts"), runs, START, wrong)["P8/law"] for wrong in (False, True))
    course = runs.values[:, 0, 1, 2].mean(axis=-1)
    law = saturating(np.arange(11.0, 15.0), course[:4], START[0])(np.array(16.0))
    assert own.estimate == pytest.approx(abs(course[-1] / law - 1.0), rel=1e-4)
    assert own.standard_error == pytest.approx(luck.std(ddof=1) / np.sqrt(12) / law, rel=1e-4)
    assert linear.estimate > 10.0 * own.estimate


def test_arms_of_one_world_are_compared_on_the_same_draws():
    plain, runs = made_runs(0.05), made_runs(0.05)
    runs.values[:, :, :, 2] -= 0.05
    found = [
        {"arm": Arm("few prompts", name)[1:], "size": size, "budgets": own.budgets, "values": values}
        for name, own in (("rloo", plain), ("grpo", runs))
        for size, values in zip(own.sizes, own.values.transpose(3, 4, 2, 0, 1), strict=True)
    ]
    own, facts = ceiling(found, **Arm("few prompts", "rloo")._asdict())
    top = plain.values[-1, 0, 1, 2].mean()
    assert own.estimate == pytest.approx(0.05 / top)
    assert own.standard_error == pytest.approx(0.0, abs=1e-9)
    assert facts["ceiling of rloo"] == pytest.approx(top)


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
