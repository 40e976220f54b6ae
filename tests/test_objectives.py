"""What a problem climbs: values by enumeration of draws, derivatives by differences, unbiased estimates of it, and intervals."""

import itertools
from functools import partial

import numpy as np
import pytest
from test_chain import assert_one_law, free, goal, graded

import grpo_theory as gt
from grpo_theory.intervals.rollout_intervals import estimated
from simulations.literature.subsets import best_of_subsets

VALUES = np.array([0.0, 0.3, 1.0])
OBJECTIVES = {
    "best of 3": (gt.Objective.best_of(3), 3, -1),
    "2 of 4": (gt.Objective.order_statistic(2, 4), 4, 1),
    "1 of 3": (gt.Objective.order_statistic(1, 3), 3, 0),
}
CLIMBED = {name: gt.exact.climbed(name, [0.0, 1.0], group_size=6) for name in ("grpo", "rloo", "max_rl", "dr_grpo", "nemo_rl")}
DIFFERENCE = 1e-5


def problem_of(policy, objective, kl=None, values=VALUES, seed=0):
    rng = np.random.default_rng(seed)
    law = rng.dirichlet(np.ones(len(values)), size=(policy.n_prompts, policy.n_responses))
    bandit = gt.Bandit.from_law(values, law, [0.3, 0.7])
    return gt.Problem(bandit, policy, kl=kl, theta=rng.normal(size=policy.dimension), objective=objective)


def slopes_of(function, theta):
    """Central differences of a function of theta (d,), along the first axis."""
    moves = DIFFERENCE * np.eye(theta.size)
    return np.array([(function(theta + one) - function(theta - one)) / (2.0 * DIFFERENCE) for one in moves])


@pytest.mark.parametrize("name", OBJECTIVES)
def test_an_order_statistic_is_the_mean_over_all_draws(name):
    objective, draws, rank = OBJECTIVES[name]
    law = np.array([[0.2, 0.5, 0.3], [0.0, 0.6, 0.4], [1.0, 0.0, 0.0]])
    every = np.array(list(itertools.product(range(3), repeat=draws)))
    expected = [law[m][every].prod(axis=1) @ np.sort(VALUES[every], axis=1)[:, rank] for m in range(3)]
    np.testing.assert_allclose(objective.value(VALUES, law), expected, atol=1e-14)


@pytest.mark.parametrize("penalty", [None, gt.KL(0.3, np.full((2, 4), 0.25))], ids=["free", "penalised"])
@pytest.mark.parametrize("policy", [gt.TabularSoftmax(2, 4), gt.TokenTree(2, 2, 2)], ids=["bandit", "tree"])
@pytest.mark.parametrize(
    "objective",
    [*(one for one, _, _ in OBJECTIVES.values()), gt.Objective.log_success(), gt.Objective.arcsin_success(), *CLIMBED.values()],
    ids=repr,
)
def test_gradient_and_hessian_are_those_of_the_objective(objective, policy, penalty):
    values = VALUES if objective in [one for one, _, _ in OBJECTIVES.values()] else np.array([0.0, 1.0])
    problem = problem_of(policy, objective, penalty, values)
    theta, gradient = problem.theta, gt.exact.gradient(problem, problem.theta)
    np.testing.assert_allclose(gradient, slopes_of(lambda at: gt.objective(problem, at), theta), atol=1e-9)
    np.testing.assert_allclose(problem.at(theta).target.gradient, gradient, atol=1e-15)
    np.testing.assert_allclose(gt.hessian(problem, theta), slopes_of(lambda at: gt.exact.gradient(problem, at), theta), atol=1e-8)


PKPO = best_of_subsets.with_parameters(k=3.0, beside=1.0, share=0.0)


def test_error_and_efficiency_are_about_the_objective():
    """PKPO's estimator is unbiased for the best of 3; leave-one-out is not, and simulation agrees with the law about both."""
    problem = problem_of(gt.TabularSoftmax(2, 4), gt.Objective.best_of(3))
    sizes = {"batch_size": 2, "group_size": 5}
    law = gt.gradient_law(problem, problem.theta, PKPO, **sizes)
    assert np.abs(law.bias).max() < 1e-15
    other = gt.gradient_law(problem, problem.theta, "rloo", **sizes)
    assert np.linalg.norm(other.bias) > 0.1 * np.linalg.norm(law.mean)
    assert other.efficiency < 1.0
    runs = gt.simulate_gradients(problem, problem.theta, [PKPO, "rloo"], **sizes, replications=40_000, rng=1)
    for found, exact in zip(runs.mse, (law.mse, other.mse), strict=True):
        assert found == pytest.approx(exact, rel=0.05)  # five standard errors or so; that about the mean reward is 40% off
    allocated = gt.allocation_law(problem, problem.theta, "rloo", low=2, high=5)
    assert allocated.mse([5, 5]) - allocated.trace([5, 5]) == pytest.approx(float(other.bias @ other.bias), rel=1e-12)


def spread(z, q):
    """The mean less the variance, which is quadratic in the law."""
    return q @ z - (q @ z**2 - (q @ z) ** 2)


CAREFUL = gt.Objective(
    "mean less variance",
    spread,
    lambda z, q: z - z**2 + 2.0 * (q @ z)[..., None] * z,
    lambda z, q: np.broadcast_to(2.0 * np.outer(z, z), (*q.shape, len(z))),
)


@pytest.mark.parametrize("make", [free, graded, goal])
@pytest.mark.parametrize("objective", [gt.Objective.best_of(4), gt.Objective.order_statistic(2, 3), CAREFUL], ids=repr)
def test_on_a_chain_all_is_about_the_objective_as_it_is_of_listed_responses(make, objective):
    mean = make()
    problem = gt.Problem(mean.bandit, mean.policy, theta=mean.theta, objective=objective)
    listed, theta = problem.listed(), problem.theta + np.array([[0.0], [0.1]])
    np.testing.assert_allclose(gt.objective(problem, theta), gt.objective(listed, theta), rtol=1e-12)
    np.testing.assert_allclose(gt.gradient(problem), gt.gradient(listed), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(gt.hessian(problem), gt.hessian(listed), rtol=1e-11, atol=1e-14)
    assert_one_law(*(gt.gradient_law(one, None, "grpo", batch_size=3, group_size=4) for one in (problem, listed)))
    assert np.abs(gt.gradient(problem) - gt.gradient(mean)).max() > 1e-3


def test_on_a_chain_training_is_judged_by_the_objective_and_its_maximiser_found(seed):
    """What is climbed is largest where each prompt's success rate is 0.6."""
    chain = free()
    near = gt.Objective.of_success("near", lambda p: -((p - 0.6) ** 2), lambda p: 1.2 - 2.0 * p, lambda p: -2.0 + 0.0 * p)
    problem = gt.Problem(chain.bandit, chain.policy, theta=chain.theta, objective=near)
    np.testing.assert_allclose(problem.at(gt.find_optimum(problem)).value, 0.6, atol=1e-9)
    sizes = {"batch_size": 2, "group_size": 4}
    runs = gt.simulate_training(problem, None, "rloo", gt.Constant(0.1), **sizes, steps=3, replications=3, rng=0)
    np.testing.assert_allclose(runs.objectives[:, -1], gt.objective(problem, runs.theta), atol=1e-15)
    problem = gt.Problem(chain.bandit, chain.policy, theta=chain.theta, objective=gt.Objective.mean_of([0.0, 4.0]))
    law, other = (gt.gradient_law(one, None, "rloo", **sizes) for one in (problem, chain))
    run = gt.simulate_gradients(problem, None, "rloo", **sizes, replications=10_000, rng=seed(5))
    assert abs(run.mse[0] - law.mse) < 4.9 * run.mse_standard_error[0] < 0.1 * abs(other.mse - law.mse)
    assert abs(run.efficiency[0] - law.efficiency) < 4.9 * run.efficiency_standard_error[0]


def test_a_maximiser_is_that_of_the_objective_and_training_is_judged_by_it():
    kl = gt.KL(0.2, np.full((2, 4), 0.25))
    best, mean = (problem_of(gt.TabularSoftmax(2, 4), one, kl) for one in (gt.Objective.best_of(4), None))
    optimum = gt.find_optimum(best, best.theta)
    assert np.abs(gt.exact.gradient(best, optimum)).max() < 1e-9
    assert gt.objective(best, optimum) > gt.objective(best, gt.find_optimum(mean, mean.theta)) + 1e-3
    runs = gt.simulate_training(
        best, best.theta, "rloo", gt.Constant(0.1), batch_size=2, group_size=4, steps=3, replications=3, rng=0
    )
    np.testing.assert_allclose(runs.objectives[:, -1], gt.objective(best, runs.theta), atol=1e-15)


@pytest.mark.parametrize("name", CLIMBED)
def test_of_two_rewards_an_estimator_climbs_what_is_climbed(name):
    problem = problem_of(gt.TabularSoftmax(2, 4), CLIMBED[name], values=np.array([0.0, 1.0]))
    law = gt.gradient_law(problem, problem.theta, name, batch_size=1, group_size=6)
    assert np.abs(law.bias).max() < 1e-14


def test_of_three_rewards_division_climbs_nothing():
    """Around a loop of laws the mean does work, as no gradient does; that of a kernel affine in the rewards does none."""
    corners = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.8, 0.1, 0.1]])
    nodes, weights = np.polynomial.legendre.leggauss(12)
    work = {}
    for name in ("rloo", "grpo"):
        work[name] = 0.0
        for start, end in itertools.pairwise(corners):
            laws = start + 0.5 * (nodes + 1.0)[:, None] * (end - start)
            work[name] += 0.5 * weights @ gt.exact.mean_advantages(name, VALUES, laws, group_size=4) @ (end - start)
    assert abs(work["rloo"]) < 1e-14 < 1e-3 < abs(work["grpo"])
    climbed = gt.exact.climbed("rloo", VALUES, group_size=4)
    law = corners[:3]
    np.testing.assert_allclose(np.diff(climbed.value(VALUES, law)), np.diff(law @ VALUES), atol=1e-14)
    with pytest.raises(ValueError, match=r"'grpo' climbs no objective with rewards .* in groups of 4"):
        gt.exact.climbed("grpo", VALUES, group_size=4)


OF_GROUPS = {
    **{name: (one, lambda z, k=k, rank=rank: np.sort(z)[..., rank].mean(), k) for name, (one, k, rank) in OBJECTIVES.items()},
    "mean of": (gt.Objective.mean_of([0.5, -1.0, 2.0]), lambda z: np.select([z == 0.0, z == 0.3], [0.5, -1.0], 2.0).mean(), 1),
    "less variance": (gt.Objective("less variance", spread, spread), lambda z: z[0] - (z[0] ** 2 - z[0] * z[1]), 2),
}
"""An objective, its kernel as a function of k rewards, and k."""


@pytest.mark.parametrize("name", OF_GROUPS)
def test_the_estimate_of_a_prompt_is_unbiased(name):
    """Over all groups of five; each estimate is the mean of the kernel over ordered subsets, the U-statistic."""
    objective, kernel, k = OF_GROUPS[name]
    law, every = np.array([0.2, 0.5, 0.3]), np.array(list(itertools.product(range(3), repeat=5)))
    rollouts = gt.Rollouts(VALUES[every])
    found = estimated(rollouts, objective).rewards[:, 0]
    draws = np.array(list(itertools.product(range(3), repeat=k)))
    truth = law[draws].prod(axis=1) @ [kernel(VALUES[one]) for one in draws]
    assert law[every].prod(axis=1) @ found == pytest.approx(truth, abs=1e-12)
    subsets = [np.mean([kernel(z[list(one)]) for one in itertools.permutations(range(5), k)]) for z in VALUES[every[::7]]]
    np.testing.assert_allclose(found[::7], subsets, rtol=0, atol=1e-12)
    interval = gt.intervals.value_clustered(rollouts, objective=objective)
    assert float(interval.estimate) == pytest.approx(found.mean(), abs=1e-12)
    assert float(interval.standard_error) == pytest.approx(found.std(ddof=1) / np.sqrt(len(found)), rel=1e-12)
    ragged = gt.RaggedRollouts([0] * 5 + [1] * 5 + [2] * 4, VALUES[[0, 1, 2, 2, 0, 1, 1, 2, 0, 1, 2, 2, 0, 1]])
    parts = [
        np.mean([kernel(z[list(one)]) for one in itertools.permutations(range(len(z)), k)])
        for z in np.split(ragged.rewards, [5, 10])
    ]
    assert float(gt.intervals.value_clustered(ragged, objective=objective).estimate) == pytest.approx(np.mean(parts), abs=1e-12)


def test_other_objectives_are_estimated_by_the_jackknife():
    def arcsin(z):
        return 2.0 * np.arcsin(np.sqrt(z.mean()))

    rewards = np.array([[0.0, 0.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0, 1.0], [0.0, 1.0, 0.0, 0.0, 0.0]])
    expected = [5.0 * arcsin(z) - 4.0 * np.mean([arcsin(np.delete(z, i)) for i in range(5)]) for z in rewards]
    found = estimated(gt.Rollouts(rewards), gt.Objective.arcsin_success()).rewards[:, 0]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)


def test_intervals_about_an_objective_cover_it_and_those_about_the_mean_do_not(seed):
    problem = gt.Problem(
        *(getattr(gt.gallery.problem("mixed"), part) for part in ("bandit", "policy")), objective=gt.Objective.best_of(4)
    )
    of = {"objective": problem.objective}
    functions = {one.__name__: partial(one, **of) for one in (gt.intervals.value_clustered, gt.intervals.value_effective)}
    functions["mean"] = gt.intervals.value_clustered
    asked = {"experiment": gt.Pilot(64, 8), "replications": 4000, "rng": seed(4), "vectorized": True}
    found = gt.laboratory.coverage_of_several(functions, problem, gt.objective, **asked)
    assert found["value_clustered"].consistent()
    assert found["value_effective"].coverage > 0.95
    assert found["mean"].coverage < 0.1
    bias = found["value_clustered"].estimate - found["value_clustered"].truth
    assert abs(bias.mean()) < 4.9 * bias.std() / np.sqrt(len(bias))


def test_few_groups_of_which_nearly_all_succeed_are_covered():
    """Of groups of eight with two looked at, four pairs are apart; eight in their place cover 85%."""
    rng, best, covered = np.random.default_rng(3), gt.Objective.best_of(2), []
    for _ in range(600):
        rates = np.where(rng.random(16) < 0.1, 0.3, 0.9)
        rollouts = gt.Rollouts((rng.random((16, 8)) < rates[:, None]).astype(float))
        covered.append(gt.intervals.value_effective(rollouts, objective=best).covers(0.1 * 0.51 + 0.9 * 0.99))
    assert np.mean(covered) > 0.93


def test_datasets_side_by_side_have_reward_values_of_their_own():
    """One with successes alone has no success rate to estimate, whatever stands beside it."""
    both, arcsin = np.array([[[0.0, 1.0], [1.0, 1.0]], [[0.0, 0.0], [1.0, 0.0]]]), gt.Objective.arcsin_success()
    apart = [gt.intervals.value_clustered(gt.Rollouts(one), objective=arcsin) for one in both]
    found = gt.intervals.value_clustered(gt.Rollouts(both), objective=arcsin)
    assert found.low.tolist() == [float(one.low) for one in apart]
    with pytest.raises(ValueError, match="needs two rewards"):
        gt.intervals.value_clustered(gt.Rollouts([both[0], np.ones((2, 2))]), objective=arcsin)


def test_what_no_interval_is_about_is_refused(check_refused):
    of, mixed = gt.intervals.value_clustered, gt.Rollouts([[0.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    bandit, policy, best = gt.Bandit([[0.3, 0.8]]), gt.TabularSoftmax(1, 2), gt.Objective.best_of(2)
    tied, free = (gt.Problem(bandit, policy, kl=kl, objective=best) for kl in (gt.KL(0.1, [[0.5, 0.5]]), None))
    sizes = {"batch_size": 2, "group_size": 2, "steps": 20, "replications": 1}
    check_refused((lambda: of(mixed, objective="best of 2"), "objective must be an Objective, as"), error=TypeError)
    check_refused(
        (lambda: of(mixed, objective=gt.Objective.best_of(4)), "at least 4 responses per prompt for this objective, got G = 3"),
        (lambda: of(gt.Rollouts([[0.0, 0.0], [1.0, 1.0]]), objective=gt.Objective.log_success()), "has none at 1 of 2"),
        (lambda: of(gt.Rollouts([[0.0], [1.0]]), objective=gt.Objective.arcsin_success()), "at least 2 responses"),
        (lambda: of(gt.Rollouts(np.arange(1e5).reshape(-1, 4)), objective=OF_GROUPS["less variance"][0]), "round the rewards"),
        (lambda: of(mixed, objective=gt.Objective.mean_of([0.0, 1.0, 2.0])), "a number for each of the problem's reward values"),
        (lambda: of(gt.Rollouts([[0.0, 1.0], [1.0, 0.0]]), objective=gt.Objective.arcsin_success()), "do not vary"),
        (lambda: gt.intervals.value_effective(mixed, objective=gt.Objective.mean_of([0.0, 2.0])), "within the bounds 0 and 1"),
        (lambda: gt.Pilot(2, 2).sample(tied, 0, 1), "mean reward for rollouts whose rewards are less a KL penalty"),
        (
            lambda: next(gt.simulate_records(free, None, "rloo", gt.Constant(0.1), **sizes)),
            "must climb its mean reward for records",
        ),
    )


def test_what_does_not_fit_is_refused(check_refused):
    bandit, policy = gt.Bandit([[0.3, 0.8]]), gt.TabularSoftmax(1, 2)
    wrong = gt.Objective("wrong", lambda z, q: q @ z, lambda z, q: np.broadcast_to(z**2 + 2.0 * z, q.shape))
    shapeless = gt.Objective("shapeless", lambda z, q: q, lambda z, q: z)
    flat = gt.Objective("flat", lambda z, q: q @ z, lambda z, q: np.broadcast_to(z, q.shape))
    best, chain = gt.Problem(bandit, policy, objective=gt.Objective.best_of(2)), goal()
    check_refused((lambda: gt.Problem(bandit, policy, objective="mean"), "must be an Objective"), error=TypeError)
    check_refused(
        (lambda: gt.Problem(bandit, policy, objective=wrong), "slopes differ by 3, and values by 1"),
        (lambda: gt.Problem(bandit, policy, objective=shapeless), "shape"),
        (lambda: gt.hessian(gt.Problem(bandit, policy, objective=flat), np.zeros(2)), "curvature"),
        (lambda: problem_of(gt.TabularSoftmax(2, 4), gt.Objective.log_success()), "needs two rewards"),
        (lambda: gt.Objective.order_statistic(3, 2), "rank must be at most draws, 2, got 3"),
        (lambda: gt.hessian(gt.Problem(chain.bandit, chain.policy, objective=flat)), "curvature"),
        (lambda: gt.group_size_law(best, best.theta), "must climb its mean reward"),
        (lambda: gt.theory.training_law(best, best.theta, gt.Constant(0.1), steps=2), "must climb its mean reward"),
    )
