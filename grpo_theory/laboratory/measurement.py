"""The coverage laboratory: try any interval function on data of which the truth is known."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from math import nan
from typing import Any

import pandas as pd

from grpo_theory.laboratory.coverage_record import Coverage, Row, mean, normal_row
from grpo_theory.laboratory.experiment import Experiment
from grpo_theory.laboratory.trial import Answers, IntervalFunction, Replay, Trial, Truth, check_takes
from grpo_theory.simulate.streams import Rng, as_seed_sequence
from grpo_theory.simulate.workers import map_in_order
from grpo_theory.validation import as_count, as_fraction, shown


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
    if not isinstance(functions, Mapping):
        raise TypeError(f"functions must be a mapping of names to interval functions, got {shown(functions)}")
    if not functions:
        raise ValueError("functions must hold at least one interval function")
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
    parts = zip(*map_in_order(answers, jobs, workers, "measuring" if progress else ""), strict=True)
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
PRINTED = ("bias", "empirical SE", "average model SE", "MSE", "coverage", "mean width", "failures")
LINES = 8
"""Functions that a printed grid has."""


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
        words = [f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}" for low, high in ranges.to_numpy()]
        said = pd.Series(words, ranges.index).to_dict()
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
    if factors is None:
        if not isinstance(designs, Mapping) or not designs:
            wanted = "designs must be a mapping of names to pairs (problem, experiment), at least one, or a function of factors"
            raise TypeError(f"{wanted}, got {shown(designs)}")
        cells = [({"design": name}, design) for name, design in designs.items()]
    else:
        if not isinstance(factors, Mapping) or not factors:
            raise TypeError(f"factors must be a mapping of names to levels, at least one, got {shown(factors)}")
        if not callable(designs):
            raise TypeError(f"designs must be a function of the factors {', '.join(map(repr, factors))}, got {shown(designs)}")
        check_takes("designs", designs, *factors)
        points = [dict(zip(factors, levels, strict=True)) for levels in product(*factors.values())]
        cells = [(point, designs(*point.values())) for point in points]
    for point, design in cells:
        if not isinstance(design, tuple) or len(design) != 2:
            raise TypeError(f"designs must have a pair (problem, experiment) at {point}, got {shown(design)}")
    if reference is not None and isinstance(functions, Mapping) and reference not in functions:
        raise ValueError(f"reference must be one of {', '.join(map(repr, functions))}, got {reference!r}")
    asked = {"level": as_fraction("level", level), "replications": replications, "workers": workers, "progress": progress}
    rows: list[tuple] = []
    for (point, (problem, experiment)), seed in zip(cells, as_seed_sequence(rng).spawn(len(cells)), strict=True):
        records = coverage_of_several(functions, problem, truth, experiment=experiment, rng=seed, **asked)  # type: ignore[arg-type]
        for function, record in records.items():
            if record.truth.ndim:
                shape = record.truth.shape
                raise ValueError(f"truth must be one number at each design, got shape {shape}: measure it by coverage")
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
