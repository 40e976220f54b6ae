"""Coverage of the confidence intervals from one training run.

The targets are theta*, the gap, and values. In the control the sets are narrowed.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory import intervals
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import farthest
from grpo_theory.harness.study import Cell, Rows, Settings
from grpo_theory.intervals import Interval, vectorized
from grpo_theory.schedule import Schedule
from simulations.coverage.narrowing import narrowed
from simulations.coverage.promise import LEVEL, nominal, share
from simulations.maximum import curvatures, maximum
from simulations.seeds import seed_of
from simulations.statements import stated

STATEMENTS = {
    name: stated(f"CI/{name}")
    for name in (
        *("last_iterate", "averaged_iterate", "batch_means", "random_scaling"),
        *("gap_limit", "tail_value", "learned_value", "best_value"),
    )
}

NARROWING = 0.9
PROBLEMS = ("kl-tabular", "kl-linear", "conflict")
SCHEDULES = ("beta/i", "i^-0.6", "constant")
SIZES = ((300, 1, 4), (1500, 1, 4), (1500, 4, 8))
START = 1.5
"""How far from the maximiser the runs of the design start, along the direction of least curvature."""
POINTS = {
    "beta/i": ("last_iterate", "gap_limit", "tail_value", "learned_value", "best_value"),
    "i^-0.6": ("averaged_iterate", "batch_means", "random_scaling"),
}
POINT_PROBLEM, POINT_STEPS = "kl-linear", 1500
RUNS, POINT_RUNS, QUICK_RUNS, CHUNK_RUNS = 512, 32_256, 64, 28 * 128
"""Chunks are whole blocks of 128 replications, which an experiment draws together."""
MEASURES = ("coverage", "mean width", "bias", "relative % error in model SE")

Record = gt.TrainingRecord


class Asked(NamedTuple):
    """An interval function, what it is of, in how many components, and the truth about a run."""

    of: str
    components: int
    function: Callable[[Record, float], Interval]
    target: Callable[[Record], Array]


def cells(quick: bool) -> list[Cell]:
    """A design over problems, schedules, lengths and batches, and two points with many runs, started at the maximiser."""
    names: tuple[str, ...] = ("part", "problem", "schedule", "start", "steps", "batch_size", "group_size", "intervals")
    every = tuple(interval for intervals in POINTS.values() for interval in intervals)
    sizes = SIZES[:1] if quick else SIZES
    listed: list[tuple[Any, ...]] = [
        ("design", problem, plan, START, *size, every)
        for problem in (PROBLEMS[:1] if quick else PROBLEMS)
        for plan in SCHEDULES
        for size in sizes
    ]
    listed += [("point", POINT_PROBLEM, plan, 0.0, POINT_STEPS, 1, 4, intervals) for plan, intervals in POINTS.items()]
    cells = []
    for values in listed:
        runs = QUICK_RUNS if quick else POINT_RUNS if values[0] == "point" else RUNS
        settings = dict(zip(names, values, strict=True)) | {"intervals": list(values[-1]), "runs": min(runs, CHUNK_RUNS)}
        cells.append(Cell(settings, -(-runs // CHUNK_RUNS), shared=True))
    return cells


def schedule(name: str, plan: str) -> Schedule:
    """Return beta/(i + i_0) with beta = 2/lambda_min, i^-0.6/lambda_max, or the constant 1/(10 lambda_max)."""
    sizes, _ = curvatures(name)
    least, most = float(sizes.min()), float(sizes.max())
    plans: dict[str, Schedule] = {
        "beta/i": gt.Harmonic(2.0 / least, int(4.0 * most / least)),
        "i^-0.6": gt.Power(1.0 / most, 0.6),
        "constant": gt.Constant(0.1 / most),
    }
    return plans[plan]


def panel(name: str) -> dict[str, Asked]:
    """Return what is asked of a run, by the interval's name."""
    problem, best, highest = maximum(name)
    _, directions = curvatures(name)

    def objective(theta: Array) -> Array:
        return gt.objective(problem, theta)

    def of_theta(function: Any) -> Asked:
        along = directions.T @ best
        return Asked("theta*", len(along), partial(function, contrasts=directions.T), lambda record: along)

    def last_gap(record: Record) -> Array:
        return highest - objective(record.path[..., -1, :])

    def tail_value(record: Record) -> Array:
        return objective(record.path[..., record.tail_start : -1, :]).mean(axis=-1)

    def learned_value(record: Record) -> Array:
        return objective(record.path[..., -1, :])

    return {
        "last_iterate": of_theta(intervals.last_iterate),
        "averaged_iterate": of_theta(intervals.averaged_iterate),
        "batch_means": of_theta(intervals.batch_means),
        "random_scaling": of_theta(intervals.random_scaling),
        "gap_limit": Asked("gap of the last iterate", 1, intervals.gap_limit, last_gap),
        "tail_value": Asked("mean value of the last half", 1, intervals.tail_value, tail_value),
        "learned_value": Asked("value of the last policy", 1, intervals.learned_value, learned_value),
        "best_value": Asked("value of the best policy", 1, intervals.best_value, lambda record: np.asarray(highest)),
    }


def narrower(interval: Interval) -> Interval:
    """Return limits a tenth narrower: about the estimate, or from 0 where there is one limit."""
    return narrowed(interval, NARROWING, np.where(interval.low == 0.0, 0.0, interval.estimate))


def side_by_side(questions: list[Asked]) -> Callable[[Record, float], Interval]:
    """Make one function of several that see one run: components one after another, for each as it is and then narrowed.

    The target, which may differ from run to run, is taken off: the truth is 0.
    """

    @vectorized
    def all_of_them(record: Record, level: float) -> Interval:
        columns: list[list[Array]] = []
        for asked in questions:
            interval, truth = asked.function(record, level), asked.target(record)
            for one in (interval, narrower(interval)):
                limits = (one.estimate - truth, one.standard_error, one.low - truth, one.high - truth)
                columns.append([np.reshape(array, (len(record.path), -1)) for array in limits])
        estimate, error, low, high = (np.concatenate(arrays, axis=1) for arrays in zip(*columns, strict=True))
        return Interval(estimate, error, low, high, level)

    return all_of_them


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Rows:
    """Train, ask all intervals about each run, and keep the measures of every component, those of narrowed ones as controls."""
    name = settings["problem"]
    problem, best, _ = maximum(name)
    _, directions = curvatures(name)
    shown = panel(name)
    questions = [shown[interval] for interval in settings["intervals"]]
    labels = [
        (variant, interval, asked.of, component)
        for interval, asked in zip(settings["intervals"], questions, strict=True)
        for variant in ("", "narrowed ")
        for component in range(asked.components)
    ]
    sizes = {key: settings[key] for key in ("batch_size", "group_size", "steps")}
    start = best + settings["start"] * directions[:, 0]
    covered = gt.coverage(
        side_by_side(questions),
        problem,
        np.zeros(len(labels)),
        experiment=gt.RecordedTraining("rloo", schedule(name, settings["schedule"]), **sizes, theta0=start),
        level=LEVEL,
        replications=settings["runs"],
        rng=seed_of(rng),
        workers=1,
        first=chunk * settings["runs"],
    )
    table = covered.measures().query("measure in @MEASURES")
    kept = []
    for row in table.to_dict("records"):
        variant, interval, target, component = labels[int(row["component"])]
        label = {"measure": variant + row["measure"], "interval": interval, "target": target, "component": str(component)}
        kept.append(label | {key: row[key] for key in ("estimate", "mcse", "replications", "failures")})
    return kept


def rows(settings: Settings, results: list[Any]) -> Iterator[dict[str, Any]]:
    """One row for each interval, component and measure; chunks are averaged, and exact limits given to shares."""
    common = {key: value for key, value in settings.items() if key not in ("intervals", "runs")}
    table, keys = pd.concat(map(pd.DataFrame, results), ignore_index=True), ["interval", "target", "component", "measure"]
    for values, part in table.groupby(keys, sort=False):
        label = dict(zip(keys, values, strict=True))
        yield common | label | {"prediction": nominal(label["measure"])} | _pooled(part, label["measure"])


def _pooled(part: pd.DataFrame, measure: str) -> dict[str, float]:
    """Return the average of a measure over chunks as columns of a row; a coverage has the exact limits of a share."""
    from scipy.stats import binomtest  # slow to import, and seldom wanted

    replications = int(part["replications"].sum())
    weights = part["replications"] / replications
    estimate, error = float(weights @ part["estimate"]), float(np.sqrt(weights**2 @ part["mcse"] ** 2))
    low, high = estimate - 1.96 * error, estimate + 1.96 * error
    if measure.endswith("coverage"):
        low, high = binomtest(round(estimate * replications), replications).proportion_ci(LEVEL)
        error = float(np.sqrt(estimate * (1.0 - estimate) / replications))
    counts = {"replications": replications, "failures": int(part["failures"].sum())}
    return {"estimate": estimate, "standard_error": error, "low": low, "high": high, **counts}


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Read off, at the points, whether an interval covers as it says, its worst component at least; the control is narrowed."""
    points = table[table["part"] == "point"]
    for (plan, interval), part in points.groupby(["schedule", "interval"], sort=False):
        first = part.iloc[0]
        measured = (part[part["measure"] == measure] for measure in ("coverage", "narrowed coverage"))
        own, control = (share(one.loc[farthest(one["estimate"], LEVEL)], LEVEL, comparisons=len(one)) for one in measured)
        setting = f"{first['problem']}, {plan} (n = {first['steps']}, B = {first['batch_size']}, G = {first['group_size']})"
        yield STATEMENTS[interval].claim(setting, own, control)
