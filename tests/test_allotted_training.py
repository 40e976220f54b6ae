"""Training runs with an allocation rule, against exact laws, against runs with groups of one size, and against plain Python."""

import warnings
from itertools import product

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.compiler import function_value, plain_python
from grpo_theory.estimation import COSTS
from grpo_theory.estimation.allocation import spread_sizes
from grpo_theory.exact.allocation import known_of
from grpo_theory.simulate.allocation.advance import advance_allotted
from grpo_theory.simulate.allocation.blocks import AllottedBlocks
from grpo_theory.simulate.allocation.group_sizes import PromptFacts, fill_known
from grpo_theory.simulate.step_grid import StepGrid
from grpo_theory.simulate.training_blocks import TrainingBlocks
from grpo_theory.simulate.training_tables import token_paths

LOW, HIGH, BATCH, GROUP = 2, 16, 4, 6
RULES = gt.allocation_rules()


@pytest.fixture(scope="module")
def problem():
    """Three prompts of unequal weights and success rates, four answers."""
    success = np.array([[0.9, 0.1, 0.0, 0.2], [0.0, 0.0, 0.05, 0.3], [1.0, 0.6, 0.5, 0.9]])
    theta = np.array([0.3, 0.1, -0.2, 0.5, 1.0, -0.4, 0.2, 0.0, 0.1, 0.6, -1.0, 0.4])
    return gt.Problem(gt.Bandit(success, [0.2, 0.5, 0.3]), gt.TabularSoftmax(3, 4), theta=theta)


def exact_moments(problem, estimator, rule):
    """Return mean and power of a batch's estimate, over all batches of prompts, each with its own sizes."""
    law, f = gt.allocation_law(problem, problem.theta, estimator, low=LOW, high=HIGH), problem.bandit.prompt_weights
    costs, mean, power = rule.costs(law.known), np.zeros(problem.policy.dimension), 0.0
    for batch in product(range(len(f)), repeat=BATCH):
        chance, covectors, trace = np.prod(f[list(batch)]), np.zeros(law.covectors.shape[1:]), 0.0
        for q, n in zip(batch, spread_sizes(costs[list(batch)], BATCH * GROUP, LOW, HIGH), strict=True):
            covectors[q] += law.covectors[n - LOW, q] / BATCH
            trace += law.traces[n - LOW, q] / BATCH**2
        estimate = problem.policy.logit_map.adjoint(covectors)
        mean += chance * estimate
        power += chance * (trace + estimate @ estimate)
    return mean, power


def steps_of(problem, estimator, rule, runs):
    """Return the estimates of one step of many runs, (R, d)."""
    sizes = {"batch_size": BATCH, "group_size": GROUP, "steps": 1, "replications": runs}
    made = gt.simulate_training(problem, problem.theta, estimator, gt.Constant(1.0), **sizes, rng=8, allocation=rule)
    return made.theta - problem.theta


@pytest.mark.parametrize(("estimator", "name"), [("rloo", "neyman"), ("rloo", "vip"), ("rloo", "sgpo"), ("grpo", "dynamo")])
def test_a_step_has_the_exact_moments(problem, estimator, name):
    runs, rule = 100_000, RULES[name].between(LOW, HIGH)
    estimates = steps_of(problem, estimator, rule, runs)
    mean, power = exact_moments(problem, estimator, rule)
    errors = estimates.std(axis=0) / np.sqrt(runs)
    assert np.abs((estimates.mean(axis=0) - mean) / np.maximum(errors, 1e-12)).max() < 4.9
    squares = (estimates**2).sum(axis=1)
    assert abs(squares.mean() - power) < 4.9 * squares.std() / np.sqrt(runs)


def test_so_many_runs_tell_a_rule_from_another(problem):
    """The power of the test above: against the law of another rule the same runs fail."""
    runs = 100_000
    squares = (steps_of(problem, "rloo", RULES["sgpo"].between(LOW, HIGH), runs) ** 2).sum(axis=1)
    _, power = exact_moments(problem, "rloo", RULES["uniform"].between(LOW, HIGH))
    assert abs(squares.mean() - power) > 20.0 * squares.std() / np.sqrt(runs)


@pytest.mark.parametrize("name", ["tabular", "linear", "graded", "sequence-shared", "lm-few-shot"])
@pytest.mark.parametrize("optimiser", [gt.SGD(), gt.Adam()])
def test_with_one_size_allowed_runs_are_those_of_groups_of_one_size(name, optimiser):
    """Words, dithers and thresholds are then the same, so that only the order of multiplications may differ."""
    problem = gt.gallery.problem(name)
    run = {"batch_size": 4, "group_size": 3, "steps": 3, "replications": 5, "rng": 2, "optimiser": optimiser}
    run["ball"] = gt.Ball(problem.theta, 0.4)
    plain = gt.simulate_training(problem, problem.theta, "rloo", gt.Constant(0.3), **run)
    ruled = gt.simulate_training(
        problem, problem.theta, "rloo", gt.Constant(0.3), **run, allocation=RULES["uniform"].between(3, 3)
    )
    np.testing.assert_allclose(ruled.theta, plain.theta, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ruled.farthest, plain.farthest, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ruled.average, plain.average, rtol=1e-9, atol=1e-9)


def test_results_are_the_same_for_any_workers_and_checkpoints(problem):
    run = {"batch_size": BATCH, "group_size": GROUP, "steps": 12, "replications": 300, "rng": 3, "allocation": "neyman"}
    one = gt.simulate_training(problem, problem.theta, "rloo", gt.Constant(0.5), **run, workers=1)
    other = gt.simulate_training(problem, problem.theta, "rloo", gt.Constant(0.5), **run, workers=2, checkpoints=[5, 12])
    np.testing.assert_array_equal(one.theta, other.theta)
    np.testing.assert_array_equal(one.objectives[:, -1], other.objectives[:, -1])


@pytest.mark.parametrize("rule", ["neyman", "vip_seen"])
def test_compiled_runs_agree_with_plain_python(problem, monkeypatch, rule):
    run = {"batch_size": 3, "group_size": 4, "steps": 2, "replications": 3, "rng": 4, "workers": 1, "allocation": rule}
    compiled = gt.simulate_training(problem, problem.theta, "rloo", gt.Constant(0.5), **run)
    monkeypatch.setattr(advance_allotted, "run", plain_python(advance_allotted.function))
    with np.errstate(over="ignore"):  # the generator multiplies words that run over on purpose
        plain = gt.simulate_training(problem, problem.theta, "rloo", gt.Constant(0.5), **run)
    np.testing.assert_allclose(plain.theta, compiled.theta, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["linear", "graded", "sequence-shared", "mixed"])
def test_what_a_rule_knows_are_the_moments(name):
    problem = gt.gallery.problem(name)
    point, bandit, policy = problem.at(problem.theta), problem.bandit, problem.policy
    n_prompts = policy.n_prompts
    start = problem.at(np.zeros(policy.dimension))
    variances = bandit.probabilities @ bandit.values**2 - bandit.mean_reward**2
    facts = PromptFacts(bandit.mean_reward, variances, policy.logit_map.gram(), token_paths(policy.paths))
    seen = np.zeros((3, n_prompts, 1))
    seen[2, :, 0] = start.moments.value
    prompts, known = np.arange(n_prompts)[:, None], np.empty((1, n_prompts, 7))
    tokens, pi = point.token_probabilities[:, :, None].copy(), point.probabilities[:, :, None].copy()
    plain_python(fill_known)(facts, tokens, pi, prompts, 1, seen, known)
    np.testing.assert_allclose(known[0], known_of(point, start), rtol=1e-9, atol=1e-12)
    facts = facts._replace(gram=np.empty((0, 0, 0)))
    plain_python(fill_known)(facts, tokens, pi, prompts, 1, seen, known)
    np.testing.assert_array_equal(known[0, :, 2:4], 0.0)


def test_each_run_has_the_values_of_its_own_start(problem):
    """Runs from two starts in turn are those that begin there together with others of the same start."""
    run = {"batch_size": BATCH, "group_size": GROUP, "steps": 3, "replications": 9, "rng": 3, "allocation": "sgpo"}
    starts = np.stack([problem.theta, -2.0 * problem.theta])
    mixed = gt.simulate_training(problem, starts[np.arange(9) % 2], "rloo", gt.Constant(0.5), **run).theta
    alone = [gt.simulate_training(problem, start, "rloo", gt.Constant(0.5), **run).theta for start in starts]
    np.testing.assert_array_equal(mixed, np.stack(alone)[np.arange(9) % 2, np.arange(9)])


def test_rewards_need_not_be_0_and_1_for_rules_of_moments():
    chances = np.random.default_rng(2).dirichlet(np.ones(2), size=(3, 3))
    run = {"batch_size": 4, "group_size": 4, "steps": 5, "replications": 4, "rng": 1}
    for values in ([-1.0, 1.0], [0.0, 2.5]):
        problem = gt.Problem(gt.Bandit.from_law(values, chances), gt.TabularSoftmax(3, 3))
        law = gt.allocation_law(problem, problem.theta, high=8)
        np.testing.assert_allclose(law.known[:, 0], gt.moments(problem, problem.theta).value)
        for rule in ("uniform", "vip", "neyman", "dynamo"):
            made = gt.simulate_training(problem, problem.theta, "rloo", gt.Constant(0.3), **run, allocation=rule)
            assert np.isfinite(made.objectives).all()
            assert law.sizes(rule, 12).sum() == 12
        for rule in ("vip_seen", "sgpo"):
            with pytest.raises(
                ValueError, match=f"rule '{rule}' needs rewards of 0 and 1, .*, got rewards {values[0]:g}, {values[1]:g}"
            ):
                gt.simulate_training(problem, problem.theta, "rloo", gt.Constant(0.3), **run, allocation=rule)
            with pytest.raises(ValueError, match=f"rule '{rule}' needs rewards of 0 and 1"):
                law.sizes(rule, 12)


@function_value(COSTS)
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


@function_value(COSTS)
def fill_if_forgetful(known, costs):
    """Faulty once three groups of 4 were seen of a prompt: of them 7 responses count."""
    for b in range(known.shape[0]):
        costs[b, 0], costs[b, 1] = (1.0 if known[b, 6] < 6.9 else -1.0), 0.0


def test_a_run_remembers_what_it_has_seen():
    """One prompt that is always solved and one that never is."""
    sure = gt.Problem(gt.Bandit([[1.0, 1.0], [0.0, 0.0]]), gt.TabularSoftmax(2, 2), theta=np.zeros(4))
    run = {"batch_size": 1, "group_size": 4, "steps": 12, "replications": 200, "rng": 4, "checkpoints": [5, 12]}

    def train(fill, memory):
        rule = gt.AllocationRule("told", fill, memory=memory)
        return gt.simulate_training(sure, sure.theta, "rloo", gt.Constant(0.5), **run, allocation=rule)

    train(fill_if_remembered, 0.5)
    train(fill_if_forgetful, 0.0)
    for fill, memory in ((fill_if_remembered, 0.6), (fill_if_forgetful, 0.5)):
        with pytest.raises(ValueError, match="allocation rule 'told' must fill finite costs"):
            train(fill, memory)


@function_value(COSTS)
def fill_negative(known, costs):
    """Broken: the costs of prompts that are seldom solved are negative."""
    costs[:, 0], costs[:, 1] = known[:, 0] - 0.3, 0.0


def test_bad_input_is_told_in_one_message(problem):
    run = {"batch_size": BATCH, "group_size": GROUP, "steps": 2, "replications": 2, "rng": 3}

    def train(estimator="rloo", on=problem, **other):
        return gt.simulate_training(on, on.theta, estimator, gt.Constant(0.1), **run | other)

    with pytest.raises(ValueError, match="4 prompts with 8 to 9 responses each take 32 to 36 responses, and the budget is 24"):
        train(allocation=RULES["vip"].between(8, 9))
    with pytest.raises(ValueError, match="policy that is updated: inner_steps must be 1, got 2"):
        train(allocation="vip", inner_steps=2)
    with pytest.raises(ValueError, match="policy that is updated: lag must be 0, got 1"):
        train(allocation="vip", lag=1)
    for name, wrong in (("batch_size", "a"), ("group_size", None)):
        with pytest.raises(TypeError, match=f"{name} must be an integer of at least 1, got {wrong!r}"):
            train(allocation="vip", **{name: wrong})
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        train(allocation="vip", batch_size=0)
    with pytest.raises(ValueError, match="allocation"):
        train(allocation="best")
    with pytest.raises(TypeError, match="allocation"):
        train(allocation=3)
    with pytest.raises(ValueError, match="allocation rule 'negative' must fill finite costs of at least 0"):
        train(allocation=gt.AllocationRule("negative", fill_negative))
    with pytest.raises(ValueError, match="On this problem 'optimal' is not one"):
        train("optimal", allocation="vip")
    chain = gt.gallery.problem("chain-copy")
    with pytest.raises(ValueError, match="a TokenChain's groups have one size"):
        train(on=chain, allocation="vip")


def test_runs_that_diverge_are_no_fault_of_the_rule():
    """Every second run begins so far out that its logits are infinite."""
    problem = gt.gallery.problem("linear")
    starts = np.tile(problem.theta, (6, 1))
    starts[1::2] = 1.7e308 * np.sign(problem.theta)
    run = {"batch_size": 4, "group_size": 6, "steps": 5, "replications": 6, "rng": 3, "allocation": "neyman"}
    with warnings.catch_warnings(action="ignore"):
        runs = gt.simulate_training(problem, starts, "rloo", gt.Constant(1e-3), **run)
    np.testing.assert_array_equal(runs.diverged, np.arange(6) % 2 == 1)


@pytest.mark.parametrize("name", ["vip_seen", "neyman"])
@pytest.mark.parametrize("optimiser", [gt.SGD(), gt.Adam()])
def test_runs_at_each_step_size_side_by_side_are_those_that_have_it_alone(problem, name, optimiser):
    """With what they have seen of the prompts, for numbers of runs that fill a vector and that do not."""
    rates, rule = np.array([0.05, 0.9, 0.3]), gt.allocation_rules()[name].between(2, 8)
    blocks = TrainingBlocks.of(
        problem, gt.estimators()["rloo"], np.ones(12), (3, rule.high, 1), optimiser=optimiser, side_by_side=True
    )
    grid = StepGrid(AllottedBlocks.by_rule(blocks, rule, 12), rates, keeps=False)
    how = {"batch_size": 3, "group_size": 4, "steps": 12, "checkpoints": [4, 12], "optimiser": optimiser, "allocation": rule}
    for runs in (2, 11):
        found = grid.objectives(runs, rng=7, checkpoints=[4, 12])
        for rate, own in zip(rates, found, strict=True):
            alone = gt.simulate_training(problem, problem.theta, "rloo", gt.Constant(rate), **how, replications=runs, rng=7)
            np.testing.assert_allclose(own, alone.objectives, rtol=1e-10)
        assert np.abs(found[0] - found[1]).max() > 1e-3
