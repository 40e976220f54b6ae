"""Coverage of the confidence intervals from one training run.

The targets are theta*, the gap, and values. In the control the sets are narrowed.
"""

from functools import partial
from typing import Any

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence import Share
from grpo_theory.harness import check, rows, run
from grpo_theory.intervals import Interval, vectorized
from simulations.coverage.candidates import LEVEL
from simulations.coverage.narrowing import narrowed
from simulations.maximum import curvatures, maximum
from simulations.seeds import seed_of
from simulations.statements import stated

PROBLEMS = ("kl-tabular", "kl-linear", "conflict")
SCHEDULES: dict[str, Any] = {
    "beta/i": lambda least, most: gt.Harmonic(2.0 / least, int(4.0 * most / least)),
    "i^-0.6": lambda least, most: gt.PowerLaw(1.0 / most, 0.6),
    "constant": lambda least, most: gt.Constant(0.1 / most),
}
"""By the least and the largest curvature, lambda_min and lambda_max."""
SIZES = ((300, 1, 4), (1500, 1, 4), (1500, 4, 8))
START = 1.5
"""How far from the maximiser the runs of the design start, along the direction of least curvature."""
POINTS = {
    "beta/i": ("last_iterate", "gap_limit", "tail_value", "learned_value", "best_value"),
    "i^-0.6": ("averaged_iterate", "batch_means", "random_scaling"),
}
RUNS, POINT_RUNS, QUICK_RUNS, CHUNK_RUNS = 256, 32_256, 64, 28 * 128
"""Chunks are whole blocks of 128 replications, which an experiment draws together. At a point limits are half a percent wide,
which tells what covers as it says. In the design 256 runs tell a coverage to 1.4%."""
BEST = "theta*"
OF = {
    **dict.fromkeys(("last_iterate", "averaged_iterate", "batch_means", "random_scaling"), BEST),
    "gap_limit": "gap of the last iterate",
    "tail_value": "mean value of the last half",
    "learned_value": "value of the last policy",
    "best_value": "value of the best policy",
}
"""What each interval is of."""
STATEMENTS = stated(*(f"CI/{name}" for name in OF))
SETTING = "{problem}, {schedule} (n = {steps}, B = {batch_size}, G = {group_size})"


def cases(quick):
    """List a design over problems, schedules, lengths and batches, and two points with many runs, started at the maximiser."""
    every = [interval for asked in POINTS.values() for interval in asked]
    problems, sizes = (PROBLEMS[:1], SIZES[:1]) if quick else (PROBLEMS, SIZES)
    design = [("design", problem, plan, START, *size, every) for problem in problems for plan in SCHEDULES for size in sizes]
    points = [("point", "kl-linear", plan, 0.0, 1500, 1, 4, list(asked)) for plan, asked in POINTS.items()]
    keys = ("part", "problem", "schedule", "start", "steps", "batch_size", "group_size", "intervals")
    runs = {"design": QUICK_RUNS, "point": QUICK_RUNS} if quick else {"design": RUNS, "point": POINT_RUNS}
    return [dict(zip(keys, one, strict=True)) | {"runs": runs[one[0]]} for one in (*design, *points)]


def points(quick):
    """List the points."""
    return [one for one in cases(quick) if one["part"] == "point"]


def truth(interval, name, record):
    """Return what an interval is of, about each run of a record."""
    problem, best, highest = maximum(name)
    value = partial(gt.objective, problem)
    truths: dict[str, Any] = {
        BEST: lambda path: curvatures(name)[1].T @ best,
        OF["gap_limit"]: lambda path: highest - value(path[..., -1, :]),
        OF["tail_value"]: lambda path: value(path[..., record.tail_start : -1, :]).mean(axis=-1),
        OF["learned_value"]: lambda path: value(path[..., -1, :]),
        OF["best_value"]: lambda path: highest,
    }
    return truths[OF[interval]](record.path)


def narrower(interval):
    """Return limits a tenth narrower: about the estimate, or from 0 where there is one limit."""
    return narrowed(interval, 0.9, np.where(interval.low == 0.0, 0.0, interval.estimate))


@run(shared=True, runs=CHUNK_RUNS)
def trained(problem, schedule, start, intervals, runs, rng, chunk, **case):
    """Train, and ask all intervals about each run: the coverage of every component, as it is and narrowed."""
    found, best, _ = maximum(problem)
    curved, directions = curvatures(problem)
    sizes = {name: case[name] for name in ("batch_size", "group_size", "steps")}

    @vectorized
    def side_by_side(record, level):
        """Components one after another, for each interval as it is and then narrowed; the target is taken off: the truth is 0."""
        columns: list[Any] = []
        for name in intervals:
            options = {"contrasts": directions.T} if OF[name] == BEST else {}
            interval, target = getattr(gt.intervals, name)(record, level, **options), truth(name, problem, record)
            for one in (interval, narrower(interval)):
                limits = (one.estimate - target, one.standard_error, one.low - target, one.high - target)
                columns.append([np.reshape(array, (len(record.path), -1)) for array in limits])
        estimate, error, low, high = (np.concatenate(arrays, axis=1) for arrays in zip(*columns, strict=True))
        return Interval(estimate, error, low, high, level)

    components = np.repeat([directions.shape[1] if OF[name] == BEST else 1 for name in intervals], 2)
    rates = SCHEDULES[schedule](curved.min(), curved.max())
    learned = gt.RecordedTraining("rloo", rates, **sizes, theta0=best + start * directions[:, 0])
    drawn = {"replications": runs, "rng": seed_of(rng), "workers": 1, "first_block": chunk * (runs // learned.block_replications)}
    covered = gt.coverage(side_by_side, found, np.zeros(components.sum()), experiment=learned, **drawn)
    shares = iter(np.split(covered.coverage, np.cumsum(components)[:-1]))
    return {name: {"coverage": [next(shares)], "narrowed": [next(shares)]} for name in intervals}


@rows(of=trained, cases=lambda quick: [one for one in cases(quick) if one["part"] == "design"])
def coverages(found):
    """The coverage of every component, for the tables of coverages."""
    for interval, shares in found.items():
        for component, share in enumerate(shares["coverage"].mean(axis=0)):
            labels = {"measure": "coverage", "interval": interval, "target": OF[interval], "component": str(component)}
            yield labels | {"estimate": share}


@check(*STATEMENTS, of=trained, cases=points, broken={"which": "narrowed"}, setting=SETTING)
def coverage(found, runs, which="coverage"):
    """Whether an interval covers as it says, its worst component at least."""
    sides = {}
    for interval, shares in found.items():
        covered = shares[which].mean(axis=0)
        worst = covered[np.abs(covered - LEVEL).argmax()]
        sides[f"CI/{interval}"] = Share(worst, LEVEL, replications=runs, comparisons=covered.size)
    return sides
