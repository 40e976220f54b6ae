"""Softmax policies: logits, adjoints, Gram matrices and congruences against dense features; a user's own map; what is refused."""

import numpy as np
import pytest
from enumeration import POLICIES, case
from scipy.special import log_softmax as scipy_log_softmax
from scipy.special import softmax

import grpo_theory as gt
from grpo_theory.problem.logits import log_softmax


@pytest.mark.parametrize("name", POLICIES)
def test_every_map_agrees_with_the_dense_features(name):
    c = case(name)
    policy, theta, phi, own = c.policy, c.theta, c.features, c.policy.logit_map
    rng = np.random.default_rng(5)
    logit_gradients = rng.normal(size=phi.shape[:2])
    matrices = rng.normal(size=(*phi.shape[:2], phi.shape[1]))
    several = rng.normal(size=(4, policy.dimension))
    close = {"rtol": 1e-13, "atol": 1e-14}
    np.testing.assert_allclose(policy.logits(theta), phi @ theta, **close)
    np.testing.assert_allclose(policy.jacobian(), phi, **close)
    np.testing.assert_allclose(policy.logits(several), np.einsum("mkd,jd->jmk", phi, several), **close)
    np.testing.assert_allclose(own.adjoint_by_prompt(logit_gradients), np.einsum("mkd,mk->md", phi, logit_gradients), **close)
    np.testing.assert_allclose(own.adjoint(logit_gradients), np.einsum("mkd,mk->d", phi, logit_gradients), **close)
    np.testing.assert_allclose(own.gram(), phi @ phi.transpose(0, 2, 1), **close)
    norms = (np.einsum("mkd,mjk->mjd", phi, matrices) ** 2).sum(axis=-1)
    np.testing.assert_allclose(own.squared_norms(matrices), norms, **close)
    np.testing.assert_allclose(gt.LogitMap.squared_norms(own, matrices), norms, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(own.congruence(matrices), sum(p.T @ a @ p for p, a in zip(phi, matrices, strict=True)), **close)


@pytest.mark.parametrize("name", POLICIES)
def test_probabilities_and_scores(name):
    c = case(name)
    policy, theta, phi = c.policy, c.theta, c.features
    pi = np.array([softmax(features @ theta) for features in phi])
    np.testing.assert_allclose(policy.probabilities(theta), pi, rtol=1e-14)
    scores = policy.scores(theta)
    assert scores.shape == phi.shape
    np.testing.assert_allclose(scores, phi - np.einsum("mk,mkd->md", pi, phi)[:, None, :], atol=1e-14)


class Scaled(gt.LogitMap):
    """One vector of logits for all prompts, each prompt with a scale of its own."""

    def __init__(self, scales, n_logits):
        self.scales = np.asarray(scales)
        self.n_prompts, self.n_logits, self.dimension = len(self.scales), n_logits, n_logits

    def logits(self, theta):
        return self.scales[:, None] * theta[..., None, :]

    def adjoint_by_prompt(self, logit_gradients):
        return self.scales[:, None] * logit_gradients

    def adjoint(self, logit_gradients):
        return self.scales @ logit_gradients

    def gram(self):
        return (self.scales**2)[:, None, None] * np.eye(self.n_logits)

    def congruence(self, matrices):
        return np.tensordot(self.scales**2, matrices, axes=1)


@pytest.mark.parametrize("penalty", [None, gt.KL(0.5, np.full((3, 4), 0.25))])
@pytest.mark.parametrize("paths", [None, gt.TokenTree(3, 2, 2).paths], ids=["bandit", "sequences"])
def test_a_map_of_ones_own_is_as_good_as_its_dense_features(paths, penalty):
    """Everything that is computed and simulated, for one map as a class of five methods and as an array."""
    rng = np.random.default_rng(11)
    scales = np.array([1.0, -0.5, 2.0])
    n_logits = 4 if paths is None else paths.n_logits
    own = gt.Policy(Scaled(scales, n_logits), paths)
    dense = gt.Policy(gt.LinearSoftmax(scales[:, None, None] * np.eye(n_logits)).logit_map, paths)
    bandit, theta = gt.Bandit(rng.uniform(0.1, 0.9, (3, 4))), rng.normal(size=n_logits)
    assert repr(own).startswith("Policy(M=3, K=4")
    problems = [gt.Problem(bandit, policy, penalty, theta) for policy in (own, dense)]
    sizes = {"batch_size": 2, "group_size": 3}

    def everything(problem):
        law = gt.gradient_law(problem, theta, "optimal_loo", **sizes)
        run = gt.simulate_gradients(problem, theta, ["rloo", "gspo"], **sizes, replications=300, rng=1, behaviour=theta[::-1])
        kept = {"steps": 5, "replications": 3, "rng": 2}
        training = gt.simulate_training(problem, theta, "optimal_loo", gt.Constant(0.1), **sizes, **kept)
        return {
            "mean": law.mean,
            "covariance": law.covariance(),
            "hessian": gt.hessian(problem, theta),
            "simulated": run.mse,
            "trained": training.theta,
        }

    found, expected = map(everything, problems)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-10, atol=1e-13, err_msg=name)
    if penalty is not None:
        best = gt.find_optimum(problems[0], theta)
        assert np.linalg.norm(gt.moments(problems[1], best).gradient) < 1e-12


@pytest.mark.parametrize("shape", [(5,), (1, 5), (3, 5), (2, 3, 1), (2, 0, 4)])
def test_log_softmax_is_scipys_and_leaves_the_logits_as_they_are(shape):
    logits = np.random.default_rng(4).normal(size=shape) * 30.0
    kept = logits.copy()
    np.testing.assert_allclose(log_softmax(logits), scipy_log_softmax(logits, axis=-1), rtol=1e-14, atol=1e-14)
    np.testing.assert_array_equal(logits, kept)
