"""What logged responses are worth, and sizes of evaluations: by enumeration, by brute force, by the noncentral t law."""

from itertools import product

import numpy as np
import pytest
from rates import table
from scipy.stats import binom, nct, t

import grpo_theory as gt
from grpo_theory.plan import EvaluationVariance

ATOMS, WEIGHTS = np.array([0.1, 0.4, 1.0]), np.array([0.5, 0.3, 0.2])
"""A law of success rates."""
BETWEEN = WEIGHTS @ (ATOMS - WEIGHTS @ ATOMS) ** 2
WITHIN = WEIGHTS @ (ATOMS * (1.0 - ATOMS))


def every_table(sizes):
    """Yield all tables of successes with their probabilities, the prompts' success rates drawn from the law."""
    chances = [WEIGHTS @ binom.pmf(np.arange(size + 1), size, ATOMS[:, None]) for size in sizes]
    for successes in product(*(range(size + 1) for size in sizes)):
        yield np.prod([one[k] for one, k in zip(chances, successes, strict=True)]), table(successes, sizes)


@pytest.mark.parametrize("sizes", [(3, 3, 3), (1, 2, 4)])
def test_the_two_variances_are_without_bias_by_all_tables(sizes):
    chances, tables = zip(*every_table(sizes), strict=True)
    found, less = [gt.plan.split_variance(one) for one in tables], np.mean(1.0 / np.array(sizes))
    assert np.dot(chances, [one.between for one in found]) == pytest.approx(BETWEEN, abs=1e-12)
    assert np.dot(chances, [one.within for one in found]) == pytest.approx(WITHIN, abs=1e-12)
    # With the true variances in the place of estimates, the design effect is that of the variance of the mean over all tables.
    means = np.array([one.means.mean() for one in tables])
    variance = chances @ (means - chances @ means) ** 2
    assert variance == pytest.approx((BETWEEN + WITHIN * less) / 3, rel=1e-12)
    between = (one for one in map(gt.plan.effective_sample_size, tables) if 0.0 < one.variance.correlation < 1.0)
    one = next(between)
    correlation = one.variance.correlation
    assert one.design_effect == pytest.approx((correlation + (1.0 - correlation) * less) * sum(sizes) / 3, rel=1e-12)
    assert one.effective_responses == pytest.approx(sum(sizes) / one.design_effect)


def test_a_comparison_has_the_variance_of_differences_by_all_tables():
    """Two policies of which the second is better where the first is bad: expectations over all pairs of tables of two prompts."""
    second = np.array([0.6, 0.5, 0.9])
    chances = np.einsum(
        "m,mi,mj->ij", WEIGHTS, binom.pmf(np.arange(3), 2, ATOMS[:, None]), binom.pmf(np.arange(4), 3, second[:, None])
    )
    between = within = 0.0
    for (i, j), (k, m) in product(np.ndindex(3, 4), np.ndindex(3, 4)):
        one = gt.plan.compared_variance(table([i, k], 2), table([j, m], 3))
        between += chances[i, j] * chances[k, m] * one.between
        within += chances[i, j] * chances[k, m] * one.within
    difference = ATOMS - second
    assert between == pytest.approx(WEIGHTS @ (difference - WEIGHTS @ difference) ** 2, abs=1e-12)
    assert within == pytest.approx(WEIGHTS @ (ATOMS * (1.0 - ATOMS) + second * (1.0 - second)), abs=1e-12)


@pytest.mark.parametrize("responses", [1, 4, 16])
def test_prompts_needed_are_the_fewest_with_the_power(responses):
    variance = EvaluationVariance(0.05, 0.3)
    needed = gt.plan.prompts_needed(variance, -0.04, responses)

    def power(prompts):
        effect = 0.04 / np.sqrt(0.05 + 0.3 / responses)
        return nct.sf(t.ppf(0.975, prompts - 1), prompts - 1, np.sqrt(prompts) * effect)

    assert power(needed) >= 0.8 > power(needed - 1)


@pytest.mark.parametrize("between", [0.001, 0.02, 0.3])
@pytest.mark.parametrize("prompt_cost", [0.0, 0.5, 40.0])
def test_the_best_split_is_the_cheapest_of_all(between, prompt_cost):
    variance = EvaluationVariance(between, 0.3)
    cost = [variance.of_mean(1, size) * (prompt_cost + 0.7 * size) for size in range(1, 1000)]
    best = gt.plan.best_responses(variance, prompt_cost, 0.7)
    assert cost[best - 1] == pytest.approx(min(cost), rel=1e-12)
    assert cost[best + 1] > min(cost)


COUNTS, VARIANCE = table([1, 2, 0, 3], 4), EvaluationVariance(0.01, 0.3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gt.plan.split_variance(table([1], 4)), "at least 2 prompts"),
        (lambda: gt.plan.split_variance(table([1, 0], 1)), "two responses"),
        (lambda: gt.plan.compared_variance(COUNTS, table([1, 2], 4)), "same 4 prompts"),
        (lambda: gt.plan.prompts_needed(VARIANCE, 0.0, 8), "difference"),
        (lambda: gt.plan.training_seeds_needed([COUNTS], [COUNTS], 0.1), "first must be.*two runs"),
    ],
)
def test_what_cannot_be_had(call, message):
    with pytest.raises(ValueError, match=message):
        call()
