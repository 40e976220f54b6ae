"""Weights of prompts and learning rates: means over all counts, every subgroup written out, what holds at every success rate."""

from itertools import combinations

import numpy as np
import pytest
from rates import drawn, expected, table

import grpo_theory as gt
from grpo_theory.plan.expected_step import slope_function
from grpo_theory.plan.success_rates import average_terms

NAMES = ("rloo", "dr_grpo", "grpo", "trl_grpo", "verl_grpo", "nemo_rl", "rllm", "max_rl", "verl_grpo_passk")
RATES = np.random.default_rng(20261122).beta(0.3, 0.5, 4000)
COUNTS = drawn(RATES, 8, 1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("group_size", [2, 5, 9])
def test_terms_are_without_bias_up_to_one_more_than_the_groups(name, group_size):
    every = table(np.arange(9), 8)
    slope = slope_function(every, name, group_size)
    objective = gt.theory.finite_group_objective(name, group_size)
    terms = average_terms(every, slope)
    assert terms.below is terms.above
    for rate in (0.0, 0.1, 0.5, 0.93, 1.0):
        assert expected(terms.below, 8, rate) == pytest.approx(float(objective.slope(rate)), abs=1e-12)


def test_weights_hold_the_truth_and_show_what_an_estimator_favours():
    law = gt.plan.fit_success_rates(COUNTS)
    found = {name: gt.plan.weigh_prompts(COUNTS, name, 8, law=law) for name in ("dr_grpo", "grpo", "max_rl", "verl_grpo_passk")}
    for name, weights in found.items():
        slope = gt.theory.finite_group_objective(name, 8).slope(RATES)
        assert weights.scale.covers(slope.mean())
        assert weights.mean_rate.covers((slope * RATES).mean() / slope.mean())
        hard, easy = RATES < 0.2, RATES > 0.8
        truth = [slope[part].sum() / slope.sum() for part in (hard, ~hard & ~easy, easy)]
        assert weights.shares.covers(truth).all()
        assert weights.prompts.covers([hard.mean(), 1.0 - hard.mean() - easy.mean(), easy.mean()]).all()
    order = [float(found[name].mean_rate.estimate) for name in ("verl_grpo_passk", "max_rl", "grpo", "dr_grpo")]
    assert order == sorted(order)
    plain = found["dr_grpo"]
    np.testing.assert_allclose(plain.shares.estimate, plain.prompts.estimate, rtol=1e-12)
    assert plain.scale.low == plain.scale.high == pytest.approx(7 / 8, abs=1e-12)


def test_the_factor_is_the_mean_step_and_lies_between_its_extremes():
    found = gt.plan.learning_rate_factor(COUNTS, ("grpo", 4), ("grpo", 7))
    old, new = (gt.theory.finite_group_objective("grpo", size).slope(RATES) * RATES * (1.0 - RATES) for size in (4, 7))
    truth = old.mean() / new.mean()
    assert found.factor.covers(truth)
    assert found.factor.width < 0.05
    assert found.least < truth < found.most
    # Beyond the logged groups of 8, the likeliest law predicts it; an inverted prediction would sit on the limit, 1.6% away.
    beyond = gt.theory.finite_group_objective("grpo", 16).slope(RATES) * RATES * (1.0 - RATES)
    wide = gt.plan.learning_rate_factor(COUNTS, ("grpo", 4), ("grpo", 16))
    assert wide.factor.estimate == pytest.approx(old.mean() / beyond.mean(), rel=0.005)
    back = gt.plan.learning_rate_factor(COUNTS, ("grpo", 7), ("grpo", 4))
    assert back.least == pytest.approx(1.0 / found.most, rel=1e-12)
    assert back.factor.estimate == pytest.approx(1.0 / found.factor.estimate, rel=1e-12)
    assert gt.plan.learning_rate_factor(COUNTS, ("rloo", 8), ("verl_grpo_passk", 8)).most == np.inf


def counts_of(rewards):
    return gt.RewardCounts.from_rewards(np.repeat(np.arange(len(rewards)), rewards.shape[1]), rewards.ravel())


ADVANTAGES = {
    "rloo": lambda group: (group - group.mean()) * group.size / (group.size - 1),
    "dr_grpo": lambda group: group - group.mean(),
    "grpo": lambda group: (group - group.mean()) / (group.std(ddof=1) + 1e-4) if group.std() > 0.0 else 0.0 * group,
}


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("name", ADVANTAGES)
def test_shares_are_those_of_all_subgroups_written_out(name, size):
    rng = np.random.default_rng(4)
    rewards = rng.choice([0.0, 0.3, 1.0], (12, 6), p=[0.5, 0.2, 0.3]) * (rng.random((12, 1)) < 0.8)
    parts = np.zeros(12)
    for m, row in enumerate(rewards):
        groups = [row[list(one)] for one in combinations(range(6), size)]
        parts[m] = np.mean([ADVANTAGES[name](group) @ (group - row.mean()) / size for group in groups])
    place = rewards.mean(axis=1)
    classes = [place <= 0.2, (place > 0.2) & (place <= 0.8), place > 0.8]
    expected = [parts[one].sum() / parts.sum() for one in classes]
    found = gt.plan.weigh_prompts(counts_of(rewards), name, size)
    np.testing.assert_allclose(found.step_shares.estimate, expected, atol=1e-9)
    np.testing.assert_allclose(found.prompts.estimate, [one.mean() for one in classes], atol=1e-12)
    assert (found.step_shares.low <= found.step_shares.high).all()


def test_the_factor_of_graded_rewards_is_exact_for_baselines_and_a_ratio_of_covariances_for_others():
    rng = np.random.default_rng(5)
    counts = counts_of(rng.choice([0.0, 0.3, 1.0], (40, 6)))
    exact = gt.plan.learning_rate_factor(counts, ("dr_grpo", 8), ("dr_grpo", 32))
    assert (exact.least, exact.most, float(exact.factor.low)) == pytest.approx([(7 / 8) / (31 / 32)] * 3, rel=1e-12)
    found = gt.plan.learning_rate_factor(counts, ("grpo", 2), ("grpo", 5))
    assert found.least < found.factor.low < found.factor.estimate < found.factor.high < found.most
    of, means = [np.repeat(counts.values, row) for row in counts.counts.toarray()], []
    for size in (2, 5):  # the mean covariance of advantages with rewards, over all subgroups
        groups = [(row[list(one)], row.mean()) for row in of for one in combinations(range(6), size)]
        means.append(np.mean([ADVANTAGES["grpo"](group) @ (group - mean) / size for group, mean in groups]))
    assert found.factor.estimate == pytest.approx(means[0] / means[1], rel=1e-9)
    with pytest.raises(ValueError, match="2 prompts with 8 responses"):
        gt.plan.learning_rate_factor(counts, ("grpo", 2), ("grpo", 8))


def test_of_success_and_failure_the_share_of_a_class_is_that_of_p_times_one_less_p():
    """On policies of two rewards the covariance of advantage and reward is h'(p) p (1 - p): another derivation, one number."""
    rng = np.random.default_rng(3)
    rewards = (rng.random((3000, 8)) < rng.choice([0.1, 0.5, 0.9], (3000, 1))).astype(float)
    found = gt.plan.weigh_prompts(counts_of(rewards), "rloo", 4).step_shares
    truth = np.array([0.09, 0.25, 0.09]) / 0.43
    assert ((found.low <= truth) & (truth <= found.high)).all()
    assert np.abs(found.estimate - truth).max() < 0.05
