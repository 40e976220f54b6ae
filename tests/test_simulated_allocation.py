"""Responses divided between prompts: exact laws and best sizes, by enumeration; and runs with an allocation rule."""

from itertools import product

import numpy as np
import pytest
from enumeration import Dense
from runs_by_hand import assert_match, groups_of, match, small_case

import grpo_theory as gt
from grpo_theory.estimation.allocation import spread_sizes
from grpo_theory.exact.allocation import least_sizes
from grpo_theory.simulate.allocation import make_allocated
from grpo_theory.simulate.draws import LANES
from grpo_theory.simulate.rollouts import draw_prompts, fill_policy

LOW, HIGH, BUDGET = 2, 7, 13
RULES = gt.allocation_rules()


@pytest.fixture(scope="module")
def problem():
    """Three prompts of unequal weights and success rates, four answers."""
    success = np.array([[0.9, 0.1, 0.0, 0.2], [0.0, 0.0, 0.05, 0.3], [1.0, 0.6, 0.5, 0.9]])
    theta = np.array([0.3, 0.1, -0.2, 0.5, 1.0, -0.4, 0.2, 0.0, 0.1, 0.6, -1.0, 0.4])
    return gt.Problem(gt.Bandit(success, [0.2, 0.5, 0.3]), gt.TabularSoftmax(3, 4), theta=theta)


def groups_at(c, estimator, m, n):
    """Return the chances and estimates of all groups of n responses to prompt m."""
    dense, prompt = Dense(c), np.array([m])
    at, found = dense.at(c.theta), []
    for chance, row in groups_of(dense, at, m, n):
        sample = estimator, prompt, np.array([row])
        found.append((chance, dense.estimates(at, at, *sample, dense.advantages(at, *sample))[0]))
    return found


def test_the_law_is_that_of_enumerated_groups_and_of_the_closed_form(problem):
    """Two prompts with groups of 2 and 3, both in the batch: all samples, by their chances."""
    c, sizes = small_case("linear", "graded"), np.array([2, 3])
    found = [groups_at(c, gt.estimators()["rloo"], m, n) for m, n in enumerate(sizes)]
    # The estimate of a batch that has every prompt once weighs each group's by its prompt's weight.
    one, other = c.bandit.prompt_weights
    chances, estimates = zip(*((p * q, one * x + other * y) for (p, x), (q, y) in product(*found)), strict=True)
    mean, power = np.dot(chances, estimates), np.dot(chances, (np.array(estimates) ** 2).sum(axis=1))
    law = gt.allocation_law(c.problem, c.theta, low=2, high=3)
    np.testing.assert_allclose(law.mean(sizes), mean, atol=1e-14)
    assert law.trace(sizes) == pytest.approx(power - mean @ mean, rel=1e-11)
    gradient = gt.moments(c.problem, c.theta).gradient
    assert law.efficiency(sizes) == pytest.approx((gradient @ mean) ** 2 / (gradient @ gradient) / power, rel=1e-11)
    exact, n = gt.moments(problem, problem.theta), np.arange(LOW, HIGH + 1)[:, None]
    traces = gt.allocation_law(problem, problem.theta, low=LOW, high=HIGH).traces
    np.testing.assert_allclose(traces, exact.oracle_trace / n + exact.second_order / (n * (n - 1)), rtol=1e-12)


@pytest.mark.parametrize("name", ["rloo", "dr_grpo", "grpo", "reinforce"])
def test_equal_sizes_have_the_law_of_groups_and_best_sizes_are_the_best_of_all(problem, name):
    """With all prompts once, the variance between prompts is gone; all sizes of three prompts that spend the budget are tried."""
    law = gt.allocation_law(problem, problem.theta, name, low=LOW, high=HIGH)
    one = gt.gradient_law(problem, problem.theta, name, batch_size=1, group_size=4)
    np.testing.assert_allclose(law.mean(4), one.mean, atol=1e-14)
    assert law.trace(4) == pytest.approx(problem.bandit.prompt_weights**2 @ one.prompt_traces, rel=1e-12)
    assert law.mse(4) == pytest.approx(law.trace(4) + np.sum((one.mean - one.true_gradient) ** 2), rel=1e-12)
    traces = [law.trace(np.array(n)) for n in product(range(LOW, HIGH + 1), repeat=3) if sum(n) == BUDGET]
    assert law.best(BUDGET).sum() == BUDGET
    assert law.trace(law.best(BUDGET)) == pytest.approx(min(traces), rel=1e-12)
    assert max(traces) > 1.05 * min(traces)


def test_greedy_spreading_is_optimal_for_costs_that_fall_ever_less():
    """Against dynamic programming, which does not use that, on random costs; and not for the printed variance (n - 1)/n^2."""
    rng, n = np.random.default_rng(3), np.arange(LOW, HIGH + 1)[:, None]
    for budget in (10, 11, 19, 34, 35) * 8:
        costs = rng.exponential(size=(5, 2)) * rng.integers(0, 2, (5, 2))
        table = costs[:, 0] / n + costs[:, 1] / (n * (n - 1))
        sizes, rows, columns = spread_sizes(costs, budget, LOW, HIGH), least_sizes(table, budget - 5 * LOW), np.arange(5)
        assert sizes.sum() == budget == rows.sum() + 5 * LOW
        assert table[sizes - LOW, columns].sum() == pytest.approx(table[rows, columns].sum(), rel=1e-12, abs=1e-15)
    printed = np.tile((n - 1) / n**2, (1, 2))
    assert sorted(least_sizes(printed, 2)) == [0, 2]


def test_rules_give_what_they_say(problem):
    """Sizes in proportion to roots of a cost, or the least of a weighted error; only the true traces give the least error."""
    known = np.array([[0.5, 0.25, 3.0, 2.0, 0.5, 0.0, 0.0], [0.1, 0.09, 1.0, 4.0, 0.02, 2.0, 8.0]])
    expected = {
        "neyman": [[3.0, 2.0], [1.0, 4.0]],
        "vip": [[0.25, 0.25], [0.09, 0.09]],
        "dynamo": [[0.25, 0.0], [0.09, 0.0]],
        "vip_seen": [[0.25, 0.25], [0.21, 0.21]],
        "sgpo": [[4.0, 0.0], [2500.0, 0.0]],
    }
    for name, costs in expected.items():
        np.testing.assert_allclose(RULES[name].costs(known), costs)
    np.testing.assert_array_equal(spread_sizes(RULES["sgpo"].costs(known), 104, 2, 200), [4, 100])
    np.testing.assert_array_equal(spread_sizes(np.zeros((3, 2)), 24, 2, 40), [8, 8, 8])  # equal gains go to the fewest
    law = gt.allocation_law(problem, problem.theta, low=LOW, high=HIGH)
    blind = gt.AllocationRule("blind", RULES["neyman"].fill)
    np.testing.assert_array_equal(blind.costs(law.known), 0.0)  # without asking for traces
    least = law.mse(law.best(BUDGET))
    assert law.mse(law.sizes("neyman", BUDGET)) == pytest.approx(least, rel=1e-12)
    for name in RULES:
        sizes = law.sizes(name, BUDGET)
        assert sizes.sum() == BUDGET
        assert law.mse(sizes) >= least * (1.0 - 1e-12)
    # Three prompts of one law and weights of 0.6, 0.3 and 0.1: a sum of f^2/n is least for sizes as 6, 3 and 1.
    alike = gt.Problem(gt.Bandit([[1.0, 0.0]] * 3, [0.6, 0.3, 0.1]), gt.TabularSoftmax(3, 2))
    law = gt.allocation_law(alike, alike.theta, low=2, high=40)
    np.testing.assert_array_equal(law.sizes("dynamo", 24), [8, 8, 8])
    np.testing.assert_array_equal(law.sizes(gt.AllocationRule("error", RULES["uniform"].fill), 40), [24, 12, 4])


def train(problem, rule, estimator="rloo", **changes):
    how = {"batch_size": 4, "group_size": 6, "steps": 3, "replications": 9, "rng": 3} | changes
    schedule = gt.Constant(how.pop("step", 0.5))
    return gt.simulate_training(problem, problem.theta, estimator, schedule, **how, allocation=rule)


def all_steps(c, rule, estimator, batch_size, budget):
    """Return the chances and paths of all first steps of length 1: every batch of prompts, each with its sizes."""
    f, found, chances, paths = c.bandit.prompt_weights, {}, [], []
    costs = rule.costs(gt.allocation_law(c.problem, c.theta, estimator, low=rule.low, high=rule.high).known)
    for m, n in product(range(len(f)), range(rule.low, rule.high + 1)):
        found[m, n] = [(f[m] * chance, estimate / batch_size) for chance, estimate in groups_at(c, estimator, m, n)]
    for prompts in product(range(len(f)), repeat=batch_size):
        sizes = spread_sizes(costs[list(prompts)], budget, rule.low, rule.high)
        for batch in product(*(found[key] for key in zip(prompts, sizes, strict=True))):
            shares, parts = zip(*batch, strict=True)
            chances.append(np.prod(shares))
            paths.append([c.theta, c.theta + sum(parts)])
    return np.array(chances), np.array(paths)


@pytest.mark.parametrize(
    ("kind", "name", "estimator"),
    [
        ("linear graded", "neyman", "rloo"),
        ("linear-tree binary", "vip", "grpo"),
        ("tabular binary", "sgpo", "rloo"),
        ("tabular binary", "vip_seen", "dr_grpo"),
        ("head graded", "dynamo", "reinforce"),
        ("head graded", "neyman", "rloo"),
    ],
)
def test_steps_are_those_that_there_can_be_and_come_as_often_as_they_should(kind, name, estimator):
    """To 1e-9, and by Pearson's statistic at 1e-6; with another rule's sizes there are other steps."""
    kind, rewards = kind.split()
    c, rule, estimator = small_case(kind.replace("-", " "), rewards), RULES[name].between(2, 6), gt.estimators()[estimator]
    runs = train(c.problem, rule, estimator, batch_size=2, group_size=4, steps=1, replications=50_000, step=1.0)
    assert_match(runs, c.problem, all_steps(c, rule, estimator, 2, 8))
    if name != "vip_seen":  # which has seen nothing yet
        assert match(runs, c.problem, all_steps(c, RULES["uniform"].between(2, 6), estimator, 2, 8))[0] > 1e-3


def fill_if_remembered(known, costs):
    """Faulty unless what was seen is what groups of 4 leave, one half forgotten: 0, 4, 6, 7 ... responses, all right or none."""
    for b in range(known.shape[0]):
        count, left = known[b, 6], 4.0
        is_one = count == 0.0
        for _ in range(12):
            is_one = is_one or abs(count - (8.0 - 2.0 * left)) < 1e-12
            left = left / 2.0
        costs[b, 0] = 1.0 if is_one and known[b, 5] == known[b, 0] * count else -1.0
        costs[b, 1] = 0.0


def fill_negative(known, costs):
    """Broken: the costs of prompts that are seldom solved are negative."""
    costs[:, 0], costs[:, 1] = known[:, 0] - 0.3, 0.0


def test_a_run_remembers_what_it_has_seen():
    """One prompt that is always solved and one that never is."""
    sure = gt.Problem(gt.Bandit([[1.0, 1.0], [0.0, 0.0]]), gt.TabularSoftmax(2, 2), theta=np.zeros(4))
    how = {"batch_size": 1, "group_size": 4, "steps": 12, "replications": 200, "rng": 4, "checkpoints": [5, 12]}
    assert np.isfinite(train(sure, gt.AllocationRule("told", fill_if_remembered, memory=0.5), **how).theta).all()
    with pytest.raises(ValueError, match="allocation rule 'told' must fill finite costs"):
        train(sure, gt.AllocationRule("told", fill_if_remembered, memory=0.6), **how)


@pytest.mark.parametrize("name", ["neyman", "dynamo"])
def test_a_run_knows_before_sampling_what_the_exact_law_knows(problem, name):
    """The sizes of its first groups are those that the exact traces ask for."""
    rule, theta = RULES[name].between(2, 40), problem.theta
    training = make_allocated(rule, problem, gt.estimators()["rloo"], np.ones(1), (8, 8))
    runs = training.start(np.random.SeedSequence(3), 0, np.tile(theta, (32, 1)))
    draw_prompts(training.world.prompts, training.sizes.group_size, runs.streams, LANES, runs.room)
    fill_policy(training.world.logits, None, runs.state.theta, runs.room.prompts, 32, runs.room.scratch, runs.policy)
    costs = rule.costs(gt.allocation_law(problem, theta, low=2, high=40).known)
    runs.share_out()
    for prompts, sizes in zip(runs.room.prompts.T[:32], runs.looks.T[:32], strict=True):
        np.testing.assert_array_equal(sizes, spread_sizes(costs[prompts], 64, 2, 40))
    assert len(np.unique(runs.looks[:, :32], axis=1).T) > 5


def test_mistakes_in_rules_and_sizes_are_told(problem, check_refused):
    law = gt.allocation_law(problem, problem.theta, low=LOW, high=HIGH)
    check_refused(
        (lambda: law.best(5), "3 prompts with 2 to 7 responses each take 6 to 21 responses, and the budget is 5"),
        (lambda: law.mse([2, 3, 8]), "sizes must be 2 to 7"),
        (lambda: train(problem, gt.AllocationRule("negative", fill_negative)), "'negative' must fill finite costs"),
        (lambda: train(problem, "vip", steps=2, inner_steps=2), "inner_steps must be 1"),
        (lambda: train(problem, "vip", "optimal"), "On this problem 'optimal' is not one"),
        (lambda: train(gt.gallery.problem("chain-copy"), "vip"), "a TokenChain's groups have one size"),
        (lambda: train(gt.gallery.problem("graded"), "sgpo"), "rule 'sgpo' needs rewards of 0 and 1"),
    )
