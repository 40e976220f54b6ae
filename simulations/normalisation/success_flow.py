"""N7: how success grows if steps are small, with and without division, in closed form against the policy's own gradients."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd
from scipy.integrate import solve_ivp
from scipy.special import expit, logit

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.estimation.trainers import CONVENTIONS
from grpo_theory.evidence import Claim, log_log_slope
from grpo_theory.evidence.reading import distance, exact, largest
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from grpo_theory.theory import DividedFlow, FiniteGroupFlow, PlainFlow, SuccessFlow, finite_group_objective
from simulations.claims import claim, unconverted

GRPO = CONVENTIONS["openrlhf_group_norm"].with_parameters(epsilon=0.0)
"""Divided by the group's own standard deviation (ddof 1), nothing added to it."""
SIZES = (2, 8, 64)
ANSWERS = (2, 5)
START, TIMES = 0.01, (1.0, 10.0, 60.0)
TOLERANCE = 1e-11
"""Of the solver of differential equations, relative and absolute."""
RARE = tuple(np.geomspace(1e-7, 1e-6, 4).tolist())
"""Success rates that are small against 1/G for every G of the study."""
BETWEEN, LARGE = tuple(np.geomspace(0.01, 0.1, 4).tolist()), 1024
MARGIN = 0.05
"""Of a slope: the logarithms beside the powers are worth less than that here, and a user tells 1/2 from 1.  And, relative, of a
time: less is not noticed in one run."""
SHOWN = 1e-3
"""Where the curves of the figure start."""
CURVE = tuple(expit(np.linspace(-6.8, 6.2, 131)).tolist())
ESCAPES = tuple(np.geomspace(1e-5, 0.3, 46).tolist())
FROM, TO = 0.05, 0.5
STEP, BATCH_SIZE = 0.02, 32
RUNS, QUICK_RUNS = 128, 32
NOTICEABLE = 0.02
"""Relative, of times: Euler's method is late by about (eta/2) log(the velocity's growth) <= 0.03, and times are whole updates,
0.02, of at least 4 units."""

Velocity = Callable[[float], float]


def answers_problem(answers: int, start: float) -> gt.Problem:
    """Return one tabular prompt with a success rate at the start, wrong answers equally likely."""
    theta = np.zeros(answers)
    theta[0] = logit(start) + np.log(answers - 1.0)
    return gt.Problem(gt.Bandit(np.eye(answers)[:1]), gt.TabularSoftmax(1, answers), theta=theta)


@cache
def flow_of(name: str, answers: int) -> SuccessFlow:
    """Return a flow by its name: plain, divided, or the group size."""
    if name in ("plain", "divided"):
        return {"plain": PlainFlow, "divided": DividedFlow}[name](answers)
    return FiniteGroupFlow(answers, objective=finite_group_objective(GRPO, int(name)))


def update(name: str, problem: gt.Problem, power: float, theta: Array) -> Array:
    """Return the mean update: grad J/V^power, or that of groups, with the right deviation if power is 1/2 and none if it is 0."""
    if name in ("plain", "divided"):
        moments = gt.moments(problem, theta)
        p = moments.value[0]
        return np.asarray(moments.gradient / (p * (1.0 - p)) ** power)
    estimator = GRPO if power else "rloo"
    return gt.gradient_mean(problem, theta, estimator, batch_size=1, group_size=int(name))


def integrated(name: str, answers: int, power: float) -> Array:
    """Return the success probability at `TIMES`, by integration of the parameters along the mean update."""
    problem = answers_problem(answers, START)

    def velocity(time: float, theta: Array) -> Array:
        return update(name, problem, power, theta)

    accuracy: dict[str, Any] = {"rtol": TOLERANCE, "atol": TOLERANCE}
    path = solve_ivp(velocity, (0.0, TIMES[-1]), np.asarray(problem.theta), method="DOP853", t_eval=list(TIMES), **accuracy).y.T
    return np.array([gt.moments(problem, theta).value[0] for theta in path])


def escape_time(start: float, level: float, weight: Callable[[float], float]) -> float:
    """Return the time from a success rate to a level for two answers, by integration of dt/du = 1/(2 w(p) p (1 - p))."""

    def slowness(u: float, time: Array) -> Array:
        p = expit(u)
        return np.array([1.0 / (2.0 * weight(float(p)) * p * expit(-u))])

    ends = float(logit(start)), float(logit(level))
    return float(solve_ivp(slowness, ends, np.zeros(1), method="DOP853", rtol=1e-9, atol=1e-9).y[0, -1])


def _plain(p: float) -> float:
    return 1.0


def _divided(p: float, power: float = 0.5) -> float:
    return (p * (1.0 - p)) ** -power


def _of_groups(p: float, size: int) -> float:
    return float(finite_group_objective(GRPO, size).slope(p))


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


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> list[dict[str, Any]]:
    """Integrate, tabulate, or train."""
    return {"identity": _identity, "slope": _slope, "curve": _curve, "training": _training}[settings["what"]](settings, seed)


def _identity(settings: Settings, seed: np.random.SeedSequence) -> list[dict[str, Any]]:
    """Return success by the flow and by integration, right and divided by too little or by nothing."""
    name, answers = settings["flow"], settings["answers"]
    right, wrong = (0.0, 0.25) if name == "plain" else (0.5, 0.25 if name == "divided" else 0.0)
    predicted = flow_of(name, answers).success(START, np.array(TIMES))
    found = []
    for how, power in (("path", right), ("broken", wrong)):
        success = integrated(name, answers, power)
        found += [
            {"how": how, "at": time, "estimate": float(value), "prediction": float(expected)}
            for time, value, expected in zip(TIMES, success, predicted, strict=True)
        ]
    return found


def _slope(settings: Settings, seed: np.random.SeedSequence) -> list[dict[str, Any]]:
    """Return times of escape, by integration; broken, divided by the variance, which makes them logarithms."""
    name = settings["flow"]
    weight = {"plain": _plain, "divided": _divided}.get(name) or partial(_of_groups, size=int(name))
    starts = BETWEEN if name == str(LARGE) else RARE
    wrong = partial(_of_groups, size=SIZES[1]) if name == str(LARGE) else partial(_divided, power=1.0)
    weights = {"path": weight, "broken": wrong}
    return [
        {
            "how": how,
            "at": start,
            "estimate": escape_time(start, TO, one),
            "prediction": float(flow_of("divided" if name == str(LARGE) else name, 2).time(start, TO)),
        }
        for how, one in weights.items()
        for start in starts
    ]


def _curve(settings: Settings, seed: np.random.SeedSequence) -> list[dict[str, Any]]:
    """Return the time from `SHOWN` to each success of the figure, and from each start to 1/2."""
    flow = flow_of(settings["flow"], 2)
    later = [level for level in CURVE if level > SHOWN]
    times = flow.time(SHOWN, np.array(later)), flow.time(np.array(ESCAPES), TO)
    return [
        {"how": how, "at": at, "estimate": float(time), "prediction": float("nan")}
        for how, places, some in (("success", later, times[0]), ("escape", ESCAPES, times[1]))
        for at, time in zip(places, some, strict=True)
    ]


def _training(settings: Settings, seed: np.random.SeedSequence) -> list[dict[str, Any]]:
    """Return the mean time, in units of 1/eta updates, of runs to the level, right and without division."""
    problem, size, step = answers_problem(2, FROM), int(settings["flow"]), settings["step"]
    predicted = float(flow_of(settings["flow"], 2).time(FROM, TO))
    steps = int(2.0 * predicted / step)
    found = []
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
            rng=seed,
            workers=1,
            checkpoints=range(steps + 1),
        )
        there = runs.objectives >= TO
        times = step * np.where(there.any(axis=1), there.argmax(axis=1), steps)
        facts = {"standard_error": float(times.std(ddof=1) / np.sqrt(len(times))), "replications": len(times)}
        found.append({"how": how, "at": FROM, "estimate": float(times.mean()), "prediction": predicted} | facts)
    return found


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each comparison and each point of a curve."""
    common = {"what": settings["what"], "flow": settings["flow"], "answers": settings.get("answers", 2)}
    return [common | EXACT | row for row in results[0]]


IDENTITIES = {"plain": "N7/flow, plain", "divided": "N7/flow, divided"}
SLOPES = {
    "plain": ("N7/escape, plain", -1.0),
    "divided": ("N7/escape, divided", -0.5),
}


def claims(table: pd.DataFrame) -> list[Claim]:
    """Each flow's success, each slope of the time of escape, and trained times against the flow's."""
    found = []
    for (what, flow, answers), part in table.groupby(["what", "flow", "answers"], sort=False):
        by = {str(how): some for how, some in part.groupby("how")}
        where = str(flow) if flow in IDENTITIES else f"G = {flow}"
        if what == "identity":
            gaps = (largest((by[how]["estimate"] - by[how]["prediction"]).abs()) for how in ("path", "broken"))
            statement = IDENTITIES.get(str(flow), "N7/flow, finite group")
            found.append(claim(statement, f"{where}, {answers} answers", *(exact(gap, 0.0) for gap in gaps)))
        elif what == "slope" and flow == str(LARGE):
            gaps = (largest((by[how]["estimate"] / by[how]["prediction"] - 1.0).abs()) for how in ("path", "broken"))
            found.append(claim("N7/escape, crossover", where, *(exact(gap, MARGIN) for gap in gaps)))
        elif what == "slope":
            statement, power = SLOPES.get(str(flow), ("N7/escape, finite group", -1.0))
            slopes = (log_log_slope(by[how]["at"], by[how]["estimate"])[0] for how in ("path", "broken"))
            found.append(claim(statement, where, *(exact(slope, power, MARGIN) for slope in slopes)))
        elif what == "training":
            rows_of = [by[how].iloc[0].to_dict() for how in ("path", "broken")]
            both = (distance(row, float(row["prediction"]), NOTICEABLE) for row in rows_of)
            found.append(claim("N7/escape, simulated", where, *both))
    return found


STUDY = unconverted(
    "success_flow",
    "N7: the growth of success in small steps, with and without division, and with finite groups",
    cells,
    compute,
    rows,
    claims,
    (
        "N7/flow, plain",
        "N7/flow, divided",
        "N7/flow, finite group",
        "N7/escape, plain",
        "N7/escape, divided",
        "N7/escape, finite group",
        "N7/escape, crossover",
        "N7/escape, simulated",
    ),
)
