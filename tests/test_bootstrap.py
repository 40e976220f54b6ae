"""The bootstrap over prompts: against SciPy's, with many prompts, and on statistics without a value."""

import numpy as np
import pytest
from scipy import stats

from grpo_theory.plan.expected_step import MOST_GROUPS, bootstrap_limits

RNG = np.random.default_rng(20261129)


def statistics(first, second):
    """Return a statistic of multiplicities: the standard deviation of one, and the ratio of two means, shape (R, 2)."""

    def found(counts):
        mean, square = (counts @ part / counts.sum(axis=1) for part in (first, first**2))
        return np.stack([np.sqrt(np.maximum(square - mean**2, 0.0)), mean * counts.sum(axis=1) / (counts @ second)], axis=-1)

    return found


def test_limits_are_scipys_at_students_level():
    """Both draw 40,000 samples of 30 skewed prompts, each its own: limits then differ by 1% of the width."""
    first = RNG.lognormal(0.0, 1.2, 30)
    second = first + RNG.exponential(1.0, 30)
    found = bootstrap_limits(statistics(first, second), 30, 0.9, draws=40_000)
    level = 2.0 * stats.norm.cdf(stats.t.ppf(0.95, 29) * np.sqrt(30 / 29)) - 1.0
    both = {"method": "BCa", "vectorized": True, "confidence_level": level, "n_resamples": 40_000, "rng": 1}
    spread = stats.bootstrap((first,), np.std, **both)
    of_ratio = stats.bootstrap((first, second), lambda a, b, axis: a.mean(axis) / b.mean(axis), paired=True, **both)
    assert found.estimate == pytest.approx([first.std(), first.mean() / second.mean()])
    for k, one in enumerate((spread, of_ratio)):
        width = one.confidence_interval.high - one.confidence_interval.low
        assert found.low[k] == pytest.approx(one.confidence_interval.low, abs=0.015 * width)
        assert found.high[k] == pytest.approx(one.confidence_interval.high, abs=0.015 * width)
        assert found.standard_error[k] == pytest.approx(one.standard_error, rel=0.05)


def test_many_prompts_are_left_out_in_groups_and_a_sample_without_a_value_widens_both_limits():
    values = RNG.exponential(1.0, 4 * MOST_GROUPS)
    found = bootstrap_limits(lambda counts: (counts @ values / counts.sum(axis=1))[:, None], values.size, 0.95)
    error = values.std(ddof=1) / np.sqrt(values.size)
    assert [found.low[0], found.high[0]] == pytest.approx(values.mean() + np.array([-1.96, 1.96]) * error, abs=0.25 * error)

    def of_the_first(counts):
        return np.divide(counts @ values, counts[:, 0], out=np.full(len(counts), np.nan), where=counts[:, 0] > 0.0)[:, None]

    unknown = bootstrap_limits(of_the_first, values.size, 0.95)
    assert (unknown.low[0], unknown.high[0]) == (-np.inf, np.inf)
    fixed = bootstrap_limits(lambda counts: np.full((len(counts), 1), 7.0), 5, 0.95)
    assert (fixed.low[0], fixed.high[0]) == (7.0, 7.0)
