"""Mean advantages, mean updates, fixed points and observables: by enumeration, by differences, and by hand."""

import itertools
import math

import numpy as np
import pytest

import grpo_theory as gt

VALUES = np.array([0.0, 0.3, 1.0])
LAW = np.array([0.5, 0.2, 0.3])
DIFFERENCE = 1e-5
PROBLEMS = ("graded", "kl-linear", "sequence-shared")
BINARY = gt.Problem(gt.Bandit([[0.0, 0.2, 1.0]]), gt.TabularSoftmax(1, 3), theta=[0.4, -0.3, 0.1])


pytestmark = pytest.mark.usefixtures("registry")
"""What is composed here is forgotten after each test."""


@pytest.mark.parametrize("group_size", [1, 2, 5])
@pytest.mark.parametrize("name", ["reinforce", "rloo", "grpo", "max_rl"])
def test_a_mean_advantage_is_the_mean_over_all_groups_of_others(name, group_size):
    if group_size == 1 and name != "reinforce":
        pytest.skip("not defined")
    expected = np.zeros(3)
    for own, others in itertools.product(range(3), itertools.product(range(3), repeat=group_size - 1)):
        group = [VALUES[[own, *others]].tolist()]
        expected[own] += LAW[list(others)].prod() * gt.advantages(group, name)[0][0]
    found = gt.exact.mean_advantages(name, VALUES, LAW, group_size=group_size)
    np.testing.assert_allclose(found, expected, atol=1e-14)


def test_groups_without_end_have_the_population_advantage():
    """Errors of groups of 32 and 128 fall as 1/G for every estimator that has one."""
    seen = 0
    for name, one in gt.estimators().items():
        try:
            limit = gt.exact.population(name)(VALUES, LAW)
        except ValueError:
            continue
        if one.advantage.reads <= {"rewards", "parameters"}:
            near, far = (np.abs(gt.exact.mean_advantages(name, VALUES, LAW, group_size=size) - limit).max() for size in (128, 32))
            assert near <= 0.3 * far + 1e-12, name
            assert far < 0.12, name
            seen += 1
    assert seen > 20


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_mean_is_that_of_the_law(name):
    """Of every estimator, on policy and off it, by sums that never see a group."""
    problem = gt.gallery.problem(name)
    behaviour = problem.theta + 0.3 * np.random.default_rng(0).normal(size=problem.theta.size)
    k2 = gt.compose("grpo_k2_test", advantage="grpo", ratio="token", clip="by sign", kl="k2 in loss", overwrite=True)
    seen = 0
    for one, sampler in itertools.product([*gt.estimators().values(), k2], (None, behaviour)):
        how = {"batch_size": 1, "group_size": 4, "behaviour": sampler}
        try:
            expected = gt.gradient_law(problem, problem.theta, one, **how).mean
        except ValueError:
            continue
        np.testing.assert_allclose(gt.gradient_mean(problem, problem.theta, one, **how), expected, rtol=1e-12, atol=1e-14)
        seen += 1
    assert seen > 60


def test_a_path_repeats_mean_updates_from_the_policy_that_samples():
    start, sizes = BINARY.theta, np.array([0.5, 0.4, 0.3, 0.2])
    ppo = gt.compose("mean_path_test", advantage="grpo", ratio="token", clip="by sign", overwrite=True)
    for inner_steps, behaviour in ((1, None), (2, None), (1, start + 0.2)):
        theta = [start]
        for number, step in enumerate(sizes):
            old = behaviour if behaviour is not None else theta[number - number % inner_steps]
            mean = gt.gradient_law(BINARY, theta[-1], ppo, batch_size=1, group_size=4, behaviour=old).mean
            theta.append(theta[-1] + step * mean)
        path = gt.mean_path(BINARY, start, ppo, sizes, group_size=4, steps=4, inner_steps=inner_steps, behaviour=behaviour)
        np.testing.assert_allclose(path.theta, theta, atol=1e-14)
    exact = gt.theory.noise_free_path(BINARY, start, sizes)
    for estimator, size in (("rloo", 3), ("rloo", math.inf), (lambda values, law: values - (law @ values)[..., None], math.inf)):
        np.testing.assert_allclose(
            gt.mean_path(BINARY, start, estimator, sizes, group_size=size, steps=4).theta, exact, atol=1e-14
        )


def test_steps_see_the_policy():
    """A natural step of a table is mirror descent, on a tree a divergence of the radius, and a projection stays in its ball."""
    point = BINARY.at(BINARY.theta)
    mirror = point.probabilities[0] * np.exp(0.3 * BINARY.bandit.mean_reward[0])
    path = gt.mean_path(BINARY, BINARY.theta, "rloo", [0.3], group_size=4, steps=1, move=gt.exact.natural_step(BINARY))
    np.testing.assert_allclose(BINARY.at(path.theta[1]).probabilities[0], mirror / mirror.sum(), atol=1e-12)
    tree = gt.gallery.problem("sequence-tabular")
    trusted = gt.exact.natural_step(tree, radius=1e-6)
    moved = gt.mean_path(tree, tree.theta, "rloo", [1.0], group_size=4, steps=1, move=trusted).theta[1]
    apart = gt.observe(tree, moved, gt.Observable.kl(tree.at(tree.theta).probabilities)).value
    assert apart == pytest.approx(1e-6, rel=0.01)

    def projected(point, mean, step):
        theta = point.theta + step * mean
        return theta * min(1.0, 0.5 / np.linalg.norm(theta))

    path = gt.mean_path(BINARY, BINARY.theta, "rloo", gt.Constant(5.0), group_size=4, steps=3, move=projected)
    np.testing.assert_allclose(np.linalg.norm(path.theta[1:], axis=1), 0.5, atol=1e-15)


def test_a_fixed_point_is_where_updates_lead_with_steps_up_to_the_largest():
    """Leave-one-out with the penalty's gradient stays at the maximiser; division at the fixed point of Mroueh's recursion."""
    problem = gt.Problem(gt.Bandit([[0.0, 1.0, 1.0]]), gt.TabularSoftmax(1, 3), kl=gt.KL(2.0, [[0.7, 0.2, 0.1]]))
    names = {one: gt.compose(f"{one}_fixed_test", advantage=one, kl="k2 in loss", overwrite=True) for one in ("rloo", "grpo")}
    found = gt.fixed_point(problem, problem.theta, names["rloo"], group_size=5)
    optimum = problem.at(gt.find_optimum(problem, problem.theta))
    np.testing.assert_allclose(problem.at(found.theta).probabilities, optimum.probabilities, atol=1e-9)
    assert found.stable
    ends = []
    for share in (0.95, 1.05):
        start = found.theta + 1e-3 * np.array([1.0, -1.0, 0.5])
        steps = gt.Constant(share * found.largest_step)
        path = gt.mean_path(problem, start, names["rloo"], steps, group_size=5, steps=400)
        ends.append(gt.observe(problem, path.theta[-1], gt.Observable.kl(optimum.probabilities)).value)
    assert ends[0] < 1e-9 < 1e-4 < ends[1]
    epsilon, rate = gt.estimators()["grpo"].advantage.parameters["epsilon"], 0.3
    for _ in range(500):  # p <- the success of the best policy against advantages at p (arXiv 2503.06639, theorem 1)
        rate = 1.0 / (1.0 + 0.7 / 0.3 * np.exp(-0.5 / (np.sqrt(rate * (1.0 - rate)) + epsilon)))
    found = gt.fixed_point(problem, problem.theta, names["grpo"])
    assert float(problem.at(found.theta).reward_law[0, 1]) == pytest.approx(rate, abs=1e-9)
    # From here least squares alone end where the policy is all but sure, and every mean is 0.
    loose = gt.Problem(problem.bandit, problem.policy, kl=gt.KL(1.0, [[0.7, 0.2, 0.1]]))
    ends = [
        loose.at(gt.fixed_point(loose, at, names["grpo"], group_size=5).theta) for at in (np.zeros(3), np.log([0.7, 0.2, 0.1]))
    ]
    np.testing.assert_allclose(ends[1].probabilities, ends[0].probabilities, atol=1e-9)
    free = gt.Problem(problem.bandit, problem.policy)
    with pytest.raises(ValueError, match="Without a penalty all may lie at infinity"):
        gt.fixed_point(free, [0.0, 3.0, -2.0], "reinforce", group_size=4)


OBSERVABLES = [
    gt.Observable.entropy(),
    gt.Observable.token_entropy(),
    gt.Observable.length(),
    gt.Observable.chance(1),
    gt.Observable.of(gt.Objective.best_of(3)),
]


@pytest.mark.parametrize("observable", OBSERVABLES, ids=repr)
@pytest.mark.parametrize("name", ["linear", "sequence-shared"])
def test_an_observable_has_the_gradient_of_its_value(name, observable):
    problem = gt.gallery.problem(name)
    theta, moves = problem.theta, DIFFERENCE * np.eye(problem.theta.size)
    prefix = [] if name == "linear" else [problem.policy.paths.tokens[-1][0]]
    for one in (observable, gt.Observable.kl(problem.at(theta + 0.2).probabilities), gt.Observable.entropy_after(prefix)):
        slopes = (one.along(problem, theta + moves) - one.along(problem, theta - moves)) / (2.0 * DIFFERENCE)
        seen = gt.observe(problem, theta, one)
        np.testing.assert_allclose(seen.gradient, slopes, atol=1e-9)
        assert seen.value == pytest.approx(float(one.along(problem, theta)), abs=1e-15)


def test_observables_are_what_their_names_say():
    tree = gt.gallery.problem("sequence-shared")
    point = tree.at(tree.theta)
    p, weights = point.probabilities, tree.bandit.prompt_weights
    entropies = gt.observe(tree, tree.theta, gt.Observable.entropy())
    np.testing.assert_allclose(entropies.by_prompt, [-sum(x * math.log(x) for x in row) for row in p], rtol=1e-12)
    assert gt.observe(tree, tree.theta, gt.Observable.length()).value == pytest.approx(float(weights @ (p @ tree.policy.lengths)))
    support = gt.observe(tree, tree.theta, gt.Observable.support(0.1))
    assert support.by_prompt.tolist() == [sum(x >= 0.1 for x in row) for row in p]
    assert np.isnan(support.gradient).all()
    assert np.isnan(gt.Observable.entropy().along(tree, np.full((2, tree.theta.size), np.nan))).all()
    with pytest.raises(ValueError, match=r"the observable's value .* \(M,\)"):
        gt.observe(tree, tree.theta, gt.Observable("all", lambda point: point.probabilities))
    with pytest.raises(TypeError, match=r"got ndarray of shape \(100000,\)"):
        gt.observe(tree, tree.theta, np.zeros(100_000))


def test_training_is_observed_at_its_checkpoints():
    how = {"batch_size": 2, "group_size": 4, "steps": 6, "replications": 70, "checkpoints": [0, 6], "rng": 3}
    seen = [gt.Observable.entropy(), gt.Observable.chance(2)]
    runs = gt.simulate_training(BINARY, BINARY.theta, "grpo", gt.Constant(0.3), **how, observables=seen)
    plain = gt.simulate_training(BINARY, BINARY.theta, "grpo", gt.Constant(0.3), **how)
    assert (runs.theta == plain.theta).all()
    assert plain.observed == {}
    for one in seen:
        assert runs.observed[one.name].shape == (70, 2)
        np.testing.assert_array_equal(runs.observed[one.name][:, 1], one.along(BINARY, runs.theta))
        assert (runs.observed[one.name][:, 0] == one.along(BINARY, BINARY.theta)).all()
    chain = gt.gallery.problem("chain-copy")
    with pytest.raises(ValueError, match="observables are of responses that are listed"):
        gt.simulate_training(chain, chain.theta, "rloo", gt.Constant(0.1), **how, observables=seen)


def test_the_mean_of_a_statistic_is_that_over_all_groups():
    law = gt.Bandit.from_law(VALUES, [[[0.2, 0.3, 0.5], [0.6, 0.4, 0.0]]])
    problem = gt.Problem(law, gt.TabularSoftmax(1, 2), theta=[0.3, -0.2])
    rewards = problem.at(problem.theta).reward_law[0]
    expected = np.zeros(2)
    for group in itertools.product(range(3), repeat=4):
        found = np.sort(VALUES[list(group)])
        expected += rewards[list(group)].prod() * np.array([found.std(), found[2] - found[0]])
    found = gt.exact.group_expectation(problem, problem.theta, lambda z: np.array([z.std(), z[2] - z[0]]), group_size=4)
    np.testing.assert_allclose(found, [expected], atol=1e-14)


def test_what_has_no_mean_is_refused(check_refused):
    problem = gt.gallery.problem("kl-linear")
    check_refused(
        (lambda: gt.exact.mean_advantages("oracle", VALUES, LAW, group_size=4), "read only rewards"),
        (lambda: gt.exact.mean_advantages(None, VALUES, LAW, group_size=4), "estimator must be"),
        (lambda: gt.exact.population("optimal_loo"), "no known advantage in groups without end"),
        (lambda: gt.mean_path(problem, problem.theta, lambda values, law: law, [0.1], steps=1), "named or composed"),
        (lambda: gt.mean_path(problem, problem.theta, "rloo", [0.1], steps=1), "group_size"),
        (lambda: gt.gradient_mean(problem, problem.theta, lambda values, law: law, batch_size=1, group_size=4), "estimator"),
        error=(TypeError, ValueError),
    )
