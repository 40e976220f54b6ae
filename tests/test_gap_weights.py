"""The weights of the limit law: the algebra behind Corollary 10, the distance to the normal, and when the law has set in."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2, kstest, norm

import grpo_theory as gt
from grpo_theory.evidence import judge
from grpo_theory.theory import Linearisation, gap_recursion, limit_covariance, linearise
from simulations.harness.maximum import maximum
from simulations.limit import gap_weights
from simulations.limit.limit_law import _tabulated, kolmogorov_distance


@pytest.mark.parametrize("name", ["kl-linear", "conflict", "kl-tabular", "kl-sequence"])
def test_excess_of_a_baseline_is_a_square_and_a_covariance(name):
    """Corollary 10's algebra, against exact covariances of the estimators."""
    problem, best, _ = maximum(name)
    theta = best + 0.1 * np.arange(problem.policy.dimension)
    none, oracle = (
        gt.gradient_covariance(problem, theta, estimator, batch_size=1, group_size=1) for estimator in ("reinforce", "oracle")
    )
    point = problem.at(theta)
    scores = problem.policy.scores(theta)[:, point.outcome_responses]
    value = gt.moments(problem, theta).value
    expected = np.zeros_like(none)
    for m, weight in enumerate(problem.bandit.prompt_weights):
        p, w, z = point.outcome_probabilities[m], scores[m], point.rewards[m] - value[m]
        square = value[m] ** 2 * (w.T * p) @ w
        expected += weight * (square + 2.0 * value[m] * (w.T * (p * z)) @ w)
    np.testing.assert_allclose(none - oracle, expected, atol=1e-14)
    assert np.abs(none - oracle).max() > 1e-3


def test_the_assumption_holds_at_the_optimum_of_a_tabular_policy_with_a_penalty_only():
    found = {name: gap_weights.dependence(*maximum(name)[:2]) for name in ("kl-tabular", "indifferent", "kl-linear", "conflict")}
    assert found["kl-tabular"] < 1e-12
    assert found["indifferent"] < 1e-12
    assert min(found["kl-linear"], found["conflict"]) > 0.1


@pytest.mark.parametrize("weights", [16, 64])
def test_distance_to_the_normal_for_equal_weights(weights):
    points = np.linspace(-3.0, 4.0, 4001)
    distance = np.abs(chi2(weights).cdf(weights + np.sqrt(2.0 * weights) * points) - norm.cdf(points)).max()
    assert distance == pytest.approx(np.sqrt(8.0 / weights) / (6.0 * np.sqrt(2.0 * np.pi)), rel=3e-3)
    assert distance != pytest.approx(np.sqrt(8.0 / weights) / (6.0 * np.sqrt(np.pi)), rel=0.1)


@pytest.mark.parametrize("name", ["kl-tabular", "conflict"])
def test_the_law_has_set_in_when_the_study_says_so(name):
    problem, best, _ = maximum(name)
    rows = [row for row in gap_weights.compute({"part": "transient", "problem": name}, None, 0) if row["factor"] == 1.0]
    linear = linearise(problem, best, "rloo", batch_size=1, group_size=4)
    linear = Linearisation(linear.curvatures, linear.directions, np.diag(linear.curvatures), linear.noise)
    beta, n = 1.0 / linear.slowest, round(rows[0]["set_in"]) - gap_weights.OFFSET
    gaps = gap_recursion(linear, gt.Harmonic(beta, gap_weights.OFFSET).steps(n), np.zeros_like(linear.noise))
    limit = linear.gap(limit_covariance(linear, beta))
    assert 1.0 - (n + gap_weights.OFFSET) * gaps[-1] / limit == pytest.approx(0.05, rel=0.02)


@pytest.mark.parametrize(
    ("ratio", "verdict", "power"), [(0.4, "no power", False), (0.6, "confirmed", True), (1.1, "refuted", True)]
)
def test_the_control_of_corollary_10_can_survive(ratio, verdict, power):
    row = {"part": "baseline", "problem": "p", "quantity": "reinforce", "dependence": 0.0, "estimate": ratio, "least": ratio}
    found = judge(gap_weights.claims(pd.DataFrame([row]))).iloc[0]
    assert (found["verdict"], found["power"]) == (verdict, power)


@pytest.mark.parametrize("degrees", [1, 2, 30])
@pytest.mark.parametrize("shift", [0.0, 0.03])
def test_the_distance_to_a_law_is_that_of_the_whole_sample(degrees, shift, seed):
    """A table of the law in the middle alone, or the sample's tails left out, would be off by 2e-3."""
    sample = chi2(degrees).rvs(20_000, random_state=seed(4))
    law = chi2(degrees, scale=1.0 + shift).cdf
    assert kolmogorov_distance(sample, law) == pytest.approx(kstest(sample, law).statistic, abs=1e-4)
    ordered = np.sort(sample)
    assert np.abs(np.interp(ordered, *_tabulated(law, ordered)) - law(ordered)).max() < 1e-4
