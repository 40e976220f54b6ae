"""Networks of two layers: derivatives, laws, Hessians and the limit of infinite width; and what is refused."""

import numpy as np
import pytest
from enumeration import Dense, assert_law, batch_law
from networks import ACTIVATIONS, KINDS, derivatives_of, differences, logits_of, network_case

import grpo_theory as gt
from grpo_theory.exact import gradient

CLOSE = {"rtol": 1e-12, "atol": 1e-13}


@pytest.mark.parametrize("kind", KINDS)
def test_logits_scores_and_their_derivatives(kind):
    c = network_case(kind)
    policy, theta, network = c.policy, c.theta, c.policy.logit_map
    phi = derivatives_of(network, theta)
    np.testing.assert_allclose(policy.logits(theta), logits_of(network, theta), **CLOSE)
    several = np.stack([theta, 2.0 * theta, -theta])
    np.testing.assert_allclose(policy.logits(several), [logits_of(network, one) for one in several], **CLOSE)
    np.testing.assert_allclose(policy.jacobian(theta), phi, **CLOSE)
    at = Dense(c).at(theta)
    np.testing.assert_allclose(policy.probabilities(theta), at.responses, **CLOSE)
    np.testing.assert_allclose(policy.scores(theta), at.scores, **CLOSE)


@pytest.mark.parametrize("kind", KINDS)
def test_the_tangent_is_its_dense_features(kind):
    c = network_case(kind)
    tangent, phi = c.policy.tangent(c.theta), derivatives_of(c.policy.logit_map, c.theta)
    rng = np.random.default_rng(5)
    logit_gradients, several = rng.normal(size=phi.shape[:2]), rng.normal(size=(4, c.policy.dimension))
    matrices = rng.normal(size=(*phi.shape[:2], phi.shape[1]))
    np.testing.assert_allclose(tangent.logits(several), np.einsum("mkd,jd->jmk", phi, several), **CLOSE)
    np.testing.assert_allclose(c.policy.logit_slopes(c.theta, several[0]), phi @ several[0], **CLOSE)
    np.testing.assert_allclose(tangent.adjoint_by_prompt(logit_gradients), np.einsum("mkd,mk->md", phi, logit_gradients), **CLOSE)
    np.testing.assert_allclose(tangent.adjoint(logit_gradients), np.einsum("mkd,mk->d", phi, logit_gradients), **CLOSE)
    np.testing.assert_allclose(tangent.gram(), phi @ phi.transpose(0, 2, 1), **CLOSE)
    np.testing.assert_allclose(
        tangent.congruence(matrices), sum(p.T @ a @ p for p, a in zip(phi, matrices, strict=True)), **CLOSE
    )
    assert tangent.at(several[0]) is tangent


@pytest.mark.parametrize("name", ["rloo", "grpo"])
def test_laws_are_sums_over_all_groups(name):
    c = network_case("tanh")
    law = gt.gradient_law(c.problem, c.theta, name, batch_size=2, group_size=2)
    assert_law(law, batch_law(c, gt.estimators()[name], 2, 2), 1e-11)
    np.testing.assert_allclose(law.trace, np.trace(law.covariance()), rtol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("penalty", ["plain", "kl"])
def test_gradient_and_hessian_are_derivatives_of_the_objective(kind, penalty):
    c = network_case(kind, penalty)
    slope = differences(lambda theta: gt.objective(c.problem, theta), c.theta)
    np.testing.assert_allclose(gradient(c.problem, c.theta), slope, rtol=1e-6, atol=1e-9)
    bent = differences(lambda theta: gradient(c.problem, theta), c.theta)
    found = gt.hessian(c.problem, c.theta)
    np.testing.assert_allclose(found, bent, rtol=1e-6, atol=1e-8)
    flat = c.policy.tangent(c.theta).congruence(np.zeros((2, c.policy.n_logits, c.policy.n_logits)))
    bend = c.policy.logit_map.bend(c.theta, np.ones((2, c.policy.n_logits)))
    assert np.abs(bend - flat).max() > 0.1, "without the second derivatives of the logits the Hessian would be another"


@pytest.mark.parametrize("width", [1, 4, 5])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_start_is_uniform_and_has_a_gradient(width, activation):
    policy = gt.TwoLayerSoftmax([[1.0, 0.5], [0.2, -1.0], [0.3, 0.3]], width, 3, activation)
    theta = policy.start(rng=0)
    np.testing.assert_allclose(policy.probabilities(theta), 1.0 / 3.0, atol=1e-15)
    np.testing.assert_array_equal(theta, policy.start(rng=np.random.default_rng(0)))
    assert np.linalg.norm(gradient(gt.Problem(gt.Bandit(np.eye(3)), policy, theta=theta), theta)) > 1e-3


class Cubes(gt.SmoothMap):
    """Logits that are cubes of parameters: a map of a user's own, with derivatives and no way to train it in lanes."""

    n_prompts, n_logits, dimension = 1, 2, 2

    def logits(self, theta):
        return theta[..., None, :] ** 3

    def at(self, theta):
        return gt.LinearSoftmax(np.diag(3.0 * theta**2)[None]).logit_map

    def bend(self, theta, slopes):
        return np.diag(slopes[0] * 6.0 * theta)


def test_a_map_of_ones_own_has_laws_and_hessians_and_is_not_trained():
    problem = gt.Problem(gt.Bandit([[0.9, 0.2]]), gt.Policy(Cubes()), theta=[0.5, -0.4])
    bent = differences(lambda theta: gradient(problem, theta), problem.theta)
    np.testing.assert_allclose(gt.hessian(problem, problem.theta), bent, rtol=1e-6, atol=1e-9)
    with pytest.raises(ValueError, match="linear in theta, or be a TwoLayerSoftmax, to be trained"):
        gt.simulate_training(
            problem, problem.theta, "rloo", gt.Constant(0.1), batch_size=2, group_size=2, steps=2, replications=1, rng=1
        )
