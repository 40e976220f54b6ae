"""The studies of what becomes of the best group size over a run: kernels, closed forms and the law's choices."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import grpo_theory as gt
from grpo_theory.estimation.registry import gains_of_response
from grpo_theory.theory.finite_group import mixed_share, standardised_slope
from paper_figures import run_group_size
from paper_figures.content.arms import KEYS
from simulations.runs import best_size_law, group_size_growth, staleness, stalled
from simulations.runs.allocation import BATCH, GROUP
from simulations.runs.arms import Arm, dropped_uniform, estimator_of, graded, measured, train
from simulations.runs.frontier import Runs, _may_be_best, between_sizes, start_of
from simulations.runs.growth import SIZES, fit, saturating
from simulations.runs.sized import WORLDS, arm_estimator, division_weight, over_draws
from simulations.runs.staleness import ARMS, CAP, FARTHEST, PLACES
from simulations.runs.stopped_runs import RULES, SPENT, Rule, first_mixed_sizes, halved_sizes, logit_gradients, successes
from simulations.runs.worlds import ALL, LEARNED, LONG, World
from simulations.seeds import child_seed

TINY = World(prompts=3, answers=4, dimension=6, held_out=0)


@pytest.mark.parametrize("size", [2, 3, 8, 64, 512])
def test_the_weight_is_that_of_groups_divided_by_their_deviation(size):
    for success in (1e-9, 1e-3, 0.2, 0.5, 0.7, 1.0 - 1e-6):
        weight = division_weight(success, float(size))
        assert weight == pytest.approx(standardised_slope(success, size, 1.0, 0.0), rel=1e-9)


def test_the_parts_of_division_have_the_means_that_they_should():
    """Weights alone have GRPO's mean, up to its epsilon; noise alone the gradient; lent weights those of groups of 64."""
    problem, sizes = TINY.problem(), {"batch_size": 2, "group_size": 4}
    moments = gt.moments(problem, problem.theta)
    lent = np.mean(standardised_slope(moments.value, 64, 1.0, 0.0)[:, None] * moments.prompt_gradients, axis=0)
    arms = "weights", "grpo", "oracle", "noise", "lent"
    mean = {arm: gt.gradient_mean(problem, problem.theta, arm_estimator(arm, 4), **sizes) for arm in arms}
    assert mean["weights"] == pytest.approx(mean["grpo"], rel=1e-3)
    for arm, expected in (("oracle", mean["weights"]), ("noise", moments.gradient), ("lent", lent)):
        assert mean[arm] == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert abs(mean["lent"] - mean["weights"]).max() > 1e-2


def test_the_closed_form_without_interference_is_the_sum_over_all_sequences_of_groups():
    success, size, groups = np.array([0.3, 0.05]), 3, 4
    signal = mixed_share(success, size)
    expected = 0.0
    for sequence in product(product((0, 1), (False, True)), repeat=groups):
        chance, reached = 1.0, success.copy()
        for prompt, mixed in sequence:
            solved = reached[prompt] == 1.0
            chance *= 0.5 * (0.5 if solved else signal[prompt] if mixed else 1.0 - signal[prompt])
            reached[prompt] = 1.0 if mixed else reached[prompt]
        expected += chance * reached.mean()
    assert group_size_growth.coverage(success, size, size * groups) == pytest.approx(expected, rel=1e-12)


def test_draws_are_the_means_of_their_runs_on_the_words_of_their_own_seeds(monkeypatch):
    """Each draw of the world is trained as `simulate_training` does, with a seed that other arms share."""
    monkeypatch.setitem(WORLDS, "tiny", TINY)
    seed = np.random.SeedSequence(5)
    found = over_draws("tiny", "rloo", 8, [64, 192], (3, 4), seed, [2.0, 4.0])
    problem = TINY.problem(2)
    how = {"batch_size": 8, "group_size": 8, "steps": 3, "checkpoints": [1, 3], "replications": 4}
    runs = gt.simulate_training(problem, problem.theta, "rloo", gt.Constant(4.0), rng=child_seed(seed, 2), **how)
    assert found.shape == (2, 3, 2)
    assert found[1, 2] == pytest.approx(runs.objectives.mean(axis=0), rel=1e-12)


def test_the_frontier_is_where_eight_successes_are_expected_of_a_prompts_share():
    problem = WORLDS["roomy"].problem()
    weights = best_size_law.frontier_weights(problem, "grpo", 64)
    frontier = [8 * 8 / budget for budget in best_size_law.BUDGETS]
    assert weights == pytest.approx(standardised_slope(frontier, 64, 1.0, 1e-4), rel=1e-8)
    kept = best_size_law.frontier_weights(WORLDS["visible"].problem(), "grpo", 64)
    assert kept[-1] == pytest.approx(standardised_slope(0.1, 64, 1.0, 1e-4), rel=1e-8)


def test_the_law_is_judged_at_the_size_that_it_chooses_for_each_draw():
    """Groups of 2 are better than groups of 4 in both draws. The law takes them in one, and without noise in both."""
    success = np.repeat(np.array([0.6, 0.5])[:, None, None, None], 2, axis=2) * np.ones(3)
    weight, noise = np.array([2.0, 1.0])[:, None, None] * np.ones((2, 2, 3)), np.array([[1.0, 16.0], [1.0, 1.0]])
    found = {"success": success, "weight": weight, "noise": noise}
    lost = {row["quantity"]: row["estimate"] for row in best_size_law.lost(found)}
    assert lost[best_size_law.LAW] == pytest.approx(0.05)
    assert lost["loss of always 4"] == pytest.approx(0.1)
    sides = {noise: best_size_law.law(found, "grpo", noise) for noise in (True, False)}
    assert sides[True]["growth/law"][0].estimate == pytest.approx(0.05)
    assert sides[False]["growth/law"][0].estimate == pytest.approx(0.0, abs=1e-12)
    assert sides[True]["growth/law, against one size"][0].estimate == pytest.approx(-0.05)


SEED, START = np.random.SeedSequence(3), start_of("few prompts")


@pytest.mark.parametrize(
    ("world", "optimiser"), [("few prompts", "Adam"), (LONG, "SGD"), (LEARNED, "SGD"), ("wrong rewards", "SGD")]
)
def test_runs_are_those_of_the_public_simulator(world, optimiser):
    """Of one token and of many, and of learned features, side by side at two rates."""
    found = train(Arm(world, "grpo", optimiser, responses=64), 0, 8, [0.25, 0.5], [2, 4], 6, SEED)
    problem, how = graded(world), {"batch_size": 8, "group_size": 8, "steps": 4, "replications": 6, "rng": SEED}
    for rate, own in zip((0.25, 0.5), found, strict=True):
        runs = gt.simulate_training(
            problem, problem.theta, "grpo", gt.Constant(rate), checkpoints=[2, 4], optimiser=getattr(gt, optimiser)(), **how
        )
        if world != "wrong rewards":  # their objective is what the verifier rewards
            np.testing.assert_allclose(own[..., 0], runs.objectives, rtol=1e-9)
        np.testing.assert_allclose(own[:, 1], measured(world, runs.theta), rtol=1e-9)
        np.testing.assert_array_equal(own[..., 4] == own[..., 0], world == LEARNED)


def test_groups_without_signal_are_left_out_of_the_mean():
    batch = SimpleNamespace(rewards=np.array([[0.0, 1.0], [1.0, 1.0], [0.0, 0.0], [1.0, 0.0]]), parameters=np.array([0.0]))
    advantages = np.full(batch.rewards.shape, 7.0)
    dropped_uniform(batch, advantages)
    step = 2.0 * np.sqrt(0.5)
    np.testing.assert_allclose(advantages, [[-step, step], [0.0, 0.0], [0.0, 0.0], [step, -step]])
    assert estimator_of("dropped").advantage.couples_groups


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
    assert _may_be_best(runs.values[0, 0]).tolist() == [False, True, False]


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


def test_the_criterion_of_points_on_a_curve_is_what_its_parameters_cost():
    x, error = np.arange(9.0), np.ones(9)
    line, off = 2.0 + 0.5 * x, np.array([1.0] + [0.0] * 8)
    assert fit(SIZES["power law"], x, line, error)[1] == pytest.approx(4.0 + 12.0 / 6.0, abs=1e-6)
    mean = off - off.mean()
    assert fit(SIZES["constant"], x, off, error)[1] == pytest.approx(mean @ mean + 2.0 + 4.0 / 7.0)


RATIOS = np.array([0.9, 4.0, 0.1, 1.0])


def weights(arm):
    """Return what the arm's tokens weigh, for a positive and for a negative advantage."""
    return gains_of_response(ARMS[arm], np.log(RATIOS)[:, None])[:, :, 0]


def test_arms_weigh_tokens_as_they_say():
    np.testing.assert_allclose(weights("none"), 1.0)
    np.testing.assert_allclose(weights("clip"), [[0.9, 0.0, 0.1, 1.0], [0.9, 4.0, 0.0, 1.0]])
    np.testing.assert_allclose(weights("truncated"), np.full((2, 4), RATIOS.prod()), atol=1e-12)
    np.testing.assert_allclose(weights("veto"), [RATIOS, [0.9, 4.0, 0.0, 0.0]])
    np.testing.assert_allclose(weights("descends"), -1.0)
    np.testing.assert_allclose(gains_of_response(ARMS["truncated"], np.log(np.full((3, 1), 1.5))), CAP)
    beyond = gains_of_response(ARMS["veto"], np.log([[FARTHEST * 1.01], [1.0]]))
    np.testing.assert_allclose(beyond[:, :, 0], [[0.0, 1.0], [0.0, 0.0]])


def test_what_is_held_against_what():
    """Of made-up successes with one rate leads are differences of means, and limits are those of the draws' differences."""
    draws, rng = 6, np.random.default_rng(0)
    keys = {(arm, *layout) for arms, layout, _, _ in staleness.JUDGED.values() for arm in arms}
    keys |= {against for _, _, against, _ in staleness.JUDGED.values()}
    success = {key: rng.random((1, draws)) for key in sorted(keys)}
    found = [{"key": key, "success": value, "rates": [1.0]} for key, value in success.items()]
    starts = np.array([gt.objective(p, p.theta) for p in map(PLACES["strong transfer"].make, range(draws))])
    allowed = (1.0 - staleness.LOST) * success["on policy", 0, 1, 64] + staleness.LOST * starts
    for arm, name, values in (
        ("none", "P7/lag, a quarter of the run", allowed - success["none", 16, 1, 64]),
        ("veto", "P7/stages", allowed - success["veto", 0, 16, 64]),
        ("veto", "P7/veto", success["clip", 0, 16, 64] - success["veto", 0, 16, 64]),
        ("none", "P7/wall time", success["on policy", 0, 1, 24] - success["none", 1, 1, 32]),
    ):
        own, _ = staleness.below(found, "strong transfer", draws, arm)[name]
        assert own.estimate == pytest.approx(values.mean(), abs=1e-12)
        assert own.standard_error == pytest.approx(values.std(ddof=1) / np.sqrt(draws), rel=1e-9)


def test_stalled_runs_go_on_from_where_they_are_side_by_side_as_alone():
    problem, rng = stalled.WORLDS["few prompts"].problem(3), np.random.default_rng(0)
    starts = problem.theta + 0.1 * rng.normal(size=(3, problem.theta.size))
    together = stalled.trained(problem, starts, "grpo", (16, 256), [1.0, 9.0], 2048, np.random.SeedSequence(4))
    how = {"batch_size": 16, "group_size": 16, "steps": 8, "replications": 3, "rng": np.random.SeedSequence(4), "workers": 1}
    for rate, own in zip((1.0, 9.0), together, strict=True):
        np.testing.assert_allclose(own, gt.simulate_training(problem, starts, "grpo", gt.Constant(rate), **how).theta, rtol=1e-9)


def halved():
    """Four groups of one prompt are four prompts that are alike: which goes on does not depend on the prompt."""
    four, one = binary([0.2] * 4), binary([0.2])
    slope = gt.exact.halved_groups(four, four.theta, low=4, rounds=2).slopes.mean()
    return one, RULES["halving"]._replace(groups=4), slope * gt.moments(one, one.theta).gradient


def stopped_when_mixed():
    """The budget does not cut these groups."""
    problem = binary([0.3, 0.05])
    return problem, Rule(4, 16, first_mixed_sizes), gt.exact.first_mixed_groups(problem, problem.theta, low=2, high=16).mean


def binary(success):
    """Return a problem of two answers, each prompt with logits of its own."""
    theta = np.log([[one, 1.0 - one] for one in success]).ravel()
    return gt.Problem(gt.Bandit([[1.0, 0.0]] * len(success)), gt.TabularSoftmax(len(success), 2), theta=theta)


@pytest.mark.parametrize(("groups", "runs"), [(halved, 160_000), (stopped_when_mixed, 40_000)])
def test_groups_of_a_rule_have_their_exact_mean(groups, runs):
    """The mean of estimates is what is expected, |z| < 4.9 in every logit, and it is not the gradient."""
    problem, rule, expected = groups()
    probabilities = np.broadcast_to(problem.policy.probabilities(problem.theta), (1, runs, *problem.bandit.mean_reward.shape))
    found = logit_gradients(probabilities, problem.bandit.mean_reward > 0.5, rule, np.random.default_rng(7)).reshape(runs, -1)
    error = found.std(axis=0, ddof=1) / np.sqrt(runs)
    assert (np.abs(found.mean(axis=0) - expected) < 4.9 * error).all()
    assert (np.abs(found.mean(axis=0) - gt.moments(problem, problem.theta).gradient) > 4.9 * error).any()


def test_a_group_takes_what_it_needs_to_be_mixed_and_the_budget_cuts_the_last():
    rewards = np.array([[1, 1, 0, 0], [0, 1, 1, 1], [0, 0, 0, 0]], dtype=bool)
    np.testing.assert_array_equal(first_mixed_sizes(rewards[None]), [[3, 2, 4]])
    sizes = first_mixed_sizes(np.zeros((1, 40, 5), dtype=bool))
    assert sizes.sum() == SPENT
    np.testing.assert_array_equal(sizes[0], [5] * 25 + [3] + [0] * 14)


def test_halving_goes_on_with_those_nearest_to_a_half_and_spends_what_others_spend():
    rewards = np.zeros((1, 4, 16), dtype=bool)
    rewards[0, 1, :2] = rewards[0, 3, :1] = True
    np.testing.assert_array_equal(halved_sizes(rewards), [[4, 16, 4, 8]])
    random = np.random.default_rng(1).random((50, 16, 16)) < 0.2
    np.testing.assert_array_equal(halved_sizes(random).sum(axis=1), SPENT)


def test_runs_of_equal_sizes_are_those_of_the_compiled_trainer():
    problem = World(prompts=6, answers=4, dimension=8, held_out=0).problem()
    _, ours = successes(problem, RULES["equal"], [4.0, 8.0], [4, 8], np.random.default_rng(3), 2000)
    how = {"batch_size": BATCH, "group_size": GROUP, "steps": 8, "checkpoints": [4, 8], "replications": 2000, "rng": 4}
    theirs = gt.simulate_training(problem, problem.theta, "rloo", gt.Constant(8.0), **how).objectives
    error = np.hypot(ours.std(axis=0), theirs.std(axis=0)) / np.sqrt(2000)
    assert (np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) < 4.9 * error).all()
    assert (error < 0.01).all(), "a point of success would be seen"
    np.testing.assert_allclose(ours.std(axis=0), theirs.std(axis=0), rtol=0.1)


@pytest.mark.parametrize("name", ALL)
def test_success_rates_are_spread_evenly_in_their_logarithm(name):
    for held_out in {False, name != LEARNED}:
        problem, world = ALL[name].problem(held_out=held_out), ALL[name]
        expected = np.geomspace(world.easiest, world.rarest, world.held_out if held_out else world.prompts)
        np.testing.assert_allclose(gt.moments(problem, problem.theta).value, expected, rtol=1e-9)


def test_easy_prompts_mislead_the_rarest_ones():
    """What right answers have in common a wrong one has at a quarter of the prompts, those of least success."""
    common = ALL["misled"].problem().policy.logit_map.features[..., :2, 0]
    np.testing.assert_allclose(common, np.sqrt(0.03) * np.repeat(np.eye(2), [96, 32], axis=0))


def test_wrong_rewards_turn_the_share_that_is_asked_for_and_leave_the_truth_as_it_is():
    world = World(prompts=3, answers=5, wrong=0.1)
    wrong, true = world.graded(), world.problem()
    np.testing.assert_allclose(wrong.bandit.mean_reward, np.where(true.bandit.mean_reward == 1.0, 0.9, 0.1))
    np.testing.assert_array_equal(true.bandit.mean_reward.sum(axis=1), 1.0)
    # Of the rarest prompt's rewards, nearly all that are 1 are wrong ones.
    rewarded = wrong.at(wrong.theta).value[-1]
    assert rewarded == pytest.approx(0.9 * world.rarest + 0.1 * (1.0 - world.rarest))
    assert all((graded(name).bandit.mean_reward % 1.0 == 0.0).all() for name in (LONG, LEARNED, "shared"))


def test_the_figure_of_best_sizes_draws_its_curves_though_more_are_fitted():
    """A full run has a power law besides; quick ones have none of them."""
    arm = dict(zip(KEYS, run_group_size.PANELS[0], strict=True))
    rows = [
        arm | {"budget": budget, "quantity": quantity, "curve": curve, "estimate": 3.0, "standard_error": 0.5}
        for budget in (4096.0, 8192.0)
        for quantity, curve in (("best size", ""), *(("curve", name) for name in SIZES))
    ]
    table = pd.DataFrame(rows).assign(in_set=False, group_size=8)
    (axes,) = run_group_size.draw({"frontier": table}).axes
    assert len(axes.get_legend_handles_labels()[1]) == len(run_group_size.CURVES) + 1 < len(SIZES) + 1
