"""Weights of prompts and learning rates: exact means over all counts, and what holds at every success rate."""

import numpy as np
import pytest
from rates import drawn, expected, table

import grpo_theory as gt
from grpo_theory.plan.average import average_terms
from grpo_theory.plan.expected_step import slope_function

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
    assert terms.measured
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
        assert law.average(weights.weight) == pytest.approx(1.0, abs=0.05)
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
