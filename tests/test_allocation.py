"""Allocation of responses to prompts: exact laws, best sizes, and rules."""

from itertools import product

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.compiler import function_value
from grpo_theory.estimation import COSTS
from grpo_theory.estimation.allocation import spread_budget, spread_sizes
from grpo_theory.exact.allocation import least_sizes

LOW, HIGH, BUDGET = 2, 7, 13


@pytest.fixture(scope="module")
def problem():
    """Three prompts of unequal weights and success rates, four answers."""
    success = np.array([[0.9, 0.1, 0.0, 0.2], [0.0, 0.0, 0.05, 0.3], [1.0, 0.6, 0.5, 0.9]])
    theta = np.array([0.3, 0.1, -0.2, 0.5, 1.0, -0.4, 0.2, 0.0, 0.1, 0.6, -1.0, 0.4])
    return gt.Problem(gt.Bandit(success, [0.2, 0.5, 0.3]), gt.TabularSoftmax(3, 4), theta=theta)


def all_sizes():
    """All sizes of three prompts within the bounds that spend the budget."""
    return [np.array(sizes) for sizes in product(range(LOW, HIGH + 1), repeat=3) if sum(sizes) == BUDGET]


def test_traces_are_those_of_the_closed_form(problem):
    law, exact = gt.allocation_law(problem, problem.theta, low=LOW, high=HIGH), gt.moments(problem, problem.theta)
    n = np.arange(LOW, HIGH + 1)[:, None]
    np.testing.assert_allclose(law.traces, exact.oracle_trace / n + exact.second_order / (n * (n - 1)), rtol=1e-12)


@pytest.mark.parametrize("name", ["rloo", "dr_grpo", "grpo", "reinforce"])
def test_a_batch_of_equal_sizes_is_the_mean_of_independent_groups(problem, name):
    """Against the law of one group: with all prompts once, the variance between prompts is gone."""
    law = gt.allocation_law(problem, problem.theta, name, low=LOW, high=HIGH)
    one = gt.gradient_law(problem, problem.theta, name, batch_size=1, group_size=4)
    np.testing.assert_allclose(law.mean(4), one.mean, atol=1e-14)
    f = problem.bandit.prompt_weights
    assert law.trace(4) == pytest.approx(f**2 @ one.prompt_traces, rel=1e-12)
    assert law.mse(4) == pytest.approx(law.trace(4) + np.sum((one.mean - one.true_gradient) ** 2), rel=1e-12)


def test_the_law_is_that_of_enumerated_groups():
    """Two prompts with groups of 2 and 3: all 2^5 x 2^5 samples of the batch, by their probabilities."""
    success = np.array([[0.8, 0.1], [0.3, 0.6]])
    problem = gt.Problem(gt.Bandit(success), gt.TabularSoftmax(2, 2), theta=np.array([0.4, 0.0, -0.7, 0.2]))
    point, sizes = problem.at(problem.theta), (2, 3)
    pi, mean, power = point.probabilities, np.zeros(4), 0.0
    per_prompt = []
    for q, n in enumerate(sizes):
        found = []
        for answers in product(range(2), repeat=n):
            scores = np.eye(2)[list(answers)] - pi[q]
            for rewards in product((0.0, 1.0), repeat=n):
                z = np.array(rewards)
                chance = np.prod(pi[q][list(answers)] * np.where(z > 0, success[q][list(answers)], 1 - success[q][list(answers)]))
                advantages = (n * z - z.sum()) / (n - 1)
                found.append((chance, advantages @ scores / n / 2))
        per_prompt.append(found)
    for p, one in per_prompt[0]:
        for r, other in per_prompt[1]:
            estimate = np.concatenate([one, other])
            mean += p * r * estimate
            power += p * r * (estimate @ estimate)
    law = gt.allocation_law(problem, problem.theta, low=2, high=3)
    np.testing.assert_allclose(law.mean(np.array(sizes)), mean, atol=1e-14)
    assert law.trace(np.array(sizes)) == pytest.approx(power - mean @ mean, rel=1e-12)
    gradient = gt.moments(problem, problem.theta).gradient
    assert law.efficiency(np.array(sizes)) == pytest.approx((gradient @ mean) ** 2 / (gradient @ gradient) / power, rel=1e-12)


def test_the_best_sizes_are_the_best_of_all(problem):
    for name in ("rloo", "dr_grpo", "grpo"):
        law = gt.allocation_law(problem, problem.theta, name, low=LOW, high=HIGH)
        least = min(law.trace(sizes) for sizes in all_sizes())
        assert law.best(BUDGET).sum() == BUDGET
        assert law.trace(law.best(BUDGET)) == pytest.approx(least, rel=1e-12)
        assert max(law.trace(sizes) for sizes in all_sizes()) > 1.05 * least


def test_neyman_is_the_best_and_other_rules_are_not(problem):
    law = gt.allocation_law(problem, problem.theta, low=LOW, high=HIGH)
    least = law.mse(law.best(BUDGET))
    assert law.mse(law.sizes("neyman", BUDGET)) == pytest.approx(least, rel=1e-12)
    for name in gt.allocation_rules():
        sizes = law.sizes(name, BUDGET)
        assert sizes.sum() == BUDGET
        assert LOW <= sizes.min() <= sizes.max() <= HIGH
        assert law.mse(sizes) >= least * (1.0 - 1e-12)
    assert law.mse(law.sizes("sgpo", BUDGET)) > 1.02 * least


def test_greedy_spreading_is_optimal_for_costs_that_fall_ever_less():
    """Against dynamic programming, which does not use that, on 40 random costs."""
    rng, n = np.random.default_rng(3), np.arange(LOW, HIGH + 1)[:, None]
    for _ in range(40):
        costs = rng.exponential(size=(5, 2)) * rng.integers(0, 2, (5, 2))
        table = costs[:, 0] / n + costs[:, 1] / (n * (n - 1))
        for budget in (10, 11, 19, 34, 35):
            sizes = spread_sizes(costs, budget, LOW, HIGH)
            rows = least_sizes(table, budget - 5 * LOW)
            assert sizes.sum() == budget == rows.sum() + 5 * LOW
            columns = np.arange(5)
            assert table[sizes - LOW, columns].sum() == pytest.approx(table[rows, columns].sum(), rel=1e-12, abs=1e-15)


def test_greedy_spreading_is_not_optimal_for_the_printed_variance_with_the_own_sample():
    """(n - 1)/n^2 falls more from 3 to 4 than from 2 to 3: there only dynamic programming finds the least."""
    n = np.arange(2, 8)
    table = np.tile(((n - 1) / n**2)[:, None], (1, 2))
    rows = least_sizes(table, 2)
    assert sorted(rows) == [0, 2]
    assert table[rows, [0, 1]].sum() < table[1].sum()


def test_compiled_spreading_is_its_plain_twin():
    rng = np.random.default_rng(5)
    costs, sizes = rng.exponential(size=(6, 2)), np.empty(6, dtype=np.int64)
    spread_budget.function(costs, 40, 2, 20, np.empty(6), sizes)
    np.testing.assert_array_equal(sizes, spread_sizes(costs, 40, 2, 20))


def test_rules_give_what_they_say():
    known = np.array([[0.5, 0.25, 3.0, 2.0, 0.5, 0.0, 0.0], [0.1, 0.09, 1.0, 4.0, 0.02, 2.0, 8.0]])
    rules = gt.allocation_rules()
    np.testing.assert_allclose(rules["neyman"].costs(known), [[3.0, 2.0], [1.0, 4.0]])
    np.testing.assert_allclose(rules["vip"].costs(known), [[0.25, 0.25], [0.09, 0.09]])
    np.testing.assert_allclose(rules["dynamo"].costs(known), [[0.25, 0.0], [0.09, 0.0]])
    np.testing.assert_allclose(rules["vip_seen"].costs(known), [[0.25, 0.25], [0.21, 0.21]])
    np.testing.assert_allclose(rules["sgpo"].costs(known), [[4.0, 0.0], [2500.0, 0.0]])
    np.testing.assert_array_equal(spread_sizes(rules["sgpo"].costs(known), 104, 2, 200), [4, 100])
    np.testing.assert_array_equal(spread_sizes(rules["dynamo"].costs(known), 160, 2, 200), [100, 60])
    for rule in rules.values():
        costs = np.empty((2, 2))
        rule.fill.function(known, costs)
        np.testing.assert_array_equal(costs, rule.costs(known))


@function_value(COSTS)
def fill_nothing(known, costs):
    """Broken: it leaves what it finds."""


def test_bad_input_is_told_in_one_message(problem):
    law = gt.allocation_law(problem, problem.theta, low=LOW, high=HIGH)
    with pytest.raises(ValueError, match="3 prompts with 2 to 7 responses each take 6 to 21 responses, and the budget is 5"):
        law.best(5)
    with pytest.raises(ValueError, match=r"the budget is 22\. Change the budget, or the bounds"):
        law.sizes("vip", 22)
    with pytest.raises(ValueError, match="high must be at least low = 5, got 4"):
        gt.allocation_law(problem, problem.theta, low=5, high=4)
    with pytest.raises(ValueError, match="high must be at least low = 9, got 8"):
        gt.allocation_rules()["vip"].between(9, 8)
    with pytest.raises(ValueError, match=r"memory must lie in \[0, 1\], got 1.5"):
        gt.AllocationRule("long", gt.allocation_rules()["vip"].fill, memory=1.5)
    with pytest.raises(ValueError, match="low must be at least 2"):
        gt.allocation_rules()["vip"].between(1, 8)
    with pytest.raises(ValueError, match="allows no size for which this law was made, 2 to 7"):
        law.sizes(gt.allocation_rules()["vip"].between(8, 9), 24)
    with pytest.raises(ValueError, match="group_size must be at least 2"):
        gt.allocation_law(problem, problem.theta, low=1, high=4)
    with pytest.raises(ValueError, match=r"sizes must have shape \(3,\)"):
        law.mse([2, 3])
    with pytest.raises(ValueError, match="sizes must be 2 to 7, for which this law was made, got 8"):
        law.mse([2, 3, 8])
    with pytest.raises(TypeError, match="sizes must be integers"):
        law.mse([2.0, 3.0, 4.0])
    with pytest.raises(ValueError, match="rule"):
        law.sizes("vips", BUDGET)
    with pytest.raises(ValueError, match=r"allocation rule 'broken' must fill finite costs of at least 0, got \[nan, nan\]"):
        law.sizes(gt.AllocationRule("broken", fill_nothing), BUDGET)
    with pytest.raises(TypeError, match="must be compiled"):
        gt.AllocationRule("plain", lambda known, costs: None)
    with pytest.raises(TypeError, match=r"must be compiled as fill.known, costs. .*got FunctionValue.spread_budget. of another"):
        gt.AllocationRule("another", spread_budget)


def test_rules_that_say_sizes_do_not_weigh_prompts():
    """Three prompts of one law and weights of 0.6, 0.3 and 0.1: a sum of f^2/n is least for sizes as 6, 3 and 1."""
    problem = gt.Problem(gt.Bandit([[1.0, 0.0]] * 3, [0.6, 0.3, 0.1]), gt.TabularSoftmax(3, 2))
    law, rules = gt.allocation_law(problem, problem.theta, low=2, high=40), gt.allocation_rules()
    for name in ("uniform", "dynamo", "sgpo"):
        np.testing.assert_array_equal(law.sizes(name, 24), [8, 8, 8])
    np.testing.assert_array_equal(law.sizes(gt.AllocationRule("error", rules["uniform"].fill), 40), [24, 12, 4])
    for name in ("neyman", "vip"):
        sizes = law.sizes(name, 24)
        assert law.trace(sizes) < 0.8 * law.trace(8)
    assert law.trace(law.sizes("neyman", 24)) == pytest.approx(law.trace(law.best(24)), rel=1e-12)


def test_a_rule_that_does_not_want_traces_is_told_none(problem):
    law = gt.allocation_law(problem, problem.theta, low=LOW, high=HIGH)
    neyman = gt.allocation_rules()["neyman"]
    blind = gt.AllocationRule("blind", neyman.fill)
    np.testing.assert_array_equal(blind.costs(law.known), 0.0)
    assert neyman.costs(law.known).min() > 0.0
    assert np.ptp(law.sizes(blind, 15)) == 0 < np.ptp(law.sizes(neyman, 15))


def test_best_sizes_may_be_single_responses_where_the_estimator_is_defined_for_them(problem):
    law = gt.allocation_law(problem, problem.theta, "reinforce", low=1, high=4)
    sizes = [np.array(sizes) for sizes in product(range(1, 5), repeat=3) if sum(sizes) == 5]
    assert law.best(5).min() == 1
    assert law.trace(law.best(5)) == pytest.approx(min(law.trace(one) for one in sizes), rel=1e-12)


def test_a_table_has_a_row_for_each_prompt(problem):
    table = gt.allocation_law(problem, problem.theta, low=LOW, high=HIGH).to_frame([2, 3, 7])
    assert list(table.columns) == ["prompt", "weight", "value", "size", "trace"]
    assert table["size"].tolist() == [2, 3, 7]


def test_features_that_are_learned_have_the_law_and_train_by_rules_that_need_no_traces():
    """A network's tangent stands where the features of a linear policy stand; a rule that reads fixed features is refused."""
    rng = np.random.default_rng(3)
    policy = gt.TwoLayerSoftmax(rng.normal(size=(3, 2)), 4, 4)
    problem = gt.Problem(gt.Bandit(rng.uniform(size=(3, 4))), policy, theta=policy.start(rng))
    law = gt.allocation_law(problem, problem.theta, high=HIGH)
    np.testing.assert_allclose(law.mean([2, 5, 3]), gt.moments(problem, problem.theta).gradient, atol=1e-14)
    run = {"batch_size": 3, "group_size": 4, "steps": 2, "replications": 2, "rng": 0}
    trained = gt.simulate_training(problem, problem.theta, "rloo", gt.Constant(0.1), allocation="vip", **run)
    assert np.isfinite(trained.objectives).all()
    with pytest.raises(ValueError, match="logits are linear"):
        gt.simulate_training(problem, problem.theta, "rloo", gt.Constant(0.1), allocation="neyman", **run)
