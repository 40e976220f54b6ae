"""Chains: sums carried from state to state, against the same responses listed as a tree, whose sums are enumerated."""

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.estimation.parts import AGGREGATIONS, CLIPS, RATIOS
from grpo_theory.problem import NotListedError

N_STATES, N_TOKENS, HORIZON = 4, 3, 5


def composed(advantage, ratio="none", clip="none", aggregation="sum"):
    """Return an estimator that is in no registry."""
    kernel, parts = gt.estimators()[advantage].advantage, (RATIOS[ratio], CLIPS[clip], AGGREGATIONS[aggregation])
    return gt.Estimator("composed", kernel, *parts)


def transitions(rng):
    """Return a table in which every state can be left."""
    table = rng.integers(0, N_STATES, (N_STATES, N_TOKENS))
    table[:, 0] = (np.arange(N_STATES) + 1) % N_STATES
    return table


def free():
    """Every state has logits of its own; two prompts of unequal weights; responses of one length."""
    rng = np.random.default_rng(1)
    chain = gt.TokenChain(transitions(rng), HORIZON, starts=[0, 2])
    return gt.Problem(gt.StateRewards(rng.random(N_STATES), [0.3, 0.7]), chain, theta=rng.normal(size=chain.dimension))


def graded():
    """Shared features, an end token, three reward values."""
    rng = np.random.default_rng(2)
    chain = gt.TokenChain(
        transitions(rng), HORIZON, end_token=1, features=rng.normal(size=(N_STATES, N_TOKENS, 6)), starts=[0, 2, 2]
    )
    rewards = gt.StateRewards.from_law([0.0, 1.0, 2.5], rng.dirichlet(np.ones(3), N_STATES))
    return gt.Problem(rewards, chain, theta=rng.normal(size=chain.dimension))


def goal():
    """A state in which responses end, and rewards that are certain given the last state."""
    rng = np.random.default_rng(3)
    table = transitions(rng)
    table[3] = -1
    chain = gt.TokenChain(table, HORIZON)
    return gt.Problem(gt.StateRewards([0.0, 1.0, 0.0, 1.0]), chain, theta=rng.normal(size=chain.dimension))


CHAINS = pytest.mark.parametrize("make", [free, graded, goal])
MOMENTS = (
    "value",
    "reward_variance",
    "gradient",
    "prompt_gradient_squared_norm",
    "score_squared_norm",
    "score_reward_squared_norm",
    "oracle_squared_norm",
    "score_reward_correlation",
    "second_order",
    "optimal_baseline",
)


@CHAINS
def test_moments_are_those_of_the_listed_responses(make):
    problem = make()
    found, expected = gt.moments(problem, problem.theta), gt.moments(problem.listed(), problem.theta)
    for name in MOMENTS:
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-12, atol=1e-14, err_msg=name)
    assert graded().bandit.prompt_weights.tolist() == [1.0 / 3.0] * 3  # where none are given
    # Power: half a token's worth of another theta shows.
    other = gt.moments(problem, problem.theta + 1e-3 * np.cos(np.arange(problem.theta.size)))
    assert np.abs(other.gradient - expected.gradient).max() > 1e-6


def assert_one_law(found, expected):
    """Assert that two laws have the same mean, covariance, errors and efficiency."""
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(found.prompt_mses, expected.prompt_mses, rtol=1e-12)
    np.testing.assert_allclose(found.covariance(), expected.covariance(), rtol=1e-11, atol=1e-14)
    assert found.mse == pytest.approx(expected.mse, rel=1e-12)
    assert found.efficiency == pytest.approx(expected.efficiency, rel=1e-12)


@CHAINS
@pytest.mark.parametrize("off_policy", [False, True], ids=["on policy", "off policy"])
def test_laws_of_all_estimators_are_those_of_the_listed_responses(make, off_policy):
    """Every registered estimator has its law carried, or a reason why not; a behaviour that is left out is seen."""
    problem, sizes = make(), {"batch_size": 3, "group_size": 4}
    listed, suffix_sums = problem.listed(), 0
    behaviour = problem.theta + 0.2 * np.sin(np.arange(problem.theta.size)) if off_policy else None
    for name in gt.estimators():
        try:
            found = gt.gradient_law(problem, problem.theta, name, **sizes, behaviour=behaviour)
        except gt.NotEnumerableError as reason:
            why = str(reason)
            assert "couples groups" in why or "cannot be carried" in why, name
            continue
        suffix_sums += 1
        assert_one_law(found, gt.gradient_law(listed, problem.theta, name, **sizes, behaviour=behaviour))
        if off_policy:
            on_policy = gt.gradient_law(listed, problem.theta, name, **sizes)
            assert abs(found.mse / on_policy.mse - 1.0) > 1e-6, name
    assert suffix_sums >= 20


def test_the_unclipped_ratio_of_the_whole_response_is_carried_and_its_clip_is_not():
    problem = graded()
    behaviour = problem.theta + 0.3 * np.sin(np.arange(problem.theta.size))
    sizes = {"batch_size": 2, "group_size": 3, "behaviour": behaviour}
    whole = composed("rloo", "trajectory")
    found = gt.gradient_law(problem, problem.theta, whole, **sizes)
    assert_one_law(found, gt.gradient_law(problem.listed(), problem.theta, whole, **sizes))
    # It estimates the right gradient, whoever sampled.
    np.testing.assert_allclose(found.mean, gt.moments(problem, problem.theta).gradient, rtol=1e-12)
    with pytest.raises(gt.NotEnumerableError, match="neither a function of each token's own ratio"):
        gt.gradient_law(problem, problem.theta, "tic_grpo", **sizes)


@CHAINS
def test_the_two_ways_to_the_mean_scores_agree_at_a_thousand_tokens(make):
    """SuffixSums back as vectors, and as logit gradients from the edges that are passed."""
    problem = make()
    chain = problem.policy
    features = None if chain.logit_map.features is None else chain.logit_map.features.reshape(N_STATES, N_TOKENS, -1)
    long = gt.TokenChain(chain.transitions, 1000, chain.end_token, features, chain.starts)
    point = gt.Problem(problem.bandit, long).at(problem.theta)
    ones = np.ones((1, N_STATES, N_TOKENS))
    back = point.suffix_sums(point.walk(point.state_probabilities, point.unit_shares), ones)
    forward = chain.logit_map.vectors(point.own_sums.means[:, :, 0])
    size = 1e-12 * point.moments.score_squared_norm.max() ** 0.5
    np.testing.assert_allclose(back.mean[chain.starts, :, 0], forward, rtol=1e-9, atol=size)
    assert point.own_sums.mass.sum(axis=1) == pytest.approx(1.0, abs=1e-12)
    # Scores have mean 0, and their squared norms add up over the tokens.
    np.testing.assert_allclose(back.mean[chain.starts].sum(axis=1), 0.0, atol=size)


@CHAINS
def test_the_hessian_is_that_of_the_listed_responses(make):
    problem = make()
    weights = problem.bandit.prompt_weights[:, None, None]
    found = problem.policy.logit_map.congruence(weights * problem.at(problem.theta).hessian_matrices())
    np.testing.assert_allclose(found, gt.hessian(problem.listed(), problem.theta), rtol=1e-11, atol=1e-15)


CYCLE = [[0, 1], [1, 0]]


def test_what_is_not_known_of_chains_is_refused_with_the_way_round(check_refused):
    """What listed responses have, ratios whose second moment leaves the numbers, and a gradient that is rounding alone."""
    problem, sizes = gt.Problem(gt.StateRewards([0.1, 0.9]), gt.TokenChain(CYCLE, 64)), {"batch_size": 1, "group_size": 4}
    long = gt.Problem(gt.StateRewards([0.1, 0.9]), gt.TokenChain(CYCLE, 4096))
    whole, away = composed("rloo", "trajectory"), {"behaviour": [0.0, 3.0, 0.0, 3.0]}
    flat = gt.Problem(gt.StateRewards([0.3, 0.3]), gt.TokenChain(CYCLE, 1024), theta=[0.1, 0.2, -0.3, 0.4])
    norms = r"advantages read score norms, .* simulate_gradients, or problem\.listed\(\)"
    check_refused(
        (lambda: problem.policy.probabilities(problem.theta), r"problem\.listed\(\)"),
        (lambda: problem.policy.n_responses, r"problem\.listed\(\)"),
        (lambda: problem.at(problem.theta).rewards, r"problem\.listed\(\)"),
        error=NotListedError,
    )
    check_refused((lambda: gt.gradient_law(problem, problem.theta, "optimal_loo", **sizes), norms), error=gt.NotEnumerableError)
    check_refused(
        (problem.listed, "more than 4096 responses"),
        (lambda: gt.gradient_law(long, long.theta, whole, **sizes, **away), "Over responses of up to 4096 tokens they have not"),
        (lambda: gt.efficiency(flat, flat.theta, "rloo", **sizes), "the gradient is 0 at theta"),
    )
