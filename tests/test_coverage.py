"""The coverage laboratory, against coverages that are known exactly, and against wrong intervals that it must catch."""

from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.stats import binom, binomtest

import grpo_theory as gt
from grpo_theory import intervals, laboratory, samples
from grpo_theory.laboratory import replications_to_tell
from grpo_theory.laboratory.coverage_record import empirical_error, model_error, relative_error
from grpo_theory.simulate.draw.streams import block_generator
from grpo_theory.validation import check_takes


@dataclass(frozen=True)
class Normal:
    """Samples of n standard normal vectors with J components, times a scale, about the problem."""

    n: int
    j: int = 1
    block_replications: int = 128

    def sample(self, problem, rng, replications):
        return problem + rng.normal(size=(replications, self.n, self.j))

    def take(self, block, i):
        return block[i]


def t_interval(data, level, narrow=1.0):
    """Student's interval for the mean of each component."""
    n = data.shape[-2]
    estimate, error = data.mean(axis=-2), data.std(axis=-2, ddof=1) / np.sqrt(n)
    half = narrow * stats.t.ppf(0.5 + level / 2.0, n - 1) * error
    return gt.Interval(estimate, error, estimate - half, estimate + half, level)


def hotelling(data, level):
    """Hotelling's ellipsoid for the mean vector."""
    n, j = data.shape[-2:]
    estimate = data.mean(axis=-2)
    deviation = data - estimate[..., None, :]
    covariance = np.einsum("...ni,...nj->...ij", deviation, deviation) / (n * (n - 1))
    radius = (n - 1) * j / (n - j) * stats.f.ppf(level, j, n - j)
    return gt.Ellipsoid(estimate, covariance, np.full(estimate.shape[:-1], radius), level)


for function in (t_interval, hotelling):
    function.vectorized = True


student = cache(stats.t.ppf)
"""Student's quantile, asked for thousands of times."""


def batch_means(rollouts, level):
    """Student's interval for the mean reward, from the prompts' means; one dataset at a time."""
    means = rollouts.rewards.mean(axis=-1)
    error = means.std(ddof=1) / np.sqrt(len(means))
    half = student(0.5 + level / 2.0, len(means) - 1) * error
    return gt.Interval(means.mean(), error, means.mean() - half, means.mean() + half, level)


@cache
def exact_limits(count, n, level):
    return tuple(binomtest(count, n).proportion_ci(level, method="exact"))


def clopper_pearson(rollouts, level):
    """The exact interval for the success probability of one prompt with binary rewards."""
    return exact_limits(int(rollouts.rewards.sum()), rollouts.rewards.size, level)


def value(problem):
    """E[Z]."""
    moments = gt.moments(problem, problem.theta)
    return problem.bandit.prompt_weights @ moments.value


LINEAR = gt.gallery.problem("linear")
TWO_ARMS = gt.gallery.problem("two-arms")


def normal_run(interval=t_interval, truth=(0.0,), experiment=Normal(5), **kwargs):
    return gt.coverage(interval, 0.0, truth, experiment=experiment, **({"replications": 300, "rng": 0} | kwargs))


# ---- counts and exact laws


def test_counts_are_those_of_a_loop_written_by_hand(seed):
    """Draw the blocks by their documented key, and count with scipy's own standard errors."""
    pilot = gt.Pilot(6, 4)
    run = gt.coverage(batch_means, LINEAR, value, experiment=pilot, replications=1500, rng=seed(1))
    low, high = [], []
    quantile = stats.t.isf(0.025, 5)
    for block in range(2):
        rewards = pilot.sample(LINEAR, block_generator(np.random.SeedSequence(seed(1)), block), 1365).rewards
        for means in rewards.mean(axis=-1):
            half = quantile * stats.sem(means)
            low.append(means.mean() - half)
            high.append(means.mean() + half)
    truth = float(value(LINEAR))
    hits = sum(a <= truth <= b for a, b in zip(low[:1500], high[:1500], strict=True))
    assert int(run.covered.sum()) == hits
    assert np.allclose(run.low, low[:1500], rtol=1e-12, atol=1e-12)
    assert np.allclose(run.high, high[:1500], rtol=1e-12, atol=1e-12)


def exact_coverage(probability, n, level):
    counts = np.arange(n + 1)
    inside = [low <= probability <= high for low, high in (exact_limits(int(k), n, level) for k in counts)]
    return float(binom.pmf(counts, n, probability) @ inside)


def test_clopper_pearson_has_its_exact_coverage_and_not_its_nominal_one(seed):
    """A finite sum; the interval is conservative, and the laboratory must say so."""
    truth, n, level = float(value(TWO_ARMS)), 12, 0.9
    exact = exact_coverage(truth, n, level)
    replications = replications_to_tell(level, exact, error=1e-3, power=0.999)
    assert replications < 20_000
    run = gt.coverage(
        clopper_pearson, TWO_ARMS, truth, experiment=gt.Pilot(1, n), level=level, replications=replications, rng=seed(2)
    )
    assert binomtest(int(run.covered.sum()), run.replications, exact).pvalue > 1e-5
    assert not run.consistent(1e-3)
    row = run.measures().set_index("measure").loc["coverage"]
    assert row["low"] < exact < row["high"]


@pytest.mark.parametrize("levels", [0.95, (0.5, 0.8, 0.99)])
def test_students_interval_is_exact_on_normal_data(levels, seed):
    kwargs = {"experiment": Normal(5, 2), "level": levels, "replications": 40_000, "rng": seed(3)}
    run = normal_run(truth=np.zeros(2), **kwargs)
    assert run.consistent(1e-3).all()
    assert run.coverage.shape == (2,) if levels == 0.95 else (3, 2)
    moved = normal_run(truth=np.full(2, 0.5), **kwargs)
    for number, level in enumerate(np.atleast_1d(levels)):
        quantile, shift = stats.t.ppf(0.5 + level / 2.0, 4), 0.5 * np.sqrt(5)
        exact = stats.nct.cdf(quantile, 4, shift) - stats.nct.cdf(-quantile, 4, shift)
        assert replications_to_tell(level, exact, error=1e-3 / moved.coverage.size, power=0.999) < 40_000
        for hits in moved.answers.covered[:, number].T:
            assert binomtest(int(hits.sum()), 40_000, exact).pvalue > 1e-5
    assert not moved.consistent(1e-3).any()


def test_an_interval_ten_percent_too_narrow_is_caught(seed):
    """By as many replications as it takes, computed beforehand from its true coverage."""
    n, level = 6, 0.95
    quantile = stats.t.ppf(0.5 + level / 2.0, n - 1)
    true_coverage = 1.0 - 2.0 * stats.t.sf(0.9 * quantile, n - 1)
    replications = replications_to_tell(level, true_coverage, error=1e-3, power=0.999)
    assert 2000 < replications < 20_000

    def narrow(data, level):
        return t_interval(data, level, narrow=0.9)

    kwargs = {"experiment": Normal(n), "replications": replications, "rng": seed(4), "vectorized": True}
    caught = normal_run(narrow, **kwargs)
    assert not caught.consistent(1e-3).any()
    assert binomtest(int(caught.covered.sum()), replications, true_coverage).pvalue > 1e-5
    assert normal_run(t_interval, **kwargs).consistent(1e-3).all()


def test_hotellings_ellipsoid_is_exact_and_the_box_around_it_is_not(seed):
    run = normal_run(hotelling, np.zeros(3), Normal(8, 3), level=(0.5, 0.9), replications=20_000, rng=seed(5))
    assert run.covered.shape == run.width.shape == run.failed.shape == (20_000, 2)
    assert run.low.shape == (20_000, 2, 3)
    assert run.consistent(1e-3).all()
    box = ((run.low <= 0.0) & (run.high >= 0.0)).all(axis=-1)
    assert binomtest(int(box[:, 1].sum()), 20_000, 0.9).pvalue < 1e-12
    table = run.measures()
    joint = table[table["component"] == "joint"]
    assert joint["measure"].tolist() == ["coverage", "mean width", "failures"] * 2
    assert set(table["component"]) == {"0", "1", "2", "joint"}
    assert "coverage" not in set(table[table["component"] == "0"]["measure"])
    assert run.nonnested == 0
    data = run.replay(77).data
    root = np.linalg.cholesky(np.cov(data.T) / 8.0)
    half = np.sqrt(7 * 3 / 5 * stats.f.ppf(0.9, 3, 5)) * np.linalg.norm(root, axis=1)
    assert np.allclose(run.high[77, 1], data.mean(axis=0) + half, rtol=1e-10)  # how far the ellipsoid reaches on each axis


def test_replications_to_tell_has_the_power_that_it_promises():
    """Exact binomial sums over the two tails, written here."""
    for level, other, error, power in ((0.95, 0.94, 1e-3, 0.99), (0.5, 0.6, 0.05, 0.8), (0.9, 0.97, 1e-6, 0.999)):
        counts = []
        for scale in (1.0, 0.9):
            n = int(scale * replications_to_tell(level, other, error=error, power=power))
            k = np.arange(n + 1)
            rejected = (binom.cdf(k, n, level) < error / 2.0) | (binom.sf(k - 1, n, level) <= error / 2.0)
            counts.append(binom.pmf(k, n, other) @ rejected)
        assert counts[0] >= power > counts[1]
    with pytest.raises(ValueError, match="coverage must differ from the level"):
        replications_to_tell(0.95, 0.95)
    with pytest.raises(ValueError, match="power must lie strictly between 0 and 1, got 1"):
        replications_to_tell(0.95, 0.9, power=1)


# ---- failures


def refusing(rollouts, level):
    """Refuse datasets without a failed response."""
    if rollouts.rewards.min() == 1.0:
        raise ValueError("all responses succeeded")
    return clopper_pearson(rollouts, level)


def test_failures_are_counted_and_stay_in_the_denominator(seed):
    experiment, n = gt.Pilot(1, 4), 3000
    truth = float(value(TWO_ARMS))
    run = gt.coverage(refusing, TWO_ARMS, truth, experiment=experiment, replications=n, rng=seed(6))
    whole = gt.coverage(clopper_pearson, TWO_ARMS, truth, experiment=experiment, replications=n, rng=seed(6))
    perfect = np.array([run.replay(r).data.rewards.min() == 1.0 for r in range(200)])
    assert np.array_equal(run.failed[:200], perfect)
    assert binomtest(int(run.failures), n, truth**4).pvalue > 1e-5
    assert int(run.covered.sum()) == int((whole.covered & ~run.failed).sum()) < int(whole.covered.sum())
    assert run.coverage == run.covered.sum() / n
    first = int(np.argmax(run.failed))
    assert run.first_failure == f"replication {first}: all responses succeeded"
    assert run.replay(first).refusal == "all responses succeeded"
    assert np.isnan(run.replay(first).interval.low)
    rows = run.measures().set_index("measure")
    assert rows.loc["coverage", "failures"] == run.failures
    assert rows.loc["failures", "estimate"] == run.failures / n


def test_a_block_with_a_refused_dataset_is_asked_one_by_one():
    def refuse_large(data, level):
        if (np.abs(data.mean(axis=-2)) > 0.5).any():
            raise ValueError("far out")
        return t_interval(data, level)

    def nan_for_large(data, level):
        found = t_interval(data, level)
        gone = np.abs(found.estimate) > 0.5
        return gt.Interval(found.estimate, found.standard_error, np.where(gone, np.nan, found.low), found.high, level)

    refused, nan, whole = (normal_run(f, vectorized=True) for f in (refuse_large, nan_for_large, t_interval))
    assert 0 < refused.failures[0] < 300
    assert np.array_equal(refused.failed, nan.failed)
    assert np.array_equal(refused.low[~refused.failed], whole.low[~refused.failed])
    assert not (refused.covered & refused.failed).any()
    assert refused.first_failure.endswith("far out")
    assert nan.first_failure.endswith("NaN limits")
    assert whole.first_failure is None
    kept = ~nan.failed[:, 0]
    rows, ranked = nan.measures().set_index("measure"), nan.zip()
    assert np.isclose(rows.loc["bias", "estimate"], nan.estimate[kept].mean(), rtol=1e-12)
    assert np.isclose(rows.loc["mean width", "estimate"], nan.width[kept].mean(), rtol=1e-12)
    assert ranked["z"].isna().tolist() == [False] * kept.sum() + [True] * (~kept).sum()


def test_a_dataset_that_the_experiment_cannot_hand_out_is_a_failure():
    class Diverging(Normal):
        def take(self, block, i):
            if block[i].max() > 2.0:
                raise ValueError("diverged")
            return block[i]

    run = normal_run(experiment=Diverging(5), vectorized=False)
    whole = normal_run(vectorized=False)
    assert 0 < run.failures[0] < 300
    assert np.array_equal(run.low[~run.failed], whole.low[~run.failed])
    assert run.first_failure.endswith("diverged")


def test_a_function_that_writes_on_its_data_does_not_change_them():
    def centring(data, level):
        estimate, found = data.mean(axis=-2), t_interval(data, level)
        data -= estimate
        return found

    runs = [normal_run(f, level=(0.5, 0.95), vectorized=False) for f in (centring, t_interval)]
    assert np.array_equal(runs[0].low, runs[1].low)
    assert np.array_equal(runs[0].replay(3).data, runs[1].replay(3).data)


def test_an_interval_that_always_refuses():
    def never(data, level):
        raise ValueError("never")

    run = normal_run(never)
    assert run.coverage == 0.0
    assert run.failures == 300
    assert set(run.measures()["measure"]) == {"coverage", "mean width", "failures"}
    with pytest.raises(ValueError, match="interval must give estimates and standard errors"):
        run.zip()


def test_singular_ellipsoids_are_failures():
    def singular(data, level):
        found = hotelling(data, level)
        return gt.Ellipsoid(found.estimate, 0.0 * found.covariance, found.squared_radius, level)

    def gaps(data, level):
        found = hotelling(data, level)
        gone = found.estimate[..., :1, None] > 0.0
        last = np.diag([False, True])
        return gt.Ellipsoid(found.estimate, np.where(gone & last, np.nan, found.covariance), found.squared_radius, level)

    sizes = {"truth": np.zeros(2), "experiment": Normal(5, 2), "vectorized": True}
    assert (normal_run(singular, **sizes).failures == 300).all()
    assert "ingular" in normal_run(singular, **sizes).first_failure
    gappy, whole = normal_run(gaps, **sizes), normal_run(hotelling, **sizes)
    gone = whole.estimate[:, 0] > 0.0
    assert np.array_equal(gappy.failed, gone)
    assert np.array_equal(gappy.covered, whole.covered & ~gone)


def test_other_errors_end_the_run_and_name_the_replication():
    def breaks(data, level):
        return 1.0 / int(data[0, 0] < 2.0), 2.0

    draws = np.concatenate([Normal(5).sample(0.0, block_generator(np.random.SeedSequence(0), b), 128) for b in range(3)])
    first = int(np.argmax(draws[:, 0, 0] >= 2.0))
    with pytest.raises(ZeroDivisionError, match=f"raised on replication {first};"):
        normal_run(breaks, truth=0.0, workers=1)
    with pytest.raises(KeyError, match="raised on replications 0 to 127;"):
        normal_run(lambda data, level: {}["missing"], vectorized=True, workers=1)


# ---- the key of a replication


@pytest.fixture(scope="module")
def whole():
    return gt.coverage(batch_means, LINEAR, value, experiment=gt.Pilot(16, 64), level=(0.8, 0.95), replications=150, rng=7)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_results_do_not_depend_on_workers(workers, whole):
    run = gt.coverage(
        batch_means,
        LINEAR,
        value,
        experiment=gt.Pilot(16, 64),
        level=(0.8, 0.95),
        replications=150,
        rng=7,
        workers=workers,
    )
    assert np.array_equal(run.low, whole.low)
    assert np.array_equal(run.covered, whole.covered)


@pytest.mark.parametrize("workers", [1, 3])
def test_functions_asked_side_by_side_are_each_asked_as_if_alone(workers):
    """Intervals, ellipsoids, one that refuses some datasets, and one that sees a dataset at a time; from the second block on."""

    def refusing(data, level):
        if (data[..., 0, 0] > 1.5).any():
            raise ValueError("too large")
        return t_interval(data, level)

    functions = {"student": t_interval, "joint": hotelling, "refusing": refusing, "single": lambda *asked: t_interval(*asked)}
    shared = {"experiment": Normal(6, 2), "level": (0.5, 0.9), "replications": 300, "rng": 7, "first": 128, "workers": workers}
    found = laboratory.coverage_of_several(functions, 0.2, lambda problem: np.full(2, problem), **shared)
    assert list(found) == list(functions)
    for name, function in functions.items():
        alone = gt.coverage(function, 0.2, np.full(2, 0.2), **shared)
        assert found[name].first_failure == alone.first_failure
        pd.testing.assert_frame_equal(found[name].measures(), alone.measures())
        assert np.array_equal(found[name].low, alone.low, equal_nan=True)
    assert 0 < found["refusing"].failures.max() < 300


def test_without_a_seed_functions_asked_side_by_side_still_see_the_same_data():
    found = laboratory.coverage_of_several({"a": t_interval, "b": t_interval}, 0.0, [0.0], experiment=Normal(6), replications=9)
    assert np.array_equal(found["a"].low, found["b"].low)
    assert np.array_equal(found["a"].replay(5).interval.low, found["b"].low[5])
    with pytest.raises(ValueError, match="functions must hold at least one"):
        laboratory.coverage_of_several({}, 0.0, [0.0], experiment=Normal(6), replications=9)


def half_as_wide(data, level):
    """Intervals about the same means, half as wide."""
    found = t_interval(data, level)
    middle, half = (found.low + found.high) / 2.0, (found.high - found.low) / 4.0
    return middle - half, middle + half


GRID = {"few": (0.2, Normal(6)), "many": (0.2, Normal(24))}


def scalar(function):
    """Make of a function for a vector of one number one for the number."""

    def asked(data, level):
        found = function(data, level)
        low, high = (found.low, found.high) if hasattr(found, "low") else found
        return low[..., 0], high[..., 0]

    return asked


def test_a_grid_of_designs_compares_functions_on_the_same_data():
    functions = {"student": scalar(t_interval), "half": scalar(half_as_wide), "again": scalar(t_interval)}
    asked = {"reference": "student", "replications": 400, "rng": 3}
    table = laboratory.coverage_grid(functions, GRID, 0.2, **asked)
    value = table.set_index(["design", "function", "measure"])
    for design in GRID:
        assert value.loc[(design, "again", "coverage less reference"), ["estimate", "mcse"]].tolist() == [0.0, 0.0]
        assert value.loc[(design, "half", "width over reference"), "estimate"] == pytest.approx(0.5, rel=1e-12)
        assert value.loc[(design, "half", "width over reference"), "mcse"] == pytest.approx(0.0, abs=1e-12)
        lost = value.loc[(design, "half", "coverage less reference")]
        shares = [value.loc[(design, name, "coverage"), "estimate"] for name in ("half", "student")]
        assert lost["estimate"] == pytest.approx(shares[0] - shares[1])
        # The narrower interval covers only where the wider one does: the difference is the share of the rest.
        assert lost["mcse"] == pytest.approx(np.sqrt(-lost["estimate"] * (1.0 + lost["estimate"]) / 399), rel=1e-9)
        assert lost["high"] < 0.0
    first = laboratory.coverage_grid(functions, {"few": GRID["few"]}, 0.2, **asked)
    pd.testing.assert_frame_equal(first, table[table["design"] == "few"])


def test_the_error_of_a_ratio_of_widths_is_that_of_repeated_grids():
    """Widths over those of a function that reads half of the data: the delta method against the spread of 200 grids."""
    functions = {"whole": scalar(t_interval), "half": scalar(lambda data, level: t_interval(data[..., :3, :], level))}
    asked = {"reference": "whole", "replications": 60}
    tables = [laboratory.coverage_grid(functions, {"few": GRID["few"]}, 0.2, **asked, rng=seed) for seed in range(200)]
    rows = pd.concat(tables).query("measure == 'width over reference'")
    spread, stated = rows["estimate"].std(), rows["mcse"].mean()
    assert stated / spread == pytest.approx(1.0, abs=0.2)  # four standard errors of a deviation of 200 values are 0.2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"designs": {}}, "designs must be a mapping of names to pairs"),
        ({"designs": {"one": 0.2}}, r"designs\['one'\] must be a pair \(problem, experiment\), got 0.2"),
        ({"reference": "other"}, "reference must be one of 'student', got 'other'"),
        ({"truth": [0.2]}, "truth must be one number at each design"),
    ],
)
def test_a_grid_that_cannot_be_is_refused(change, message):
    asked = {"functions": {"student": t_interval}, "designs": GRID, "truth": 0.2, "reference": None} | change
    with pytest.raises((TypeError, ValueError), match=message):
        laboratory.coverage_grid(**asked, replications=8, rng=0)


def test_chunks_merge_to_the_whole(whole):
    kwargs = {"experiment": gt.Pilot(16, 64), "level": (0.8, 0.95), "rng": 7}
    chunks = [
        gt.coverage(batch_means, LINEAR, value, replications=n, first=first, **kwargs)
        for first, n in ((0, 64), (64, 32), (96, 54))
    ]
    merged = chunks[0].merge(chunks[1]).merge(chunks[2])
    for name in ("estimate", "standard_error", "low", "high", "width", "covered", "failed"):
        assert np.array_equal(getattr(merged, name), getattr(whole, name))
    assert merged.measures().equals(whole.measures())
    assert merged.zip().equals(whole.zip())
    assert sorted(chunks[1].zip()["replication"].unique()) == list(range(64, 96))
    with pytest.raises(ValueError, match=r"differs in truth$"):
        chunks[0].merge(gt.coverage(batch_means, LINEAR, 0.5, replications=32, first=64, **kwargs))
    with pytest.raises(ValueError, match="other must start at replication 64, where this run ends, got 96"):
        chunks[0].merge(chunks[2])
    other = gt.coverage(batch_means, LINEAR, value, replications=32, first=64, **(kwargs | {"rng": 8, "level": (0.8, 0.9)}))
    with pytest.raises(ValueError, match=r"differs in seed, level$"):
        chunks[0].merge(other)
    with pytest.raises(ValueError, match="first must be a multiple of the experiment's block of 32 replications, got 40"):
        gt.coverage(batch_means, LINEAR, value, replications=32, first=40, **kwargs)


def test_failures_keep_their_numbers_through_a_merge(seed):
    kwargs = {"experiment": gt.Pilot(1, 1024), "replications": 32, "rng": seed(9)}

    def third(rollouts, level):
        if seen.pop(0) == 2:
            raise ValueError("third")
        return 0.0, 1.0

    seen = [0] * 32
    clean = gt.coverage(third, TWO_ARMS, 0.5, workers=1, **kwargs)
    seen = [0, 0, 2] + [0] * 29
    assert clean.merge(gt.coverage(third, TWO_ARMS, 0.5, workers=1, first=32, **kwargs)).first_failure == "replication 34: third"


@pytest.mark.parametrize("interval", [t_interval, hotelling])
@pytest.mark.parametrize("vectorized", [True, False])
def test_a_replay_gives_the_stored_limits_to_the_last_bit(interval, vectorized):
    kwargs = {"experiment": Normal(6, 2), "level": (0.5, 0.9), "vectorized": vectorized}
    rng = np.random.default_rng(11)
    run = gt.coverage(interval, 0.0, np.zeros(2), replications=300, rng=rng, **kwargs)
    for r in (0, 127, 128, 299):
        again = run.replay(r)
        free = gt.replay(interval, 0.0, np.zeros(2), replication=r, rng=run.seed, **kwargs)
        for found in (again, free):
            assert np.array_equal(found.interval.low, run.low[r])
            assert np.array_equal(found.interval.high, run.high[r])
            assert np.array_equal(found.interval.estimate, run.estimate[r])
            assert np.array_equal(found.covered, run.covered[r])
            assert found.interval.level == 0.9
            assert found.replication == r
        direct = interval(again.data, 0.9)
        assert np.allclose(direct.estimate, run.estimate[r, 1], rtol=1e-12)
    assert not np.array_equal(run.replay(1).interval.low, run.low[2])


def test_a_replication_is_the_same_in_a_longer_run():
    short, long = normal_run(replications=130), normal_run(replications=300)
    assert np.array_equal(short.low, long.low[:130])


# ---- measures


def reference(estimate, error, low, high, truth, null):
    """The estimators of Morris et al., Table 6, written out."""
    empirical = np.sqrt(np.sum((estimate - estimate.mean()) ** 2) / (len(estimate) - 1))
    model = np.sqrt(np.mean(error**2))
    return {
        "bias": np.mean(estimate) - truth,
        "empirical SE": empirical,
        "MSE": np.mean((estimate - truth) ** 2),
        "average model SE": model,
        "relative % error in model SE": 100.0 * (model / empirical - 1.0),
        "coverage": np.mean((low <= truth) & (truth <= high)),
        "bias-eliminated coverage": np.mean((low <= estimate.mean()) & (estimate.mean() <= high)),
        "rejection %": 100.0 * np.mean((null < low) | (null > high)),
        "mean width": np.mean(high - low),
    }


def bootstrap(run, truth, null, rng, resamples=800):
    """Standard deviations of the measures over resampled replications."""
    data = np.stack([run.estimate, run.standard_error, run.low, run.high])[:, :, 0]
    picks = rng.integers(0, run.replications, (resamples, run.replications))
    rows = [list(reference(*data[:, pick], truth, null).values()) for pick in picks]
    return np.std(rows, axis=0, ddof=1)


def test_measures_and_their_errors_against_a_bootstrap(seed):
    """At 4000 replications a bootstrap of 800 is good to 3%; a wrong constant is off by 29% or more."""
    truth, null = 0.1, 0.6
    run = normal_run(truth=[truth], experiment=Normal(8), replications=4000, rng=seed(12))
    rows = run.measures(null=null).set_index("measure")
    expected = reference(*(a[:, 0] for a in (run.estimate, run.standard_error, run.low, run.high)), truth, null)
    assert np.allclose(rows.loc[list(expected), "estimate"], list(expected.values()), rtol=1e-12)
    ratio = rows.loc[list(expected), "mcse"] / bootstrap(run, truth, null, np.random.default_rng(13))
    assert (np.abs(ratio - 1.0) < 0.12).all(), ratio
    assert rows.loc["failures", "estimate"] == 0.0
    inside = (rows["low"] <= rows["estimate"]) & (rows["estimate"] <= rows["high"])
    assert inside.all()


def test_the_errors_of_few_replications_are_those_of_the_table():
    """Morris et al., Table 6, of four replications, where n - 1 and n are a third apart."""
    estimate, error = np.array([0.3, -0.2, 0.9, 0.4]), np.array([0.5, 0.4, 0.6, 0.7])
    empirical = np.sqrt(((estimate - estimate.mean()) ** 2).sum() / 3.0)
    assert empirical_error(estimate) == pytest.approx((empirical, empirical / np.sqrt(2.0 * 3.0)), rel=1e-14)
    squares = error**2
    model = np.sqrt(squares.mean())
    spread = np.sqrt(((squares - squares.mean()) ** 2).sum() / 3.0)
    assert model_error(error) == pytest.approx((model, spread / np.sqrt(4.0 * 4.0) / model), rel=1e-14)
    variance = (spread / np.sqrt(4.0 * 4.0) / model**2) ** 2 + 1.0 / (2.0 * 3.0)
    ratio = model / empirical
    assert relative_error(estimate, error) == pytest.approx((100.0 * (ratio - 1.0), 100.0 * ratio * np.sqrt(variance)), rel=1e-14)


def test_the_error_of_the_empirical_standard_error_supposes_normal_estimates(seed):
    """On estimates with heavy tails Morris's formula is far too small: a limit of the formula, stated where it is used."""

    def cubed(data, level):
        found = t_interval(data, level)
        return gt.Interval(found.estimate**3, found.standard_error, found.low, found.high, level)

    run = normal_run(cubed, experiment=Normal(4), replications=4000, rng=seed(14), vectorized=True)
    formula = run.measures().set_index("measure").loc["empirical SE", "mcse"]
    resampled = bootstrap(run, 0.0, 0.0, np.random.default_rng(15))[1]
    assert formula < 0.6 * resampled


def test_exact_measures_of_the_mean_reward(seed):
    """Bias 0, and the exact standard error, of a mean of prompts' means."""
    run = gt.coverage(batch_means, LINEAR, value, experiment=gt.Pilot(6, 4), replications=4000, rng=seed(16))
    moments = gt.moments(LINEAR, LINEAR.theta)
    weights = LINEAR.bandit.prompt_weights
    between = weights @ moments.value**2 - (weights @ moments.value) ** 2
    variance = (between + weights @ moments.standard_deviation**2 / 4) / 6
    rows = run.measures().set_index("measure")
    for measure, exact in (
        ("bias", 0.0),
        ("empirical SE", np.sqrt(variance)),
        ("MSE", variance),
        ("average model SE", np.sqrt(variance)),
        ("relative % error in model SE", 0.0),
    ):
        assert abs(rows.loc[measure, "estimate"] - exact) < 4.9 * rows.loc[measure, "mcse"], measure
    assert abs(rows.loc["MSE", "estimate"] - weights @ moments.standard_deviation**2 / 24) > 4.9 * rows.loc["MSE", "mcse"]


def test_rejection_at_the_truth_is_what_coverage_leaves():
    run = normal_run()
    rows = run.measures(null=0.0).set_index("measure")
    assert np.isclose(rows.loc["rejection %", "estimate"], 100.0 * (1.0 - rows.loc["coverage", "estimate"]))
    assert "rejection %" not in set(run.measures()["measure"])


def test_the_tests_of_several_components_share_their_error():
    run = normal_run(truth=np.full(4, 0.4), experiment=Normal(5, 4))
    smallest = run.p_value().min()
    assert run.consistent(3.9 * smallest).all()
    assert not run.consistent(4.1 * smallest).all()


def test_needed_replications():
    run = normal_run()
    share = float(run.coverage[0])
    assert run.needed(0.005) == max(1900, int(np.ceil(share * (1.0 - share) / 0.005**2)))
    assert normal_run(lambda data, level: (-np.inf, np.inf), truth=0.0).needed(0.01) == 475
    with pytest.raises(ValueError, match="mcse must be finite and above 0"):
        run.needed(0.0)


def test_zip_ranks_by_distance_in_standard_errors():
    run = normal_run(truth=np.zeros(2), experiment=Normal(5, 2), level=(0.5, 0.9))
    table = run.zip()
    assert len(table) == 300 * 2 * 2
    part = table[(table["level"] == 0.9) & (table["component"] == "1")]
    assert np.array_equal(part["percentile"], 100.0 * np.arange(1, 301) / 300)
    assert (np.diff(np.abs(part["z"])) >= 0.0).all()
    quantile = stats.t.ppf(0.95, 4)
    assert np.array_equal(part["covered"], np.abs(part["z"]) <= quantile)
    assert np.array_equal(run.low[part["replication"], 1, 1], part["low"])


def test_the_record_prints_on_a_line():
    run = normal_run(lambda data, level: (-1.0, 1.0), truth=0.0)
    assert repr(run) == "Coverage(level=0.95, replications=300, coverage=1., failures=0)"


# ---- shapes, sides, levels


def test_one_sided_intervals(seed):
    def lower(data, level):
        found = t_interval(data, 2.0 * level - 1.0)
        return gt.Interval(found.estimate, found.standard_error, found.low, np.full_like(found.low, np.inf), level)

    run = normal_run(lower, replications=20_000, rng=seed(17), vectorized=True)
    assert run.consistent(1e-3).all()
    rows = run.measures(null=-10.0).set_index("measure")
    assert rows.loc["mean width", "estimate"] == np.inf
    assert np.isnan(rows.loc["mean width", "mcse"])
    assert rows.loc["rejection %", "estimate"] == 100.0
    pair = normal_run(lambda data, level: (-np.inf, t_interval(data, level).high))
    assert np.array_equal(pair.covered, pair.high >= 0.0)


@pytest.mark.parametrize(("truth", "share"), [(0.0, 1.0), (1.0, 1.0), (1.0 + 1e-15, 0.0), (-1e-300, 0.0)])
def test_limits_belong_to_the_interval(truth, share):
    assert normal_run(lambda data, level: (0.0, 1.0), truth=truth, replications=2).coverage == share


def test_pairs_have_no_estimates():
    run = normal_run(lambda data, level: (-1.0, 1.0), truth=0.0)
    assert run.coverage == 1.0
    assert np.isnan(run.estimate).all()
    assert set(run.measures()["measure"]) == {"coverage", "mean width", "failures"}


def test_arrays_of_quantities_keep_their_shape():
    def table(data, level):
        found = t_interval(data, level)
        shape = (*found.low.shape[:-1], 2, 3)
        parts = (np.reshape(part, shape) for part in (found.estimate, found.standard_error, found.low, found.high))
        return gt.Interval(*parts, level)

    run = normal_run(table, np.zeros((2, 3)), Normal(5, 6), vectorized=True)
    assert run.covered.shape == (300, 2, 3)
    assert run.coverage.shape == run.p_value().shape == (2, 3)
    assert set(run.measures()["component"]) == {f"{i},{j}" for i in range(2) for j in range(3)}


def test_nonnested_intervals_are_counted():
    def torn(data, level):
        found = t_interval(data, level)
        return found if data[0, 0] > 0.0 else t_interval(data, 1.0 - level)

    run = normal_run(torn, level=[0.6, 0.7])
    assert run.nonnested == sum(run.replay(r).data[0, 0] <= 0.0 for r in range(300)) > 100
    assert normal_run(level=[0.6, 0.7]).nonnested == 0
    assert normal_run(torn, level=0.6).nonnested == 0
    assert normal_run(lambda data, level: (0.0, 1.0 - level), truth=0.0, level=[0.6, 0.7]).nonnested == 300
    assert normal_run(lambda data, level: (level, 1.0), truth=0.0, level=[0.6, 0.7]).nonnested == 300


@pytest.mark.parametrize("level", [[0.9, 0.9], [0.95, 0.9], [0.0, 0.5], [0.5, 1.0], [], [np.nan, 0.5]])
def test_levels_must_be_nested(level):
    with pytest.raises(ValueError, match="level must be nested levels, which rise strictly between 0 and 1"):
        normal_run(level=level)


@pytest.mark.parametrize("level", [0, 1, 0.0, 1.0, -0.5, np.nan, True, None])
def test_a_level_lies_between_0_and_1(level):
    with pytest.raises(ValueError, match="level must lie strictly between 0 and 1"):
        normal_run(level=level)


# ---- bad inputs


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"replications": 0}, ValueError, "replications must be at least 1, got 0"),
        ({"replications": 2.5}, TypeError, "replications must be an integer"),
        ({"workers": 0}, ValueError, "workers must be at least 1"),
        ({"first": -128}, ValueError, "first must be at least 0"),
        ({"truth": np.nan}, ValueError, "truth must be finite, got nan"),
        ({"truth": [0.0, np.inf]}, ValueError, "truth must be finite, got inf"),
        ({"truth": []}, ValueError, "truth must not be empty"),
        ({"truth": "a"}, ValueError, "truth must be a real number or an array of them"),
        ({"truth": 0.0}, ValueError, r"truth must have the shape of the interval's limits, got \(\), and limits \(128, 1\)"),
        ({"truth": [0.0, 0.0]}, ValueError, r"got \(2,\), and limits \(1,\)\n?.*replication 0"),
        ({"interval": 3}, TypeError, "interval must be a function of"),
        ({"interval": lambda data: (0, 1)}, TypeError, r"a function of \(data, level\), got one of \(data\)\. Wrap it"),
        ({"interval": lambda data, level, *, seed: (0, 1)}, TypeError, r"got one of \(data, level, seed\)\. Wrap it, as in"),
        ({"interval": lambda: (0, 1)}, TypeError, r"got one without arguments\. Wrap"),
        ({"experiment": 3}, TypeError, "3 lacks block_replications, sample, take"),
        ({"interval": lambda data, level: 3.0}, TypeError, "interval must return an Interval, an Ellipsoid or a"),
        ({"interval": lambda data, level: None}, TypeError, "pair, got None"),
        ({"interval": lambda data, level: ("a", "b")}, TypeError, r"pair, got \('a', 'b'\)"),
        ({"interval": lambda data, level: (1, 2, 3)}, TypeError, r"pair, got \(1, 2, 3\)"),
        ({"interval": lambda data, level: ([1.0], [0.0])}, ValueError, "lower limits .* upper ones, got low = 1, high = 0"),
    ],
)
def test_bad_arguments_are_named(kwargs, error, message):
    if "truth" in kwargs and np.shape(kwargs["truth"]) == (2,):
        kwargs["vectorized"] = False
    with pytest.raises(error, match=message):
        normal_run(**kwargs)


def test_functions_that_can_be_called_with_data_and_level_are_asked():
    """Defaults and further arguments do no harm, and of a function without a signature nothing is known."""
    for take in (lambda data, level, more=3: (-9, 9), lambda *both: (-9, 9), partial(lambda more, data, level: (-9, 9), 3)):
        assert normal_run(take, vectorized=False, truth=0.0).failures == 0
    check_takes("interval", dict.fromkeys, "data", "level")
    check_takes("interval", max, "data", "level")


def test_a_replay_is_a_line():
    record = normal_run(vectorized=False, level=[0.5, 0.9])
    again = record.replay(3)
    limits = ", ".join(f"{side}={np.array2string(getattr(again.interval, side), precision=4)}" for side in ("low", "high"))
    assert repr(again) == f"Replay(replication=3, {limits}, covered={np.array2string(again.covered)})"

    def refuses(data, level):
        raise ValueError("too few")

    assert repr(normal_run(refuses).replay(5)) == "Replay(replication=5, refusal='too few')"


def test_numbers_of_the_wrong_shape_are_named():
    def three_estimates(data, level):
        return gt.Interval(np.zeros(3), 1.0, -1.0, 1.0, level)

    with pytest.raises(ValueError, match=r"interval must return estimate of the limits' shape \(\) or a number, got \(3,\)"):
        normal_run(three_estimates, truth=0.0)


@pytest.mark.parametrize("level", [[0.5, "high"], [[0.5, 0.9]]])
def test_levels_are_numbers(level):
    with pytest.raises(ValueError, match="level must be a number or a rising sequence of numbers"):
        normal_run(level=level)


def test_ellipsoids_always_or_never():
    def either(data, level):
        return hotelling(data, level) if data[0, 0] > 0.0 else t_interval(data, level)

    with pytest.raises(TypeError, match="interval must return ellipsoids always or never"):
        normal_run(either, np.zeros(2), Normal(5, 2))


def test_the_names_are_at_the_top():
    for room, names in (
        (laboratory, ("Coverage", "Pilot", "RecordedTraining", "coverage", "replay")),
        (intervals, ("Ellipsoid", "Interval")),
        (samples, ("Rollouts", "TrainingRecord")),
    ):
        for name in names:
            assert getattr(gt, name) is getattr(room, name)
