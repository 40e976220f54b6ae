"""The linearisation, the Lyapunov equation and the recursion: each against another, then against simulation."""

from timeit import repeat

import numpy as np
import pytest
from scipy.integrate import quad_vec
from scipy.linalg import expm

import grpo_theory as gt
from grpo_theory.theory import gap_recursion, leave_one_out_covariance, limit_covariance, linearise
from simulations.maximum import maximum

SIZES = {"batch_size": 2, "group_size": 3}


@pytest.mark.parametrize("name", ["kl-tabular", "kl-linear", "conflict", "kl-sequence"])
@pytest.mark.parametrize("estimator", ["reinforce", "oracle", "rloo"])
def test_drift_of_an_unbiased_estimator_is_the_curvature(name, estimator):
    problem, best, _ = maximum(name)
    linear = linearise(problem, best, estimator, **SIZES)
    np.testing.assert_allclose(linear.drift, np.diag(linear.curvatures), atol=1e-9)
    if estimator == "rloo":
        gamma = leave_one_out_covariance(problem, best, **SIZES)
        np.testing.assert_allclose(linear.noise, linear.directions.T @ gamma @ linear.directions, atol=1e-14)


@pytest.mark.parametrize("beta_factor", [0.6, 1.0, 3.0])
def test_covariance_solves_the_integral_with_the_factor_that_is_not_printed(beta_factor):
    problem, best, _ = maximum("kl-linear")
    linear = linearise(problem, best, "rloo", **SIZES)
    beta = beta_factor / linear.slowest
    stable = beta * linear.drift - np.eye(3) / 2.0

    rates, vectors = np.linalg.eig(stable)
    inverse = np.linalg.inv(vectors)

    def integrand(u):
        decay = (vectors * np.exp(-rates * u)) @ inverse
        return decay @ linear.noise @ decay.T

    np.testing.assert_allclose(integrand(0.7), expm(-0.7 * stable) @ linear.noise @ expm(-0.7 * stable.T), rtol=1e-10)
    printed = quad_vec(integrand, 0.0, 400.0, epsrel=1e-9)[0]
    found = limit_covariance(linear, beta)
    np.testing.assert_allclose(found, beta**2 * printed, rtol=1e-6)
    assert not np.allclose(found, printed, rtol=0.5)


def test_recursion_comes_to_the_limit_law_and_not_to_the_printed_one():
    problem, best, _ = maximum("conflict")
    linear = linearise(problem, best, "rloo", **SIZES)
    beta, offset, n = 2.0 / linear.slowest, 500, 60_000
    steps = gt.Harmonic(beta, offset).steps(n)
    gaps = gap_recursion(linear, steps, np.zeros((2, 2)))
    again = min(repeat(lambda: gap_recursion(linear, steps, np.zeros((2, 2))), number=1, repeat=3))
    assert again < 0.1, "0.004 seconds on the machine of November 2026; step by step in Python 0.6"
    law = gt.limit_law(problem, best, "rloo", **SIZES, step_scale=beta)
    assert (n + offset) * gaps[-1] == pytest.approx(law.mean(), rel=1e-3)
