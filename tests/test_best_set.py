"""The confidence set for the best candidate: it keeps the best as often as it says, and drops the others."""

import numpy as np
import pytest

from grpo_theory.intervals import best_set


def samples(rng, means, deviations, runs):
    """Correlated columns of unequal variance."""
    noise = rng.standard_normal((runs, len(means))) + 0.7 * rng.standard_normal((runs, 1))
    return np.asarray(means) + noise * deviations


@pytest.mark.parametrize("deviations", [np.ones(6), np.array([3.0, 1.0, 0.3, 1.0, 1.0, 5.0])])
def test_a_tied_best_stays_as_often_as_the_level_says(seed, deviations):
    """Six tied candidates, the least favourable case; a test without Bonferroni's share would lose the first in 13% or more."""
    rng, n, level = np.random.default_rng(seed(1)), 2000, 0.95
    kept = np.mean([best_set(samples(rng, np.zeros(6), deviations, 30), level)[0] for _ in range(n)])
    error = np.sqrt(level * (1.0 - level) / n)
    assert kept > level - 4.9 * error
    lost = []
    for _ in range(n):
        lead = samples(rng, np.zeros(6), deviations, 30)
        lead = lead[:, 1:] - lead[:, :1]
        lost.append((lead.mean(axis=0) > 1.699 * lead.std(axis=0, ddof=1) / np.sqrt(30)).any())
    assert 1.0 - np.mean(lost) < level - 4.9 * error


def test_what_is_clearly_worse_leaves(seed):
    rng = np.random.default_rng(seed(2))
    found = best_set(samples(rng, [0.0, 1.0, 1.0, 0.9], np.ones(4), 10_000))
    assert found.tolist() == [False, True, True, False]


def test_pairs_are_compared_run_by_run(seed):
    """A shift of 0.01 behind common noise of deviation 1 is seen, which independent columns would hide."""
    common = np.random.default_rng(seed(3)).standard_normal((20, 1))
    jitter = 1e-3 * np.random.default_rng(seed(4)).standard_normal((20, 2))
    assert best_set(common + jitter + [0.0, 0.01]).tolist() == [False, True]


def test_exact_ties_and_single_candidates_stay():
    assert best_set(np.ones((5, 3))).all()
    assert best_set(np.arange(3.0)[:, None]).tolist() == [True]
    assert best_set(np.column_stack([np.zeros(4), np.ones(4)])).tolist() == [False, True]


@pytest.mark.parametrize(
    ("values", "level", "message"),
    [
        ([[1.0, 2.0]], 0.95, r"samples must have at least 2 rows, got 1"),
        ([1.0, 2.0], 0.95, r"samples must have 2 dimensions"),
        ([[1.0, np.nan], [1.0, 2.0]], 0.95, r"samples must be finite, got nan at index \(0, 1\)"),
        (np.zeros((3, 2)), 1.0, r"level must lie strictly between 0 and 1"),
    ],
)
def test_arguments_are_checked(values, level, message):
    with pytest.raises(ValueError, match=message):
        best_set(values, level)
