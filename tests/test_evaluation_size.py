"""What logged responses are worth, and sizes of evaluations: by enumeration, and by the noncentral t law."""

from itertools import product

import numpy as np
import pytest
from rates import table
from scipy.stats import binom, nct, t

import grpo_theory as gt
from grpo_theory.plan import RewardVariance

ATOMS, WEIGHTS = np.array([0.1, 0.4, 1.0]), np.array([0.5, 0.3, 0.2])
"""A law of success rates."""
BETWEEN = WEIGHTS @ (ATOMS - WEIGHTS @ ATOMS) ** 2
WITHIN = WEIGHTS @ (ATOMS * (1.0 - ATOMS))


@pytest.mark.parametrize("sizes", [(3, 3, 3), (1, 2, 4)])
def test_the_two_variances_are_without_bias_by_all_tables(sizes):
    """The prompts' success rates are drawn from the law."""
    of_prompts = [WEIGHTS @ binom.pmf(np.arange(size + 1), size, ATOMS[:, None]) for size in sizes]
    counts = list(product(*(range(size + 1) for size in sizes)))
    chances = np.array([np.prod([one[k] for one, k in zip(of_prompts, row, strict=True)]) for row in counts])
    tables = [table(row, sizes) for row in counts]
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


@pytest.mark.parametrize("responses", [1, 4, 16])
def test_prompts_are_the_fewest_with_the_power_and_the_error_is_that_of_one_policy(responses):
    found = gt.plan.evaluation_size(RewardVariance(0.25, 0.15), 0.04, responses, 0.9)

    def power(prompts):
        effect = 0.04 / np.sqrt(0.05 + 0.3 / responses)
        return nct.sf(t.ppf(0.975, prompts - 1), prompts - 1, np.sqrt(prompts) * effect)

    assert power(found.prompts) >= 0.8 > power(found.prompts - 1)
    assert found.error == pytest.approx(np.sqrt((0.25 + 0.15 / responses) / found.prompts), rel=1e-12)
