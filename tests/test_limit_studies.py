"""The weights of the limit law: the algebra behind Corollary 10, the distance to the normal, and when the law has set in."""

import numpy as np
import pytest
from scipy.stats import chi2, kstest

import grpo_theory as gt
from grpo_theory.exact import largest_error
from grpo_theory.theory import Linearisation, gap_recursion, limit_covariance, linearise
from simulations.limit import gap_asymptotics
from simulations.limit.gap_weights import PromptBaselines
from simulations.limit.limit_law import _tabulated, distance
from simulations.maximum import curvatures, maximum
from simulations.training import theorem_7, tight_bound
from simulations.training.tight_bound import RADIUS, SIZES, one_direction, surroundings


@pytest.mark.parametrize("name", ["kl-linear", "conflict", "balanced"])
def test_weights_with_a_baseline_are_those_of_enumeration(name):
    """At G = 1 and 3, of no baseline, b* and V."""
    for size in (1, 3):
        baselines = PromptBaselines(name, size)
        moments = baselines.moments
        tried = {"reinforce": 0.0 * moments.value, "optimal": moments.optimal_baseline, "oracle": moments.value}
        for estimator, baseline in tried.items():
            noise = gt.gradient_covariance(baselines.problem, baselines.best, estimator, batch_size=1, group_size=size)
            np.testing.assert_allclose(baselines.weights(baseline), baselines.of_noise(noise), rtol=1e-9)


def test_the_search_finds_a_better_baseline_where_there_is_one():
    conflict, balanced = PromptBaselines("conflict", 4), PromptBaselines("balanced", 4)
    assert conflict.lead(conflict.weights(conflict.moments.value)) > 1.5
    assert conflict.lead(conflict.weights(conflict.moments.optimal_baseline)) < 1.001
    assert balanced.lead(balanced.weights(balanced.moments.value)) == pytest.approx(1.0, abs=1e-10)
    rng, values = np.random.default_rng(0), conflict.moments.value
    for _ in range(50):
        tried = conflict.weights(values + rng.normal(size=values.size))
        assert (tried > conflict.least * (1.0 - 1e-9)).all()


@pytest.mark.parametrize("name", ["kl-tabular", "conflict"])
def test_the_law_has_set_in_when_the_study_says_so(name):
    problem, best, _ = maximum(name)
    _, facts = gap_asymptotics.transient(name, 1.0)
    (set_in,) = facts.values()
    linear = linearise(problem, best, "rloo", batch_size=1, group_size=4)
    linear = Linearisation(linear.curvatures, linear.directions, np.diag(linear.curvatures), linear.noise)
    beta, n = 1.0 / linear.slowest, round(set_in) - gap_asymptotics.OFFSET
    gaps = gap_recursion(linear, gt.Harmonic(beta, gap_asymptotics.OFFSET).steps(n), np.zeros_like(linear.noise))
    limit = linear.gap(limit_covariance(linear, beta))
    assert 1.0 - (n + gap_asymptotics.OFFSET) * gaps[-1] / limit == pytest.approx(0.05, rel=0.02)


@pytest.mark.parametrize("degrees", [1, 2, 30])
@pytest.mark.parametrize("shift", [0.0, 0.03])
def test_the_distance_to_a_law_is_that_of_the_whole_sample(degrees, shift, seed):
    """A table of the law in the middle alone, or the sample's tails left out, would be off by 2e-3."""
    sample = chi2(degrees).rvs(20_000, random_state=seed(4))
    law = chi2(degrees, scale=1.0 + shift).cdf
    (found, _, _), _ = distance(sample, law)
    assert found == pytest.approx(kstest(sample, law).statistic, abs=1e-4)
    ordered = np.sort(sample)
    assert np.abs(np.interp(ordered, *_tabulated(law, ordered)) - law(ordered)).max() < 1e-4


@pytest.mark.parametrize("offset", tight_bound.OFFSETS)
def test_constants_hold_on_a_dense_grid_of_the_one_direction(offset):
    problem, best, highest = one_direction()
    found, beta = surroundings(tight_bound.FACTOR, tight_bound.EPSILON, offset)
    _, directions = gt.exact.check_optimum(problem, best)
    inside = best + np.linspace(-RADIUS, RADIUS, 200)[:, None] * directions[:, 0]
    reached = best + np.linspace(-1.0, 1.0, 200)[:, None] * (RADIUS + found.reach) * directions[:, 0]
    curvatures = [np.abs(np.linalg.eigvalsh(gt.hessian(problem, point))).max() for point in reached]
    assert found.smoothness * 0.999 < max(curvatures) <= found.smoothness * (1 + 1e-9)
    gaps = highest - gt.objective(problem, inside)
    powers = np.array([gt.moments(problem, point).gradient_squared_norm for point in inside])
    assert found.pl * (1 - 1e-6) <= (powers / (2.0 * gaps)).min() < found.pl * 1.001
    errors = [gt.gradient_mse(problem, point, "rloo", **SIZES) for point in inside]
    noise = tight_bound.noise_of(problem, best, **SIZES)
    assert noise * 0.999 < max(errors) <= noise * (1 + 1e-9)
    assert noise == pytest.approx(2.0 * tight_bound.noise_of(problem, best, **tight_bound.WRONG_SIZES), rel=1e-6)
    assert found.steepest_ray < 0.0
    assert beta * found.pl == pytest.approx(tight_bound.FACTOR)


def test_the_mean_gap_is_that_of_the_recursion_once_the_ball_is_wide_enough():
    """After 1,024 steps the gaps are a tenth of the highest of the ball: to 16%, where half the noise would halve them."""
    problem, best, _ = one_direction()
    _, beta = surroundings(tight_bound.FACTOR, tight_bound.EPSILON, 16)
    linear = linearise(problem, best, "rloo", **SIZES)
    start = np.array([[(tight_bound.START * RADIUS) ** 2]])
    expected = gap_recursion(linear, gt.Harmonic(beta, 16).steps(1024), start)[-1]
    (case,) = (one for one in tight_bound.cases(True) if one["offset"] == 16)
    gaps = tight_bound.trained(**case | {"runs": 4096}, rng=np.random.default_rng(4))["gap"][:, -1]
    assert abs(gaps.mean() - expected) < 0.05 * expected + 4.9 * gaps.std() / 64.0


def test_suprema_are_those_of_enumerated_errors_and_above_all_points_of_the_ball():
    """The supremum of the sum is less than the sum of the suprema, which are attained at different points."""
    case = theorem_7.cases(True)[0]
    name, radius = case["problem"], case["radius"]
    constants, errors = theorem_7.suprema(name, radius)
    problem, best, _ = maximum(name)
    for size in (2, 6):
        enumerated = largest_error(problem, best, "rloo", radius=radius, batch_size=1, group_size=size)
        np.testing.assert_allclose(errors[theorem_7.GROUP_SIZES.index(size)], enumerated, rtol=1e-6)
    rng, directions = np.random.default_rng(1), curvatures(name)[1]
    sizes = np.array(theorem_7.GROUP_SIZES)
    for _ in range(200):
        u = rng.normal(size=directions.shape[1])
        law = gt.group_size_law(problem, best + directions @ (radius * rng.random() * u / np.linalg.norm(u)))
        assert (np.array([law.c1, law.c2, law.c3]) <= constants + 1e-12).all()
        assert (law.mse(1, sizes) <= errors + 1e-12).all()
    assert (errors < 0.99 * gt.GroupSizeLaw(*constants).mse(1, sizes)).all()
