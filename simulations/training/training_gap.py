"""U7, U8, U10, U18: the mean gap during training and its bounds.

The mean suboptimality gap of training runs is compared with the bounds, with the exact recursion, and with the rates. The
controls are a bound without noise, a learner that descends, steps half too long, and a constant step where it should fall.
"""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.evidence import Claim, Evidence
from grpo_theory.evidence.reading import evidence, exact, farthest
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from simulations.kernels import kernel_at
from simulations.maximum import curvatures, maximum
from simulations.seeds import seed_of
from simulations.statements import stated
from simulations.training.gap_laws import RADIUS, moments, predict, schedule, start_of
from simulations.training.grid import doubling
from simulations.training.lemma_6 import U8
from simulations.training.pooled import Pooled, pooled, slope_of, sums_of

U7, U7_SHARP, U8_SHARP, U10, U10_DISTANCE, U18 = stated("U7", "U7/sharp", "U8/sharp", "U10", "U10/distance", "U18")
U18_ORDER = stated("U18/order")

PROBLEMS = ("kl-tabular", "kl-linear", "conflict")
ESTIMATORS = ("rloo", "oracle", "reinforce")
STATED = {"constant": (U7, U7_SHARP), "harmonic": (U8, U8_SHARP)}
"""The bound and the sharp prediction of each schedule."""
SCHEDULES = tuple(STATED)
STEPS = 4096
RUNS, QUICK_RUNS, CHUNK_RUNS = {"kl-tabular": 4096, "kl-linear": 6144, "conflict": 4096}, 256, 2048
TURNED, TURNED_RUNS = kernel_at("turned_mean", 1.0, "rloo, turned round"), 64
"""The learner of U8's control descends: a sign that is wrong."""
LONGER = 1.5
"""The learner of the sharp predictions' control takes steps that are half too long."""
LATE = {"constant": 2, "harmonic": 16}
"""The rates are read from this fraction of the steps on: runs at a constant step, the controls, forget their start late."""
LEARNERS = ("gap", "longer", "turned")
"""What the table calls the gaps of the learner itself and those of the controls'."""
CONSTANTS = {"L": "L", "mu": "mu", "M": "M", "steepest ray": "ray", "first step": "step"}
"""The columns of the constants over the ball, by what the facts of a claim call them."""
RATES = {"slope": U10, "slope of the distance": U10_DISTANCE}


def cells(quick: bool) -> list[Cell]:
    """Training runs from the edge of a ball around the maximiser, projected onto it."""
    common = {"batch_size": 1, "group_size": 4, "runs": QUICK_RUNS if quick else CHUNK_RUNS}
    chunks = {problem: 1 if quick else runs // CHUNK_RUNS for problem, runs in RUNS.items()}
    problems, estimators = (PROBLEMS[::2], ESTIMATORS[:1]) if quick else (PROBLEMS, ESTIMATORS)
    return [
        Cell({"problem": problem, "estimator": estimator, "schedule": schedule, "steps": STEPS, **common}, chunks[problem])
        for problem, schedule, estimator in product(problems, SCHEDULES, estimators)
    ]


def late_step(settings: Settings) -> int:
    """Return the step from which on the rates are read."""
    return int(settings["steps"]) // LATE[settings["schedule"]]


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
        start_of(settings["problem"]),
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


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> dict[str, Any]:
    """Train, and keep moments of the gaps at the checkpoints and of d(theta, Theta*)^2 at a late step and at the end.

    The first chunk predicts the gaps too, and trains the learner whose steps are too long and, with steps that fall, the one that
    descends.
    """
    seed = seed_of(rng)
    _, best, highest = maximum(settings["problem"])
    training = train(settings, seed, settings["steps"])
    ends = train(settings, seed, late_step(settings)), training
    directions = curvatures(settings["problem"])[1]
    distances = np.stack([np.sum(((end.theta - best) @ directions) ** 2, axis=1) for end in ends], axis=1)
    chunk_sums = {
        "gap": sums_of(highest - training.objectives),
        "distance": sums_of(distances),
        "diverged": int(training.diverged.sum()),
    }
    if chunk > 0:
        return chunk_sums
    chunk_sums["prediction"] = predict(settings)
    chunk_sums["longer"] = sums_of(highest - train(settings, seed, settings["steps"], factor=LONGER).objectives)
    if settings["schedule"] == "harmonic":
        chunk_sums["turned"] = sums_of(highest - train(settings, seed, settings["steps"], TURNED).objectives)
    return chunk_sums


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each checkpoint and learner, the own and those of the controls; one for each rate; the laws on a fine grid."""
    n, predicted = np.array(doubling(settings["steps"])), results[0]["prediction"]
    laws = pd.DataFrame(predicted["gaps"], index=pd.Index(moments(settings["steps"]), name="n"))
    gaps = {name: pooled([one[name] for one in results if name in one]) for name in LEARNERS if name in results[0]}
    at_checkpoints = laws.loc[n].reset_index()
    tables = [at_checkpoints.join(one.columns).assign(quantity=name) for name, one in gaps.items()]
    curve = laws.reset_index().assign(quantity="law", estimate=laws["prediction"].to_numpy(), **EXACT)
    late, times = n >= late_step(settings), n + predicted["constants"]["offset"]
    mean, covariance, runs = gaps["gap"]
    rates = {
        "slope": slope_of(times[late], Pooled(mean[late], covariance[np.ix_(late, late)], runs)),
        "slope of the distance": slope_of(times[late][[0, -1]], pooled([one["distance"] for one in results])),
    }
    slopes = [{"quantity": name, "n": int(n[-1]), "prediction": -1.0} | slope for name, slope in rates.items()]
    common = {name: settings[name] for name in ("problem", "estimator", "schedule", "batch_size", "group_size")}
    common |= {"diverged": sum(one["diverged"] for one in results), **predicted["constants"]}
    return [common | row for row in (*pd.concat(tables).to_dict("records"), *slopes, *curve.to_dict("records"))]


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Read the bounds, the sharp prediction and the rates off the table."""
    for (problem, kind, estimator), part in table.groupby(["problem", "schedule", "estimator"], sort=False):
        yield from _gap_claims(f"{problem} ({estimator})", str(kind), part)
    for (problem, estimator), part in table[table["quantity"].isin(RATES)].groupby(["problem", "estimator"], sort=False):
        at = part.set_index(["quantity", "schedule"])
        for name, statement in RATES.items():
            # The control is a run at a constant step, which stays away from the maximiser.
            own, control = (evidence(at.loc[(name, kind)], -1.0) for kind in SCHEDULES[::-1])
            yield statement.claim(f"{problem} ({estimator})", own, control)
    for problem, part in table.groupby("problem", sort=False):
        yield from _curvature_claims(str(problem), part.iloc[0])


def _gap_claims(setting: str, schedule: str, part: pd.DataFrame) -> Iterator[Claim]:
    """Yield the bound at the checkpoint where it comes nearest to failing, and the sharp prediction at the end.

    The control of a constant step forgets the noise, M = 0; that of beta/n is a learner whose sign is wrong. The latter bound is
    at least 15 times the gap, so no check of it could tell that its M is too small by less. For that there is `tight_bound`.
    """
    gaps = {name: part[part["quantity"] == name] for name in LEARNERS}
    own, longer = gaps["gap"].iloc[-1], gaps["longer"].iloc[-1]
    facts = {name: own[column] for name, column in CONSTANTS.items()}
    if schedule == "constant":
        control = _nearest(gaps["gap"], "control")
    else:
        control = _nearest(gaps["turned"], "bound")
        facts["gap of the control / gap"] = gaps["turned"].iloc[-1]["estimate"] / own["estimate"]
    bound, sharp = STATED[schedule]
    yield bound.claim(setting, _nearest(gaps["gap"], "bound"), control, facts=facts)
    facts = {"gap of the control / gap": longer["estimate"] / own["estimate"]}
    yield sharp.claim(setting, evidence(own), evidence(longer), facts=facts)


def _nearest(gaps: pd.DataFrame, bound: str) -> Evidence:
    """Return the evidence of the checkpoint where a gap comes nearest to its bound, the level shared among all."""
    ratios, errors = gaps["estimate"] / gaps[bound], gaps["standard_error"] / gaps[bound]
    at = farthest(ratios + 5.0 * errors)
    # Runs that have all been projected onto one point have no spread; their gap is exact.
    runs = int(gaps["replications"][at]) if errors[at] > 0.0 else 0
    return Evidence(float(ratios[at]), 1.0, float(errors[at]), replications=runs, comparisons=len(gaps))


def _curvature_claims(problem: str, row: Mapping[Any, Any]) -> Iterator[Claim]:
    """Yield U18 on the constants over the ball; the control puts L for mu."""
    least, most, mu = float(row["least_curvature"]), float(row["L"]), float(row["mu"])
    facts = {"L": most, "mu": mu, "least curvature": least}
    yield U18.claim(problem, exact(mu, least), exact(most, least), facts=facts)
    yield U18_ORDER.claim(problem, exact(mu, most), exact(most, mu), facts=facts)
