"""The study of the time to a level where features are learned: its level, its control, and what its verdicts follow."""

from itertools import product

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.estimation.kernel import Batch
from grpo_theory.harness.sides import study_of
from simulations.training import learned_time
from simulations.training.learned_time import ARMS, CONTESTS, NETWORKS
from tests.made_up import judged


@pytest.mark.parametrize("name", NETWORKS)
def test_the_level_is_two_thirds_of_the_way_to_the_best_responses(name):
    problem = NETWORKS[name].problem(np.random.default_rng(1))
    assert set(np.unique(problem.bandit.mean_reward)) == {0.1, 0.9}
    assert (problem.bandit.mean_reward == 0.9).mean() == 0.25
    start = gt.objective(problem, problem.theta)
    assert learned_time.level(problem) == pytest.approx(start + 2.0 / 3.0 * (0.9 - start), rel=1e-12)
    assert not problem.policy.is_linear


def test_a_quarter_of_the_mean_update_is_left_of_the_broken_arm():
    """By all groups of eight rewards that are right with probability 0.3: the mean of A (Z - 0.3)."""
    means = []
    for arm in ("broken", "TIC"):
        kernel, total = ARMS[arm].advantage.function, 0.0
        for group in product([0.0, 1.0], repeat=8):
            z, advantages = np.array([group]), np.empty((1, 8))
            kernel(Batch(z, z, z, z[:, 0], z[:, 0], z[:, 0], np.empty(0)), advantages)
            total += np.prod(np.where(z == 1.0, 0.3, 0.7)) * (advantages * (z - 0.3)).mean()
        means.append(total)
    assert means[1] == pytest.approx(0.875 * 0.3 * 0.7, rel=1e-12)
    assert means[0] == pytest.approx(0.25 * means[1], rel=1e-12)


def test_arms_see_the_same_draws():
    """The place of an arm among the arms, which is the number of its chunk, says nothing of its draws."""
    settings = dict(learned_time.trained.cell(learned_time.cases(True)[0]).settings)
    settings |= {"arms": ["TIC", "no ratio", "TIC"], "problems": 2}
    first, other, last = (
        learned_time.trained(np.random.default_rng(1), chunk, **settings)["arms"][0]["times"].tolist() for chunk in range(3)
    )
    assert first == last
    assert first != other


def made_up(times):
    """Return results of arms with these times at the middle step, one for each problem, and longer ones elsewhere."""
    return {"arms": [{"arm": arm, "steps": [1.0, 2.0, 4.0], "times": [own + 9.0, own, own + 9.0]} for arm, own in times.items()]}


def test_verdicts_follow_the_times():
    noise = np.random.default_rng(2).normal(size=200)
    times = dict.fromkeys(ARMS, 60.0 + noise) | {"TIC": 40.0 + noise, "broken": 120.0 + noise, "no ratio": 64.0 + noise}
    facts = learned_time.sooner(made_up(times))["T14/against GRPO, learned features"][1]
    assert facts["step, TIC"] == facts["step, GRPO"] == 2.0
    assert facts["updates, TIC"] == pytest.approx(40.0 + noise.mean())
    found = judged([learned_time.sooner], made_up(times))
    assert set(found.index) == set(study_of(learned_time).decides) == set(CONTESTS)
    assert found.loc["T14/against GRPO, learned features", ["verdict", "control"]].tolist() == ["confirmed", "refuted"]
    assert found.loc["T8/time, learned features", ["verdict", "control"]].tolist() == ["refuted", "refuted"]
    assert found.loc["T14/both, learned features", "verdict"] == "confirmed"
    # An arm is no sooner than itself, and a control that is as good as the rest is not refuted.
    equal = judged([learned_time.sooner], made_up(times | {"TIC": times["GRPO"], "broken": times["TIC"]}))
    assert equal.loc["T14/against GRPO, learned features", "verdict"] != "confirmed"
    assert equal.loc["T14/against GRPO, learned features", "control"] != "refuted"
