"""The coverage laboratory: try any interval function on data of which the truth is known, and what every replication said."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import ceil, nan, sqrt
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import ndtri

from grpo_theory.intervals.interval import around, binomial_limits
from grpo_theory.laboratory.trial import FIELDS, Answers, Experiment, IntervalFunction, Replay, Table, Trial, Truth, check_takes
from grpo_theory.simulate.draws import Rng, as_seed_sequence, map_in_order
from grpo_theory.validation import Array, Flags, Integers, as_count, as_flag, as_fraction, as_numbers, shown


def replications_to_tell(level: float, coverage: float, *, error: float = 1e-3, power: float = 0.99) -> int:
    """Return how many replications tell a true coverage from the nominal level.

    Parameters
    ----------
    level, coverage : float
        The nominal level, and the true coverage that is to be told from it.
    error : float, default 1e-3
        Of the exact test of the level, half of it in each tail.
    power : float, default 0.99

    Returns
    -------
    int
        A number at which the test's exact power is enough: what the normal approximation says, or at most 2% more than needed.

    Raises
    ------
    ValueError
        If an argument does not lie strictly between 0 and 1, or coverage is the level.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> gt.laboratory.replications_to_tell(0.95, 0.94)
    16772
    """
    from scipy.stats import binom  # slow to import, and seldom wanted

    for name, value in (("level", level), ("coverage", coverage), ("error", error), ("power", power)):
        as_fraction(name, value)
    if coverage == level:
        raise ValueError(f"coverage must differ from the level {level:g}, got the same")
    null, other = sqrt(level * (1.0 - level)), sqrt(coverage * (1.0 - coverage))
    # The normal approximation starts the search, and the exact power ends it.
    # At level q and coverage p it is n = [(z_{1-error/2} sqrt(q (1-q)) + z_power sqrt(p (1-p)))/(p - q)]^2
    # (docs/derivations.md, section 12).
    n = ceil(((-ndtri(error / 2.0) * null + ndtri(power) * other) / (coverage - level)) ** 2)
    while True:
        below, above = binom.ppf(error / 2.0, n, level) - 1, binom.isf(error / 2.0, n, level)
        # The power is P(hits <= below) + P(hits > above) at the coverage: two binomial tails (docs/derivations.md, section 12).
        if binom.cdf(below, n, coverage) + binom.sf(above, n, coverage) >= power:
            return n
        n = ceil(1.02 * n)


Measured = tuple[float, float]
"""An estimate and its Monte Carlo standard error; NaN where there are too few replications."""
Row = tuple[str, float, float, float, float]
"""Measure, estimate, Monte Carlo standard error, and limits."""
SHOWN = ["estimate", "standard_error", "low", "high", "covered"]


def mean(values: Array) -> Measured:
    """Return the mean of n values; its error is NaN if one of them is infinite."""
    n = len(values)
    error = float(values.std(ddof=1)) / sqrt(n) if n > 1 and np.isfinite(values).all() else nan
    return float(values.mean()) if n else nan, error


def errors(estimate: Array, standard_error: Array) -> tuple[Measured, Measured, Measured]:
    """Return the measures of error (Morris, White and Crowther 2019, Table 6): what it is, what intervals took it for, and more.

    These are the standard deviation of the estimates, and the root of the mean of the squared standard errors.  Last is by how
    many percent the second exceeds the first.
    """
    freedom = len(estimate) - 1
    empirical = float(estimate.std(ddof=1)) if freedom else nan
    variance, mcse = mean(standard_error**2)
    model = sqrt(variance) if variance >= 0.0 else nan
    # The delta method: sqrt(v) errs by (error of v)/(2 sqrt(v)).
    spread = mcse / (2.0 * model) if model > 0.0 else nan
    # sd/sqrt(2 (n - 1)).
    found = (empirical, empirical / sqrt(2.0 * freedom) if freedom else nan), (model, spread)
    if not empirical > 0.0 or not model > 0.0:
        return *found, (nan, nan)
    ratio = model / empirical
    # Squared relative errors of the model SE and the empirical SE add up; that of the latter is 1/(2 (n - 1)).
    return *found, (100.0 * (ratio - 1.0), 100.0 * ratio * sqrt((spread / model) ** 2 + 0.5 / freedom))


def measured(part: Table, truth: float, null: float | None, confidence: float, *, of: str) -> Iterator[Row]:
    """Yield the measures of R replications (R,) of the statements on one number.

    An "interval" has all of them. The "shadow" of an ellipsoid on an axis has those of the estimates and their standard errors,
    with normal limits. A "joint" set has those that every confidence set has, with exact limits of their own. A failure is in the
    denominator of the coverage.
    """
    known = part[np.isfinite(part["estimate"]) & ~part["failed"]]
    if of != "joint" and known.size:
        deviation = known["estimate"] - truth
        empirical, model, relative = errors(known["estimate"], known["standard_error"])
        yield normal_row("bias", mean(deviation), confidence)
        yield normal_row("empirical SE", empirical, confidence)
        yield normal_row("MSE", mean(deviation**2), confidence)
        yield normal_row("average model SE", model, confidence)
        yield normal_row("relative % error in model SE", relative, confidence)
    if of != "shadow":
        yield exact_row("coverage", part["covered"], confidence)
        yield normal_row("mean width", mean(part["width"][~part["failed"]]), confidence)
        yield exact_row("failures", part["failed"], confidence)
    if of == "interval" and known.size:
        centre = known["estimate"].mean()
        yield exact_row("bias-eliminated coverage", (part["low"] <= centre) & (centre <= part["high"]), confidence)
    if of == "interval" and null is not None:
        name, *row = exact_row("rejection %", (null < part["low"]) | (part["high"] < null), confidence)
        yield name, *(100.0 * number for number in row)  # type: ignore[misc]


def normal_row(name: str, measured: Measured, confidence: float) -> Row:
    """Return a measure with normal limits."""
    found = around(*measured, confidence)
    return name, *measured, float(found.low), float(found.high)


def exact_row(name: str, hits: Flags, confidence: float) -> Row:
    """Return a share with Clopper and Pearson's limits."""
    count, share = int(hits.sum()), float(hits.mean())
    low, high = map(float, binomial_limits(count, len(hits) - count, confidence))
    return name, share, sqrt(share * (1.0 - share) / len(hits)), low, high


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Coverage:
    """R replications of an interval function against a truth of shape C.

    Arrays have a leading axis of R replications, then one of L levels if levels were given as a sequence.  S is C; for an
    ellipsoid, which covers all J quantities or not, S is C without its last axis.

    Attributes
    ----------
    trial : Trial
        The interval function, the problem, the experiment, the truth, the level or levels, and the seed.
    first_block : int
        The number of the first block of replications.
    answers : Answers
        The same arrays with the axis of levels always there.
    first, replications : int
        The number of the first replication, and the number R of replications.
    level : float or tuple of float
        The nominal level, or levels.
    truth : ndarray, shape C
        What was to be covered.
    seed : SeedSequence
        Given as rng, it draws the same data.
    estimate, standard_error : ndarray
        The estimates, and the standard errors that the intervals were built on; NaN where there is none.
    low, high : ndarray
        The limits; NaN where the interval function failed.
    width : ndarray
        The widths, ending in S; NaN where the interval function failed.
    covered, failed : ndarray of bool
        Which sets hold the truth, which a failure does not, and where there are no limits; ending in S.
    coverage, mcse : ndarray, shape S or (L, *S)
        The share of all replications, failures among them, that cover the truth, and its Monte Carlo standard error.
    failures : ndarray, shape S or (L, *S)
        The number of failures.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("two-arms"), gt.Pilot(batch_size=16, group_size=4)
    >>> asked = {"experiment": pilot, "rng": 0, "workers": 1}
    >>> truth = gt.objective(problem, problem.theta)
    >>> record = gt.coverage(gt.intervals.value_clustered, problem, truth, **asked, replications=pilot.block_replications)
    >>> print(record.summary().splitlines()[0].strip())
    Coverage of 512 intervals, 0 without an answer
    >>> bool(record.consistent()), bool(record.p_value() > 0.001)
    (True, True)
    >>> "coverage" in set(record.measures()["measure"]), len(record.zip()) == len(record.to_frame()), record.replay(3).replication
    (True, True, 3)
    >>> more = gt.coverage(gt.intervals.value_clustered, problem, truth, **asked, replications=8, first_block=1)
    >>> record.merge(more).replications == record.replications + 8
    True
    """

    trial: Trial
    first_block: int
    answers: Answers
    level: float | tuple[float, ...] = field(init=False)
    truth: Array = field(init=False)
    seed: np.random.SeedSequence = field(init=False)
    first: int = field(init=False)
    replications: int = field(init=False)
    estimate: Array = field(init=False)
    standard_error: Array = field(init=False)
    low: Array = field(init=False)
    high: Array = field(init=False)
    width: Array = field(init=False)
    covered: Flags = field(init=False)
    failed: Flags = field(init=False)
    failures: Integers = field(init=False)
    coverage: Array = field(init=False)
    mcse: Array = field(init=False)

    def __post_init__(self) -> None:
        trial, table = self.trial, self.answers.table if isinstance(self.trial.level, tuple) else self.answers.table[:, 0]
        sets = table[..., 0] if self.answers.joint else table
        share = sets["covered"].mean(axis=0)
        found: dict[str, Any] = {name: getattr(trial, name) for name in ("level", "truth", "seed")}
        found |= {"first": self.first_block * trial.experiment.block_replications, "replications": len(table)}
        found |= {name: (sets if name in ("width", "covered", "failed") else table)[name] for name, _ in FIELDS}
        found |= {"failures": sets["failed"].sum(axis=0), "coverage": share, "mcse": np.sqrt(share * (1.0 - share) / len(table))}
        for name, value in found.items():
            object.__setattr__(self, name, value)

    def p_value(self) -> Array:
        """Return p-values of the two-sided exact binomial test that coverage is the nominal level; shape S, or (L, *S)."""
        from scipy.stats import binomtest  # slow to import, and seldom wanted

        tested = np.vectorize(lambda hits, level: binomtest(int(hits), self.replications, level).pvalue, otypes=[float])
        return tested(self.covered.sum(axis=0).T, self.level).T[()]  # a float, where it is one number

    def consistent(self, family_error: float = 1e-3) -> Flags:
        """Test, for each component, whether the measured coverage is compatible with the nominal level; shape S, or (L, *S).

        Each test is the two-sided exact binomial test, Bonferroni-corrected over components and levels.  If every interval is
        exact, the chance that any is rejected is at most `family_error`.  Over-coverage is rejected too.  The power grows with
        the number of replications: see `replications_to_tell`.
        """
        p_value = self.p_value()
        return np.asarray(p_value >= as_fraction("family_error", family_error) / p_value.size)

    @np.errstate(over="ignore", invalid="ignore")  # a measure beyond double precision is infinite, or no number
    def measures(self, null: ArrayLike | None = None, confidence: float = 0.95) -> pd.DataFrame:
        """Return bias, coverage, standard errors and other performance measures (Morris, White and Crowther 2019, Table 6).

        Parameters
        ----------
        null : array_like, shape C, optional
            The value whose rejection is counted: the power, or at the truth the type I error.
        confidence : float, default 0.95
            Of the limits of every measure: Clopper and Pearson's for shares, normal ones for the rest.

        Returns
        -------
        DataFrame
            One row per level, component and measure: level, component ("" of a scalar, "0", "1", ..., "joint" of an ellipsoid),
            measure, estimate, mcse, low, high, replications, failures.  Failures count as not covering; the other measures
            are those of the replications with an answer.
        """
        as_fraction("confidence", confidence)
        nulls = None if null is None else np.broadcast_to(as_numbers("null", null), self.truth.shape)
        rows = []
        for of in ("shadow", "joint") if self.answers.joint else ("interval",):
            for label, level, index, part in self._components(joint=of == "joint"):
                null_here = None if nulls is None else float(nulls[index])
                found = measured(part, float(self.truth[index]), null_here, confidence, of=of)
                rows += [(level, label, *row, self.replications, int(part["failed"].sum())) for row in found]
        return pd.DataFrame(rows, columns=["level", "component", *NUMBERS, "replications", "failures"])

    def summary(self) -> str:
        """Return a table to be printed: `measures`, a row each, after the numbers of replications and failures."""
        measured = self.measures().drop(columns=["replications", "failures"])
        title = f"Coverage of {self.replications:,} intervals, {np.sum(self.failures):,} without an answer"
        return f"{title}\n{measured.to_string(index=False, float_format='{:.4g}'.format)}"

    def to_frame(self) -> pd.DataFrame:
        """Return the results of every replication as a DataFrame: one row per level, component and replication.

        Columns are level, component (as in `measures`), replication, estimate, standard_error, low, high and covered.
        """
        frames = []
        for label, level, _, part in self._components():
            said = {"level": level, "component": label, "replication": self.first + np.arange(self.replications)}
            frames.append(pd.DataFrame(said | {name: part[name] for name in SHOWN}))
        return pd.concat(frames, ignore_index=True)

    def zip(self) -> pd.DataFrame:
        """Return what a zip plot shows: replications ranked by |z|, z = (estimate - truth) / standard error.

        Returns
        -------
        DataFrame
            One row a level, component and replication: level, component, replication, percentile (100 r / R for rank r; failures
            rank last), z, low, high, covered.

        Raises
        ------
        ValueError
            If the interval function gives no estimates and standard errors.
        """
        frame = self.to_frame()
        truth = np.repeat(np.tile(self.truth.ravel(), len(self.trial.levels)), self.replications)
        answered = frame[["low", "high"]].notna().all(axis=1)
        frame["z"] = ((frame["estimate"] - truth) / frame["standard_error"]).where(answered)
        part = np.arange(len(frame)) // self.replications  # of a level and component
        if frame["z"].isna().groupby(part).all().any():
            raise ValueError("interval must give estimates and standard errors, as an Interval does, to be ranked by them")
        rank = frame["z"].abs().groupby(part).rank(method="first", na_option="bottom")
        frame["percentile"] = 100.0 * rank / self.replications
        names = ["level", "component", "replication", "percentile", "z", "low", "high", "covered"]
        return frame.iloc[np.lexsort((rank, part))].reset_index(drop=True)[names]

    def replay(self, replication: int) -> Replay:
        """Draw a replication again from its number, and ask the interval function again."""
        return self.trial.replay(replication)

    def merge(self, other: Self) -> Coverage:
        """Return the record of this run and of the run that goes on where it ends.

        Raises
        ------
        ValueError
            If the runs differ in seed, levels, truth or block size, or the other does not start where this one ends.
        """
        mine, its = self.trial, other.trial
        same = {
            "seed": mine.seed.state == its.seed.state,
            "level": mine.level == its.level,
            "truth": np.array_equal(mine.truth, its.truth),
            "experiment": mine.experiment.block_replications == its.experiment.block_replications,
        }
        unlike = [name for name, equal in same.items() if not equal]
        if unlike:
            raise ValueError(f"other must be a run with the same {', '.join(same)}, and differs in {', '.join(unlike)}")
        end = self.first + self.replications
        if other.first != end:
            raise ValueError(f"other must start at replication {end}, where this run ends, got {other.first}")
        return Coverage(mine, self.first_block, Answers.concatenate([self.answers, other.answers]))

    def __repr__(self) -> str:
        shares = np.array2string(self.coverage, precision=4, threshold=8)
        return f"Coverage(level={self.level}, replications={self.replications}, coverage={shares}, failures={self.failures})"

    def _components(self, joint: bool = False) -> Iterator[tuple[str, float, tuple[int, ...], Table]]:
        """Yield label, level, index in the truth, and replications; of ellipsoids the joint statements, or their shadows."""
        for number, level in enumerate(self.trial.levels):
            for index in np.ndindex(self.truth.shape[:-1] if joint else self.truth.shape):
                label = ",".join([*map(str, index), *(["joint"] if joint else [])])
                place = (*index, 0) if joint else index
                yield label, level, place, self.answers.table[(slice(None), number, *place)]


def coverage(
    interval: IntervalFunction,
    problem: Any,
    truth: Truth,
    *,
    experiment: Experiment,
    level: float | Sequence[float] = 0.95,
    replications: int,
    rng: Rng | None = None,
    workers: int | None = None,
    first_block: int = 0,
    vectorized: bool | None = None,
    progress: bool = True,
) -> Coverage:
    """Measure how often the intervals of a function hold the truth.

    Results are bit-identical for any number of workers, and a replication is the same for any number of replications.  This
    holds if the function gives the same answer to the same data.  A function that resamples must therefore seed itself at each
    call, as in ``lambda data, level: gt.intervals.group_size_bootstrap(data, level, rng=0)``.

    Parameters
    ----------
    interval : callable
        ``interval(data, level)`` returns an Interval, an Ellipsoid or a pair (low, high) of numbers or arrays of the truth's
        shape.  A ValueError, or a NaN limit, is a failure: counted, and not covering.
    problem : Problem
        At its theta; whatever the experiment draws from.
    truth : float, array_like, or callable
        What the intervals are to cover, shape C; a callable is asked ``truth(problem)``.
    experiment : Experiment
        How data are drawn, e.g. ``gt.Pilot(batch_size, group_size)``.
    level : float or rising sequence of floats, default 0.95
        The nominal coverage.  With a sequence, all results are given for each level, on the same data.
    replications : int
        The number R of datasets.
    rng : int, SeedSequence or Generator, optional
        The seed; fresh entropy if omitted.
    workers : int, optional
        The number of threads; all processors if omitted.
    first_block : int, default 0
        The number of the first block, of the experiment's size.  Runs over successive blocks `merge` to the run over all.
    vectorized : bool, optional
        Whether the function sees a block of datasets at once, with a leading axis, and answers with such an axis.  The default
        is the function's attribute ``vectorized``, or one dataset at a time if it has none.
    progress : bool, default True
        Show a bar on a terminal if it takes longer than some seconds.

    Returns
    -------
    Coverage

    Raises
    ------
    ValueError
        If an argument is out of range, the truth has not the shape of the limits, or a lower limit exceeds its upper one.
    TypeError
        If the function does not take a dataset and a level, or returns something else.  Errors that the function raises, except
        ValueError, end the run, with a note that names the replication.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("mixed"), gt.Pilot(batch_size=32, group_size=16)
    >>> truth = gt.objective(problem, problem.theta)
    >>> record = gt.coverage(gt.intervals.value_naive, problem, truth, experiment=pilot, replications=2000, rng=0)
    >>> bool(record.coverage < 0.95), bool(record.consistent())
    (True, False)
    """
    asked = {"experiment": experiment, "level": level, "replications": replications, "rng": rng, "workers": workers}
    asked |= {"first_block": first_block, "vectorized": vectorized, "progress": progress}
    return coverage_of_several({"": interval}, problem, truth, **asked)[""]  # type: ignore[arg-type]


def coverage_of_several(
    functions: Mapping[str, IntervalFunction],
    problem: Any,
    truth: Truth,
    *,
    experiment: Experiment,
    level: float | Sequence[float] = 0.95,
    replications: int,
    rng: Rng | None = None,
    workers: int | None = None,
    first_block: int = 0,
    vectorized: bool | None = None,
    progress: bool = True,
) -> dict[str, Coverage]:
    """Measure how often the intervals of each of several functions hold the same truth, on the same data.

    Each record is the one that `coverage` returns for the function alone with the same seed. It takes less time, because every
    block of datasets is drawn once. A function that sees a block at once must not write on it.

    Parameters
    ----------
    functions : mapping of str to callable
        Interval functions by name, at least one.
    problem, truth, experiment, level, replications, rng, workers, first_block, vectorized, progress
        As `coverage` takes them.

    Returns
    -------
    dict of str to Coverage
        In the order of the functions.

    Raises
    ------
    ValueError, TypeError
        As `coverage`.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("mixed"), gt.Pilot(batch_size=32, group_size=16)
    >>> functions = {"naive": gt.intervals.value_naive, "clustered": gt.intervals.value_clustered}
    >>> asked = {"experiment": pilot, "replications": 2000, "rng": 0}
    >>> records = gt.laboratory.coverage_of_several(functions, problem, gt.objective(problem, problem.theta), **asked)
    >>> bool(records["clustered"].coverage > records["naive"].coverage)
    True
    """
    if not isinstance(functions, Mapping) or not functions:
        raise TypeError(f"functions must be a mapping of names to interval functions, at least one, got {shown(functions)}")
    seed, known = as_seed_sequence(rng), truth(problem) if callable(truth) else truth
    trials = [Trial(one, problem, known, experiment, level, seed, vectorized) for one in functions.values()]
    replications = as_count("replications", replications)
    workers = as_count("workers", workers if workers is not None else os.cpu_count() or 1)
    size = experiment.block_replications
    first_block = as_count("first_block", first_block, 0)

    def answers(job: tuple[int, int]) -> list[Answers]:
        block, stop = job
        datasets = trials[0].draw(block)
        return [trial.ask(datasets, block, 0, stop) for trial in trials]

    jobs = ((first_block + i, min(size, replications - i * size)) for i in range(-(-replications // size)))
    parts = zip(*map_in_order(answers, jobs, workers, "measuring" if as_flag("progress", progress) else ""), strict=True)
    records = (Coverage(trial, first_block, Answers.concatenate(part)) for trial, part in zip(trials, parts, strict=True))
    return dict(zip(functions, records, strict=True))


def replay(
    interval: IntervalFunction,
    problem: Any,
    truth: Truth,
    *,
    experiment: Experiment,
    level: float | Sequence[float] = 0.95,
    replication: int,
    rng: Rng,
    vectorized: bool | None = None,
) -> Replay:
    """Draw one replication of `coverage` again: the same arguments, and its number in place of how many there were.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("tabular"), gt.Pilot(batch_size=16, group_size=4)
    >>> truth = gt.objective(problem, problem.theta)
    >>> asked = {"experiment": pilot, "rng": 0}
    >>> record = gt.coverage(gt.intervals.value_clustered, problem, truth, **asked, replications=100)
    >>> again = gt.replay(gt.intervals.value_clustered, problem, truth, **asked, replication=7)
    >>> bool(again.interval.low == record.low[7])
    True
    """
    return Trial(interval, problem, truth, experiment, level, rng, vectorized).replay(replication)


NUMBERS = ["measure", "estimate", "mcse", "low", "high"]
LINES = 8
"""Functions that a printed grid has."""
PRINTED = ("bias", "empirical SE", "average model SE", "MSE", "coverage", "mean width", "failures")


class CoverageGrid(pd.DataFrame):
    """The table that `coverage_grid` returns; printed, it has a line per function: the range of each measure over the cells.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("mixed"), gt.Pilot(batch_size=32, group_size=4)
    >>> asked = {"truth": gt.objective(problem, problem.theta), "replications": 100, "rng": 0}
    >>> grid = gt.laboratory.coverage_grid({"naive": gt.intervals.value_naive}, {"one": (problem, pilot)}, **asked)
    >>> len(str(grid).splitlines()), isinstance(grid, gt.laboratory.CoverageGrid)
    (3, True)
    """

    def __str__(self) -> str:
        names = self["function"].unique()
        ranges = self.groupby(["measure", "function"])["estimate"].agg(["min", "max"])
        said = {of: f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}" for of, low, high in ranges.itertuples()}
        columns = {one: [said.get((one, name), "") for name in names[:LINES]] for one in PRINTED if one in set(self["measure"])}
        error = self.loc[self["measure"] == "coverage", "mcse"].max()
        more = f"; {len(names) - LINES} functions more" if len(names) > LINES else ""
        return f"{pd.DataFrame(columns, names[:LINES]).to_string()}\n(errors of coverage at most {error:.2g}{more})"


def coverage_grid(
    functions: Mapping[str, IntervalFunction],
    designs: Mapping[str, tuple[Any, Experiment]] | Callable[..., tuple[Any, Experiment]],
    truth: Truth,
    *,
    factors: Mapping[str, Sequence] | None = None,
    reference: str | None = None,
    level: float = 0.95,
    replications: int,
    rng: Rng | None = None,
    workers: int | None = None,
    progress: bool = True,
) -> CoverageGrid:
    """Measure bias, standard errors, coverage and width of several interval functions over a design, all on the same data.

    Parameters
    ----------
    functions : mapping of str to callable
        Interval functions (methods) by name, as `coverage` takes them.
    designs : mapping of str to (Problem, Experiment), or callable
        What data are drawn from, by name. With factors, a function of a level of each, in order.
    truth : float or callable
        The number that the intervals are to cover; a callable is asked ``truth(problem)`` at each design.
    factors : mapping of str to sequence, optional
        The levels of each factor of a full factorial design.
    reference : str, optional
        The name of the function with which the others are compared, replication by replication.
    level : float, default 0.95
        The nominal coverage.
    replications : int
        The number of datasets at each design.
    rng : int, SeedSequence or Generator, optional
        The seed; a design's data do not depend on the designs after it.
    workers : int, optional
        The number of threads; all processors if omitted.
    progress : bool, default True
        Show a bar on a terminal, of each design that takes longer than some seconds.

    Returns
    -------
    CoverageGrid
        A DataFrame with a row for each design (or level of each factor), function and measure. Each has its Monte Carlo standard
        error and 95% limits. The measures are those of `Coverage.measures` (Morris, White and Crowther 2019, Table 6). A pair of
        limits has no estimate, so it has coverage, mean width and failures. With a reference there is also "coverage less
        reference", the difference of the two shares. There is also "width over reference", the ratio of the mean widths where
        both have limits.  The errors of both take into account that the data are the same (the ratio's by the delta method).

    Raises
    ------
    ValueError, TypeError
        As `coverage`. Also if there is no design, if a design is no pair, or if the truth is not a number. Also if no function
        has the name of the reference.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, value = gt.gallery.problem("mixed"), lambda problem: gt.objective(problem, problem.theta)
    >>> functions = {"naive": gt.intervals.value_naive, "cluster": gt.intervals.value_clustered}
    >>> def design(prompts, size):
    ...     return problem, gt.Pilot(batch_size=prompts, group_size=size)
    >>> asked = {"factors": {"prompts": (32, 64), "size": (4, 16)}, "reference": "cluster", "replications": 1000, "rng": 0}
    >>> table = gt.laboratory.coverage_grid(functions, design, value, **asked)
    >>> print(table)
                           bias      empirical SE  average model SE                 MSE        coverage       mean width failures
    naive    0.00106 to 0.00172  0.0493 to 0.0718  0.0156 to 0.0439  0.00243 to 0.00515  0.434 to 0.793  0.0611 to 0.174        0
    cluster  0.00106 to 0.00172  0.0493 to 0.0718  0.0484 to 0.0726  0.00243 to 0.00515  0.944 to 0.956   0.193 to 0.296        0
    (errors of coverage at most 0.016)
    >>> behind = table[(table["measure"] == "coverage less reference") & (table["function"] == "naive")]
    >>> behind[["prompts", "size"]].to_numpy().tolist(), bool((behind["high"] < 0.0).all())
    ([[32, 4], [32, 16], [64, 4], [64, 16]], True)
    """
    if factors is None and isinstance(designs, Mapping):
        factors, designs = {"design": list(designs)}, designs.__getitem__
    if (
        not isinstance(factors, Mapping)
        or not factors
        or not all(isinstance(one, Sequence | np.ndarray) and len(one) for one in factors.values())
    ):
        wanted = "factors must be a mapping of names to lists of levels, or designs one of names to (problem, experiment)"
        raise TypeError(f"{wanted}, got {shown(factors)} and {shown(designs)}")
    if not callable(designs):
        raise TypeError(f"designs must be a function of the factors {', '.join(map(repr, factors))}, got {shown(designs)}")
    check_takes("designs", designs, *factors)
    cells = [(dict(zip(factors, levels, strict=True)), designs(*levels)) for levels in product(*factors.values())]
    for point, design in cells:
        if not isinstance(design, tuple) or len(design) != 2:
            raise TypeError(f"designs must have a pair (problem, experiment) at {point}, got {shown(design)}")
    known = reference is None or (isinstance(reference, str) and reference in functions)
    if isinstance(functions, Mapping) and not known:
        raise ValueError(f"reference must be one of {', '.join(map(repr, functions))}, got {reference!r}")
    asked = {"level": as_fraction("level", level), "replications": replications, "workers": workers, "progress": progress}
    rows: list[tuple] = []
    for (point, (problem, experiment)), seed in zip(cells, as_seed_sequence(rng).spawn(len(cells)), strict=True):
        records = coverage_of_several(functions, problem, truth, experiment=experiment, rng=seed, **asked)  # type: ignore[arg-type]
        for function, record in records.items():
            if record.truth.ndim:
                raise ValueError(f"truth must be one number at each design, got shape {record.truth.shape}: use coverage")
            found = [*record.measures()[NUMBERS].itertuples(index=False)]
            if reference not in (None, function):
                found += _beside(record, records[reference])
            rows += ((*point.values(), function, *row) for row in found)
    return CoverageGrid(rows, columns=[*cells[0][0], "function", *NUMBERS])


def _beside(record: Coverage, reference: Coverage) -> Iterator[Row]:
    """Yield how much more often a function covers than the reference, and how much wider it is, on the same data."""
    yield normal_row("coverage less reference", mean(record.covered.astype(float) - reference.covered.astype(float)), 0.95)
    both = ~(record.failed | reference.failed)
    own, other = record.width[both], reference.width[both]
    ratio = float(own.mean() / other.mean()) if len(own) and other.mean() > 0.0 else nan
    # The delta method: a ratio of means a/b errs as the mean of (a_r - (a/b) b_r)/b.
    error = mean((own - ratio * other) / other.mean())[1] if ratio > 0.0 else nan
    yield normal_row("width over reference", (ratio, error), 0.95)
