"""The Kullback-Leibler penalty in the reward."""

import numpy as np
import pytest
from scipy.special import rel_entr, softmax

import grpo_theory as gt

REFERENCE = np.array([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]])


def test_the_mean_penalty_is_the_divergence():
    pi = softmax(np.random.default_rng(0).normal(size=(2, 3)), axis=1)
    penalty = gt.KL(0.4, REFERENCE).penalty(pi)
    np.testing.assert_allclose((pi * penalty).sum(axis=1), 0.4 * rel_entr(pi, REFERENCE).sum(axis=1), rtol=1e-14)


def test_no_penalty_at_the_reference():
    assert np.abs(gt.KL(3.0, REFERENCE).penalty(REFERENCE)).max() == 0.0


def test_responses_that_are_never_given_carry_no_penalty():
    penalty = gt.KL(1.0, REFERENCE).penalty(np.array([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]]))
    np.testing.assert_allclose(penalty, [[np.log(2), 0, 0], [0, np.log(2.5), np.log(5 / 7)]], rtol=1e-15)


def test_the_tilted_reference_is_the_optimum_of_a_tabular_policy():
    """The maximiser of E Z - strength KL is reference * exp(mean reward / strength), normalised: its gradient is 0."""
    bandit = gt.Bandit([[0.2, 0.9, 0.5], [0.7, 0.1, 0.4]], [0.4, 0.6])
    theta = np.log(REFERENCE) + bandit.mean_reward / 0.5
    tabular = gt.TabularSoftmax(2, 3)
    found = gt.moments(bandit, tabular, theta.reshape(-1), kl=gt.KL(0.5, REFERENCE))
    np.testing.assert_allclose(found.gradient, 0.0, atol=1e-15)
    log_normaliser = 0.5 * np.log((REFERENCE * np.exp(bandit.mean_reward / 0.5)).sum(axis=1))
    np.testing.assert_allclose(found.value, log_normaliser, rtol=1e-14)
    elsewhere = gt.moments(bandit, tabular, theta.reshape(-1), kl=gt.KL(0.6, REFERENCE))
    assert np.abs(elsewhere.gradient).max() > 1e-3


@pytest.mark.parametrize(
    ("strength", "error", "message"),
    [
        (0.0, ValueError, r"strength must be finite and above 0, got 0\.0"),
        (-0.1, ValueError, r"strength must be finite and above 0, got -0\.1"),
        (np.nan, ValueError, r"strength must be finite and above 0, got nan"),
        (np.inf, ValueError, r"strength must be finite and above 0, got inf"),
        ("0.1", TypeError, r"strength must be a number above 0, got '0\.1'"),
        (True, TypeError, r"strength must be a number above 0, got True"),
    ],
)
def test_strength_must_be_positive(strength, error, message):
    with pytest.raises(error, match=message):
        gt.KL(strength, REFERENCE)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ([[0.0, 1.0]], r"reference must be positive everywhere, got 0"),
        ([[0.5, 0.6]], r"reference must sum to 1 along the last axis, got a sum of 1\.1 at index \(0,\)"),
        ([[1.5, -0.5]], r"reference must lie in \[0, 1\], got 1\.5 at index \(0, 0\)"),
        ([0.5, 0.5], r"reference must have 2 dimensions, got shape \(2,\)"),
        ([[np.nan, 0.5]], r"reference must be finite, got nan at index \(0, 0\)"),
    ],
)
def test_reference_must_be_a_positive_distribution(reference, message):
    with pytest.raises(ValueError, match=message):
        gt.KL(1.0, reference)


def test_reference_must_fit_the_policy():
    kl = gt.KL(1.0, REFERENCE)
    message = r"reference must have shape \(2, 2\) = \(M, K\), the policy's prompts and responses, got \(2, 3\)"
    with pytest.raises(ValueError, match=message):
        gt.moments(gt.Bandit(np.full((2, 2), 0.5)), gt.TabularSoftmax(2, 2), np.zeros(4), kl=kl)


def test_a_number_is_not_a_penalty():
    with pytest.raises(TypeError, match="kl must be"):
        gt.moments(gt.Bandit([[0.5, 0.5]]), gt.TabularSoftmax(1, 2), np.zeros(2), kl=0.1)
