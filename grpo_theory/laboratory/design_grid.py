"""Several interval functions over a grid of designs: coverage and width of each, and beside those of a reference."""

from collections.abc import Iterator, Mapping
from math import nan, sqrt
from typing import Any

import pandas as pd

from grpo_theory.arrays import Array
from grpo_theory.intervals.interval import normal_quantile
from grpo_theory.laboratory.answers import IntervalFunction
from grpo_theory.laboratory.coverage_record import Coverage
from grpo_theory.laboratory.experiment import Experiment
from grpo_theory.laboratory.measurement import Truth, coverage_of_several
from grpo_theory.simulate.draw.streams import Rng, as_seed_sequence
from grpo_theory.validation import as_fraction, shown

MEASURES = ("coverage", "mean width", "failures")
NUMBERS = ["measure", "estimate", "mcse", "low", "high"]


def coverage_grid(
    functions: Mapping[str, IntervalFunction],
    designs: Mapping[str, tuple[Any, Experiment]],
    truth: Truth,
    *,
    reference: str | None = None,
    level: float = 0.95,
    replications: int,
    rng: Rng | None = None,
    workers: int | None = None,
) -> pd.DataFrame:
    """Measure several interval functions at each of several designs, all functions on the same data.

    Parameters
    ----------
    functions : mapping of str to callable
        Interval functions by name, as `coverage` takes them.
    designs : mapping of str to (Problem, Experiment)
        What data are drawn from, by name.
    truth : float or callable
        The number that the intervals are to cover; a callable is asked ``truth(problem)`` at each design.
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

    Returns
    -------
    DataFrame
        A row for each design, function and measure, with its Monte Carlo standard error and 95% limits. The measures are
        coverage, mean width and failures. With a reference there is also "coverage less reference", the difference of the two
        shares. There is also "width over reference", the ratio of the mean widths where both have limits.  The errors of both
        take into account that the data are the same (the ratio's by the delta method).

    Raises
    ------
    ValueError, TypeError
        As `coverage`. Also if there is no design, if a design is no pair, or if the truth is not a number. Also if no function
        has the name of the reference.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> functions = {"naive": gt.intervals.value_naive, "clustered": gt.intervals.value_clustered}
    >>> designs = {f"G = {size}": (gt.gallery.problem("mixed"), gt.Pilot(batch_size=32, group_size=size)) for size in (4, 16)}
    >>> asked = {"reference": "clustered", "replications": 1000, "rng": 0}
    >>> table = gt.laboratory.coverage_grid(functions, designs, lambda problem: gt.objective(problem, problem.theta), **asked)
    >>> behind = table[(table["measure"] == "coverage less reference") & (table["function"] == "naive")]
    >>> behind["design"].tolist(), bool((behind["high"] < 0.0).all())
    (['G = 4', 'G = 16'], True)
    """
    if not isinstance(designs, Mapping) or not designs:
        raise TypeError(f"designs must be a mapping of names to pairs (problem, experiment), at least one, got {shown(designs)}")
    for name, design in designs.items():
        if not isinstance(design, tuple) or len(design) != 2:
            raise TypeError(f"designs[{name!r}] must be a pair (problem, experiment), got {shown(design)}")
    if reference is not None and isinstance(functions, Mapping):
        _check_reference(reference, functions)
    asked = {"level": as_fraction("level", level), "replications": replications, "workers": workers}
    rows: list[dict[str, Any]] = []
    for (name, (problem, experiment)), seed in zip(designs.items(), as_seed_sequence(rng).spawn(len(designs)), strict=True):
        records = coverage_of_several(functions, problem, truth, experiment=experiment, rng=seed, **asked)  # type: ignore[arg-type]
        rows += ({"design": name} | row for row in _of_design(records, reference))
    return pd.DataFrame(rows)


def _of_design(records: Mapping[str, Coverage], reference: str | None) -> Iterator[dict[str, Any]]:
    """Yield the rows of one design."""
    for name, record in records.items():
        if record.truth.ndim:
            raise ValueError(f"truth must be one number at each design, got shape {record.truth.shape}: measure it by coverage")
        measures = record.measures()
        for row in measures.loc[measures["measure"].isin(MEASURES), NUMBERS].to_dict("records"):
            yield {"function": name} | row
        if reference is not None and name != reference:
            yield from _beside(name, record, records[reference])


def _beside(name: str, record: Coverage, reference: Coverage) -> Iterator[dict[str, Any]]:
    """Yield how much more often a function covers than the reference, and how much wider it is, on the same data."""
    ahead = record.covered.astype(float) - reference.covered.astype(float)
    yield _with_error(name, "coverage less reference", float(ahead.mean()), _error_of_mean(ahead))
    both = ~(record.failed | reference.failed)
    own, other = record.width[both], reference.width[both]
    ratio = float(own.mean() / other.mean()) if len(own) and other.mean() > 0.0 else nan
    yield _with_error(
        name, "width over reference", ratio, _error_of_mean((own - ratio * other) / other.mean()) if ratio > 0.0 else nan
    )


def _error_of_mean(values: Array) -> float:
    return float(values.std(ddof=1)) / sqrt(len(values)) if len(values) > 1 else nan


def _with_error(name: str, measure: str, estimate: float, mcse: float) -> dict[str, Any]:
    half = normal_quantile(0.95) * mcse
    numbers = (measure, estimate, mcse, estimate - half, estimate + half)
    return {"function": name} | dict(zip(NUMBERS, numbers, strict=True))


def _check_reference(reference: str, functions: Mapping[str, IntervalFunction]) -> None:
    if reference not in functions:
        raise ValueError(f"reference must be one of {', '.join(map(repr, functions))}, got {reference!r}")
