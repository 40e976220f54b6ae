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


@pytest.mark.parametrize("sizes", [(2, 2), (3, 3, 3), (1, 2, 4)])
def test_the_two_variances_are_without_bias_by_all_tables(sizes):
    chances, found = zip(*((chance, gt.plan.split_variance(one)) for chance, one in every_table(sizes)), strict=True)
    assert np.dot(chances, [one.between for one in found]) == pytest.approx(BETWEEN, abs=1e-12)
    assert np.dot(chances, [one.within for one in found]) == pytest.approx(WITHIN, abs=1e-12)
    plain = np.dot(chances, [one.means.var(ddof=1) for _, one in every_table(sizes)])
    assert plain == pytest.approx(BETWEEN + WITHIN * np.mean(1.0 / np.array(sizes)), abs=1e-12)  # what is taken away is needed


@pytest.mark.parametrize("sizes", [(4, 4, 4), (1, 2, 6)])
def test_the_design_effect_is_the_ratio_of_exact_variances(sizes):
    """With the true variances in the place of estimates, the formula gives the variance of the mean over all tables."""
    means = [(chance, one.means.mean()) for chance, one in every_table(sizes)]
    mean = sum(chance * value for chance, value in means)
    variance = sum(chance * (value - mean) ** 2 for chance, value in means)
    counts = table([1, 0, 2] if sizes[0] == 1 else [1, 3, 4], sizes)
    found = gt.plan.effective_sample_size(counts)
    correlation = min(max(found.variance.correlation, 0.0), 1.0)
    here = correlation + (1.0 - correlation) * np.mean(1.0 / np.array(sizes))
    assert found.design_effect == pytest.approx(here * sum(sizes) / 3, rel=1e-12)
    true = BETWEEN / (BETWEEN + WITHIN)
    exact = variance / ((BETWEEN + WITHIN) / sum(sizes))
    assert exact == pytest.approx((true + (1.0 - true) * np.mean(1.0 / np.array(sizes))) * sum(sizes) / 3, rel=1e-12)
    assert found.effective_responses == pytest.approx(sum(sizes) / found.design_effect)


def test_what_carries_signal_is_counted():
    found = gt.plan.effective_sample_size(table([0, 2, 3, 1, 5], [2, 3, 3, 1, 6]))
    assert (found.prompts, found.responses, found.mixed_prompts, found.mixed_responses) == (5, 15, 2, 9)
    single = gt.plan.effective_sample_size(table([0, 1, 1], 1))
    assert single.variance is None
    assert np.isnan(single.design_effect)
    assert np.isnan(single.effective_responses)


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


def found_share(prompts, responses, replications, rng):
    """Return how often a t test finds the second policy better, .05 on average: half of the prompts are answered .1 better."""
    rates = np.where(rng.random((replications, prompts)) < 0.5, 0.4, 0.3)
    difference = (rng.binomial(responses, rates) - rng.binomial(responses, 0.3, rates.shape)) / responses
    statistic = difference.mean(axis=1) / (difference.std(axis=1, ddof=1) / np.sqrt(prompts))
    return float((statistic > t.ppf(0.975, prompts - 1)).mean())


def test_real_comparisons_have_the_power_that_was_planned():
    """Of 2,000 evaluations 80% find it, within 4.9 standard errors and half a point for what is not normal; fewer do not."""
    responses, rng = 4, np.random.default_rng(20261123)
    needed = gt.plan.prompts_needed(EvaluationVariance(0.05**2, 0.21 + (0.21 + 0.24) / 2.0), 0.05, responses)
    assert abs(found_share(needed, responses, 2000, rng) - 0.8) < 4.9 * 0.009 + 0.005
    assert found_share(2 * needed // 3, responses, 2000, rng) < 0.7


@pytest.mark.parametrize(("between", "prompts"), [(0.05, 500), (0.0, 30), (0.05, 240)])
def test_responses_needed_are_the_fewest_or_none(between, prompts):
    variance = EvaluationVariance(between, 0.3)
    needed = gt.plan.responses_needed(variance, 0.04, prompts)
    enough = [size for size in range(1, 64) if gt.plan.prompts_needed(variance, 0.04, size) <= prompts]
    assert needed == (enough[0] if enough else None)
    assert (needed is None) == (prompts == 240)  # 0.05 by itself takes (1.96 + 0.84)^2 0.05/0.04^2 = 245 prompts, and more


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
        (lambda: gt.plan.evaluation_variance(COUNTS, 1.5), "correlation"),
        (lambda: gt.plan.compared_variance(COUNTS, table([1, 2], 4)), "same 4 prompts"),
        (lambda: gt.plan.compared_variance(COUNTS, table([1, 0, 0, 2], [4, 1, 1, 4])), "other must have two.*2 of them"),
        (lambda: gt.plan.prompts_needed(VARIANCE, 0.0, 8), "difference"),
        (lambda: gt.plan.responses_needed(VARIANCE, 0.1, 1), "prompts"),
        (lambda: gt.plan.best_responses(EvaluationVariance(-0.1, 0.3), 1.0, 1.0), "between prompts above 0"),
        (lambda: gt.plan.best_responses(VARIANCE, -1.0, 1.0), "prompt_cost"),
        (lambda: gt.plan.training_seeds_needed([COUNTS], [COUNTS], 0.1), "first must be.*two runs"),
        (lambda: gt.plan.training_seeds_needed([COUNTS] * 2, [COUNTS] * 3, 0.1), "as many runs"),
    ],
)
def test_what_cannot_be_had(call, message):
    with pytest.raises(ValueError, match=message):
        call()
