"""How a training run finds its advantages: by table, by coefficients or by calling the kernel; and what it draws from."""

import math
import subprocess
import sys
import warnings

import numpy as np
import pytest
from compiled_stages import compiled
from enumeration import NAMED
from scipy import stats

import grpo_theory as gt
from grpo_theory.compiler import compile_function
from grpo_theory.compiler.lanes import WIDTH, load, store
from grpo_theory.estimation.advantage import affine_coefficients
from grpo_theory.exact.multisets import UNREAD, advantage_table, can_be_tabulated, multiset_ranks
from grpo_theory.simulate import training_blocks
from grpo_theory.simulate.advantage.route import CALLED, IN_ORDER, TABLE, Route, route_in_training
from grpo_theory.simulate.draw.elementary import exponential, logarithm
from grpo_theory.simulate.draw.policy_draw import ONE, Groups, OutcomeSource, TokenPaths, count_outcomes
from grpo_theory.simulate.draw.prompt_tables import lookup

# ---- elementary functions


def each(function):
    """Return a function of lanes as one of arrays, compiled."""

    def found(x, y):
        for i in range(0, x.shape[0], WIDTH):
            store(function(load(x, i)), y, i)

    return compile_function(found, "void(float64[::1], float64[::1])")


def padded(x):
    """Return numbers with so many more that they fill whole lanes."""
    return np.concatenate([x, np.ones(-x.size % WIDTH)])


def units_in_the_last_place(function, reference, x):
    x = padded(x)
    y = np.empty_like(x)
    each(function)(x, y)
    exact = reference(x.astype(np.longdouble))
    return float(np.max(np.abs(y - exact) / np.spacing(np.abs(exact).astype(np.float64))))


@pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="this machine has no longer numbers to compare with")
def test_elementary_functions_are_within_two_units_in_the_last_place():
    dense = [np.linspace(low, high, 400_001) for low, high in ((-708.0, 0.0), (-2.0, 2.0), (0.0, 709.0), (-1e-6, 1e-6))]
    assert units_in_the_last_place(exponential, np.exp, np.concatenate(dense)) < 2.0
    positive = np.concatenate(
        [np.linspace(1.0, 64.0, 400_001), 1.0 + np.linspace(0.0, 1e-6, 9_999), np.geomspace(1e-300, 1e300, 99_999)]
    )
    assert units_in_the_last_place(logarithm, np.log, positive) < 2.0


def test_ends_of_the_exponential():
    missing = np.array([0x7FF80000000007A2, 0xFFF8000000000010], dtype=np.uint64).view(np.float64)  # the first is R's
    x = padded(np.array([0.0, -708.0, -709.0, -1e300, -np.inf, np.nan, *missing]))
    y = np.empty_like(x)
    each(exponential)(x, y)
    assert y[0] == 1.0
    np.testing.assert_array_equal(y[2:5], y[1])
    assert np.finfo(float).tiny < y[1] < 1e-307
    assert np.isnan(y[5:8]).all()


@pytest.mark.parametrize("function", [exponential, logarithm])
def test_elementary_functions_have_the_same_bits_in_plain_python(function):
    x = np.random.default_rng(0).uniform(-708.0, 709.0, 200 * WIDTH)
    x = np.exp(0.9 * x) if function is logarithm else x
    compiled_y, plain_y = np.empty_like(x), np.empty_like(x)
    each(function)(x, compiled_y)
    for i in range(0, x.size, WIDTH):
        plain_y[i : i + WIDTH] = function.py_func(x[i : i + WIDTH])
    np.testing.assert_array_equal(compiled_y, plain_y)


def test_the_table_of_powers_depends_on_nobodys_decimals():
    coarse = "import decimal; decimal.getcontext().prec = 3; "
    program = coarse + "from grpo_theory.simulate.draw.elementary import POWERS; print(float(POWERS[0, 1]).hex())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == [(2.0 ** (1.0 / 16.0)).hex()], done.stderr


# ---- what a kernel is


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("group_size", [2, 5])
def test_coefficients_are_those_of_the_kernel(name, group_size):
    """On random rewards and fields; what is not affine has no coefficients."""
    advantage, rng = gt.estimators()[name].advantage, np.random.default_rng(4)
    found = affine_coefficients(advantage, group_size)
    assert (found is not None) == (name in {"reinforce", "oracle", "optimal", "rloo", "dr_grpo"})
    if found is None:
        return
    rewards, fields = rng.normal(size=(7, group_size)), rng.normal(size=(3, 7))
    batch = gt.Batch(rewards, np.ones_like(rewards), np.ones(rewards.shape, dtype=np.int64), *fields, advantage.parameter_array)
    advantages = np.empty_like(rewards)
    advantage.function(batch, advantages)
    expected = found[0] * rewards + (found[1] * rewards.sum(axis=1) + found[2:5] @ fields + found[5])[:, None]
    np.testing.assert_allclose(advantages, expected, atol=1e-13)


def threshold(batch, advantages):
    """Compare rewards."""
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.rewards[b, g] if batch.rewards[b, g] > 0.5 else 0.0


def product(batch, advantages):
    """Multiply rewards."""
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.rewards[b, g] * batch.rewards[b].mean()


def root(batch, advantages):
    """Take a root."""
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = np.sqrt(1.0 + batch.rewards[b, g])


def neighbour(batch, advantages):
    """Compare neighbours: affine, but not alike."""
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.rewards[b, g] - batch.rewards[b, g - 1]


def constant(batch, advantages):
    """A = 1/2."""
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = 0.5


@pytest.mark.parametrize(
    ("kernel", "affine", "alike"),
    [(threshold, False, True), (product, False, True), (root, False, True), (neighbour, False, False), (constant, True, True)],
)
def test_what_a_kernel_does_decides_its_path(kernel, affine, alike, registry):
    found = gt.estimator(f"{kernel.__name__}_for_paths")(kernel)
    plain, penalised = gt.gallery.problem("linear"), gt.gallery.problem("kl-linear")
    assert (affine_coefficients(found.advantage, 4) is not None) is affine
    chosen = route_in_training(penalised, found, 4)
    assert chosen.is_called is not affine
    if not affine:
        assert chosen.kind == (CALLED if alike else IN_ORDER)
    assert (route_in_training(plain, found, 4).kind == TABLE) is alike


# ---- tables


@pytest.mark.parametrize("n_values", [1, 2, 3, 4])
@pytest.mark.parametrize("group_size", [1, 2, 6])
def test_multisets_have_numbers_of_their_own(n_values, group_size):
    ranks, seen = multiset_ranks(n_values, group_size), set()
    for rewards in np.ndindex(*(n_values,) * group_size):
        reached = np.cumsum(np.bincount(rewards, minlength=n_values))[:-1]
        seen.add((int(sum(ranks[level, s] for level, s in enumerate(reached))), tuple(sorted(rewards))))
    numbers = sorted(number for number, _ in seen)
    assert numbers == list(range(len(seen)))


@pytest.mark.parametrize("name", ["reinforce", "rloo", "dr_grpo", "grpo"])
@pytest.mark.parametrize("values", [[0.0, 1.0], [-1.0, 0.5, 2.0]])
def test_a_table_holds_the_kernels_advantages(name, values):
    advantage, values, group_size = gt.estimators()[name].advantage, np.array(values), 4
    table = advantage_table(advantage, tuple(values), group_size, UNREAD)
    for rewards in np.ndindex(*(values.size,) * group_size):
        seen = values[list(rewards)][None]
        batch = gt.Batch(
            seen, np.ones_like(seen), np.ones(seen.shape, dtype=np.int64), *map(np.array, UNREAD), advantage.parameter_array
        )
        advantages = np.empty_like(seen)
        advantage.function(batch, advantages)
        reached = np.cumsum(np.bincount(rewards, minlength=values.size))[:-1]
        place = sum(table.ranks[level, s] for level, s in enumerate(reached))
        np.testing.assert_allclose(table.advantages[0, place, list(rewards)], advantages[0], atol=1e-14)


def test_a_table_that_would_be_too_large_is_not_made():
    rloo = gt.estimators()["rloo"].advantage
    assert can_be_tabulated(rloo, 2, 1000, 1)
    assert not can_be_tabulated(rloo, 6, 64, 1)
    assert advantage_table(rloo, tuple(range(6)), 64, UNREAD) is None
    one_prompt, five_prompts = (tuple((0.5,) * prompts for _ in range(3)) for prompts in (1, 5))
    oracle = gt.estimators()["oracle"].advantage
    assert advantage_table(oracle, (0.0, 1.0), 1000, one_prompt) is not None
    assert advantage_table(oracle, (0.0, 1.0), 1000, five_prompts) is None
    six = gt.Bandit.from_law(np.arange(6.0), np.full((1, 6, 6), 1.0 / 6.0))
    assert route_in_training(gt.Problem(six, gt.TabularSoftmax(1, 6)), gt.estimators()["grpo"], 64).kind == CALLED


@pytest.mark.parametrize("name", ["optimal_loo", "trl_grpo_batch"])
def test_a_kernel_that_reads_more_than_rewards_has_no_table(name):
    assert advantage_table(gt.estimators()[name].advantage, (0.0, 1.0), 4, UNREAD) is None


@pytest.mark.parametrize("simulate", ["gradients", "training"])
def test_a_table_that_would_be_too_large_is_said_to_be(simulate):
    """Once, and not of kernels that need none, or whose rewards change with a penalty."""
    six = gt.Bandit.from_law(np.arange(6.0), np.full((1, 6, 6), 1.0 / 6.0))
    plain = gt.Problem(six, gt.TabularSoftmax(1, 6))
    penalised = gt.Problem(six, gt.TabularSoftmax(1, 6), gt.KL(0.1, np.arange(1.0, 7.0)[None] / 21.0))

    def run(problem, name, group_size):
        sizes = {"batch_size": 1, "group_size": group_size, "replications": 2, "rng": 0}
        if simulate == "gradients":
            gt.simulate_gradients(problem, np.zeros(6), name, **sizes)
        else:
            gt.simulate_training(problem, np.zeros(6), name, gt.Constant(0.1), steps=1, **sizes)

    size = 64 * math.comb(64 + 5, 5)
    message = f"estimator 'grpo' is called for every group.*6 reward values and groups of 64 their table has {size:,} numbers"
    with pytest.warns(gt.exact.TableSizeWarning, match=message) as caught:
        run(plain, "grpo", 64)
    assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for problem, name, group_size in (
            (plain, "grpo", 8),
            (plain, "rloo", 64),
            (penalised, "grpo", 64),
            (plain, "optimal_loo", 64),
        ):
            run(problem, name, group_size)


# ---- one estimate, whatever the path


@pytest.mark.parametrize("name", ["rloo", "grpo", "reinforce", "dapo", "tic_grpo"])
@pytest.mark.parametrize("problem", ["linear", "graded", "sequence-shared"])
def test_a_table_and_the_kernel_itself_give_the_same_bits(name, problem, monkeypatch):
    asked = gt.gallery.problem(problem)
    sizes = {"batch_size": 2, "group_size": 6, "steps": 40, "replications": 9, "rng": 3}
    one = gt.simulate_training(asked, asked.theta, name, gt.Constant(0.5), **sizes, inner_steps=2)
    assert not route_in_training(asked, gt.estimators()[name], 6).is_called
    for kind, exact in ((CALLED, True), (IN_ORDER, False)):
        monkeypatch.setattr(training_blocks, "route_in_training", lambda *_, kind=kind: Route(kind))
        other = gt.simulate_training(asked, asked.theta, name, gt.Constant(0.5), **sizes, inner_steps=2)
        np.testing.assert_allclose(other.theta, one.theta, atol=0.0 if exact else 1e-12)


@pytest.mark.parametrize("name", ["rloo", "dr_grpo", "oracle"])
def test_coefficients_and_the_kernel_itself_agree(name, monkeypatch):
    asked = gt.gallery.problem("kl-tabular")
    sizes = {"batch_size": 2, "group_size": 6, "steps": 40, "replications": 9, "rng": 3}
    one = gt.simulate_training(asked, asked.theta, name, gt.Constant(0.5), **sizes)
    monkeypatch.setattr(training_blocks, "route_in_training", lambda *_: Route(CALLED))
    other = gt.simulate_training(asked, asked.theta, name, gt.Constant(0.5), **sizes)
    np.testing.assert_allclose(other.theta, one.theta, atol=1e-12)
    assert np.ptp(other.theta) > 0.1


# ---- the drawn law


def count(pi, dither, words):
    """Count the responses of one group of WIDTH runs, (K, WIDTH); return the thresholds too, (K - 1, WIDTH)."""
    k = len(pi)
    thresholds, counts = np.zeros((1, k - 1, WIDTH), dtype=np.int32), np.zeros((1, k, WIDTH), dtype=np.int32)
    tiled = np.tile(np.array(pi)[:, None], (1, 1, WIDTH))
    groups = Groups(np.zeros((1, WIDTH), dtype=np.int64), counts, thresholds, np.zeros((2, WIDTH)))
    paths = TokenPaths(np.arange(k)[:, None], np.ones(k, dtype=np.int64), k)
    source = OutcomeSource(lookup(np.ones((1, 2))), lookup(np.ones((1, 0))), 1, len(words), paths)
    compiled(count_outcomes)(words, 0, source, dither, tiled, 0, 0, groups)
    return counts[0], thresholds[0]


def tally(probabilities, dithers, seed):
    """Draw 4,096 responses for each lane and dither; return how often each of the responses came."""
    rng = np.random.default_rng(seed)
    words = (rng.integers(-(1 << 31), 1 << 31, (8192, WIDTH), dtype=np.int32) for _ in iter(int, 1))
    return sum(count(probabilities, dither, next(words))[0].sum(axis=1, dtype=np.int64) for dither in dithers(rng))


@pytest.mark.parametrize("probabilities", [[0.2, 0.3, 0.5], [1e-9, 1.0 - 1e-9], [2.0**-30, 0.5, 0.5 - 2.0**-30], [0.25] * 4])
def test_drawn_responses_have_their_law(probabilities, seed):
    found = tally(probabilities, lambda rng: rng.random(64), seed(11))
    expected = found.sum() * np.array(probabilities)
    common = expected >= 5.0
    if common.sum() > 1:
        assert stats.chisquare(found[common], expected[common] * found[common].sum() / expected[common].sum()).pvalue > 1e-4
    for count, share in zip(found, probabilities, strict=True):
        assert stats.binomtest(int(count), int(found.sum()), share).pvalue > 1e-4


def test_thresholds_are_exact_in_the_mean_over_dithers():
    """The expected threshold is 2^30 F to the last place, which any one dither misses by up to 1."""
    nothing = np.zeros((0, WIDTH), dtype=np.int32)
    for share in (1.0 / 3.0, 1e-9, 1.0 - 1e-9):
        found = [count([share, 1.0 - share], dither, nothing)[1] for dither in (np.arange(4096) + 0.5) / 4096]
        assert np.mean(found) == pytest.approx(ONE * share, abs=1.0 / 4096)
        assert np.abs(found[0] - ONE * share).min() > 1e-3


def test_a_law_without_its_dither_would_be_found_out():
    """Power of the test of the mean over dithers, which the drawn numbers have only where probabilities are far larger."""
    share = 1.0 / 3.0
    _, thresholds = count([share, 1.0 - share], 0.0, np.zeros((0, WIDTH), dtype=np.int32))
    assert thresholds[0, 0] != pytest.approx(ONE * share, abs=1.0 / 4096)
