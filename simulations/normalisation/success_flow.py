"""N7: the growth of success in small steps, with and without division, and with finite groups.

Closed forms are compared with integration along the policy's own gradients, with slopes of the time of escape, and with trained
times. In the controls the update is divided by too little or by nothing; for the slopes it is divided by the variance.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit

import grpo_theory as gt
from grpo_theory.evidence import Claim, log_log_slope
from grpo_theory.evidence.reading import distance, exact, largest
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from grpo_theory.harness.summary import summary
from simulations.normalisation.flows import (
    GRPO,
    START,
    TIMES,
    answers_problem,
    divided,
    escape_time,
    flow_of,
    integrated,
    of_groups,
    undivided,
)
from simulations.seeds import seed_of
from simulations.statements import stated

FLOWS = {
    "plain": stated("N7/flow, plain"),
    "divided": stated("N7/flow, divided"),
    "finite group": stated("N7/flow, finite group"),
}
ESCAPES = {
    "plain": stated("N7/escape, plain"),
    "divided": stated("N7/escape, divided"),
    "finite group": stated("N7/escape, finite group"),
}
CROSSOVER, TRAINED = stated("N7/escape, crossover", "N7/escape, simulated")

SIZES = (2, 8, 64)
ANSWERS = (2, 5)
RARE = tuple(np.geomspace(1e-7, 1e-6, 4).tolist())
"""Success rates that are small against 1/G for every G of the study."""
BETWEEN, LARGE = tuple(np.geomspace(0.01, 0.1, 4).tolist()), 1024
CLOSE = 0.05
"""Relative, of a time: less is not noticed in one run."""
POWERS = {"plain": -1.0, "divided": -0.5, "finite group": -1.0}
"""Of the success rate at the start, in the time of escape."""
SHOWN = 1e-3
"""Where the curves of the figure start."""
CURVE = tuple(expit(np.linspace(-6.8, 6.2, 131)).tolist())
ESCAPE_STARTS = tuple(np.geomspace(1e-5, 0.3, 46).tolist())
FROM, TO = 0.05, 0.5
STEP, BATCH_SIZE = 0.02, 32
RUNS, QUICK_RUNS = 128, 32
NOTICEABLE = 0.02
"""Relative, of times: Euler's method is late by about (eta/2) log(the velocity's growth) <= 0.03, and times are whole updates,
0.02, of at least 4 units."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each flow's identity, one for each slope, the curves of the figure, and training at each group size."""
    flows = ("plain", "divided", *(str(size) for size in SIZES))
    runs = {"step": STEP, "batch_size": BATCH_SIZE, "runs": QUICK_RUNS if quick else RUNS, "from": FROM, "to": TO}
    answers = ANSWERS[:1] if quick else ANSWERS
    sizes = SIZES[:1] if quick else SIZES
    shown = flows[:2] + tuple(str(size) for size in sizes) if quick else flows
    return [
        *(Cell({"what": "identity", "flow": name, "answers": k, "start": START}) for name in shown for k in answers),
        *(Cell({"what": "slope", "flow": name}) for name in (*shown, str(LARGE))),
        *(Cell({"what": "curve", "flow": name}) for name in flows),
        *(Cell({"what": "training", "flow": str(size)} | runs) for size in sizes),
    ]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Rows:
    """Integrate, tabulate, or train."""
    return {"identity": _identity, "slope": _slope, "curve": _curve, "training": _training}[settings["what"]](settings, rng)


def _identity(settings: Settings, rng: np.random.Generator) -> Rows:
    """Return success by the flow and by integration, right and divided by too little or by nothing."""
    name, answers = settings["flow"], settings["answers"]
    right, wrong = (0.0, 0.25) if name == "plain" else (0.5, 0.25 if name == "divided" else 0.0)
    predicted = flow_of(name, answers).success(START, np.array(TIMES))
    return [
        {"how": how, "at": time, "estimate": float(value), "prediction": float(expected)}
        for how, power in (("path", right), ("broken", wrong))
        for time, value, expected in zip(TIMES, integrated(name, answers, power), predicted, strict=True)
    ]


def _slope(settings: Settings, rng: np.random.Generator) -> Rows:
    """Return times of escape, by integration; the control divides by the variance, which makes them logarithms."""
    name = settings["flow"]
    is_large = name == str(LARGE)
    own = {"plain": undivided, "divided": divided}.get(name) or partial(of_groups, size=int(name))
    wrong = partial(of_groups, size=SIZES[1]) if is_large else partial(divided, power=1.0)
    predicted = flow_of("divided" if is_large else name, 2)
    return [
        {"how": how, "at": p, "estimate": escape_time(p, TO, weight), "prediction": float(predicted.time(p, TO))}
        for how, weight in (("path", own), ("broken", wrong))
        for p in (BETWEEN if is_large else RARE)
    ]


def _curve(settings: Settings, rng: np.random.Generator) -> Rows:
    """Return the time from `SHOWN` to each success of the figure, and from each start to 1/2."""
    flow = flow_of(settings["flow"], 2)
    later = [level for level in CURVE if level > SHOWN]
    times = flow.time(SHOWN, np.array(later)), flow.time(np.array(ESCAPE_STARTS), TO)
    return [
        {"how": how, "at": at, "estimate": float(time), "prediction": float("nan")}
        for how, rates, of_rates in (("success", later, times[0]), ("escape", ESCAPE_STARTS, times[1]))
        for at, time in zip(rates, of_rates, strict=True)
    ]


def _training(settings: Settings, rng: np.random.Generator) -> Rows:
    """Return the mean time, in units of 1/eta updates, of runs to the level, right and without division."""
    problem, size, step = answers_problem(2, FROM), int(settings["flow"]), settings["step"]
    predicted = float(flow_of(settings["flow"], 2).time(FROM, TO))
    steps = int(2.0 * predicted / step)
    table = []
    for how, estimator in (("path", GRPO), ("broken", "rloo")):
        runs = gt.simulate_training(
            problem,
            problem.theta,
            estimator,
            gt.Constant(step),
            batch_size=settings["batch_size"],
            group_size=size,
            steps=steps,
            replications=settings["runs"],
            rng=seed_of(rng),
            workers=1,
            checkpoints=range(steps + 1),
        )
        there = runs.objectives >= TO
        times = step * np.where(there.any(axis=1), there.argmax(axis=1), steps)
        table.append({"how": how, "at": FROM, "prediction": predicted} | summary(times))
    return table


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each comparison and each point of a curve."""
    common = {"what": settings["what"], "flow": settings["flow"], "answers": settings.get("answers", 2)}
    return [common | EXACT | row for row in results[0]]


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Each flow's success, each slope of the time of escape, and trained times against the flow's."""
    for (what, flow, answers), part in table.groupby(["what", "flow", "answers"], sort=False):
        both = [part[part["how"] == how] for how in ("path", "broken")]
        kind = flow if flow in ("plain", "divided") else "finite group"
        where = f"G = {flow}" if kind == "finite group" else flow
        if what == "identity":
            own, control = (exact(largest((one["estimate"] - one["prediction"]).abs()), 0.0) for one in both)
            yield FLOWS[kind].claim(f"{where}, {answers} answers", own, control)
        elif what == "slope" and flow == str(LARGE):
            own, control = (exact(largest((one["estimate"] / one["prediction"] - 1.0).abs()), CLOSE) for one in both)
            yield CROSSOVER.claim(where, own, control)
        elif what == "slope":
            own, control = (exact(log_log_slope(one["at"], one["estimate"])[0], POWERS[kind]) for one in both)
            yield ESCAPES[kind].claim(where, own, control)
        elif what == "training":
            own, control = (distance(one.iloc[0], float(one["prediction"].iloc[0]), NOTICEABLE) for one in both)
            yield TRAINED.claim(where, own, control)
