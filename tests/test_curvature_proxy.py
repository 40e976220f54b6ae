"""N9: curvatures of a head's prompt by definition, and weighted correlations against the usual ones."""

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

import grpo_theory as gt
from grpo_theory.exact import hessian
from simulations.normalisation.correlations import correlation, rank_correlation
from simulations.normalisation.curvature_proxy import curvatures


def test_curvatures_are_what_they_say():
    """Of a head over one hidden state, with four answers."""
    rng = np.random.default_rng(0)
    policy = gt.SoftmaxHead(rng.normal(size=(1, 3)), 4)
    problem = gt.Problem(gt.Bandit(np.eye(4)[[2]]), policy, theta=rng.normal(size=12))
    theta = problem.theta
    pi, scores = problem.policy.probabilities(theta)[0], problem.policy.scores(theta)[0]
    advantage = problem.bandit.mean_reward[0] - pi @ problem.bandit.mean_reward[0]
    exact = hessian(problem, theta)
    length = (problem.policy.logit_map.hidden**2).sum(axis=1)
    found = curvatures(pi[None], problem.bandit.mean_reward, length)
    expected = {
        "Fisher, trace": np.trace(np.einsum("k,ki,kj->ij", pi, scores, scores)),
        "weighted, trace": np.trace(np.einsum("k,ki,kj->ij", pi * advantage**2, scores, scores)),
        "Hessian, norm": np.abs(np.linalg.eigvalsh(exact)).max(),
        "Hessian, trace": abs(np.trace(exact)),
    }
    assert set(found) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-12)


def test_weights_count_how_often_a_value_is_there():
    rng = np.random.default_rng(1)
    a, b, weights = rng.normal(size=12), rng.normal(size=12), rng.integers(0, 4, size=12)
    repeated = np.repeat(a, weights), np.repeat(b, weights)
    assert correlation(a, b, weights.astype(float)) == pytest.approx(pearsonr(*repeated)[0], abs=1e-12)
    assert rank_correlation(a, b, weights.astype(float)) == pytest.approx(spearmanr(*repeated)[0], abs=1e-12)
    assert correlation(a, np.ones(12), np.ones(12)) == 0.0
