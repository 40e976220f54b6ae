"""Softmax policies: logits, adjoints, Gram matrices and congruences against dense features."""

import numpy as np
import pytest
from enumeration import POLICIES, case, softmax

import grpo_theory as gt


@pytest.mark.parametrize("name", POLICIES)
def test_every_map_agrees_with_the_dense_features(name):
    _, policy, theta, phi, _ = case(name)
    rng = np.random.default_rng(5)
    covectors = rng.normal(size=phi.shape[:2])
    forms = rng.normal(size=(*phi.shape[:2], phi.shape[1]))
    several = rng.normal(size=(4, policy.dimension))
    close = {"rtol": 1e-13, "atol": 1e-14}
    np.testing.assert_allclose(policy.logits(theta), phi @ theta, **close)
    np.testing.assert_allclose(policy.logits(several), np.einsum("mkd,jd->jmk", phi, several), **close)
    np.testing.assert_allclose(policy.adjoint_by_prompt(covectors), np.einsum("mkd,mk->md", phi, covectors), **close)
    np.testing.assert_allclose(policy.adjoint(covectors), np.einsum("mkd,mk->d", phi, covectors), **close)
    np.testing.assert_allclose(policy.gram(), phi @ phi.transpose(0, 2, 1), **close)
    np.testing.assert_allclose(policy.congruence(forms), sum(p.T @ a @ p for p, a in zip(phi, forms, strict=True)), **close)


@pytest.mark.parametrize("name", POLICIES)
def test_probabilities_and_scores(name):
    _, policy, theta, phi, _ = case(name)
    pi = np.array([softmax(features @ theta) for features in phi])
    np.testing.assert_allclose(policy.probabilities(theta), pi, rtol=1e-14)
    scores = policy.scores(theta)
    assert scores.shape == phi.shape
    np.testing.assert_allclose(scores, phi - np.einsum("mk,mkd->md", pi, phi)[:, None, :], atol=1e-14)


@pytest.mark.parametrize("name", POLICIES)
def test_scores_are_the_gradient_of_the_log_probability(name):
    _, policy, theta, _, _ = case(name)
    step = 1e-6
    shifts = step * np.eye(policy.dimension)
    difference = [np.log(policy.probabilities(theta + s)) - np.log(policy.probabilities(theta - s)) for s in shifts]
    np.testing.assert_allclose(policy.scores(theta), np.moveaxis(difference, 0, -1) / (2 * step), atol=1e-9)


def test_one_hot_features_give_the_tabular_policy_in_three_forms():
    """Tabular, linear with one-hot features, head with one-hot hidden states: the same law of the gradient."""
    rng = np.random.default_rng(7)
    n_prompts, n_responses = 3, 4
    bandit = gt.Bandit(rng.uniform(size=(n_prompts, n_responses)), rng.dirichlet(np.ones(n_prompts)))
    table = rng.normal(size=(n_prompts, n_responses))
    one_hot = np.eye(n_prompts * n_responses).reshape(n_prompts, n_responses, -1)
    forms = [
        (gt.TabularSoftmax(n_prompts, n_responses), table.reshape(-1)),
        (gt.LinearSoftmax(one_hot), table.reshape(-1)),
        (gt.SoftmaxHead(np.eye(n_prompts), n_responses), table.T.reshape(-1)),
    ]
    order = np.arange(n_prompts * n_responses).reshape(n_prompts, n_responses).T.reshape(-1)
    sizes = {"batch_size": 2, "group_size": 3}
    tabular, linear, head = (gt.gradient_law(bandit, policy, theta, "optimal_loo", **sizes) for policy, theta in forms)
    for other, place in ((linear, slice(None)), (head, order)):
        assert other.mse == pytest.approx(tabular.mse, rel=1e-13)
        np.testing.assert_allclose(other.mean, tabular.mean[place], atol=1e-15)
        np.testing.assert_allclose(other.covariance(), tabular.covariance()[place][:, place], atol=1e-15)
        np.testing.assert_allclose(other.prompt_mses, tabular.prompt_mses, rtol=1e-13)
    draws = [
        gt.simulate_gradients(bandit, policy, theta, "optimal_loo", **sizes, replications=500, rng=3, workers=1)
        for policy, theta in forms
    ]
    for simulation in draws[1:]:
        np.testing.assert_allclose(simulation.means, draws[0].means, rtol=1e-12)


def test_large_logits_do_not_overflow():
    pi = gt.TabularSoftmax(1, 3).probabilities([1e5, 0.0, -1e5])
    assert pi.tolist() == [[1.0, 0.0, 0.0]]


def test_representations_name_the_sizes():
    assert repr(gt.TabularSoftmax(3, 4)) == "TabularSoftmax(M=3, K=4, d=12)"
    assert repr(gt.SoftmaxHead(np.ones((2, 5)), 3)) == "SoftmaxHead(M=2, K=3, d=15)"


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: gt.TabularSoftmax(0, 2), ValueError, r"n_prompts must be at least 1, got 0"),
        (lambda: gt.TabularSoftmax(2, 2.0), TypeError, r"n_responses must be an integer of at least 1, got 2\.0"),
        (lambda: gt.LinearSoftmax(np.ones((2, 3))), ValueError, r"features must have 3 dimensions, got shape \(2, 3\)"),
        (lambda: gt.LinearSoftmax(np.ones((2, 3, 0))), ValueError, r"features must not be empty"),
        (lambda: gt.LinearSoftmax([[[np.nan]]]), ValueError, r"features must be finite, got nan at index \(0, 0, 0\)"),
        (lambda: gt.SoftmaxHead(np.ones(3), 2), ValueError, r"hidden must have 2 dimensions, got shape \(3,\)"),
        (lambda: gt.SoftmaxHead(np.ones((3, 2)), "4"), TypeError, r"n_responses must be an integer .* got '4'"),
    ],
)
def test_policies_refuse_wrong_sizes(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("theta", "message"),
    [
        (np.zeros(5), r"theta must have shape \(6,\) = \(d,\), the policy's parameters, got \(5,\)"),
        (np.zeros((2, 3)), r"theta must have 1 dimensions, got shape \(2, 3\)"),
        ([0, 0, np.inf, 0, 0, 0], r"theta must be finite, got inf at index \(2,\)"),
    ],
)
def test_theta_must_fit(theta, message):
    with pytest.raises(ValueError, match=message):
        gt.TabularSoftmax(2, 3).probabilities(theta)


def test_the_callers_features_stay_his_own():
    features = np.ones((1, 2, 3))
    policy = gt.LinearSoftmax(features)
    features[:] = 0.0
    assert policy.features.min() == 1.0
    with pytest.raises(ValueError, match="read-only"):
        policy.features[0, 0, 0] = 2.0


def test_a_large_head_forms_no_square_matrix():
    head = gt.SoftmaxHead(np.ones((2, 2049)), 2)
    with pytest.raises(ValueError, match=r"a matrix of shape \(4098, 4098\) is not formed .* \.variance_along"):
        head.congruence(np.zeros((2, 2, 2)))
    assert gt.SoftmaxHead(np.ones((1, 8)), 2).congruence(np.ones((1, 2, 2))).shape == (16, 16)
