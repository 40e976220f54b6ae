"""Exact mean, covariance and mean squared error of every estimator, against all ordered groups."""

import tracemalloc

import numpy as np
import pytest
from enumeration import CASES, NAMED, POLICIES, TREES, assert_close, assert_law, batch_law, case, gradient
from hypothesis import given
from hypothesis import strategies as st

import grpo_theory as gt

CLOSE = {"rtol": 1e-12, "atol": 1e-14}


def law(c, estimator, batch_size=1, group_size=3):
    return gt.gradient_law(c.problem, c.theta, estimator, batch_size=batch_size, group_size=group_size)


GROUPWISE = [name for name, found in gt.estimators().items() if not found.couples_groups]
OTHERS = [("linear", "binary", "plain"), ("linear", "graded", "kl"), TREES[5], ("off policy", *TREES[5])]
EXACT = [(name, *one) for name in NAMED for one in CASES + TREES]
EXACT += [(name, *one) for name in GROUPWISE if name not in NAMED for one in OTHERS]


@pytest.mark.parametrize(("name", "place"), [(name, place) for name, *place in EXACT])
def test_moments_are_sums_over_all_groups(name, place):
    """All estimators that see each group alone, of single responses and of sequences, on policy and off it."""
    c, estimator = case(*place[-3:]), gt.estimators()[name]
    if place[0] == "tabular":  # at the second prompt the third response has all but 2e-4 of the probability
        c = c.replace(theta=np.append(c.theta[:-3], [-8.0, -9.0, 1.0]))
    behaviour, few = c.behaviour if place[0] == "off policy" else None, place[0] in ("tabular", "linear")
    sizes = {"batch_size": 3, "group_size": 3 if few else 2}
    where, how = (c.problem, c.theta, name), sizes | {"behaviour": behaviour}
    found, expected = gt.gradient_law(*where, **how), batch_law(c, estimator, **how)
    assert_law(found, expected)
    if name in NAMED and place[0] in POLICIES:
        np.testing.assert_allclose(found.mean, expected.mean, **CLOSE)
        np.testing.assert_allclose(found.covariance(), expected.covariance, **CLOSE)
    truth, mean = gradient(c, c.theta), expected.mean
    assert_close(found.true_gradient, truth)
    assert found.cosine == pytest.approx(truth @ mean / np.sqrt((truth @ truth) * (mean @ mean)), rel=1e-10)
    assert found.trace == pytest.approx(np.trace(expected.covariance), rel=1e-10)
    assert found.prompt_mse == pytest.approx(c.bandit.prompt_weights @ found.prompt_mses, rel=1e-14)
    assert (gt.efficiency(*where, **how), gt.gradient_mse(*where, **how)) == (found.efficiency, found.mse)
    np.testing.assert_allclose(gt.gradient_mean(*where, **how), found.mean, **CLOSE)
    assert np.array_equal(gt.gradient_covariance(*where, **how), found.covariance())


@pytest.mark.parametrize("policy", POLICIES)
def test_variance_along_directions(policy):
    c = case(policy, "graded", "kl")
    found = law(c, "optimal_loo", 2, 3)
    directions = np.random.default_rng(1).normal(size=(4, c.policy.dimension))
    expected = np.einsum("jd,de,je->j", directions, found.covariance(), directions)
    np.testing.assert_allclose(found.variance_along(directions), expected, rtol=1e-11)


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
    tiny = 1e-14 * max(1.0, found.squared_norms.max())
    assert found.mse >= -tiny
    assert found.prompt_traces.min() >= -tiny
    assert np.linalg.eigvalsh(found.covariance()).min() >= -tiny


@pytest.mark.parametrize(("n_responses", "group_size"), [(60, 16), (600, 600), (600, 10**7)])
def test_too_many_groups_are_refused_before_they_are_listed(n_responses, group_size):
    """At 600 x 600 the number of multisets is beyond a float, in groups of 1e7 beyond what Python writes in digits."""
    rng = np.random.default_rng(0)
    problem = gt.Problem(gt.Bandit(np.full((1, n_responses), 0.5)), gt.TabularSoftmax(1, n_responses))
    message = rf"estimator 'optimal_loo' at group_size {group_size} needs .* at most 1e\+08 are: use simulate_gradients"
    with pytest.raises(gt.NotEnumerableError, match=message):
        gt.gradient_mse(problem, rng.normal(size=n_responses), "optimal_loo", batch_size=1, group_size=group_size)


def test_what_a_chain_never_samples_matters_only_in_a_state_that_it_reaches():
    """The third state is never reached: what the sampler does there changes nothing.  In the second it is refused."""
    chain = gt.TokenChain([[0, 1], [1, 0], [2, 0]], 3)
    problem = gt.Problem(gt.StateRewards([0.2, 0.9, 0.5]), chain, theta=np.random.default_rng(4).normal(size=chain.dimension))
    name, sizes = "trl_grpo_loss", {"batch_size": 2, "group_size": 3}
    near = 0.8 * problem.theta
    elsewhere, in_the_way = near.copy(), near.copy()
    elsewhere[4:], in_the_way[2:4] = [-2000.0, 0.0], [-2000.0, 0.0]
    found, expected = (gt.gradient_mse(problem, problem.theta, name, **sizes, behaviour=at) for at in (elsewhere, near))
    assert found == pytest.approx(expected, rel=1e-12)
    with pytest.raises(ValueError, match="gives 0 to token 0 in state 1"):
        gt.gradient_mse(problem, problem.theta, name, **sizes, behaviour=in_the_way)
