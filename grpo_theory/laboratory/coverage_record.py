"""The record of a coverage run: what every replication said, the measures of it, and the test of its coverage."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, nan, sqrt
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import ndtri

from grpo_theory.intervals.interval import binomial_limits, normal_quantile
from grpo_theory.laboratory.trial import Answers, Replay, Table, Trial
from grpo_theory.validation import Array, Flags, Integers, as_fraction, as_numbers, as_positive

LEAST_ERROR = 1e-100
"""Smaller errors are refused: their quantiles may be no numbers."""


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
    if error < LEAST_ERROR:
        raise ValueError(f"error must be at least {LEAST_ERROR:g}, got {error:g}")
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
    if n == 0:
        return nan, nan
    if np.isinf(values).any():
        return float(values.mean()), nan
    return float(values.mean()), float(values.std(ddof=1)) / sqrt(n) if n > 1 else nan


def empirical_error(estimate: Array) -> Measured:
    """Return the standard deviation of the estimates."""
    if len(estimate) < 2:
        return nan, nan
    deviation = float(estimate.std(ddof=1))
    # sd/sqrt(2 (n - 1)) (Morris, White and Crowther 2019, Table 6).
    return deviation, deviation / sqrt(2.0 * (len(estimate) - 1))


def model_error(standard_error: Array) -> Measured:
    """Return the root of the mean of the squared standard errors that the intervals were built on."""
    variance, mcse = mean(standard_error**2)
    error = sqrt(variance) if variance >= 0.0 else nan
    # The delta method: sqrt(v) errs by (error of v)/(2 sqrt(v)) (Morris, White and Crowther 2019, Table 6).
    return error, mcse / (2.0 * error) if error > 0.0 else nan


def relative_error(estimate: Array, standard_error: Array) -> Measured:
    """Return by how many percent the model's standard error exceeds the empirical one."""
    empirical, _ = empirical_error(estimate)
    model, mcse = model_error(standard_error)
    if not empirical > 0.0 or not model > 0.0:
        return nan, nan
    ratio = model / empirical
    # Squared relative errors of the model SE and the empirical SE add up; that of the latter is 1/(2 (n - 1)) (Table 6).
    return 100.0 * (ratio - 1.0), 100.0 * ratio * sqrt((mcse / model) ** 2 + 0.5 / (len(estimate) - 1))


def measured(part: Table, truth: float, null: float | None, confidence: float, *, of: str) -> Iterator[Row]:
    """Yield the measures of R replications (R,) of the statements on one number.

    An "interval" has all of them. What the "shadow" of an ellipsoid on an axis has are those of the estimates and of their
    standard errors, if there are any, with normal limits. A "joint" set has those of every confidence set, with exact limits. A
    failure is in the denominator of the coverage.
    """
    known = part[np.isfinite(part["estimate"]) & ~part["failed"]]
    if of != "joint" and known.size:
        deviation = known["estimate"] - truth
        yield normal_row("bias", mean(deviation), confidence)
        yield normal_row("empirical SE", empirical_error(known["estimate"]), confidence)
        yield normal_row("MSE", mean(deviation**2), confidence)
        yield normal_row("average model SE", model_error(known["standard_error"]), confidence)
        relative = relative_error(known["estimate"], known["standard_error"])
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
    estimate, mcse = measured
    half = normal_quantile(confidence) * mcse
    return name, estimate, mcse, estimate - half, estimate + half


def exact_row(name: str, hits: Flags, confidence: float) -> Row:
    """Return a share with Clopper and Pearson's limits."""
    count, share = int(hits.sum()), float(hits.mean())
    low, high = map(float, binomial_limits(count, len(hits) - count, confidence))
    return name, share, sqrt(share * (1.0 - share) / len(hits)), low, high


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
    >>> bool(record.consistent()), bool(record.p_value() > 0.001), record.needed(mcse=0.005) > 1000
    (True, True, True)
    >>> "coverage" in set(record.measures()["measure"]), len(record.zip()) == len(record.to_frame()), record.replay(3).replication
    (True, True, 3)
    >>> more = gt.coverage(gt.intervals.value_clustered, problem, truth, **asked, replications=8, first_block=1)
    >>> record.merge(more).replications == record.replications + 8
    True
    """

    def __init__(self, trial: Trial, first_block: int, answers: Answers) -> None:
        self.trial, self.first_block, self.answers = trial, first_block, answers
        self.level, self.truth, self.seed = trial.level, trial.truth, trial.seed
        self.first, self.replications = first_block * trial.experiment.block_replications, len(answers.table)
        table = answers.table if isinstance(self.level, tuple) else answers.table[:, 0]
        self.estimate: Array = table["estimate"]
        self.standard_error: Array = table["standard_error"]
        self.low: Array = table["low"]
        self.high: Array = table["high"]
        sets = table[..., 0] if answers.joint else table
        self.width: Array = sets["width"]
        self.covered: Flags = sets["covered"]
        self.failed: Flags = sets["failed"]
        self.failures: Integers = self.failed.sum(axis=0)
        self.coverage: Array = self.covered.mean(axis=0)
        self.mcse: Array = np.sqrt(self.coverage * (1.0 - self.coverage) / self.replications)

    @property
    def first_failure(self) -> str | None:
        """The first replication that failed, and why; None if none did."""
        failed = self.failed.reshape(self.replications, -1).any(axis=1)
        if not failed.any():
            return None
        index = int(np.argmax(failed))
        return f"replication {self.first + index}: {self.answers.refusals.get(index, 'NaN limits')}"

    @property
    def nonnested(self) -> int:
        """The number of replications in which the set of some level does not contain that of a lower level."""
        low, high = self.answers.table["low"], self.answers.table["high"]
        torn = (low[:, 1:] > low[:, :-1]) | (high[:, 1:] < high[:, :-1])
        return int(torn.reshape(len(torn), -1).any(axis=1).sum())

    def needed(self, mcse: float) -> int:
        """Return how many replications reduce the Monte Carlo standard error of the coverage to `mcse`.

        The number is enough for the worst of the measured coverages and the nominal levels.
        """
        shares = np.append(self.coverage.ravel(), self.trial.levels)
        return ceil(round(float((shares * (1.0 - shares)).max()) / as_positive("mcse", mcse) ** 2, 9))

    def p_value(self) -> Array:
        """Return p-values of the two-sided exact binomial test that coverage is the nominal level; shape S, or (L, *S)."""
        from scipy.stats import binomtest  # slow to import, and seldom wanted

        tested = np.vectorize(lambda hits, level: binomtest(int(hits), self.replications, level).pvalue, otypes=[float])
        return np.asarray(tested(self.covered.sum(axis=0).T, self.level)).T

    def consistent(self, family_error: float = 1e-3) -> Flags:
        """Test, for each component, whether the measured coverage is compatible with the nominal level; shape S, or (L, *S).

        Each test is the two-sided exact binomial test, Bonferroni-corrected over components and levels.  If every interval is
        exact, the chance that any is rejected is at most `family_error`.  Over-coverage is rejected too.  The power grows with
        the number of replications: see `replications_to_tell`.
        """
        p_value = self.p_value()
        return np.asarray(p_value >= as_fraction("family_error", family_error) / p_value.size)

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
        names = ["level", "component", "measure", "estimate", "mcse", "low", "high", "replications", "failures"]
        return pd.DataFrame(rows, columns=names)

    def summary(self) -> str:
        """Return a table to be printed: `measures`, a row each, after the numbers of replications and failures."""
        measured = self.measures().drop(columns=["replications", "failures"])
        failures = int(np.sum(self.failures))
        title = f"Coverage of {self.replications:,} intervals, {failures:,} without an answer"
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
        frames, every = [], self.to_frame()
        for number, (_, _, index, part) in enumerate(self._components()):
            with np.errstate(divide="ignore", invalid="ignore"):
                z = (part["estimate"] - self.truth[index]) / part["standard_error"]
            z[part["failed"]] = np.nan
            if np.isnan(z).all():
                raise ValueError("interval must give estimates and standard errors, as an Interval does, to be ranked by them")
            order = np.argsort(np.abs(z), kind="stable")
            own = every.iloc[number * len(z) + order]
            frames.append(own.assign(percentile=100.0 * np.arange(1, len(z) + 1) / len(z), z=z[order]))
        names = ["level", "component", "replication", "percentile", "z", "low", "high", "covered"]
        return pd.concat(frames, ignore_index=True)[names]

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
