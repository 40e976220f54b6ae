"""The coverage laboratory, against coverages that are known exactly, and against wrong intervals that it must catch."""

import re
from dataclasses import FrozenInstanceError, dataclass, replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import fdtri, ndtri, stdtrit
from scipy.stats import binom, binomtest

import grpo_theory as gt
from grpo_theory import laboratory
from grpo_theory.laboratory import replications_to_tell
from grpo_theory.laboratory.measurement import errors
from grpo_theory.simulate.draws import block_generator


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
    half = narrow * stdtrit(n - 1, 0.5 + level / 2.0) * error
    return gt.Interval(estimate, error, estimate - half, estimate + half, level)


def hotelling(data, level):
    """Hotelling's ellipsoid for the mean vector."""
    n, j = data.shape[-2:]
    estimate = data.mean(axis=-2)
    deviation = data - estimate[..., None, :]
    covariance = np.einsum("...ni,...nj->...ij", deviation, deviation) / (n * (n - 1))
    radius = (n - 1) * j / (n - j) * fdtri(j, n - j, level)
    return gt.Ellipsoid(estimate, covariance, np.full(estimate.shape[:-1], radius), level)


for function in (t_interval, hotelling):
    function.vectorized = True


def batch_means(rollouts, level):
    """Student's interval for the mean reward, from the prompts' means; one dataset at a time."""
    return t_interval(rollouts.rewards.mean(axis=-1)[:, None], level)


def value(problem):
    """E[Z], of one component."""
    return [gt.objective(problem, problem.theta)]


LINEAR, TWO_ARMS = gt.gallery.problem("linear"), gt.gallery.problem("two-arms")
SUCCESS = float(value(TWO_ARMS)[0])


def normal_run(interval=t_interval, truth=(0.0,), experiment=Normal(5), **kwargs):
    return gt.coverage(interval, 0.0, truth, experiment=experiment, **({"replications": 300, "rng": 0} | kwargs))


def test_blocks_are_drawn_by_their_documented_key_and_counted_as_a_loop_does():
    pilot = gt.Pilot(6, 4)
    run = gt.coverage(batch_means, LINEAR, value, experiment=pilot, replications=1500, rng=1)
    drawn = [pilot.sample(LINEAR, block_generator(np.random.SeedSequence(1), block), 1365).rewards for block in range(2)]
    means = np.concatenate(drawn).mean(axis=-1)[:1500]
    half = stats.t.isf(0.025, 5) * stats.sem(means, axis=1)
    np.testing.assert_allclose(run.low[:, 0], means.mean(axis=1) - half, rtol=1e-12, atol=1e-12)
    assert run.covered.sum() == (np.abs(means.mean(axis=1) - value(LINEAR)[0]) <= half).sum()
    assert run.replay(3).interval.low == run.low[3]


def test_a_record_is_not_written_on_and_of_one_number_its_p_value_is_a_float():
    run = normal_run(lambda data, level: (-1.0, 1.0), truth=0.0)
    assert isinstance(run.p_value(), float)
    for record in (run, run.trial):
        with pytest.raises(FrozenInstanceError):
            record.level = 0.5
    described = re.findall(r"^    (\w.*) : ", gt.Coverage.__doc__.split("Examples")[0], re.MULTILINE)
    assert {name for names in described for name in names.split(", ")} <= {*dir(gt.Coverage)}


def test_clopper_pearson_has_its_exact_coverage_and_refusals_stay_in_the_denominator(seed):
    """A finite sum; the interval is conservative, and the laboratory must say so."""
    n, level, counts = 4, 0.9, np.arange(5)
    limits = [tuple(binomtest(int(k), n).proportion_ci(level, method="exact")) for k in counts]
    exact = float(binom.pmf(counts, n, SUCCESS) @ [low <= SUCCESS <= high for low, high in limits])
    replications = replications_to_tell(level, exact, error=1e-3, power=0.999)

    def refusing(rollouts, level):
        if rollouts.rewards.min() == 1.0:
            raise ValueError("all responses succeeded")
        return limits[int(rollouts.rewards.sum())]

    asked = {"experiment": gt.Pilot(1, n), "level": level, "replications": replications, "rng": seed(2)}
    whole = gt.coverage(lambda rollouts, level: limits[int(rollouts.rewards.sum())], TWO_ARMS, SUCCESS, **asked)
    run = gt.coverage(refusing, TWO_ARMS, SUCCESS, **asked)
    assert binomtest(int(whole.covered.sum()), replications, exact).pvalue > 1e-5
    assert not whole.consistent(1e-3)
    row = whole.measures().set_index("measure").loc["coverage"]
    assert (row["low"], row["high"]) == pytest.approx(binomtest(int(whole.covered.sum()), replications).proportion_ci(), rel=1e-9)
    assert binomtest(int(run.failures), replications, SUCCESS**4).pvalue > 1e-5
    assert run.coverage == (whole.covered & ~run.failed).sum() / replications
    first = int(np.argmax(run.failed))
    assert run.answers.refusals[first] == "all responses succeeded"
    assert run.replay(int(np.flatnonzero(run.failed)[-1])).refusal == "all responses succeeded"
    assert run.measures().set_index("measure").loc["coverage", "failures"] == run.failures


def test_students_interval_is_exact_on_normal_data_and_wrong_truths_and_narrow_limits_are_caught(seed):
    levels = (0.5, 0.8, 0.99)
    asked = {"experiment": Normal(5, 2), "level": levels, "replications": 20_000, "rng": seed(3), "vectorized": True}
    run, moved = normal_run(truth=np.zeros(2), **asked), normal_run(truth=np.full(2, 0.5), **asked)
    narrow = normal_run(partial(t_interval, narrow=0.9), np.zeros(2), **asked)
    assert run.consistent(1e-3).all()
    for number, level in enumerate(levels):
        quantile, shift = stats.t.ppf(0.5 + level / 2.0, 4), 0.5 * np.sqrt(5)
        away = stats.nct.cdf(quantile, 4, shift) - stats.nct.cdf(-quantile, 4, shift)
        for found, exact in ((moved, away), (narrow, 1.0 - 2.0 * stats.t.sf(0.9 * quantile, 4))):
            assert all(binomtest(int(hits.sum()), 20_000, exact).pvalue > 1e-5 for hits in found.covered[:, number].T)
    smallest = run.p_value().min()
    assert run.consistent(5.9 * smallest).all()
    assert not run.consistent(6.1 * smallest).all()


def test_hotellings_ellipsoid_is_exact_and_the_box_around_it_is_not(seed):
    run = normal_run(hotelling, np.zeros(3), Normal(8, 3), level=(0.5, 0.9), replications=20_000, rng=seed(5))
    assert run.consistent(1e-3).all()
    box = ((run.low <= 0.0) & (run.high >= 0.0)).all(axis=-1)
    assert binomtest(int(box[:, 1].sum()), 20_000, 0.9).pvalue < 1e-12
    table = run.measures()
    assert table.loc[table["component"] == "joint", "measure"].tolist() == ["coverage", "mean width", "failures"] * 2
    data = run.replay(77).data
    half = np.sqrt(7 * 3 / 5 * stats.f.ppf(0.9, 3, 5)) * np.sqrt(np.diag(np.cov(data.T)) / 8.0)
    np.testing.assert_allclose(run.high[77, 1], data.mean(axis=0) + half, rtol=1e-10)  # how far it reaches on each axis


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


def test_a_block_with_a_refused_dataset_is_asked_one_by_one():
    def refuse_large(data, level):
        if (np.abs(data.mean(axis=-2)) > 0.5).any():
            raise ValueError("far out")
        return t_interval(data, level)

    def nan_for_large(data, level):
        found = t_interval(data, level)
        return replace(found, low=np.where(np.abs(found.estimate) > 0.5, np.nan, found.low))

    refused, nan, whole = (normal_run(f, vectorized=True) for f in (refuse_large, nan_for_large, t_interval))
    assert 0 < refused.failures[0] < 300
    assert np.array_equal(refused.failed, nan.failed)
    assert np.array_equal(refused.low[~refused.failed], whole.low[~refused.failed])
    assert not (refused.covered & refused.failed).any()
    assert {*refused.answers.refusals} == {*np.flatnonzero(refused.failed)}
    assert not nan.answers.refusals
    bias = nan.measures().set_index("measure").loc["bias", "estimate"]
    assert np.isclose(bias, nan.estimate[~nan.failed].mean(), rtol=1e-12)


def test_singular_ellipsoids_are_failures_and_data_that_a_function_writes_on_are_copies():
    def run(change, **how):
        """With covariances that are changed, knowing where the first estimate is above 0."""

        def changed(data, level):
            one = hotelling(data, level)
            return replace(one, covariance=change(one.covariance, one.estimate[..., :1, None] > 0.0))

        return normal_run(changed, np.zeros(2), Normal(5, 2), **how)

    found = run(lambda covariance, gone: np.where(gone, 0.0, covariance), vectorized=False)
    whole = run(lambda covariance, _: covariance, vectorized=False)
    gone = whole.estimate[:, 0] > 0.0
    assert np.array_equal(found.failed, gone)
    assert np.array_equal(found.covered, whole.covered & ~gone)
    assert {"ingular" in why for why in found.answers.refusals.values()} == {True}
    flat = run(lambda covariance, gone: np.where(gone & np.diag([False, True]), np.nan, covariance), vectorized=True)
    assert np.array_equal(flat.failed, gone)
    with np.errstate(invalid="ignore"):  # a negative distance is within any radius
        assert not run(lambda covariance, _: -covariance, vectorized=True, workers=1).covered.any()

    def centring(data, level):
        estimate, found = data.mean(axis=-2), t_interval(data, level)
        data -= estimate
        return found

    runs = [normal_run(f, level=(0.5, 0.95), vectorized=False) for f in (centring, t_interval)]
    assert np.array_equal(runs[0].low, runs[1].low)


def test_functions_side_by_side_chunks_and_replays_give_the_same_bits():
    """Intervals, ellipsoids, one that refuses some datasets, and one that sees a dataset at a time."""

    def refusing(data, level):
        if (data[..., 0, 0] > 1.5).any():
            raise ValueError("too large")
        return t_interval(data, level)

    functions = {"student": t_interval, "joint": hotelling, "refusing": refusing, "single": lambda *asked: t_interval(*asked)}
    truth, shared = np.full(2, 0.2), {"experiment": Normal(6, 2), "level": (0.5, 0.9), "rng": 7}
    found = laboratory.coverage_of_several(functions, 0.2, lambda problem: truth, **shared, replications=300, workers=3)
    for name, function in functions.items():
        run = partial(gt.coverage, function, 0.2, truth, **shared, workers=1)
        first, second = run(replications=128), run(replications=172, first_block=1)
        merged, whole = first.merge(second), found[name]
        pd.testing.assert_frame_equal(merged.measures(), whole.measures())
        pd.testing.assert_frame_equal(merged.zip(), whole.zip())
        assert set(second.answers.refusals) == {i for i in whole.answers.refusals if i >= 128}
        for r in (0, 299):
            again = gt.replay(function, 0.2, truth, replication=r, **shared)
            assert np.array_equal(again.interval.low, whole.low[r], equal_nan=True)
    assert 0 < found["refusing"].failures.max() < 300
    for change, message in (
        ({"first_block": 2}, "other must start at replication 128, where this run ends, got 256"),
        ({"first_block": 1, "rng": 8, "level": (0.8, 0.9)}, r"differs in seed, level$"),
    ):
        start = gt.coverage(t_interval, 0.2, truth, **shared, replications=128)
        with pytest.raises(ValueError, match=message):
            start.merge(gt.coverage(t_interval, 0.2, truth, **shared | {"replications": 44} | change))


def test_a_grid_of_designs_compares_functions_on_the_same_data():
    """Intervals half as wide, and of half of the data."""

    def limits(data, level, width=1.0):
        found = t_interval(data, level, width)
        return found.low[..., 0], found.high[..., 0]

    functions = {"student": limits, "half": partial(limits, width=0.5), "few": lambda data, level: limits(data[:3], level)}
    experiment = Normal(6)
    table = laboratory.coverage_grid(functions, {"six": (0.2, experiment)}, 0.2, reference="student", rng=3, replications=400)
    value = table.set_index(["function", "measure"])
    assert value.loc[("half", "width over reference"), "estimate"] == pytest.approx(0.5, rel=1e-12)
    lost = value.loc[("half", "coverage less reference")]
    assert lost["estimate"] == pytest.approx(np.subtract(*(value.loc[(n, "coverage"), "estimate"] for n in ("half", "student"))))
    # The narrower interval covers only where the wider one does: the difference is the share of the rest.
    assert lost["mcse"] == pytest.approx(np.sqrt(-lost["estimate"] * (1.0 + lost["estimate"]) / 399), rel=1e-9)
    # The ratio's error by the delta method is that of the jackknife.
    asked = {"experiment": experiment, "rng": np.random.SeedSequence(3).spawn(1)[0], "replications": 400}
    records = laboratory.coverage_of_several(functions, 0.2, 0.2, **asked)
    own, other = records["few"].width, records["student"].width
    ratios = np.array([np.delete(own, i).mean() / np.delete(other, i).mean() for i in range(400)])
    error = np.sqrt(399 / 400 * ((ratios - ratios.mean()) ** 2).sum())
    assert value.loc[("few", "width over reference"), "mcse"] == pytest.approx(error, rel=0.02)


def test_a_grid_over_factors_has_the_measures_of_a_normal_mean(check_refused):
    """The z interval with a standard deviation of its own covers as often as |N(0, 1)| is below its z times that."""

    def z_interval(data, level, deviation):
        estimate, error = data.mean(), deviation / np.sqrt(data.size)
        half = ndtri(0.5 + level / 2.0) * error
        return gt.Interval(estimate, error, estimate - half, estimate + half, level)

    methods = {name: partial(z_interval, deviation=deviation) for name, deviation in (("right", 1.0), ("half", 0.5))}
    asked = {"factors": {"n": (4, 25), "mean": (0.2, -3.0)}, "replications": 4000, "rng": 5}
    grid = laboratory.coverage_grid(methods, lambda n, mean: (mean, Normal(n)), lambda mean: mean, **asked)
    assert len(grid) == len(grid.groupby(["n", "mean", "function", "measure"])) == 4 * 2 * 9
    for (n, method), part in grid.groupby(["n", "function"]):
        deviation, error, z = {"right": 1.0, "half": 0.5}[method], 1.0 / np.sqrt(n), ndtri(0.975)
        known = {"bias": 0.0, "empirical SE": error, "MSE": error**2, "average model SE": deviation * error, "failures": 0.0}
        known |= {"coverage": 2.0 * stats.norm.cdf(z * deviation) - 1.0, "mean width": 2.0 * z * deviation * error}
        for row in part[part["measure"].isin(known)].itertuples():
            assert abs(row.estimate - known[row.measure]) <= 4.9 * row.mcse + 1e-12, row
            assert row.mcse < 0.03 * error or row.measure == "coverage"
    lines = str(grid).splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == ["right", "half"]
    many = laboratory.coverage_grid(dict.fromkeys("abcdefghij", methods["half"]), {"six": (0.2, Normal(6))}, 0.2, replications=8)
    assert len(str(many).splitlines()) == 10
    grid = partial(partial, laboratory.coverage_grid, methods, truth=0.0, replications=4)
    check_refused(
        *((grid(designs, factors=none), "factors must be") for designs, none in ((len, {}), (len, {"n": ()}), ({}, None))),
        (grid({}, factors={"n": (3,)}), "designs must be a function of the factors"),
        error=TypeError,
    )


def morris(estimate, error, low, high, truth, null):
    """The estimators of Morris et al., Table 6, written out."""
    empirical, model = estimate.std(ddof=1), np.sqrt(np.mean(error**2))
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


def test_measures_and_their_errors_against_a_bootstrap(seed):
    """At 4000 replications a bootstrap of 800 is good to 3%; a wrong constant is off by 29% or more."""
    truth, null = 0.1, 0.6
    run = normal_run(truth=[truth], experiment=Normal(8), replications=4000, rng=seed(12))
    rows = run.measures(null=null).set_index("measure")
    data = np.stack([run.estimate, run.standard_error, run.low, run.high])[:, :, 0]
    expected = morris(*data, truth, null)
    assert np.allclose(rows.loc[list(expected), "estimate"], list(expected.values()), rtol=1e-12)
    picks = np.random.default_rng(13).integers(0, 4000, (800, 4000))
    spread = np.std([list(morris(*data[:, pick], truth, null).values()) for pick in picks], axis=0, ddof=1)
    ratio = rows.loc[list(expected), "mcse"] / spread
    assert (np.abs(ratio - 1.0) < 0.12).all(), ratio
    assert ((rows["low"] <= rows["estimate"]) & (rows["estimate"] <= rows["high"])).all()


def test_the_errors_of_few_replications_are_those_of_the_table():
    """Morris et al., Table 6, of four replications, where n - 1 and n are a third apart."""
    estimate, error = np.array([0.3, -0.2, 0.9, 0.4]), np.array([0.5, 0.4, 0.6, 0.7])
    empirical = np.sqrt(((estimate - estimate.mean()) ** 2).sum() / 3.0)
    squares, model = error**2, np.sqrt((error**2).mean())
    spread, ratio = np.sqrt(((squares - squares.mean()) ** 2).sum() / 3.0), model / empirical
    variance = (spread / np.sqrt(4.0 * 4.0) / model**2) ** 2 + 1.0 / (2.0 * 3.0)
    expected = [(empirical, empirical / np.sqrt(2.0 * 3.0)), (model, spread / np.sqrt(4.0 * 4.0) / model)]
    expected += [(100.0 * (ratio - 1.0), 100.0 * ratio * np.sqrt(variance))]
    np.testing.assert_allclose(errors(estimate, error), expected, rtol=1e-14)


def test_zip_ranks_by_distance_in_standard_errors():
    run = normal_run(truth=np.zeros(2), experiment=Normal(5, 2), level=(0.5, 0.9))
    table = run.zip()
    part = table[(table["level"] == 0.9) & (table["component"] == "1")]
    assert np.array_equal(part["percentile"], 100.0 * np.arange(1, 301) / 300)
    assert (np.diff(np.abs(part["z"])) >= 0.0).all()
    assert np.array_equal(part["covered"], np.abs(part["z"]) <= stats.t.ppf(0.95, 4))
    assert np.array_equal(run.low[part["replication"], 1, 1], part["low"])


def test_bad_arguments_are_named(check_refused):
    run = partial(partial, normal_run)
    check_refused(
        (run(replications=0), "replications must be at least 1"),
        (run(truth=0.0), "truth must have the shape of the interval's limits"),
        (run(lambda data: (0, 1)), r"a function of \(data, level\), got one of \(data\)"),
        (run(lambda data, level, more: (0, 1)), r"a function of \(data, level\), got one of \(data, level, more\)"),
        (run(experiment=3), "3 lacks block_replications, sample, take"),
        (run(lambda data, level: (1, 2, 3)), r"pair, got \(1, 2, 3\)"),
        (run(lambda data, level: ([1.0], [0.0])), "lower limits .* upper ones"),
        error=(TypeError, ValueError),
    )
