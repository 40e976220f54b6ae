"""The ratio of whole responses: its exact law against listed responses, limit laws against integrals, and what is simulated."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

import grpo_theory as gt
from simulations.length import clipped_responses, log_ratios

CHAIN = gt.TokenChain([[0, 1], [0, 2], [1, 0]], 6, end_token=0, starts=[0, 1])
THETA = np.array([0.0, 0.3, 0.2, 0.0, -0.1, 0.4])
MOVED = THETA + np.array([0.3, -0.1, 0.2, 0.5, -0.4, 0.1])


@pytest.fixture(scope="module")
def point():
    return gt.Problem(gt.StateRewards([0.0, 1.0, 0.5]), CHAIN).at(THETA)


@pytest.fixture(scope="module")
def listed(point):
    """Probabilities (M, K) of the listed twin's responses, and the logs of their ratios."""
    policy = gt.Problem(point.bandit, CHAIN).listed().policy
    before, after = (policy.probabilities(theta) for theta in (THETA, MOVED))
    return before, np.log(after / before)


def test_the_characteristic_function_is_that_of_listed_responses(point, listed):
    chances, logs = listed
    u = np.array([0.1, 1.0, 7.0])
    expected = np.array([(chances * np.exp(1j * one * logs)).sum(axis=1).mean() for one in u])
    assert log_ratios.characteristic(point, MOVED, u) == pytest.approx(expected, abs=1e-12)
    assert log_ratios.drifts(point, MOVED) == pytest.approx(-(chances * logs).sum(axis=1), rel=1e-12)


def test_the_share_within_the_clip_is_that_of_listed_responses(point, listed):
    chances, logs = listed
    low, high = (norm.cdf((np.log(end) - logs) / log_ratios.BLUR) for end in log_ratios.WINDOW)
    expected = (chances * (high - low)).sum(axis=1).mean()
    assert 0.1 < expected < 0.9
    assert log_ratios.share_within(point, MOVED) == pytest.approx(expected, abs=1e-5)


def test_limit_laws_are_normal_and_mixed_over_an_exponential_length(point, monkeypatch):
    nats = np.array([0.5, 3.0])
    monkeypatch.setattr(log_ratios, "drifts", lambda point, theta: nats)

    def normal(t):
        low, high = norm.cdf(np.log(log_ratios.WINDOW), loc=-t, scale=np.sqrt(2.0 * t))
        return high - low

    mixed = [quad(lambda t, d=d: normal(t) * np.exp(-t / d) / d, 1e-9, 60.0 * d, limit=400, points=[0.01, 0.1])[0] for d in nats]
    assert log_ratios.normal_share(point, MOVED) == pytest.approx(np.mean([normal(d) for d in nats]), rel=1e-12)
    assert log_ratios.stopped_share(point, MOVED) == pytest.approx(np.mean(mixed), rel=1e-5)


def test_a_cosine_is_freed_of_what_noise_adds_to_the_length():
    """By 2,000 means: the plain cosine is too small, and the standard error is the spread."""
    rng, mean, gradient = np.random.default_rng(1), np.array([1.0, 0.5, 0.0, 0.0]), np.array([2.0, 0.0, 0.0, 0.0])
    covariance = np.diag([0.02, 0.01, 0.03, 0.02])
    means = rng.multivariate_normal(mean, covariance, 2_000)
    found = np.array([clipped_responses.cosine(one, covariance, gradient) for one in means])
    exact = mean[0] / np.linalg.norm(mean)
    assert found[:, 0].mean() == pytest.approx(exact, abs=0.01)
    assert np.median(found[:, 1]) == pytest.approx(found[:, 0].std(), rel=0.15)
    assert (means[:, 0] / np.linalg.norm(means, axis=1)).mean() < exact - 0.02
    assert np.isnan(clipped_responses.cosine(0.01 * mean, covariance, gradient)[0])


def test_what_is_lost_to_another_estimator_has_the_error_of_a_quotient():
    rng = np.random.default_rng(2)
    gain = rng.normal(1.0, 0.3, size=(2, 400)) + rng.normal(0.0, 0.3, 400)
    power = gain**2 + rng.normal(1.0, 0.05, size=(2, 400))
    observations = np.zeros((2, 400, 4))
    observations[..., 2], observations[..., 3] = power, gain
    simulation = gt.GradientSimulation.of(("one", "other"), observations, 1.0)
    value, error = clipped_responses.lost(simulation, "one", "other")
    efficiency = gain.mean(axis=1) ** 2 / power.mean(axis=1)
    assert value == pytest.approx(1.0 - efficiency[0] / efficiency[1])
    index = rng.integers(0, 400, size=(2_000, 400))
    again = gain[:, index].mean(axis=2) ** 2 / power[:, index].mean(axis=2)
    assert error == pytest.approx((again[0] / again[1]).std(), rel=0.1)


def test_short_responses_have_the_efficiencies_of_their_listed_twin(point):
    """Simulated token by token, and enumerated: what is cut, dropped, and raised to one over the length."""
    problem = gt.Problem(point.bandit, CHAIN, theta=THETA)
    found = clipped_responses.measured(problem, point, MOVED, np.random.SeedSequence(3), 400)
    listed, sizes = problem.listed(), {"batch_size": clipped_responses.BATCH, "group_size": clipped_responses.GROUP}
    for name in ("cut", "dropped above", "dropped outside", "geometric"):
        law = gt.gradient_law(listed, MOVED, clipped_responses.SIMULATED[name], behaviour=THETA, **sizes)
        for quantity, exact in (("efficiency", np.copysign(law.efficiency, law.cosine)), ("cosine", law.cosine)):
            estimate, error = found[name][quantity]
            assert abs(estimate - exact) < 4.5 * error + 1e-3, (name, quantity)
