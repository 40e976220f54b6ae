"""Ragged rollouts: statistics of each group as of that group alone, exact means over all batches, and coverage."""

from itertools import combinations_with_replacement, product
from math import factorial, prod
from timeit import repeat

import numpy as np
import pytest
from enumeration import prompts
from pilots import assert_same, components, noise, tiny_case
from scipy.stats import beta
from scipy.stats import t as student

import grpo_theory as gt
from grpo_theory import RaggedRollouts, Rollouts, intervals
from grpo_theory.intervals.rollout_intervals import prompt_gradients, prompt_jackknife_variances, prompt_powers

RESAMPLED, SIZES = {"resamples": 99, "rng": 3}, {"batch_size": 8, "group_size": 6}
INTERVALS = {name: {} for name in ("value_naive", "value_clustered", "value_effective", "gradient_jackknife", "gradient_between")}
INTERVALS |= {"components_jackknife": {}, "group_size_fieller": {}, "mse_jackknife": SIZES, "mse_bootstrap": SIZES | RESAMPLED}


def ragged(seed=1, sizes=(4, 7, 5, 4, 9, 5, 6)):
    """Rows of groups of these sizes in a shuffled order."""
    rng = np.random.default_rng(seed)
    rows = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    scores = rng.normal(size=(rows.size, 3))
    return RaggedRollouts(rows, scores[:, 0] + rng.exponential(size=rows.size) + 0.3 * rows, scores)


def test_rows_are_numbered_by_first_appearance_and_small_groups_left_out():
    r = RaggedRollouts(["b", ("a", 1), "b", 7, ("a", 1), "b"], [1, 0, 0, 1, 1, 0.5])
    assert (r.prompts.tolist(), r.index.tolist(), r.sizes.tolist()) == (["b", ("a", 1), 7], [0, 1, 0, 2, 1, 0], [3, 2, 1])
    kept = r.at_least(2)
    assert (kept.prompts.tolist(), kept.sizes.tolist(), kept.rewards.tolist()) == (["b", ("a", 1)], [3, 2], [1, 0, 0, 1, 0.5])


def test_statistics_are_those_of_each_group_alone_whatever_the_order_of_rows():
    r = ragged()
    for statistic in (prompt_gradients, prompt_jackknife_variances, lambda one: np.stack(prompt_powers(one), axis=-1)):
        for b in range(r.batch_size):
            alone = Rollouts(r.rewards[r.index == b][None], r.scores[r.index == b][None])
            assert np.array_equal(statistic(r)[b], statistic(alone)[0])
    variances = prompt_jackknife_variances(r) / r.batch_size**2
    degrees = variances.sum(axis=0) ** 2 / (variances**2 / (r.sizes - 1.0)[:, None]).sum(axis=0)  # Satterthwaite's
    found, error = intervals.gradient_jackknife(r, 0.9), np.sqrt(variances.sum(axis=0))
    np.testing.assert_allclose(found.high - found.estimate, student.ppf(0.95, degrees) * error, rtol=1e-10)
    binary = np.random.default_rng(4).integers(0, 2, (6, 6)) * 1.0
    for name, options in INTERVALS.items():
        interval, plain = getattr(intervals, name), noise(4, responses=6)
        plain = Rollouts(binary, plain.scores) if name == "value_effective" else plain
        # Prompts are numbered by first appearance, and rows stay in order within them: resamples are the same.
        order = np.arange(36).reshape(6, 6).T.ravel()
        rows = np.repeat(np.arange(6), 6)[order], plain.rewards.ravel()[order], plain.scores.reshape(36, -1)[order]
        assert_same(interval(RaggedRollouts(*rows), level=0.9, **options), interval(plain, level=0.9, **options))


def test_statistics_of_many_group_sizes_take_a_small_part_of_a_second():
    rows = np.repeat(np.arange(1400), np.arange(1, 1401))
    many = RaggedRollouts(rows, rows % 2.0)
    seconds = min(repeat(lambda: many.by_prompt(lambda one: one.rewards.mean(axis=-1)), number=1, repeat=3))
    assert seconds < 0.3, "0.02 on the machine of November 2026; with a scan of all rows a size it was 1.3"


def test_the_interface_of_rollouts_is_abstract():
    with pytest.raises(TypeError, match="abstract class Groups"):
        intervals.Groups()


def test_components_are_unbiased_at_unequal_group_sizes():
    """The mean over all batches of two prompts, the first with four responses and the second with five, is exact."""
    c, choices = tiny_case(), []
    law = gt.group_size_law(c.problem, c.theta)
    for size in (4, 5):
        found = []
        for f, table in zip(c.bandit.prompt_weights, prompts(c), strict=True):
            for row in combinations_with_replacement(range(table.rewards.size), size):
                orders = factorial(size) / prod(factorial(row.count(k)) for k in set(row))
                chance = f * orders * table.probabilities[list(row)].prod()
                found.append((table.rewards[list(row)], table.scores[list(row)], chance))
        choices.append(found)
    index, total = np.repeat([0, 1], [4, 5]), np.zeros(3)
    for (z4, w4, p4), (z5, w5, p5) in product(*choices):
        total += p4 * p5 * components(RaggedRollouts(index, np.concatenate([z4, z5]), np.concatenate([w4, w5])))
    np.testing.assert_allclose(total, (law.c1, law.c2, law.c3), rtol=1e-11)


def test_no_ragged_rollouts(check_refused):
    check_refused(
        (lambda: RaggedRollouts([0, 0], [1.0]), "prompts must have an id for each of the 1 rewards"),
        (lambda: RaggedRollouts(["a", None], [1.0, 0.0]), "prompts must have an id .* row 1 has none"),
        (lambda: RaggedRollouts([0, 1], [1.0, np.nan]), "rewards must be finite"),
        (lambda: RaggedRollouts.from_index(["a"], [0, 1], [1.0, 0.0]), "index must be whole numbers from 0 to 0"),
        (lambda: RaggedRollouts.from_inner_products([0, 0], [1, 0], [[1, 2], [2, 1]]), "no eigenvalue below 0"),
        (lambda: ragged().along(np.eye(2)), "directions must have shape"),
        (
            lambda: intervals.components_jackknife(ragged(sizes=(5, 5, 5, 1))),
            "at least 4 responses per prompt, and 1 of 4 prompts",
        ),
    )


def test_values_of_ragged_groups_weigh_prompts_equally():
    """B values of the mean of G_b rewards are worth B times the harmonic mean of the sizes: the cap of the effective size."""
    r = RaggedRollouts([0, 0, 0, 0, 1, 1, 2], [1, 1, 1, 0, 0, 1, 0])
    found = [interval(r).estimate for interval in (intervals.value_clustered, intervals.value_effective, intervals.value_naive)]
    assert found == pytest.approx([1.25 / 3.0, 1.25 / 3.0, 4.0 / 7.0])
    r = RaggedRollouts([0, 0, 1, 1, 1, 1], [1, 0, 1, 0, 1, 0])  # equal means: the cap is reached
    most = 4 / (1 / 2 + 1 / 4)
    effective = most * (student.ppf(0.025, most - 1) / student.ppf(0.025, 1)) ** 2
    assert intervals.value_effective(r).low == pytest.approx(beta.ppf(0.025, effective / 2, effective / 2 + 1), rel=1e-9, abs=0.0)
