"""Ragged rollouts: statistics by prompt against sums over all pairs, triples and quadruples; rectangular data, the same bits."""

from itertools import combinations_with_replacement, permutations, product
from math import factorial, prod

import numpy as np
import pytest
from enumeration import prompts
from pilots import assert_same, components, draw, gentle_case, narrowed, noise, tiny_case
from scipy.stats import beta, binom
from scipy.stats import t as student

import grpo_theory as gt
from grpo_theory import RaggedRollouts, Rollouts, intervals
from grpo_theory.intervals.u_statistics import prompt_gradients, prompt_jackknife_variances, prompt_powers

OF_SCORES = {
    "gradient_jackknife": {},
    "gradient_between": {},
    "group_size_jackknife": {},
    "group_size_fieller": {},
    "group_size_bootstrap": {"resamples": 99, "rng": 3},
    "components_jackknife": {},
    "components_bootstrap": {"resamples": 99, "rng": 3},
    "mse_jackknife": {"batch_size": 8, "group_size": 6},
    "mse_bootstrap": {"batch_size": 8, "group_size": 6, "resamples": 99, "rng": 3},
}
OF_REWARDS = {"value_naive": {}, "value_clustered": {}, "value_effective": {}}
SIZES = (4, 7, 5, 4, 9, 5, 6)


def ragged(seed=1, sizes=SIZES, dimension=3, binary=False):
    """Rows of groups of these sizes in a shuffled order; prompt ids of several kinds."""
    rng = np.random.default_rng(seed)
    ids = [("a", 1), "b", 3, "d", 2.5, "f", ("a", 2)]
    rows = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    scores = rng.normal(size=(rows.size, dimension))
    rewards = (rng.random(rows.size) < 0.4) * 1.0 if binary else scores[:, 0] + rng.exponential(size=rows.size) + 0.3 * rows
    return RaggedRollouts([ids[k] for k in rows], rewards, scores)


def shuffled_rows(r, seed=8):
    """The rows of rectangular rollouts as ragged ones: prompts take turns, responses of a prompt keep their order."""
    rng = np.random.default_rng(seed)
    b, g = r.rewards.shape
    index = np.concatenate([np.arange(b), rng.permutation(np.repeat(np.arange(b), g - 1))])
    turn = np.empty(index.size, dtype=int)
    for prompt in range(b):
        turn[index == prompt] = np.arange(g)
    scores = None if r.scores is None else r.scores[index, turn]
    return RaggedRollouts(index.tolist(), r.rewards[index, turn], scores)


def test_rows_are_numbered_by_first_appearance():
    r = RaggedRollouts(["b", ("a", 1), "b", 7, ("a", 1), "b"], [1, 0, 0, 1, 1, 0.5])
    assert r.prompts.tolist() == ["b", ("a", 1), 7]
    assert r.index.tolist() == [0, 1, 0, 2, 1, 0]
    assert r.sizes.tolist() == [3, 2, 1]
    assert r.scores is None
    assert r.counts.values.tolist() == [0.0, 0.5, 1.0]
    assert r.counts.counts.toarray().tolist() == [[1, 1, 1], [1, 0, 1], [0, 0, 1]]
    same = RaggedRollouts.from_index(np.array(["x", "y"]), [1, 0, 1], [1.0, 2.0, 3.0])
    assert same.prompts.tolist() == ["y", "x"]
    assert same.index.tolist() == [0, 1, 0]


def test_gradients_against_all_pairs():
    r = ragged()
    found = prompt_gradients(r)
    for b in range(r.batch_size):
        z, w = r.rewards[r.index == b], r.scores[r.index == b]
        pairs = [(w[i] - w[j]) * (z[i] - z[j]) / 2.0 for i, j in permutations(range(z.size), 2)]
        np.testing.assert_allclose(found[b], np.mean(pairs, axis=0), rtol=1e-12, atol=1e-13)


def test_powers_against_all_triples_and_quadruples():
    r = ragged()
    found = prompt_powers(r)
    for b in range(r.batch_size):
        z, w = r.rewards[r.index == b], r.scores[r.index == b]
        triples, quadruples = list(permutations(range(z.size), 3)), list(permutations(range(z.size), 4))
        advantage = np.mean([(w[i] @ w[i]) * (z[i] - z[j]) * (z[i] - z[k]) for i, j, k in triples])
        independent = np.mean([(w[k] @ w[k]) * (z[i] - z[j]) ** 2 / 2.0 for i, j, k in triples])
        four = np.mean([((w[i] - w[j]) @ (w[k] - w[m])) * (z[i] - z[j]) * (z[k] - z[m]) / 4.0 for i, j, k, m in quadruples])
        np.testing.assert_allclose(
            [found.advantage[b], found.independent[b], found.gradient[b]], [advantage, independent, four], rtol=1e-11, atol=1e-12
        )


def test_jackknife_variances_are_those_of_each_group_alone():
    r = ragged()
    found = prompt_jackknife_variances(r)
    for b in range(r.batch_size):
        alone = Rollouts(r.rewards[r.index == b][None], r.scores[r.index == b][None])
        assert np.array_equal(found[b], prompt_jackknife_variances(alone)[0])


def test_degrees_of_freedom_are_satterthwaites():
    r = ragged()
    variances = prompt_jackknife_variances(r) / r.batch_size**2
    degrees = variances.sum(axis=0) ** 2 / (variances**2 / (r.sizes - 1.0)[:, None]).sum(axis=0)
    found = intervals.gradient_jackknife(r, 0.9)
    error = np.sqrt(variances.sum(axis=0))
    np.testing.assert_allclose(found.high - found.estimate, student.ppf(0.95, degrees) * error, rtol=1e-10)


@pytest.mark.parametrize("name", OF_SCORES | OF_REWARDS)
def test_rectangular_data_give_the_same_bits_either_way(name):
    interval, options = getattr(intervals, name), (OF_SCORES | OF_REWARDS)[name]
    r = noise(3, prompts=9, responses=6)
    r = Rollouts((r.rewards > 0.5) * 1.0, r.scores) if name == "value_effective" else r
    rows = shuffled_rows(r)
    if name == "value_naive":  # the order of the rows is that of a sum over all of them
        assert_same(interval(rows, level=0.9, **options), interval(r, level=0.9, **options))
        return
    one, other = interval(rows, level=0.9, **options), interval(r, level=0.9, **options)
    for field in ("estimate", "standard_error", "low", "high"):
        assert np.array_equal(getattr(one, field), getattr(other, field)), field


@pytest.mark.parametrize("name", OF_SCORES | OF_REWARDS)
def test_the_order_of_the_rows_and_the_names_of_prompts_do_not_matter(name):
    interval, options = getattr(intervals, name), (OF_SCORES | OF_REWARDS)[name]
    r = ragged(binary=name == "value_effective")
    order = np.argsort(r.index, kind="stable")
    sorted_rows = RaggedRollouts(1000 + r.index[order], r.rewards[order], r.scores[order])
    assert_same(interval(r, level=0.9, **options), interval(sorted_rows, level=0.9, **options))


@pytest.mark.parametrize("name", OF_REWARDS)
def test_values_need_no_scores(name):
    r = ragged(binary=True)
    interval = getattr(intervals, name)
    assert_same(interval(r.with_scores(None)), interval(r))
    square = noise(4)
    rewards = (square.rewards > 0.5) * 1.0
    assert_same(interval(Rollouts(rewards)), interval(Rollouts(rewards, square.scores)))


@pytest.mark.parametrize("name", OF_SCORES)
def test_what_needs_scores_says_so(name):
    for r in (ragged().with_scores(None), Rollouts(noise(4).rewards)):
        with pytest.raises(ValueError, match=r"rollouts must have scores .* rewards alone"):
            getattr(intervals, name)(r, **OF_SCORES[name])


def test_values_of_ragged_groups_weigh_prompts_equally():
    r = RaggedRollouts([0, 0, 0, 0, 1, 1, 2], [1, 1, 1, 0, 0, 1, 0])
    assert intervals.value_clustered(r).estimate == pytest.approx((0.75 + 0.5 + 0.0) / 3.0)
    assert intervals.value_effective(r).estimate == pytest.approx((0.75 + 0.5 + 0.0) / 3.0)
    assert intervals.value_naive(r).estimate == pytest.approx(4.0 / 7.0)


def test_small_groups_are_counted_and_left_out():
    r = ragged(sizes=(4, 1, 5, 3, 9, 2, 6))
    message = r"at least 4 responses per prompt, and 3 of 7 prompts have fewer \(the fewest 1\); rollouts\.at_least\(4\)"
    with pytest.raises(ValueError, match=message):
        intervals.components_jackknife(r)
    kept = r.at_least(4)
    assert kept.batch_size == 4
    assert sorted(kept.sizes) == [4, 5, 6, 9]
    assert list(kept.prompts) == [one for one, size in zip(r.prompts, r.sizes, strict=True) if size >= 4]
    for place, one in enumerate(kept.prompts):
        (before,) = [b for b, other in enumerate(r.prompts) if other == one]
        assert np.array_equal(kept.rewards[kept.index == place], r.rewards[r.index == before])
        assert np.array_equal(kept.scores[kept.index == place], r.scores[r.index == before])
    with pytest.raises(ValueError, match="responses must be at most 9"):
        r.at_least(10)


def multisets(table, size):
    """Return all multisets of a prompt's outcomes, as indices (n, size), with their probabilities (n,)."""
    rows = np.array(list(combinations_with_replacement(range(table.rewards.size), size)))
    orders = [factorial(size) / prod(factorial(n) for n in np.unique(row, return_counts=True)[1]) for row in rows]
    return rows, np.array(orders) * table.probabilities[rows].prod(axis=1)


def test_components_are_unbiased_at_unequal_group_sizes():
    """The mean over all batches of two prompts, the first with four responses and the second with five, is exact."""
    c = tiny_case()
    law = gt.group_size_law(c.problem, c.theta)
    choices = [
        [
            (table.rewards[row], table.scores[row], f * weight)
            for f, table in zip(c.bandit.prompt_weights, prompts(c), strict=True)
            for row, weight in zip(*multisets(table, size), strict=True)
        ]
        for size in (4, 5)
    ]
    index, total, mass = np.repeat([0, 1], [4, 5]), np.zeros(3), 0.0
    for (z4, w4, p4), (z5, w5, p5) in product(*choices):
        r = RaggedRollouts(index, np.concatenate([z4, z5]), np.concatenate([w4, w5]))
        mass += p4 * p5
        total += p4 * p5 * components(r)
    assert mass == pytest.approx(1.0, rel=1e-12)
    np.testing.assert_allclose(total, (law.c1, law.c2, law.c3), rtol=1e-11)


def test_groups_kept_for_being_mixed_say_something_else():
    """Of two binary rewards that differ the mean is 1/2, and the gradient's estimate is over the probability of a mixed group."""
    c = tiny_case()
    truth = gt.moments(c.problem, c.theta)
    for prompt, table in enumerate(prompts(c)):
        rows, chances = multisets(table, 2)
        mixed = table.rewards[rows[:, 0]] != table.rewards[rows[:, 1]]
        share = chances[mixed].sum()
        kept = Rollouts(table.rewards[rows[mixed]], table.scores[rows[mixed]])
        value = truth.value[prompt]
        assert share == pytest.approx(2.0 * value * (1.0 - value), rel=1e-12)
        assert (kept.rewards.mean(axis=-1) == 0.5).all()
        mean = chances[mixed] / share @ prompt_gradients(kept)
        np.testing.assert_allclose(mean * share, truth.prompt_gradients[prompt], atol=1e-12)
        assert np.abs(mean - truth.prompt_gradients[prompt]).max() > 0.1


def test_rollouts_from_inner_products():
    r = ragged(dimension=5)
    ids = r.prompts[r.index]
    found = RaggedRollouts.from_inner_products(ids, r.rewards, r.scores @ r.scores.T)
    np.testing.assert_allclose(found.scores @ found.scores.T, r.scores @ r.scores.T, atol=1e-12)
    np.testing.assert_allclose(components(found), components(r), rtol=1e-10)
    assert_same(intervals.group_size_fieller(found), intervals.group_size_fieller(r), rtol=1e-8)
    # In float32, as they are multiplied on an accelerator: rounding is no indefiniteness.
    short = (r.scores.astype(np.float32) @ r.scores.astype(np.float32).T).astype(float)
    np.testing.assert_allclose(components(RaggedRollouts.from_inner_products(ids, r.rewards, short)), components(r), rtol=1e-4)
    assert (RaggedRollouts.from_inner_products([0, 0], [1, 0], np.zeros((2, 2))).scores == 0.0).all()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: RaggedRollouts([0, 0], [1.0]), ValueError, "prompts must have an id for each of the 1 rewards, got 2"),
        (lambda: RaggedRollouts("ab", [1.0, 0.0]), TypeError, "prompts must be ids, one per response, got 'ab'"),
        (lambda: RaggedRollouts([[1], [2]], [1.0, 0.0]), TypeError, "prompts must be hashable"),
        (lambda: RaggedRollouts(["a", None], [1.0, 0.0]), ValueError, "prompts must have an id .* row 1 has none"),
        (lambda: RaggedRollouts([0, 1], [1.0, np.nan]), ValueError, r"rewards must be finite, got nan at index \(1,\)"),
        (lambda: RaggedRollouts([0, 1], [1.0, 0.0], [[1.0], [2.0, 3.0]]), ValueError, "scores must be an array of real numbers"),
        (lambda: RaggedRollouts([0, 1], [1.0, 0.0], [[1.0]]), ValueError, r"scores must have shape \(2, 1\)"),
        (lambda: RaggedRollouts([], []), ValueError, "rewards must not be empty"),
        (lambda: RaggedRollouts.from_index(["a"], [0, 1], [1.0, 0.0]), ValueError, "index must be whole numbers from 0 to 0"),
        (
            lambda: RaggedRollouts.from_inner_products([0, 0], [1, 0], [[1, 0.5], [0.4, 1]]),
            ValueError,
            "gram must be symmetric, and differs from its transpose by 0.1 beside entries up to 1",
        ),
        (
            lambda: RaggedRollouts.from_inner_products([0, 0], [1, 0], [[1, 2], [2, 1]]),
            ValueError,
            "gram must have no eigenvalue below 0, got -1 beside the largest, 3: no gradients",
        ),
        (lambda: RaggedRollouts.from_inner_products([0, 0], [1, 0], np.eye(3)), ValueError, r"gram must have shape \(2, 2\)"),
        (lambda: ragged().along(np.eye(2)), ValueError, "directions must have shape"),
        (lambda: Rollouts(np.ones((2, 2))).along(np.eye(2)), ValueError, "rollouts must have scores"),
    ],
)
def test_no_ragged_rollouts(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_components_along_directions():
    r = ragged()
    found = r.along(np.eye(3)[:2])
    assert np.array_equal(found.scores, r.scores[:, :2])
    assert np.array_equal(found.index, r.index)
    assert list(found.prompts) == list(r.prompts)


REPLICATIONS = 2000
SOME_SIZES = [2, 3, 5, 20] * 15
NEAR = 0.015 + 4.9 * np.sqrt(0.95 * 0.05 / REPLICATIONS)
"""What a t interval on 60 skewed values may miss of 95%, and chance."""


def test_coverage_of_the_gradient_on_ragged_groups():
    c = gentle_case()
    r, _ = draw(c, REPLICATIONS, len(SOME_SIZES), max(SOME_SIZES), np.random.default_rng(20261122))
    index = np.repeat(np.arange(len(SOME_SIZES)), SOME_SIZES)
    turn = np.concatenate([np.arange(size) for size in SOME_SIZES])
    found = [
        intervals.gradient_between(RaggedRollouts(index, z[index, turn], w[index, turn]))
        for z, w in zip(r.rewards, r.scores, strict=True)
    ]
    truth = gt.moments(c.problem, c.theta).gradient
    assert (np.abs(np.mean([one.covers(truth) for one in found], axis=0) - 0.95) < NEAR).all()
    assert (np.mean([narrowed(one, truth, 0.8) for one in found], axis=0) < 0.95 - NEAR).all()


def test_coverage_of_the_value_on_ragged_groups():
    """Half of the prompts succeed with probability 0.1, half with 0.6."""
    rng = np.random.default_rng(20261123)
    index = np.repeat(np.arange(len(SOME_SIZES)), SOME_SIZES)
    batches = []
    for _ in range(REPLICATIONS):
        chances = rng.choice([0.1, 0.6], len(SOME_SIZES))
        batches.append(RaggedRollouts(index, (rng.random(index.size) < chances[index]) * 1.0))

    def covered(interval, some=batches):
        return np.mean([interval(r).covers(0.35) for r in some])

    assert abs(covered(intervals.value_clustered) - 0.95) < NEAR
    assert covered(intervals.value_effective) > 0.95 - NEAR
    # Controls: rewards pooled as if every response had a prompt of its own; groups kept only if they are mixed.
    assert covered(intervals.value_naive) < 0.9
    assert covered(intervals.value_clustered, [keep_mixed(r) for r in batches]) < 0.9


def keep_mixed(r):
    """Return the groups whose rewards are not all equal, as dynamic sampling leaves them."""
    rows = ~r.counts.uniform[r.index]
    return RaggedRollouts(r.index[rows], r.rewards[rows])


def test_the_cap_of_the_effective_size_is_that_of_equal_prompts():
    """Prompts that do not differ: B values of the mean of G_b rewards are worth B times the harmonic mean of the sizes."""
    sizes, p = np.array([1, 2, 4, 8]), 0.3
    total = 0.0
    for counts in product(*[range(n + 1) for n in sizes]):
        weight = np.prod([binom.pmf(k, n, p) for k, n in zip(counts, sizes, strict=True)])
        total += weight * ((np.array(counts) / sizes).mean() - p) ** 2
    assert p * (1 - p) / total == pytest.approx(sizes.size**2 / (1.0 / sizes).sum(), rel=1e-12)
    r = RaggedRollouts([0, 0, 1, 1, 1, 1], [1, 0, 1, 0, 1, 0])  # equal means: the cap is reached
    most = 4 / (1 / 2 + 1 / 4)
    effective = most * (student.ppf(0.025, most - 1) / student.ppf(0.025, 1)) ** 2
    assert intervals.value_effective(r).low == pytest.approx(beta.ppf(0.025, effective / 2, effective / 2 + 1), rel=1e-9)
