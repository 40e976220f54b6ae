"""Chains whose features are learned: logits, derivatives, laws and Hessians; `test_simulated_chains` trains them."""

import numpy as np
import pytest
from networks import ACTIVATIONS, derivatives_of, differences, logits_of
from test_chain import assert_one_law

import grpo_theory as gt
from grpo_theory.exact import gradient

CLOSE = {"rtol": 1e-12, "atol": 1e-13}
TRANSITIONS = np.array([[1, 2, 3], [2, 0, 0], [3, 3, 1], [0, 1, 2]])


def learned(activation="tanh", horizon=5):
    """A chain of four states with an end token, two prompts and three reward values.

    A network reads an embedding of each state, and knows three tokens.
    """
    rng, embeddings = np.random.default_rng([3, 1]), np.random.default_rng(3).normal(size=(4, 2))
    network = gt.TwoLayerSoftmax(embeddings, 4, 3, activation, 0.7)
    chain = gt.TokenChain(TRANSITIONS, horizon, end_token=1, starts=[0, 2], network=network)
    rewards = gt.StateRewards.from_law([0.0, 1.0, 2.5], rng.dirichlet(np.ones(3), 4), [0.3, 0.7])
    return gt.Problem(rewards, chain, theta=rng.normal(size=chain.dimension))


def by_hand(problem):
    """Return the derivatives of the logits of all states and tokens at theta, shape (D, d), by steps along the imaginary axis."""
    return derivatives_of(problem.policy.logit_map.network, problem.theta).reshape(problem.policy.n_logits, -1)


KINDS = pytest.mark.parametrize("activation", ACTIVATIONS)


@KINDS
def test_logits_are_those_of_the_network_in_each_state(activation):
    problem = learned(activation)
    chain, theta = problem.policy, problem.theta
    logits = logits_of(chain.logit_map.network, theta)
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.exp(chain.token_log_probabilities(theta)), chances, **CLOSE)
    np.testing.assert_allclose(problem.at(theta).tangent.features, by_hand(problem), **CLOSE)
    np.testing.assert_allclose(chain.jacobian(theta), np.stack([by_hand(problem)] * 2), **CLOSE)
    several = np.stack([theta, -theta])
    np.testing.assert_allclose(chain.logits(several)[1, 0], logits_of(chain.logit_map.network, -theta).ravel(), **CLOSE)
    assert not chain.is_linear


@pytest.mark.parametrize(("estimator", "off_policy"), [("grpo", False), ("trl_grpo_loss", True)])
def test_laws_are_those_of_the_listed_responses(estimator, off_policy):
    problem = learned()
    behaviour = problem.theta + 0.2 * np.sin(np.arange(problem.theta.size)) if off_policy else None
    sizes = {"batch_size": 3, "group_size": 4, "behaviour": behaviour}
    assert_one_law(*(gt.gradient_law(one, problem.theta, estimator, **sizes) for one in (problem, problem.listed())))


@KINDS
def test_gradient_and_hessian_are_derivatives_of_the_objective(activation):
    problem = learned(activation, horizon=4)
    slope = differences(lambda theta: gt.objective(problem, theta), problem.theta)
    np.testing.assert_allclose(gradient(problem, problem.theta), slope, rtol=1e-6, atol=1e-9)
    bent = differences(lambda theta: gradient(problem, theta), problem.theta)
    found = gt.hessian(problem, problem.theta)
    np.testing.assert_allclose(found, bent, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(gt.hessian(problem.listed(), problem.theta), found, rtol=1e-10, atol=1e-12)
    forms = problem.bandit.prompt_weights[:, None, None] * problem.at(problem.theta).hessian_matrices()
    frozen = problem.policy.tangent(problem.theta).congruence(forms)
    assert np.abs(found - frozen).max() > 1e-3, "features that stay would have another Hessian"
