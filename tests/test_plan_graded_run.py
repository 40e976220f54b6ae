"""The group size of a whole run where rewards are graded: ladders of rewards, laws of prompts, readings, worlds and advice."""

import json
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from tables import answer, write

import grpo_theory as gt
from grpo_theory.laboratory.prompt_features import Sharing, graded_features, shared_features
from grpo_theory.page.advice.whole_run import run_record, whole_run
from grpo_theory.page.command import main
from grpo_theory.plan.reward_laws import Rows, fit_reward_laws, tilted_laws
from grpo_theory.plan.reward_levels import LEVELS, Ladder, best_cuts, reward_ladder
from grpo_theory.plan.run_advice import JUDGED_GRADED, advise_run
from grpo_theory.plan.run_rates import DROP, LARGEST, RARER, cap, graded_readings, lift
from grpo_theory.plan.run_worlds import WORLDS
from grpo_theory.samples import RewardCounts
from simulations.plan import planned_graded_run


def counts_of(rewards):
    """Reward counts of rewards (B, n), one row a prompt."""
    rewards = np.asarray(rewards, dtype=float)
    return RewardCounts.from_rewards(np.repeat(np.arange(len(rewards)), rewards.shape[1]), rewards.ravel())


def drawn(prompts, responses, seed, parts=10):
    """Graded rewards of prompts whose parts are solved at rates from a beta law: a tenth for each part."""
    rng = np.random.default_rng(seed)
    return rng.binomial(parts, rng.beta(1.0, 2.0, prompts)[:, None], (prompts, responses)) / parts


# ---- a ladder of rewards


@pytest.mark.parametrize("seed", range(5))
def test_clusters_are_the_best_of_all_runs_of_neighbours(seed):
    rng = np.random.default_rng(seed)
    values, weights = np.sort(rng.random(9)), rng.integers(1, 9, 9).astype(float)

    def distance(cuts):
        parts = zip(np.split(values, cuts), np.split(weights, cuts), strict=True)
        return sum(w @ (v - np.average(v, weights=w)) ** 2 for v, w in parts)

    found = best_cuts(values, weights, 4)
    assert found[0] == 0
    every = [distance(cuts) for cuts in combinations(range(1, 9), 3)]
    assert distance(found[1:]) == pytest.approx(min(every), rel=1e-9)
    assert distance([2, 4, 6]) > min(every)


def test_a_few_rewards_are_kept_and_many_keep_their_mean():
    few = reward_ladder(counts_of([[-1.0, 0.0, 2.0], [2.0, 2.0, 0.0]]))
    assert few.rewards.tolist() == [-1.0, 0.0, 2.0]
    assert few.grades.tolist() == pytest.approx([0.0, 1.0 / 3.0, 1.0])
    rewards = 7.0 + 1e3 * np.random.default_rng(1).normal(size=(500, 6))  # all of 3000 differ: more than the search sees
    many = reward_ladder(counts_of(rewards))
    assert many.counts.shape == (500, LEVELS)
    assert many.counts.sum(axis=1).tolist() == [6] * 500
    assert many.pooled @ many.rewards == pytest.approx(rewards.mean(), rel=1e-9)
    kept = many.pooled @ (many.rewards - rewards.mean()) ** 2 / rewards.var()
    assert kept > 0.94  # the best six points of a normal variable keep 94.2% of its variance (Max 1960)


def test_an_outlier_is_a_level_of_its_own():
    rewards = np.random.default_rng(6).random((100, 8))
    rewards[3, 3] = -1e6
    assert reward_ladder(counts_of(rewards)).rewards[0] == -1e6


# ---- laws of prompts


def test_three_levels_have_laws_of_every_mean_and_many_spreads():
    laws = tilted_laws(np.array([0.0, 0.5, 1.0]), np.array([0.5, 0.1, 0.4]))
    np.testing.assert_allclose(laws.sum(axis=1), 1.0, rtol=1e-12)
    means = laws @ [0.0, 0.5, 1.0]
    assert (np.diff(means) <= 1e-9).all()
    near = np.abs(means - 0.5) < 1e-6
    assert laws[near, 1].min() < 0.001
    assert laws[near, 1].max() > 0.999


def test_the_laws_of_a_log_have_its_mean_and_its_spreads_without_the_noise_of_small_groups():
    """Between prompts the variance of mean rewards is the beta law's, 1/18; within one it is E p (1 - p) / 10 = 1/60."""
    rewards = drawn(2000, 4, 3)
    ladder = reward_ladder(counts_of(rewards), 11)
    found = fit_reward_laws(ladder)
    means = found.laws @ ladder.grades
    within = found.laws @ ladder.grades**2 - means**2
    middle = found.weights @ means
    between = found.weights @ (means - middle) ** 2
    assert middle == pytest.approx(rewards.mean(), abs=1e-3)
    assert between == pytest.approx(1.0 / 18.0, abs=4.0 * 0.0016)  # of 2000 prompts
    assert found.weights @ within == pytest.approx(1.0 / 60.0, abs=4.0 * 0.0004)
    steady = fit_reward_laws(Ladder(ladder.rewards, (4 * np.eye(11, dtype=int))[ladder.counts.argmax(axis=1)]))
    spread = steady.laws @ ladder.grades**2 - (steady.laws @ ladder.grades) ** 2
    assert steady.weights @ spread < 0.3 * (found.weights @ within), "groups without spread have laws with little"


def test_very_many_different_rows_are_thinned_out_and_stand_for_all_prompts():
    ladder = reward_ladder(counts_of(np.random.default_rng(5).random((9000, 40))))
    rows = Rows.of(ladder)
    assert len(rows.counts) <= 4096 < len(np.unique(ladder.counts, axis=0))
    assert rows.prompts.sum() == pytest.approx(9000)


# ---- readings


def test_with_two_levels_a_floor_is_that_of_success_rates():
    law, pooled = np.array([[0.3, 0.7], [0.95, 0.05], [0.0, 1.0]]), np.array([0.5, 0.5])
    np.testing.assert_allclose(lift(law, 0.1, pooled)[:, 1], [0.7, 0.1, 1.0])
    np.testing.assert_allclose(cap(law, pooled)[:, 1], [0.7, 0.05, LARGEST])


def test_what_was_never_seen_comes_as_often_as_the_floor_in_the_proportions_of_the_log():
    pooled = np.array([0.4, 0.3, 0.2, 0.1])
    lifted = lift(np.eye(4), 0.06, pooled)
    np.testing.assert_allclose(lifted.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(lifted[0], [0.94, 0.03, 0.02, 0.01], rtol=1e-6)
    assert lifted[1, 2:] == pytest.approx([0.02, 0.01], rel=1e-6)
    assert (lifted > 0.0).all()


def test_the_floor_of_graded_rewards_is_where_the_likelihood_falls_by_half_a_unit():
    """30 prompts of 8 are at the least reward, 30 at the greatest, one between. Without that one ``240 log(1 - p)`` is -1/2."""
    rewards = [[0.0] * 8] * 30 + [[1.0] * 8] * 30 + [[0.5] * 8]
    ladder = reward_ladder(counts_of(rewards))
    near, far = graded_readings(ladder, fit_reward_laws(ladder), 10)
    assert near.floor == pytest.approx(1.0 - np.exp(-DROP / 240), rel=0.1)
    assert far.floor == pytest.approx(near.floor / RARER, rel=1e-9)
    assert near.agreement == pytest.approx(np.exp(-DROP), rel=1e-5)
    assert near.shares.shape == (10, 3)
    assert 1.0 - near.shares[-1, 0] == pytest.approx(near.floor, rel=0.02)
    assert (np.diff(near.shares @ ladder.grades) <= 1e-12).all()


# ---- worlds


@pytest.mark.parametrize("world", WORLDS)
def test_worlds_start_at_the_laws_that_are_asked_for(world):
    values, shares = np.linspace(0.0, 1.0, LEVELS), np.random.default_rng(2).dirichlet(np.ones(LEVELS), 9)
    problem = world.graded(values, shares)
    reached = np.einsum("mk,mkl->ml", problem.policy.probabilities(problem.theta), problem.bandit.probabilities)
    np.testing.assert_allclose(reached, shares, rtol=1e-9)
    best = (problem.bandit.mean_reward == 1.0).sum(axis=1)
    assert (best == world.right).all()


def test_worlds_of_two_levels_are_those_of_success_and_failure():
    rates = np.geomspace(0.5, 0.01, 8)
    for world in WORLDS:
        graded, plain = world.graded(np.array([0.0, 1.0]), np.stack([1.0 - rates, rates], axis=-1)), world.problem(rates)
        np.testing.assert_array_equal(graded.theta, plain.theta)
        np.testing.assert_array_equal(graded.bandit.mean_reward, plain.bandit.mean_reward)


def test_answers_share_what_is_right_as_far_as_they_are():
    grades = np.tile([1.0, 0.5, 0.0, 0.0], (4, 1))
    features = graded_features(grades, Sharing(50, transfer=0.4, misled=0.25), np.random.default_rng(1))
    np.testing.assert_allclose(np.linalg.norm(features, axis=-1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(features[:3, :, 0] ** 2, 0.4 * grades[:3])
    np.testing.assert_allclose(features[3, :, 0] ** 2, [0.0, 0.0, 0.4, 0.0])
    right = grades == 1.0
    plain = shared_features(right, Sharing(50, transfer=0.4), np.random.default_rng(1))
    np.testing.assert_allclose(plain[..., 0] ** 2, 0.4 * right)


# ---- the advice


def test_graded_rewards_get_a_group_size_for_the_run():
    run = advise_run(counts_of(0.2 + 5.0 * drawn(60, 8, 1)), 960)
    assert run.graded
    assert len(run.rewards) == LEVELS
    assert 0.2 <= run.rewards[0] < run.rewards[-1] <= 5.2
    assert run.group_size <= 8
    assert not run.candidates[-1]
    text = " ".join(whole_run(run).paragraphs)
    assert f"a scale from {run.rewards[0]:.4g}, which is 0 points, to {run.rewards[-1]:.4g}, which is 100" in text
    assert "starts at the mean rewards and spreads within groups of this log" in text
    assert ("every prompt gets more than" in text) == (len({world.floor for world in run.worlds}) > 1)
    assert run_record(run)["rewards"] == run.rewards


def test_an_outlier_and_rewards_that_are_nearly_equal_are_told():
    run = advise_run(counts_of(drawn(10, 4, 1)), 100, largest=2)
    assert "far from all other rewards" not in whole_run(run).paragraphs[1]
    outlier = replace(run, rewards=(-1e6, 0.1, 0.4, 0.9))
    assert "far from all other rewards" in whole_run(outlier).paragraphs[1]
    near = replace(run, rewards=(1.0, 1.0 + 1e-9, 1.0 + 3e-9))
    assert "pay 3 rewards: 1, 1.000000001, 1.000000003." in whole_run(near).paragraphs[1]


def test_the_scale_of_rewards_does_not_matter():
    rewards = drawn(40, 6, 2)
    one, other = (advise_run(counts_of(each), 640, largest=8) for each in (rewards, 64.0 * rewards))
    np.testing.assert_array_equal(one.losses, other.losses)
    np.testing.assert_array_equal(64.0 * np.array(one.rewards), other.rewards)


def test_rewards_of_two_values_have_the_worlds_that_they_had():
    run = advise_run(counts_of([[0.0, 1.0, 1.0, 0.0]] * 40), 640, largest=4)
    assert not run.graded
    assert run.rewards == (0.0, 1.0)
    assert not any("Rewards are graded" in text for text in whole_run(run).paragraphs)


def test_judged_is_what_the_study_of_graded_rewards_judges():
    assert max(each for _, _, each in planned_graded_run.CASES) == JUDGED_GRADED


def test_the_command_advises_on_a_run_of_graded_rewards(tmp_path, capsys):
    rewards = drawn(30, 4, 4)
    found = [{"prompt_id": b, "reward": float(reward)} for b, row in enumerate(rewards) for reward in row]
    table = write(tmp_path / "graded.jsonl", found)
    asked = ["plan", str(table), "--total", "500", "--max-group-size", "8"]
    assert main(asked) == 0
    said = capsys.readouterr().out
    assert answer(said).startswith("GROUP SIZE FOR THE WHOLE RUN\n  Use groups of ")
    assert "Rewards are graded" in said
    assert main([*asked, "--json", "-"]) == 0
    assert len(json.loads(capsys.readouterr().out)["run"]["rewards"]) == LEVELS


@pytest.mark.parametrize("estimator", ["dr_grpo", "max_rl", "trl_dapo_loss"])
def test_estimators_of_every_kind_are_planned_for(estimator):
    run = gt.plan.advise_run(counts_of(drawn(10, 4, 1)), 100, estimator=estimator, largest=4)
    assert run.group_sizes.tolist() == [2, 4]


def test_levels_that_lose_what_groups_differ_by_are_refused():
    """Between prompts a constant differs that no advantage sees; without it the same rewards are taken."""
    rng = np.random.default_rng(6)
    noise, prompts = rng.normal(size=(60, 8)), np.repeat(np.arange(60), 8)
    for rewards in (np.arange(60.0)[:, None] + 0.3 * noise, 10.0 * np.arange(60.0)[:, None] + (noise > 0.5)):
        with pytest.raises(ValueError, match=r"times the log's variance within groups; .* Subtract from each reward"):
            reward_ladder(gt.RewardCounts.from_rewards(prompts, rewards.ravel()))
    assert len(reward_ladder(gt.RewardCounts.from_rewards(prompts, noise.ravel())).rewards) == 6


@pytest.mark.parametrize("outlier", [-1e8, 1e8])
def test_an_outlier_leaves_the_other_levels_where_they_belong(outlier):
    rewards = np.random.default_rng(6).permutation(np.linspace(0.0, 1.0, 480))
    rewards[0] = outlier
    found = reward_ladder(gt.RewardCounts.from_rewards(np.repeat(np.arange(60), 8), rewards))
    shares = np.sort(found.counts.sum(axis=0))
    assert shares[0] == 1
    assert 90 < shares[1] <= shares[-1] < 102, "even fifths of an even law"
