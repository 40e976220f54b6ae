"""U7, U8, U10, U18: the mean suboptimality gap during training, its bounds, and its exact recursion."""

from collections.abc import Mapping
from functools import cache
from math import ceil
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.evidence import Claim, Evidence
from grpo_theory.evidence.reading import evidence, exact, farthest
from grpo_theory.exact import Region, largest_error, longest_estimate, region, steepest_ray
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from grpo_theory.theory import constant_step_bound, gap_recursion, harmonic_step_bound, linearise, recursion_bound
from simulations.claims import claim, unconverted
from simulations.kernels import kernel_at
from simulations.maximum import curvatures, maximum
from simulations.training.grid import doubling

PROBLEMS = ("kl-tabular", "kl-linear", "conflict")
ESTIMATORS = ("rloo", "oracle", "reinforce")
SCHEDULES = ("constant", "harmonic")
STEPS = 4096
BETWEEN = 64
"""Numbers of steps, spaced by ratio, at which the laws are computed beside the checkpoints."""
RADIUS, START = 1.0, 0.9
RUNS, QUICK_RUNS, CHUNK_RUNS = {"kl-tabular": 6144, "kl-linear": 8192, "conflict": 6144}, 256, 2048
TURNED, TURNED_RUNS = kernel_at("turned_mean", 1.0, "rloo, turned round"), 64
"""The learner of U8's control descends: a sign that is wrong."""
LONGER = 1.25
"""The learner of the sharp predictions' control takes steps that are a quarter too long: its gap is larger by a fifth or more."""
SHARP_MARGIN, RATE_MARGIN = 0.1, 0.1
LATE = {"constant": 2, "harmonic": 16}
"""The rates are read from this fraction of the steps on: runs at a constant step, the controls, forget their start late."""
RATES = {"slope": "U10", "slope of the distance": "U10/distance"}


def cells(quick: bool) -> list[Cell]:
    """Training runs from the edge of a ball around the maximiser, projected onto it."""
    common = {"batch_size": 1, "group_size": 4, "runs": QUICK_RUNS if quick else CHUNK_RUNS}
    chunks = {problem: 1 if quick else runs // CHUNK_RUNS for problem, runs in RUNS.items()}
    return [
        Cell({"problem": problem, "estimator": estimator, "schedule": schedule, "steps": STEPS, **common}, chunks[problem])
        for problem in (PROBLEMS[::2] if quick else PROBLEMS)
        for schedule in SCHEDULES
        for estimator in (ESTIMATORS[:1] if quick else ESTIMATORS)
    ]


@cache
def surroundings(name: str) -> Region:
    """Return the constants over the ball, with room for a first step of at most 1/(2L)."""
    problem, best, _ = maximum(name)
    reach = longest_estimate(problem, best, radius=RADIUS) / (2.0 * curvatures(name)[0].max())
    return region(problem, best, radius=RADIUS, reach=reach)


def schedule(settings: Settings, factor: float = 1.0) -> gt.Constant | gt.Harmonic:
    """Return a constant step 1/(50 L), or beta/(i + i_0) with beta = 1/mu and a first step of at most 1/(2L), times a factor."""
    found = surroundings(settings["problem"])
    if settings["schedule"] == "constant":
        return gt.Constant(factor * 0.02 / found.smoothness)
    return gt.Harmonic(factor / found.pl, ceil(2.0 * found.smoothness / found.pl))


@cache
def first_ray(name: str, kind: str) -> float:
    """Return the steepest ray within the first step of the ball, the longest that is taken."""
    problem, best, _ = maximum(name)
    step = float(schedule({"problem": name, "schedule": kind}).steps(1)[0])
    reach = step * longest_estimate(problem, best, radius=RADIUS)
    return steepest_ray(problem, best, radius=RADIUS + reach)


@cache
def largest_noise(name: str, estimator: str, batch_size: int, group_size: int) -> float:
    """Return M, the largest error of an estimator over the ball: the same for all schedules."""
    problem, best, _ = maximum(name)
    return largest_error(problem, best, estimator, radius=RADIUS, batch_size=batch_size, group_size=group_size)


def moments(steps: int) -> list[int]:
    """Return the checkpoints, and numbers of steps between them so close that a curve through all is smooth."""
    between = np.geomspace(1.0, doubling(steps)[-1], BETWEEN).round().astype(int)
    return sorted({*doubling(steps), *between.tolist()})


def late_step(settings: Settings) -> int:
    """Return the step from which on the rates are read."""
    return int(settings["steps"]) // LATE[settings["schedule"]]


def _start(name: str) -> np.ndarray:
    """Return the start: along the direction of least curvature, where progress is slowest."""
    _, best, _ = maximum(name)
    return best + START * RADIUS * curvatures(name)[1][:, 0]


def predict(settings: Settings) -> dict[str, Any]:
    """Return the constants over the ball; on a fine grid of steps the exact recursion's gap, the bounds and the broken bound."""
    problem, best, highest = maximum(settings["problem"])
    found, plan, n = surroundings(settings["problem"]), schedule(settings), np.array(moments(settings["steps"]))
    sizes = {"batch_size": settings["batch_size"], "group_size": settings["group_size"]}
    noise = largest_noise(settings["problem"], settings["estimator"], **sizes)
    start = _start(settings["problem"])
    start_gap = highest - float(gt.objective(problem, start))
    steps = plan.steps(settings["steps"])
    linear = linearise(problem, best, settings["estimator"], **sizes)
    deviation = (start - best) @ linear.directions
    offset = plan.offset if isinstance(plan, gt.Harmonic) else 0
    if isinstance(plan, gt.Constant):
        bound, wrong = (constant_step_bound(found, level, plan.step, start_gap, n) for level in (noise, 0.0))
    else:
        bound = harmonic_step_bound(found, noise, plan.step_scale, n, offset=offset)
        wrong = np.full(len(n), np.nan)
    constants = {
        "L": found.smoothness,
        "mu": found.pl,
        "M": noise,
        "ray": first_ray(settings["problem"], settings["schedule"]),
        "step": float(steps[0]),
        "least_curvature": float(linear.curvatures.min()),
        "offset": offset,
    }
    gaps = {
        "prediction": gap_recursion(linear, steps, np.outer(deviation, deviation))[n - 1],
        "iterated": recursion_bound(found, noise, steps, start_gap)[n - 1],
        "bound": bound,
        "control": wrong,
    }
    return {"constants": constants, "gaps": {name: values.tolist() for name, values in gaps.items()}}


def train(
    settings: Settings,
    seed: np.random.SeedSequence,
    steps: int,
    estimator: gt.Estimator | None = None,
    factor: float = 1.0,
) -> gt.TrainingRuns:
    """Train for so many steps, fewer being the first of more, to the bit; a few runs with another estimator if one is given.

    The steps of the schedule are multiplied by the factor.
    """
    problem, best, _ = maximum(settings["problem"])
    return gt.simulate_training(
        problem,
        _start(settings["problem"]),
        settings["estimator"] if estimator is None else estimator,
        schedule(settings, factor),
        batch_size=settings["batch_size"],
        group_size=settings["group_size"],
        steps=steps,
        replications=settings["runs"] if estimator is None else TURNED_RUNS,
        rng=seed,
        workers=1,
        checkpoints=doubling(steps),
        ball=gt.Ball(best, RADIUS),
    )


def _moments(values: np.ndarray) -> dict[str, Any]:
    """Return the sums (C,) and the sums of products (C, C) of values (runs, C)."""
    return {"sum": values.sum(axis=0).tolist(), "products": (values.T @ values).tolist()}


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> Mapping[str, Any]:
    """Train, and keep moments of the gaps at the checkpoints and of d(theta, Theta*)^2 at a late step and at the end.

    The first chunk predicts the gaps too, and trains the learner whose steps are too long and, with steps that fall, the one that
    descends.
    """
    _, best, highest = maximum(settings["problem"])
    training = train(settings, seed, settings["steps"])
    ends = train(settings, seed, late_step(settings)), training
    turned = chunk == 0 and settings["schedule"] == "harmonic"
    descent = train(settings, seed, settings["steps"], TURNED) if turned else None
    longer = train(settings, seed, settings["steps"], factor=LONGER) if chunk == 0 else None
    directions = curvatures(settings["problem"])[1]
    distances = np.stack([np.sum(((end.theta - best) @ directions) ** 2, axis=1) for end in ends], axis=1)
    return {
        "gaps": _moments(highest - training.objectives),
        "distances": _moments(distances),
        "diverged": int(training.diverged.sum()),
        "prediction": predict(settings) if chunk == 0 else None,
        "longer": None if longer is None else _moments(highest - longer.objectives),
        "turned": None if descent is None else _moments(highest - descent.objectives),
    }


def _mean_and_covariance(results: list[Any], name: str, runs: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean (C,) of what chunks kept moments of, and the covariance (C, C) of that mean."""
    mean = np.sum([result[name]["sum"] for result in results], axis=0) / runs
    products = np.sum([result[name]["products"] for result in results], axis=0) / runs
    return mean, (products - np.outer(mean, mean)) / (runs - 1)


def _slope(n: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> dict[str, float]:
    """Return the slope of log mean on log n by least squares, with its standard error by the delta method."""
    centred = np.log(n) - np.log(n).mean()
    weights = centred / (centred @ centred)
    influence = weights / mean
    return {"estimate": float(weights @ np.log(mean)), "standard_error": float(np.sqrt(influence @ covariance @ influence))}


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each checkpoint, one for the rate of the last ones, and the laws on a fine grid."""
    n, predicted = np.array(doubling(settings["steps"])), results[0]["prediction"]
    laws = pd.DataFrame(predicted["gaps"], index=moments(settings["steps"]))
    gaps = laws.loc[n].to_dict("records")
    runs = settings["runs"] * len(results)
    mean, covariance = _mean_and_covariance(results, "gaps", runs)
    common = {name: settings[name] for name in ("problem", "estimator", "schedule", "batch_size", "group_size")}
    common |= {"replications": runs, "diverged": sum(result["diverged"] for result in results), **predicted["constants"]}
    errors = np.sqrt(np.diag(covariance))
    longer, longer_covariance = _mean_and_covariance(results[:1], "longer", settings["runs"])
    longer_errors = np.sqrt(np.diag(longer_covariance))
    turned, turned_errors = np.full((2, len(n)), np.nan)
    if results[0]["turned"] is not None:
        turned, turned_covariance = _mean_and_covariance(results[:1], "turned", TURNED_RUNS)
        turned_errors = np.sqrt(np.maximum(np.diag(turned_covariance), 0.0))
    table: Rows = [
        common
        | {"quantity": "gap", "n": int(n[i]), "estimate": float(mean[i]), "standard_error": float(errors[i])}
        | gaps[i]
        | {"looseness": float(gaps[i]["bound"] / mean[i])}
        | {"longer": float(longer[i]), "longer_error": float(longer_errors[i]), "longer_runs": settings["runs"]}
        | {"turned": float(turned[i]), "turned_error": float(turned_errors[i])}
        for i in range(len(n))
    ]
    late, times = n >= late_step(settings), n + common["offset"]
    ends = times[late][[0, -1]]
    slopes = {
        "slope": _slope(times[late], mean[late], covariance[np.ix_(late, late)]),
        "slope of the distance": _slope(ends, *_mean_and_covariance(results, "distances", runs)),
    }
    rates = [common | {"quantity": name, "n": int(n[-1]), "prediction": -1.0} | slope for name, slope in slopes.items()]
    curve = [
        common | {"quantity": "law", "n": moment, "estimate": law["prediction"]} | law | EXACT
        for moment, law in zip(laws.index, laws.to_dict("records"), strict=True)
    ]
    return [*table, *rates, *curve]


def _bound_claim(statement: str, setting: str, gaps: pd.DataFrame) -> Claim:
    """The bound at the checkpoint where it comes nearest to failing.

    The control of a constant step forgets the noise, M = 0; that of beta/n is a learner whose sign is wrong.  The latter bound
    is at least 15 times the gap, so no check of it could tell that its M is too small by less; for that there is `tight_bound`.
    """

    def worst(estimate: str, error: str, bound: str, replications: int) -> Evidence:
        ratios, errors = gaps[estimate] / gaps[bound], gaps[error] / gaps[bound]
        at = farthest(ratios + 5.0 * errors)
        return Evidence(
            float(ratios[at]), 1.0, float(errors[at]), replications=replications if errors[at] > 0.0 else 0, comparisons=len(gaps)
        )

    row = gaps.iloc[0]
    own = worst("estimate", "standard_error", "bound", int(row["replications"]))
    facts = {"L": row["L"], "mu": row["mu"], "M": row["M"], "steepest ray": row["ray"], "first step": row["step"]}
    if statement == "U7":
        control = worst("estimate", "standard_error", "control", int(row["replications"]))
    else:
        control = worst("turned", "turned_error", "bound", TURNED_RUNS)
        facts["gap of the control / gap"] = float(gaps["turned"].iloc[-1] / gaps["estimate"].iloc[-1])
    return claim(statement, setting, own, control, facts=facts)


def _claims(problem: str, estimator: str, kind: str, part: pd.DataFrame) -> list[Claim]:
    setting = f"{problem} ({estimator})"
    gaps = part[part["quantity"] == "gap"]
    last = gaps.iloc[-1]
    statement = "U7" if kind == "constant" else "U8"
    broken = {"estimate": last["longer"], "standard_error": last["longer_error"], "replications": last["longer_runs"]}
    sharp = (evidence(row, margin=SHARP_MARGIN) for row in (last.to_dict(), last.to_dict() | broken))
    facts = {"gap of the control / gap": float(last["longer"] / last["estimate"])}
    return [_bound_claim(statement, setting, gaps), claim(f"{statement}/sharp", setting, *sharp, facts=facts)]


def _rate_claims(problem: str, estimator: str, part: pd.DataFrame) -> list[Claim]:
    """The rates under beta/(i + i_0); the controls are runs at a constant step, which stay away from the maximiser."""
    at = part.set_index(["quantity", "schedule"])
    return [
        claim(
            statement,
            f"{problem} ({estimator})",
            *(evidence(at.loc[(name, kind)], -1.0, RATE_MARGIN) for kind in SCHEDULES[::-1]),
        )
        for name, statement in RATES.items()
    ]


def _curvature_claims(problem: str, part: pd.DataFrame) -> list[Claim]:
    """U18 on the constants over the ball; the control puts L for mu."""
    row = part.iloc[0]
    least, most, mu = float(row["least_curvature"]), float(row["L"]), float(row["mu"])
    facts = {"L": most, "mu": mu, "least curvature": least}
    return [
        claim("U18", problem, exact(mu, least), exact(most, least), facts=facts),
        claim("U18/order", problem, exact(mu, most), exact(most, mu), facts=facts),
    ]


def claims(table: pd.DataFrame) -> list[Claim]:
    """Read the bounds, the sharp prediction and the rates off the table."""
    found = []
    for (problem, kind, estimator), part in table.groupby(["problem", "schedule", "estimator"], sort=False):
        found += _claims(str(problem), str(estimator), str(kind), part)
    for (problem, estimator), part in table[table["quantity"].isin(RATES)].groupby(["problem", "estimator"], sort=False):
        found += _rate_claims(str(problem), str(estimator), part)
    for problem, part in table.groupby("problem", sort=False):
        found += _curvature_claims(str(problem), part)
    return found


STUDY = unconverted(
    "training_gap",
    "U7, U8, U10, U18: the mean gap during training and its bounds",
    cells,
    compute,
    rows,
    claims,
    ("U7", "U7/sharp", "U8", "U8/sharp", *RATES.values(), "U18", "U18/order"),
)
