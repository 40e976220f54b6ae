"""The record of a coverage run: what every replication said, the measures of it, and the test of its coverage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, nan, sqrt
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from grpo_theory.intervals.interval import binomial_limits, normal_quantile
from grpo_theory.laboratory.trial import ARRAYS, Answers, Replay, Trial
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


class Component(NamedTuple):
    """R replications of the statements on one number; one shape (R,) for all but the truth."""

    truth: float
    estimate: Array
    standard_error: Array
    low: Array
    high: Array
    width: Array
    covered: Flags
    failed: Flags

    @property
    def known(self) -> Flags:
        """Where there is an estimate with limits."""
        return np.isfinite(self.estimate) & ~self.failed


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


def of_estimates(part: Component, confidence: float) -> Iterator[Row]:
    """Yield the measures of the estimates, if there are any, and of their standard errors, with normal limits."""
    if not part.known.any():
        return
    estimate, standard_error = part.estimate[part.known], part.standard_error[part.known]
    deviation = estimate - part.truth
    yield normal_row("bias", mean(deviation), confidence)
    yield normal_row("empirical SE", empirical_error(estimate), confidence)
    yield normal_row("MSE", mean(deviation**2), confidence)
    yield normal_row("average model SE", model_error(standard_error), confidence)
    yield normal_row("relative % error in model SE", relative_error(estimate, standard_error), confidence)


def of_limits(part: Component, null: float | None, confidence: float) -> Iterator[Row]:
    """Yield the measures that only the two limits of an interval have, with exact limits of their own."""
    if part.known.any():
        centre = part.estimate[part.known].mean()
        yield exact_row("bias-eliminated coverage", (part.low <= centre) & (centre <= part.high), confidence)
    if null is not None:
        name, *row = exact_row("rejection %", (null < part.low) | (part.high < null), confidence)
        yield name, *(100.0 * number for number in row)  # type: ignore[misc]


def of_sets(part: Component, confidence: float) -> Iterator[Row]:
    """Yield the measures that every confidence set has; a failure is in the denominator of the coverage."""
    yield exact_row("coverage", part.covered, confidence)
    yield normal_row("mean width", mean(part.width[~part.failed]), confidence)
    yield exact_row("failures", part.failed, confidence)


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


@dataclass(frozen=True, eq=False, repr=False)
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

    trial: Trial
    first_block: int
    answers: Answers

    @property
    def first(self) -> int:
        """The number of the first replication."""
        return self.first_block * self.trial.experiment.block_replications

    @property
    def replications(self) -> int:
        """The number R of replications."""
        return len(self.answers.low)

    @property
    def level(self) -> float | tuple[float, ...]:
        """The nominal level, or levels."""
        return self.trial.level

    @property
    def truth(self) -> Array:
        """What was to be covered, shape C."""
        return self.trial.truth

    @property
    def seed(self) -> np.random.SeedSequence:
        """The seed; given as rng, it draws the same data."""
        return self.trial.seed

    @property
    def estimate(self) -> Array:
        """The estimates; NaN where there is none."""
        return self._public(self.answers.estimate)

    @property
    def standard_error(self) -> Array:
        """The standard errors that the intervals were built on; NaN where there is none."""
        return self._public(self.answers.standard_error)

    @property
    def low(self) -> Array:
        """The lower limits; NaN where the interval function failed."""
        return self._public(self.answers.low)

    @property
    def high(self) -> Array:
        """The upper limits; NaN where the interval function failed."""
        return self._public(self.answers.high)

    @property
    def width(self) -> Array:
        """The widths, ending in S; NaN where the interval function failed."""
        return self._public(self._single(self.answers.width))

    @property
    def covered(self) -> Flags:
        """Which sets hold the truth, ending in S; a failure does not."""
        return self._public(self._single(self.answers.covered))

    @property
    def failed(self) -> Flags:
        """Where there are no limits, ending in S."""
        return self._public(self._single(self.answers.failed))

    @property
    def coverage(self) -> Array:
        """The share of all replications, failures among them, that cover the truth; shape S, or (L, *S)."""
        return self.covered.mean(axis=0)

    @property
    def mcse(self) -> Array:
        """The Monte Carlo standard error of the coverage."""
        return np.sqrt(self.coverage * (1.0 - self.coverage) / self.replications)

    @property
    def failures(self) -> Integers:
        """The number of failures, shape S or (L, *S)."""
        return self.failed.sum(axis=0)

    @property
    def first_failure(self) -> str | None:
        """The first replication that failed, and why; None if none did."""
        failed = self.answers.failed.reshape(self.replications, -1).any(axis=1)
        if not failed.any():
            return None
        index = int(np.argmax(failed))
        return f"replication {self.first + index}: {self.answers.refusals.get(index, 'NaN limits')}"

    @property
    def nonnested(self) -> int:
        """The number of replications in which the set of some level does not contain that of a lower level."""
        low, high = self.answers.low, self.answers.high
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

        hits = self._single(self.answers.covered).sum(axis=0)
        values = np.empty(hits.shape)
        for index in np.ndindex(hits.shape):
            values[index] = binomtest(int(hits[index]), self.replications, self.trial.levels[index[0]]).pvalue
        return values if isinstance(self.level, tuple) else values[0]

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
        for joint in (False, True) if self.answers.joint else (False,):
            for label, level, part, index in self._components(joint):
                measured = [] if joint else [*of_estimates(part, confidence)]
                if joint or not self.answers.joint:
                    measured += of_sets(part, confidence)
                if not self.answers.joint:
                    measured += of_limits(part, None if nulls is None else float(nulls[index]), confidence)
                rows += [(level, label, *row, self.replications, int(part.failed.sum())) for row in measured]
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
        return pd.concat([frame for _, frame in self._frames()], ignore_index=True)

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
        frames = []
        for part, frame in self._frames():
            with np.errstate(divide="ignore", invalid="ignore"):
                z = (part.estimate - part.truth) / part.standard_error
            z[part.failed] = np.nan
            if np.isnan(z).all():
                raise ValueError("interval must give estimates and standard errors, as an Interval does, to be ranked by them")
            order = np.argsort(np.abs(z), kind="stable")
            frames.append(frame.iloc[order].assign(percentile=100.0 * np.arange(1, len(z) + 1) / len(z), z=z[order]))
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

    def _public(self, array: NDArray[Any]) -> NDArray[Any]:
        return array if isinstance(self.level, tuple) else array[:, 0]

    def _single(self, array: NDArray[Any]) -> NDArray[Any]:
        return array[..., 0] if self.answers.joint else array

    def _components(self, joint: bool = False) -> Iterator[tuple[str, float, Component, tuple[int, ...]]]:
        """Yield label, level, component and its index in the truth; of ellipsoids the joint statements, or their shadows."""
        for number, level in enumerate(self.trial.levels):
            for index in np.ndindex(self.truth.shape[:-1] if joint else self.truth.shape):
                label = ",".join([*map(str, index), *(["joint"] if joint else [])])
                place = (*index, 0) if joint else index
                parts = (getattr(self.answers, name)[(slice(None), number, *place)] for name in ARRAYS)
                yield label, level, Component(float(self.truth[place]), *parts), place

    def _frames(self) -> Iterator[tuple[Component, pd.DataFrame]]:
        """Yield each component and the rows of its replications."""
        for label, level, part, _ in self._components():
            said = {"level": level, "component": label, "replication": self.first + np.arange(self.replications)}
            names = ("estimate", "standard_error", "low", "high", "covered")
            yield part, pd.DataFrame(said | {name: getattr(part, name) for name in names})
