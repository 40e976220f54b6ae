"""Coverage of the confidence intervals from one training run.

Of theta*, the gap, and values: over a design of problems, schedules, lengths and batches, and at two points with many runs, where
it is judged by the worst component.  Broken, limits are a tenth narrower.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory import intervals
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim, Share
from grpo_theory.evidence.reading import farthest
from grpo_theory.harness.study import Cell, Rows, Settings
from grpo_theory.intervals import Interval, vectorized
from grpo_theory.schedule import Schedule
from simulations.coverage.narrowing import narrowed
from simulations.coverage.statements import covers
from simulations.maximum import curvatures, maximum
from simulations.sources import derived

OF = {
    "last_iterate": "theta*",
    "averaged_iterate": "theta*",
    "batch_means": "theta*",
    "random_scaling": "theta*",
    "gap_limit": "gap of the last iterate",
    "tail_value": "mean value of the last half",
    "learned_value": "value of the last policy",
    "best_value": "value of the best policy",
}
"""What each interval is of."""
STATEMENTS = {name: covers(name, f"{of} from one run", derived(13)) for name, of in OF.items()}

LEVEL, NARROWING = 0.95, 0.9
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
RUNS, POINT_RUNS, QUICK_RUNS, CHUNK_RUNS = 512, 50_176, 64, 28 * 128
"""Chunks are whole blocks of 128 replications, which an experiment draws together."""
MEASURES = ("coverage", "mean width", "bias", "relative % error in model SE")

Record = gt.TrainingRecord


class Asked(NamedTuple):
    """An interval function, of how many components, and the truth about a run."""

    components: int
    function: Callable[[Record, float], Interval]
    target: Callable[[Record], Array]


def cells(quick: bool) -> list[Cell]:
    """A design over problems, schedules, lengths and batches, and two points with many runs, started at the maximiser."""
    names: tuple[str, ...] = ("part", "problem", "schedule", "start", "steps", "batch_size", "group_size", "intervals")
    every = tuple(interval for intervals in POINTS.values() for interval in intervals)
    sizes = SIZES[:1] if quick else SIZES
    found: list[tuple[Any, ...]] = [
        ("design", problem, plan, START, *size, every)
        for problem in (PROBLEMS[:1] if quick else PROBLEMS)
        for plan in SCHEDULES
        for size in sizes
    ]
    found += [("point", POINT_PROBLEM, plan, 0.0, POINT_STEPS, 1, 4, intervals) for plan, intervals in POINTS.items()]
    listed = []
    for values in found:
        runs = QUICK_RUNS if quick else POINT_RUNS if values[0] == "point" else RUNS
        settings = dict(zip(names, values, strict=True)) | {"intervals": list(values[-1]), "runs": min(runs, CHUNK_RUNS)}
        listed.append(Cell(settings, -(-runs // CHUNK_RUNS), shared=True))
    return listed


def schedule(name: str, plan: str) -> Schedule:
    """Return beta/(i + i_0) with beta = 2/lambda_min, i^-0.6/lambda_max, or the constant 1/(10 lambda_max)."""
    found, _ = curvatures(name)
    least, most = float(found.min()), float(found.max())
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
        return Asked(len(along), partial(function, contrasts=directions.T), lambda record: along)

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
        "gap_limit": Asked(1, intervals.gap_limit, last_gap),
        "tail_value": Asked(1, intervals.tail_value, tail_value),
        "learned_value": Asked(1, intervals.learned_value, learned_value),
        "best_value": Asked(1, intervals.best_value, lambda record: np.asarray(highest)),
    }


def narrower(found: Interval) -> Interval:
    """Return limits a tenth narrower: about the estimate, or from 0 where there is one limit."""
    return narrowed(found, NARROWING, np.where(found.low == 0.0, 0.0, found.estimate))


def side_by_side(questions: list[Asked]) -> Callable[[Record, float], Interval]:
    """Make one function of several that see one run: components one after another, for each as it is and then narrowed.

    The target, which may differ from run to run, is taken off: the truth is 0.
    """

    @vectorized
    def all_of_them(record: Record, level: float) -> Interval:
        columns: list[list[Array]] = []
        for asked in questions:
            found, truth = asked.function(record, level), asked.target(record)
            for one in (found, narrower(found)):
                limits = (one.estimate - truth, one.standard_error, one.low - truth, one.high - truth)
                columns.append([np.reshape(array, (len(record.path), -1)) for array in limits])
        estimate, error, low, high = (np.concatenate(arrays, axis=1) for arrays in zip(*columns, strict=True))
        return Interval(estimate, error, low, high, level)

    return all_of_them


def simulate(settings: Settings, rng: np.random.SeedSequence, chunk: int) -> Rows:
    """Train, ask all intervals about each run, and keep the measures of every component, those of narrowed ones too."""
    name = settings["problem"]
    problem, best, _ = maximum(name)
    _, directions = curvatures(name)
    shown = panel(name)
    questions = [shown[interval] for interval in settings["intervals"]]
    labels = [
        (variant, interval, OF[interval], component)
        for interval, asked in zip(settings["intervals"], questions, strict=True)
        for variant in ("", "narrowed ")
        for component in range(asked.components)
    ]
    sizes = {key: settings[key] for key in ("batch_size", "group_size", "steps")}
    start = best + settings["start"] * directions[:, 0]
    found = gt.coverage(
        side_by_side(questions),
        problem,
        np.zeros(len(labels)),
        experiment=gt.RecordedTraining("rloo", schedule(name, settings["schedule"]), **sizes, theta0=start),
        level=LEVEL,
        replications=settings["runs"],
        rng=rng,
        workers=1,
        first=chunk * settings["runs"],
    )
    table = found.measures().query("measure in @MEASURES")
    kept = []
    for row in table.to_dict("records"):
        variant, interval, target, component = labels[int(row["component"])]
        label = {"measure": variant + row["measure"], "interval": interval, "target": target, "component": str(component)}
        kept.append(label | {key: row[key] for key in ("estimate", "mcse", "replications", "failures")})
    return kept


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each interval, component and measure; chunks are averaged, and exact limits given to shares."""
    from scipy.stats import binomtest  # slow to import, and seldom wanted

    table = pd.concat([pd.DataFrame(result) for result in results], ignore_index=True)
    common = {key: value for key, value in settings.items() if key not in ("intervals", "runs")}
    found = []
    for (interval, target, component, measure), part in table.groupby(["interval", "target", "component", "measure"], sort=False):
        share = part["replications"] / part["replications"].sum()
        replications = int(part["replications"].sum())
        estimate, mcse = float(share @ part["estimate"]), float(np.sqrt(share**2 @ part["mcse"] ** 2))
        low, high = estimate - 1.96 * mcse, estimate + 1.96 * mcse
        if str(measure).endswith("coverage"):
            exact = binomtest(round(estimate * replications), replications).proportion_ci(0.95)
            low, high, mcse = exact.low, exact.high, float(np.sqrt(estimate * (1.0 - estimate) / replications))
        row = {"interval": interval, "target": target, "component": component, "measure": measure}
        nominal = LEVEL if str(measure).endswith("coverage") else float("nan")
        numbers = {"prediction": nominal, "estimate": estimate, "standard_error": mcse, "low": low, "high": high}
        counts = {"replications": replications, "failures": int(part["failures"].sum())}
        found.append(common | row | numbers | counts)
    return found


def claims(table: pd.DataFrame) -> list[Claim]:
    """Read off, at the points, whether an interval covers as it says."""
    points = table[(table["part"] == "point") & table["measure"].isin(["coverage", "narrowed coverage"])]
    found = []
    for (plan, interval), part in points.groupby(["schedule", "interval"], sort=False):
        first = part.iloc[0]
        own, broken = (_worst(part[part["measure"] == measure]) for measure in ("coverage", "narrowed coverage"))
        setting = f"{first['problem']}, {plan} (n = {first['steps']}, B = {first['batch_size']}, G = {first['group_size']})"
        found.append(STATEMENTS[str(interval)].claim(setting, own, broken))
    return found


def _worst(part: pd.DataFrame) -> Share:
    """Return the evidence of the component whose coverage is farthest from the level."""
    row = part.loc[farthest(part["estimate"], LEVEL)]
    return Share(float(row["estimate"]), LEVEL, replications=int(row["replications"]), comparisons=len(part))
