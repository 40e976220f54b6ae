"""The group size of a whole run: ladders of rewards, laws of prompts, readings of a log, worlds, runs, and the advice of them."""

import json
import re
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from rates import table
from tables import said, write

import grpo_theory as gt
from grpo_theory.estimation import find
from grpo_theory.page.advice.screen import how_sure, warnings
from grpo_theory.page.command import main
from grpo_theory.plan import run_advice
from grpo_theory.plan.run_advice import (
    JUDGED,
    JUDGED_GRADED,
    RunAdvice,
    WorldRuns,
    advise_run,
    alignment,
    log_alignment,
    make_training,
    train,
    train_sizes,
)
from grpo_theory.plan.run_worlds import (
    DROP,
    LARGEST,
    LEVELS,
    RARER,
    WORLDS,
    best_cuts,
    fit_reward_laws,
    lift,
    readings,
    reward_ladder,
    tilted_laws,
)
from simulations.plan import planned_graded_run, planned_run


def counts_of(rewards):
    """Reward counts of rewards (B, n), one row a prompt."""
    rewards = np.asarray(rewards, dtype=float)
    return gt.RewardCounts.from_rewards(np.repeat(np.arange(len(rewards)), rewards.shape[1]), rewards.ravel())


def drawn(prompts, responses, seed, parts=10):
    """Graded rewards of prompts whose parts are solved at rates from a beta law: a tenth for each part."""
    rng = np.random.default_rng(seed)
    return rng.binomial(parts, rng.beta(1.0, 2.0, prompts)[:, None], (prompts, responses)) / parts


def started(world, rates):
    """Return the problem of a world whose prompts start at success rates."""
    return world.graded(np.array([0.0, 1.0]), np.stack([1.0 - rates, rates], axis=-1))


@pytest.mark.parametrize("seed", range(3))
def test_clusters_are_the_best_of_all_runs_of_neighbours(seed):
    rng = np.random.default_rng(seed)
    values, weights = np.sort(rng.random(9)), rng.integers(1, 9, 9).astype(float)

    def distance(cuts):
        parts = zip(np.split(values, cuts), np.split(weights, cuts), strict=True)
        return sum(w @ (v - np.average(v, weights=w)) ** 2 for v, w in parts)

    found, every = best_cuts(values, weights, 4), [distance(cuts) for cuts in combinations(range(1, 9), 3)]
    assert found[0] == 0
    assert distance(found[1:]) == pytest.approx(min(every), rel=1e-9)
    assert distance([2, 4, 6]) > min(every)


def test_a_few_rewards_are_kept_and_many_keep_their_mean():
    few = reward_ladder(gt.RewardCounts.from_rewards([0] * 6 + [1] * 2, [-1.0, 0.0, 2.0, 2.0, 2.0, 2.0, 0.0, 0.0]))
    assert few.rewards.tolist() == [-1.0, 0.0, 2.0]
    assert few.grades.tolist() == pytest.approx([0.0, 1.0 / 3.0, 1.0])
    assert few.pooled.tolist() == [1 / 8, 3 / 8, 4 / 8], "shares of the responses, whatever the sizes of their groups"
    rewards = 7.0 + 1e3 * np.random.default_rng(1).normal(size=(500, 6))  # all of 3000 differ: more than the search sees
    many = reward_ladder(counts_of(rewards))
    assert many.counts.shape == (500, LEVELS)
    assert many.pooled @ many.rewards == pytest.approx(rewards.mean(), rel=1e-9)
    kept = many.pooled @ (many.rewards - rewards.mean()) ** 2 / rewards.var()
    assert kept > 0.94  # the best six points of a normal variable keep 94.2% of its variance (Max 1960)


def test_an_outlier_leaves_the_other_levels_where_they_belong():
    rewards = np.random.default_rng(6).permutation(np.linspace(0.0, 1.0, 480))
    rewards[0] = -1e8
    found = reward_ladder(gt.RewardCounts.from_rewards(np.repeat(np.arange(60), 8), rewards))
    shares = np.sort(found.counts.sum(axis=0))
    assert (-1e8 in found.rewards, shares[0]) == (True, 1)
    assert 90 < shares[1] <= shares[-1] < 102, "even fifths of an even law"


def test_levels_that_lose_what_groups_differ_by_are_refused():
    """Between prompts a constant differs that no advantage sees; without it the same rewards are taken."""
    noise = np.random.default_rng(6).normal(size=(60, 8))
    for rewards in (np.arange(60.0)[:, None] + 0.3 * noise, 10.0 * np.arange(60.0)[:, None] + (noise > 0.5)):
        with pytest.raises(ValueError, match=r"times the log's variance within groups; .* Subtract from each reward"):
            reward_ladder(counts_of(rewards))
    assert len(reward_ladder(counts_of(noise)).rewards) == 6


def test_three_levels_have_laws_of_every_mean_and_many_spreads():
    laws = tilted_laws(np.array([0.0, 0.5, 1.0]), np.array([0.5, 0.1, 0.4]))
    np.testing.assert_allclose(laws.sum(axis=1), 1.0, rtol=1e-12)
    means = laws @ [0.0, 0.5, 1.0]
    assert (np.diff(means) <= 1e-9).all()
    near = laws[np.abs(means - 0.5) < 1e-6, 1]
    assert near.min() < 0.001 < 0.999 < near.max()


def test_the_laws_of_a_log_have_its_mean_and_its_spreads_without_the_noise_of_small_groups():
    """Between prompts the variance of mean rewards is the beta law's, 1/18; within one it is E p (1 - p) / 10 = 1/60."""
    rewards = drawn(2000, 4, 3)
    ladder = reward_ladder(counts_of(rewards), 11)
    laws, weights = fit_reward_laws(ladder)
    means = laws @ ladder.grades
    within = laws @ ladder.grades**2 - means**2
    middle = weights @ means
    assert middle == pytest.approx(rewards.mean(), abs=1e-3)
    assert weights @ (means - middle) ** 2 == pytest.approx(1.0 / 18.0, abs=4.0 * 0.0016)  # of 2000 prompts
    assert weights @ within == pytest.approx(1.0 / 60.0, abs=4.0 * 0.0004)


def test_the_floor_is_where_the_likelihood_of_unsolved_prompts_falls_by_half_a_unit():
    """30 prompts of 8 failures, 30 of 8 successes: the law has atoms at 0 and 1, and the floor solves 240 log(1 - p) = -1/2."""
    counts, exact = table([0] * 30 + [8] * 30, 8), 1.0 - np.exp(-DROP / 240)
    ladder = reward_ladder(counts)
    near, far = readings(ladder, *fit_reward_laws(ladder), 10)
    assert (near.floor, far.floor) == (pytest.approx(exact, rel=1e-6), pytest.approx(exact / RARER, rel=1e-6))
    assert near.agreement == pytest.approx(np.exp(-DROP), rel=1e-6)
    assert far.agreement == pytest.approx((1.0 - far.floor) ** 240, rel=1e-6)
    np.testing.assert_allclose(near.shares[:, -1], [LARGEST] * 5 + [near.floor] * 5)
    ladder = reward_ladder(counts_of([[0.0] * 8] * 30 + [[1.0] * 8] * 30 + [[0.5] * 8]))
    near, far = readings(ladder, *fit_reward_laws(ladder), 10)
    assert (near.floor, far.floor) == (pytest.approx(exact, rel=0.1), pytest.approx(near.floor / RARER, rel=1e-9))
    assert 1.0 - near.shares[-1, 0] == pytest.approx(near.floor, rel=0.02)
    assert (np.diff(near.shares @ ladder.grades) <= 1e-12).all()


def test_what_was_never_seen_comes_as_often_as_the_floor_in_the_proportions_of_the_log():
    law, pooled = np.array([[0.3, 0.7], [0.95, 0.05], [0.0, 1.0]]), np.array([0.5, 0.5])
    np.testing.assert_allclose(lift(law, 0.1, pooled)[:, 1], [0.7, 0.1, 1.0])
    np.testing.assert_allclose(lift(law, 0.0, pooled, LARGEST)[:, 1], [0.7, 0.05, LARGEST])
    lifted = lift(np.eye(4), 0.06, np.array([0.4, 0.3, 0.2, 0.1]))
    np.testing.assert_allclose(lifted[0], [0.94, 0.03, 0.02, 0.01], rtol=1e-6)
    assert lifted[1, 2:] == pytest.approx([0.02, 0.01], rel=1e-6)


def test_worlds_start_at_the_laws_that_are_asked_for():
    rates = np.geomspace(0.9, 1e-4, 12)
    values, shares = np.linspace(0.0, 1.0, LEVELS), np.random.default_rng(2).dirichlet(np.ones(LEVELS), 9)
    for world in WORLDS:
        plain, problem = started(world, rates), world.graded(values, shares)
        reached = (plain.policy.probabilities(plain.theta) * plain.bandit.mean_reward).sum(axis=-1)
        np.testing.assert_allclose(reached, rates, rtol=1e-9)
        graded = np.einsum("mk,mkl->ml", problem.policy.probabilities(problem.theta), problem.bandit.probabilities)
        np.testing.assert_allclose(graded, shares, rtol=1e-9)
        assert ((problem.bandit.mean_reward == 1.0).sum(axis=1) == world.right).all()
    assert len({world.title for world in WORLDS}) == len(WORLDS) == len({world[1:] for world in WORLDS})


def test_alignment_is_the_mean_product_of_two_prompts_gradients_over_their_mean_square_in_worlds_and_logs():
    """A pilot draws prompts with replacement: a sixtieth of its pairs are of one prompt, whose gradients are alike."""
    small = started(WORLDS[3], np.geomspace(0.5, 0.05, 5))
    gradients = gt.moments(small, small.theta).prompt_gradients
    products = [gradients[i] @ gradients[j] for i in range(5) for j in range(5) if i != j]
    assert alignment(small) == pytest.approx(np.mean(products) / (gradients**2).sum(axis=1).mean(), rel=1e-12)
    problem, pilot = started(WORLDS[3], np.full(60, 0.4)), gt.Pilot(60, 8)
    found = [log_alignment(pilot.take(pilot.sample(problem, np.random.default_rng(seed), 1), 0))[0] for seed in range(40)]
    error, exact = np.std(found, ddof=1) / np.sqrt(40), alignment(problem) * 59 / 60 + 1 / 60
    assert abs(np.mean(found) - exact) < 4.5 * error < abs(np.mean(found) - 2.0 * exact)


def test_a_world_trains_as_the_trainer_does():
    problem = started(WORLDS[1], np.geomspace(0.5, 0.05, 8))
    training = make_training(problem, find("rloo"), np.ones(1), (8, 8))
    own = train(problem, training, 6.0, 12, np.random.SeedSequence(3), (0, 16))
    runs = gt.simulate_training(
        problem, problem.theta, "rloo", gt.Constant(6.0), batch_size=8, group_size=8, steps=12, replications=16,
        rng=np.random.SeedSequence(3), workers=1,
    )  # fmt: skip
    np.testing.assert_array_equal(own, runs.objectives[:, -1])
    ends = train_sizes(started(WORLDS[3], np.full(8, 0.3)), find("rloo"), (4, 64), (10, 5), np.random.SeedSequence(1))
    assert (ends.mean(axis=1) > 0.4).all()


def made(success, weights=(0.5, 0.25, 0.25), floors=(0.1, 0.1, 0.1), errors=0.0, **more):
    """An advice of made up runs, success of shape (W, S)."""
    parts = zip(np.asarray(success, dtype=float), weights, floors, strict=True)
    worlds = tuple(WorldRuns(f"w{i}", f, w, 0.1, own, np.full(own.size, errors)) for i, (own, w, f) in enumerate(parts))
    return replace(RunAdvice("rloo", 8000.0, 100, 80.0, np.array([2, 4, 8]), worlds), **more)


def test_the_recommendation_loses_least_on_average_and_a_measurement_is_worth_the_loss_that_it_saves():
    """Known kinds of worlds lose nothing; floors tell the first world from the other two, whose best is 4 of a loss of 0.05."""
    run = made([[0.9, 0.8, 0.5], [0.2, 0.5, 0.4], [0.2, 0.3, 0.4]], floors=(0.1, 0.01, 0.01))
    np.testing.assert_allclose(run.losses, [[0.0, 0.1, 0.4], [0.3, 0.0, 0.1], [0.2, 0.1, 0.0]])
    np.testing.assert_allclose(run.expected_losses, [0.125, 0.075, 0.225])
    assert (run.group_size, run.candidates.tolist()) == (4, [False, True, False])
    assert [run.quantiles(place) for place in (1, 0)] == [pytest.approx((0.0, 0.1, 0.1)), pytest.approx((0.0, 0.0, 0.3))]
    assert run.worth == pytest.approx({"sharing": 0.075, "rare": 0.05})
    assert [replace(run, asked=size).keep for size in (None, 4, 5, 3, 8, 64)] == [None, True, True, True, False, False]
    assert made([[0.500, 0.509, 0.498]] * 3, asked=2).keep is True, "within a point"
    assert made([[0.500, 0.509, 0.498]] * 3, asked=8).keep is False
    unsure = made([[0.50, 0.51, 0.3]] * 3, errors=0.02)
    np.testing.assert_allclose(unsure.errors, 0.02 * np.sqrt(0.375))
    assert unsure.candidates.tolist() == [True, True, False]


RARE = (0.1, 0.01, 0.01)
WARNED = ("extrapolated", "not judged: ", "larger groups may serve", "rewards are graded", "far from all other rewards")


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, ()),
        ({"total": 12_900.0}, WARNED[:2]),
        ({"total": 2e5, "floors": RARE, "estimator": "trl_grpo"}, WARNED[:3]),
        ({"total": 2e5, "estimator": "grpo"}, WARNED[:2]),
        ({"rewards": (-1e6, 0.1, 0.4, 0.9)}, (WARNED[1], *WARNED[3:])),
        ({"rewards": (1.0, 1.0 + 1e-9, 1.0 + 3e-9)}, (WARNED[1], WARNED[3])),
    ],
)
def test_it_says_where_it_is_less_sure(changed, told):
    """Of runs of another length; without runs that judged it; where larger groups may serve; and where rewards are graded."""
    run = made([[0.9, 0.8, 0.5]] * 3, **changed)
    text = " ".join(warnings(gt.plan.advise(table([3, 4, 5] * 20, 8), 64), run))
    assert [words for words in WARNED if words in text] == list(told)
    assert run.judged == (WARNED[1] not in told)
    assert "They cannot tell groups of 2 from 4." in how_sure(None, made([[0.50, 0.51, 0.3]] * 3, errors=0.02))


def test_judged_is_what_the_studies_of_the_advice_judge():
    assert max(planned_run.EACH) == JUDGED
    assert max(each for _, _, each in planned_graded_run.CASES) == JUDGED_GRADED


@pytest.mark.parametrize(
    ("estimator", "best", "kept"),
    [("rloo", 4, {2, 4, 8}), ("dr_grpo", 4, {2, 4, 8}), ("grpo", 8, {8, 16}), ("max_rl", 8, {8, 16})],
)
def test_from_a_thousand_responses_a_prompt_on_the_rule_of_the_page_decides(estimator, best, kept):
    """Worlds that like 4 most choose among 2 to 8 for who does not divide, and 8 or 16 for who does."""
    run = made([[0.8, 0.9, 0.5]] * 3, total=1e7, training_prompts=10_000, estimator=estimator)
    assert (run.rule, run.group_size) == ((2, 8) if best == 4 else (8, 16), best)
    assert {size for size in (2, 4, 8, 16, 32) if replace(run, asked=size).keep} == kept
    assert (replace(run, total=9e6).rule, replace(run, total=9e6).group_size) == (None, 4)
    words = (Path(__file__).parents[1] / "docs" / "runs.md").read_text(encoding="utf-8")
    assert "2 to 8 if your trainer does not divide, and 8 or 16 if it does" in words


def test_costs_of_prompts_leave_more_responses_to_larger_groups():
    run = made([[0.9, 0.8, 0.5]] * 3, costs=(4.0, 0.5))
    assert run.each == pytest.approx(8000.0 / (0.5 + 4.0 / 2) / 100)
    assert replace(run, worlds=run.worlds, group_sizes=np.array([8, 16, 32])).each == pytest.approx(
        8000.0 / (0.5 + 4.0 / 8) / 100
    )


@pytest.fixture
def few(monkeypatch):
    """Let one world be run."""
    monkeypatch.setattr(run_advice, "WORLDS", WORLDS[:1])


@pytest.mark.usefixtures("few")
def test_runs_are_as_long_as_their_cost_and_the_factor_is_that_of_the_change():
    counts = table([3, 4, 5] * 20, 8)
    costly = advise_run(counts, 3840, largest=8, costs=(4.0, 1.0), group_size=8, estimator="dr_grpo")
    plain = advise_run(counts, 3840 / (1 + 4 / 8), largest=8, estimator="dr_grpo")
    np.testing.assert_array_equal(costly.worlds[0].success[2], plain.worlds[0].success[2])
    assert costly.worlds[0].success[0] < plain.worlds[0].success[0], "groups of 2 have half as many responses"
    if costly.group_size != 8:
        assert costly.learning_rate.most == pytest.approx((7 / 8) / (1 - 1 / costly.group_size), rel=1e-12)
    with pytest.raises(ValueError, match="at least one group of 2, which costs 6, got 5"):
        advise_run(counts, 5, costs=(4.0, 1.0))


def test_small_groups_are_advised_where_all_prompts_are_easy():
    run = advise_run(table([3, 4, 5] * 20, 8), 960)
    assert (run.estimator, run.training_prompts, run.simulated) == ("rloo", 60, 16.0)
    assert run.group_size <= 8 < 64
    assert not run.candidates[-1]


@pytest.mark.usefixtures("few")
def test_the_scale_of_rewards_does_not_matter_and_two_values_are_success_and_failure():
    rewards = drawn(40, 6, 2)
    one, other = (advise_run(counts_of(each), 640, largest=4) for each in (rewards, 64.0 * rewards))
    np.testing.assert_array_equal(one.losses, other.losses)
    np.testing.assert_array_equal(64.0 * np.array(one.rewards), other.rewards)
    assert (one.graded, len(one.rewards)) == (True, LEVELS)
    plain = advise_run(table([3, 4, 5] * 20, 8), 60, largest=4, estimator="max_rl")
    assert (plain.graded, plain.rewards, plain.extrapolated, plain.simulated) == (False, (0.0, 1.0), True, run_advice.LEAST)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("parts", [1, 10])
def test_the_command_advises_on_a_run(parts, tmp_path, capsys):
    found = [{"prompt_id": b, "reward": float(r)} for b, row in enumerate(drawn(30, 4, 4, parts)) for r in row]
    asked = ["plan", str(write(tmp_path / "log.jsonl", found)), "--total", "500", "--max-group-size", "4"]
    assert main([*asked, "--html", str(tmp_path / "plan.html")]) == 0
    text = said(capsys.readouterr().out)
    assert re.match("Use groups of [24] with rloo for the whole run of 500 responses, 16.7 for each of 30 prompts", text)
    assert ("rewards are graded" in text) == (parts > 1)
    assert "THE SIMULATED WORLDS" in (tmp_path / "plan.html").read_text(encoding="utf-8")
    assert main([*asked, "--json", "-"]) == 0
    record = json.loads(capsys.readouterr().out)["run"]
    assert record["group_sizes"] == [2, 4]
    assert len(record["rewards"]) == (2 if parts == 1 else LEVELS)
