"""The linearisation, the Lyapunov equation and the recursion: each against another, then against simulation."""

import numpy as np
import pytest
from scipy.integrate import quad_vec
from scipy.linalg import expm

import grpo_theory as gt
from grpo_theory.theory import gap_recursion, leave_one_out_covariance, limit_covariance, linearise

SIZES = {"batch_size": 2, "group_size": 3}


def at_optimum(name):
    problem = gt.gallery.problem(name)
    return problem, gt.find_optimum(problem, problem.theta)


@pytest.mark.parametrize("name", ["kl-tabular", "kl-linear", "conflict", "kl-sequence"])
@pytest.mark.parametrize("estimator", ["reinforce", "oracle", "rloo"])
def test_drift_of_an_unbiased_estimator_is_the_curvature(name, estimator):
    problem, best = at_optimum(name)
    linear = linearise(problem, best, estimator, **SIZES)
    np.testing.assert_allclose(linear.drift, np.diag(linear.curvatures), atol=1e-9)
    if estimator == "rloo":
        gamma = leave_one_out_covariance(problem, best, **SIZES)
        np.testing.assert_allclose(linear.noise, linear.directions.T @ gamma @ linear.directions, atol=1e-14)


@pytest.mark.parametrize("beta_factor", [0.6, 1.0, 3.0])
def test_covariance_solves_the_integral_with_the_factor_that_is_not_printed(beta_factor):
    problem, best = at_optimum("kl-linear")
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
    problem, best = at_optimum("conflict")
    linear = linearise(problem, best, "rloo", **SIZES)
    beta, offset, n = 2.0 / linear.slowest, 500, 60_000
    gaps = gap_recursion(linear, gt.Harmonic(beta, offset).steps(n), np.zeros((2, 2)))
    law = gt.limit_law(problem, best, "rloo", **SIZES, step_scale=beta)
    assert (n + offset) * gaps[-1] == pytest.approx(law.mean(), rel=1e-3)


@pytest.mark.parametrize(
    ("name", "estimator"), [("kl-tabular", "rloo"), ("conflict", "oracle"), ("single", "grpo"), ("kl-sequence", "rloo")]
)
def test_simulated_mean_gap_is_the_predicted_one(name, estimator, seed):
    problem, best = at_optimum(name)
    sizes = {"batch_size": 2, "group_size": 4}
    linear = linearise(problem, best, estimator, **sizes)
    beta, offset, n, runs = 2.0 / linear.slowest, 600, 1200, 4096
    schedule = gt.Harmonic(beta, offset)
    training = gt.simulate_training(
        problem,
        best,
        estimator,
        schedule,
        **sizes,
        steps=n,
        replications=runs,
        rng=seed(5),
    )
    gaps = gt.objective(problem, best) - training.objectives[:, 0]
    predicted = gap_recursion(linear, schedule.steps(n), np.zeros(linear.drift.shape))[-1]
    error = gaps.std(ddof=1) / np.sqrt(runs)
    assert abs(gaps.mean() - predicted) < 4.9 * error + 0.01 * predicted
    assert abs(gaps.mean() - 1.2 * predicted) > 4.9 * error, "the test could not see an error of 20%"
