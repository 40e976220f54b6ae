"""Exact mean, covariance and mean squared error of every estimator, against all ordered groups."""

import tracemalloc

import numpy as np
import pytest
from enumeration import NAMED, PENALTIES, POLICIES, REWARDS, batch_law, case, coupled_mse, group_law, prompts
from hypothesis import given
from hypothesis import strategies as st

import grpo_theory as gt

CLOSE = {"rtol": 1e-12, "atol": 1e-14}


def law(c, estimator, batch_size=1, group_size=3):
    return gt.gradient_law(c.problem, c.theta, estimator, batch_size=batch_size, group_size=group_size)


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("rewards", REWARDS)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", NAMED)
def test_moments_are_sums_over_all_groups(name, policy, rewards, penalty):
    c = case(policy, rewards, penalty)
    found = law(c, name, batch_size=2, group_size=3)
    mean, covariance, mse = batch_law(c, gt.estimators()[name], 2, 3)
    np.testing.assert_allclose(found.mean, mean, **CLOSE)
    np.testing.assert_allclose(found.covariance(), covariance, **CLOSE)
    assert found.trace == pytest.approx(np.trace(covariance), rel=1e-12)
    assert found.mse == pytest.approx(mse, rel=1e-12)
    by_prompt = [group_law(table, gt.estimators()[name], 3) for table in prompts(c)]
    np.testing.assert_allclose(found.prompt_mses, [one.squared_error for one in by_prompt], **CLOSE)
    traces = [np.trace(one.second) - one.mean @ one.mean for one in by_prompt]
    np.testing.assert_allclose(found.prompt_traces, traces, **CLOSE)
    assert found.prompt_mse == pytest.approx(c.bandit.prompt_weights @ found.prompt_mses, rel=1e-14)


@pytest.mark.parametrize(
    ("name", "group_size"),
    [(name, size) for name in NAMED for size in (1, 2, 4) if size >= gt.estimators()[name].advantage.minimum_group_size],
)
def test_other_group_sizes(name, group_size):
    c = case("linear", "graded", "kl")
    mean, covariance, mse = batch_law(c, gt.estimators()[name], 3, group_size)
    found = law(c, name, 3, group_size)
    np.testing.assert_allclose(found.mean, mean, **CLOSE)
    np.testing.assert_allclose(found.covariance(), covariance, **CLOSE)
    assert found.mse == pytest.approx(mse, rel=1e-12)


@pytest.mark.parametrize("name", NAMED)
def test_batches_of_two_groups_summed_one_by_one(name):
    bandit = gt.Bandit([[0.3, 0.8], [0.6, 0.1]], [0.7, 0.3])
    c = case("linear", "graded").replace(bandit=bandit)
    assert law(c, name, 2, 2).mse == pytest.approx(coupled_mse(c, gt.estimators()[name], 2, 2), rel=1e-12)


@pytest.mark.parametrize("name", NAMED)
def test_the_four_functions_agree(name):
    c = case("head", "graded", "kl")
    sizes = {"batch_size": 3, "group_size": 4, "behaviour": c.theta[::-1]}
    where = c.problem, c.theta, gt.estimators()[name]
    found = gt.gradient_law(*where, **sizes)
    assert gt.gradient_mse(*where, **sizes) == found.mse
    assert np.array_equal(gt.gradient_mean(*where, **sizes), found.mean)
    assert np.array_equal(gt.gradient_covariance(*where, **sizes), found.covariance())
    assert found.mse != gt.gradient_mse(*where, batch_size=3, group_size=4)


@pytest.mark.parametrize("policy", POLICIES)
def test_variance_along_directions(policy):
    c = case(policy, "graded", "kl")
    found = law(c, "optimal_loo", 2, 3)
    directions = np.random.default_rng(1).normal(size=(4, c.policy.dimension))
    expected = np.einsum("jd,de,je->j", directions, found.covariance(), directions)
    np.testing.assert_allclose(found.variance_along(directions), expected, rtol=1e-11)


@pytest.mark.parametrize("name", ["reinforce", "oracle", "optimal", "rloo", "optimal_loo"])
def test_baselines_that_leave_the_own_sample_out_leave_no_bias(name):
    found = law(case("linear", "graded", "kl"), name, 2, 3)
    assert np.abs(found.bias).max() < 1e-14


@pytest.mark.parametrize("group_size", [1, 2, 5])
def test_the_own_mean_shrinks_the_gradient(group_size):
    found = law(case("linear", "graded", "kl"), "dr_grpo", 2, group_size)
    np.testing.assert_allclose(found.mean, (1 - 1 / group_size) * found.true_gradient, **CLOSE)
    assert group_size > 1 or found.mse == pytest.approx(found.true_gradient @ found.true_gradient, rel=1e-12)


def test_division_by_the_standard_deviation_biases_the_direction():
    found = law(case("head", "graded"), "grpo", 2, 3)
    cosine = found.mean @ found.true_gradient / np.linalg.norm(found.mean) / np.linalg.norm(found.true_gradient)
    assert cosine < 0.999


@pytest.mark.parametrize("group_size", [2, 3])
def test_small_groups_of_binary_rewards_have_one_standard_deviation(group_size):
    """One success in a group of two or three: grpo is then a multiple of dr_grpo, sd = 1/sqrt(G) with ddof 1."""
    c = case("linear", "binary")
    divided, centred = law(c, "grpo", 2, group_size), law(c, "dr_grpo", 2, group_size)
    np.testing.assert_allclose(divided.mean, centred.mean / (group_size**-0.5 + 1e-4), rtol=1e-12)
    np.testing.assert_allclose(divided.covariance(), centred.covariance() / (group_size**-0.5 + 1e-4) ** 2, rtol=1e-12)


def test_groups_of_64_are_exact_on_a_language_models_head():
    problem = gt.gallery.problem("lm-instruct")
    found = gt.gradient_law(problem, problem.theta, "rloo", batch_size=8, group_size=64)
    moments = gt.moments(problem, problem.theta)
    expected = gt.theory.leave_one_out_traces(moments, 64)
    np.testing.assert_allclose(found.prompt_traces, expected, rtol=1e-10, atol=1e-13 * expected.max())
    assert found.mse == pytest.approx(float(gt.group_size_law(problem, problem.theta).mse(8, 64)), rel=1e-12)


def test_a_large_head_is_never_written_out():
    """With d = 5760 neither (M, K, d) nor d x d is formed, by exact theory, closed form or simulation."""
    rng = np.random.default_rng(2)
    n_prompts, n_responses, width = 64, 20, 288
    head = gt.SoftmaxHead(rng.normal(size=(n_prompts, width)) / np.sqrt(width), n_responses)
    problem = gt.Problem(gt.Bandit(rng.uniform(size=(n_prompts, n_responses))), head)
    theta = rng.normal(size=head.dimension)
    directions = rng.normal(size=(2, head.dimension))
    sizes = {"batch_size": 4, "group_size": 4}
    # Compiling, in a process that has not yet, takes memory that is not the arrays'.
    gt.simulate_gradients(problem, theta, "rloo", **sizes, replications=100, rng=0, workers=1, directions=directions)
    tracemalloc.start()
    found = gt.gradient_law(problem, theta, "rloo", **sizes)
    numbers = [found.mse, *found.variance_along(directions), gt.group_size_law(problem, theta).mse(4, 4)]
    _, exact_peak = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    run = gt.simulate_gradients(problem, theta, "rloo", **sizes, replications=100, rng=0, workers=1, directions=directions)
    _, simulation_peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert np.isfinite([*numbers, *run.mse]).all()
    assert exact_peak < 8 * n_prompts * n_responses * head.dimension / 3
    assert simulation_peak < 8 * n_prompts * n_responses * head.dimension / 3
    with pytest.raises(ValueError, match=r"a matrix of shape \(5760, 5760\) is not formed for this policy"):
        found.covariance()


@given(
    success=st.lists(st.floats(0, 1), min_size=6, max_size=6),
    logits=st.lists(st.floats(-30, 30), min_size=6, max_size=6),
    group_size=st.integers(2, 6),
    name=st.sampled_from(NAMED),
)
def test_second_moments_are_never_negative(success, logits, group_size, name):
    problem = gt.Problem(gt.Bandit(np.reshape(success, (2, 3))), gt.TabularSoftmax(2, 3))
    found = gt.gradient_law(problem, logits, name, batch_size=3, group_size=group_size)
    tiny = 1e-14 * max(1.0, found.powers.max())
    assert found.mse >= -tiny
    assert found.prompt_traces.min() >= -tiny
    assert np.linalg.eigvalsh(found.covariance()).min() >= -tiny


@pytest.mark.parametrize("name", NAMED)
def test_a_policy_that_is_nearly_certain(name):
    """At the second prompt the third response has all but 2e-4 of the probability."""
    c = case("tabular", "binary").replace(theta=np.array([0.0, 0.0, 0.0, -8.0, -9.0, 1.0]))
    _, _, mse = batch_law(c, gt.estimators()[name], 3, 3)
    assert law(c, name, 3, 3).mse == pytest.approx(mse, rel=1e-10)


@given(batch_size=st.integers(1, 1000), name=st.sampled_from(NAMED))
def test_the_covariance_falls_as_the_batch_grows(batch_size, name):
    c = case("linear", "graded")
    one, many = law(c, name), law(c, name, batch_size)
    np.testing.assert_allclose(many.covariance() * batch_size, one.covariance(), **CLOSE)
    assert np.array_equal(many.mean, one.mean)


@pytest.mark.parametrize(
    ("sizes", "error", "message"),
    [
        ({"batch_size": 0, "group_size": 4}, ValueError, r"batch_size must be at least 1, got 0"),
        ({"batch_size": 2, "group_size": 0}, ValueError, r"group_size must be at least 1, got 0"),
        ({"batch_size": 2.0, "group_size": 4}, TypeError, r"batch_size must be an integer of at least 1, got 2\.0"),
        ({"batch_size": True, "group_size": 4}, TypeError, r"batch_size must be an integer of at least 1, got True"),
        ({"batch_size": 2, "group_size": "4"}, TypeError, r"group_size must be an integer of at least 1, got '4'"),
        ({"batch_size": 2, "group_size": 1}, ValueError, r"group_size must be at least 2 for estimator 'rloo', got 1"),
    ],
)
@pytest.mark.parametrize("function", [gt.gradient_law, gt.gradient_mse, gt.gradient_mean, gt.gradient_covariance])
def test_sizes_are_checked(function, sizes, error, message):
    c = case()
    with pytest.raises(error, match=message):
        function(c.problem, c.theta, "rloo", **sizes)


def test_directions_are_checked():
    found = law(case(), "rloo")
    with pytest.raises(ValueError, match=r"directions must have shape \(2, 6\) = \(J, d\), got \(2, 5\)"):
        found.variance_along(np.ones((2, 5)))
    with pytest.raises(ValueError, match=r"directions must have 2 dimensions, got shape \(6,\)"):
        found.variance_along(np.ones(6))


@pytest.mark.parametrize(("n_responses", "group_size"), [(60, 16), (600, 600), (600, 10**7)])
def test_too_many_groups_are_refused_before_they_are_listed(n_responses, group_size):
    """At 600 x 600 the number of multisets is beyond a float, in groups of 1e7 beyond what Python writes in digits."""
    rng = np.random.default_rng(0)
    problem = gt.Problem(gt.Bandit(np.full((1, n_responses), 0.5)), gt.TabularSoftmax(1, n_responses))
    message = rf"estimator 'optimal_loo' at group_size {group_size} needs .* at most 1e\+08 are: use simulate_gradients"
    with pytest.raises(gt.NotEnumerableError, match=message):
        gt.gradient_mse(problem, rng.normal(size=n_responses), "optimal_loo", batch_size=1, group_size=group_size)


def test_prompts_that_look_alike_are_summed_together_and_rightly():
    """Prompts of one success matrix, different logits: the same classes for rloo, different probabilities."""
    success = np.tile([[0.3, 0.8, 0.5]], (3, 1))
    theta = np.random.default_rng(4).normal(size=9)
    every, one = (
        gt.Problem(gt.Bandit(success), gt.TabularSoftmax(3, 3)),
        gt.Problem(gt.Bandit(success[:1]), gt.TabularSoftmax(1, 3)),
    )
    together = gt.gradient_law(every, theta, "rloo", batch_size=1, group_size=4)
    for m, logits in enumerate(theta.reshape(3, 3)):
        alone = gt.gradient_law(one, logits, "rloo", batch_size=1, group_size=4)
        assert together.prompt_mses[m] == pytest.approx(alone.mse, rel=1e-13)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("rewards", REWARDS)
def test_one_prompt_has_equal_batch_and_prompt_errors(policy, rewards):
    c = case(policy, rewards)
    one = law(c._replace(problem=c.problem.at_prompt(0)), "grpo", 1, 3)
    assert one.mse == pytest.approx(one.prompt_mse, rel=1e-12)
    assert one.prompt_mse == pytest.approx(law(c, "grpo", 1, 3).prompt_mses[0], rel=1e-14)
