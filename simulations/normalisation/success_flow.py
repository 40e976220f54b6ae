"""N7: the growth of success in small steps, with and without division, and with finite groups.

Closed forms are compared with integration along the policy's own gradients, with slopes of the time of escape, and with trained
times. In the controls the update is divided by too little or by nothing. For the slopes it is divided by V^0.15 once more, for
the crossover groups are of 64, and trained steps are a tenth longer.
"""

from functools import cache
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp
from scipy.special import expit, logit

import grpo_theory as gt
from grpo_theory.estimation.trainers import CONVENTIONS
from grpo_theory.evidence import log_log_slope
from grpo_theory.evidence.reading import distance, summary
from grpo_theory.harness import check, rows
from grpo_theory.theory import DividedFlow, FiniteGroupFlow, PlainFlow, finite_group_objective
from simulations.seeds import seed_of
from simulations.statements import stated

GRPO = CONVENTIONS["openrlhf_group_norm"].with_parameters(epsilon=0.0)
"""Divided by the group's own standard deviation (ddof 1), nothing added to it."""
FLOWS = ("plain", "divided", "2", "8", "64")
"""Without division, by the true deviation, and by that of groups of so many."""
START, TIMES = 0.01, (1.0, 10.0, 60.0)
TOLERANCE = 1e-11
"""Of the solver of differential equations, relative and absolute."""
RARE = np.geomspace(1e-7, 1e-6, 4)
"""Success rates that are small against 1/G for every G of the study."""
BETWEEN = np.geomspace(0.01, 0.1, 4)
CLOSE = 0.05
"""Relative, of a time: less is not noticed in one run."""
SHOWN = 1e-3
"""Where the curves of the figure start."""
FROM, TO = 0.05, 0.5
TRAINING = {"what": "training", "step": 0.02, "batch_size": 32, "from": FROM, "to": TO}
NOTICEABLE = 0.02
"""Relative, of times: Euler's method is late by about (eta/2) log(the velocity's growth) <= 0.03, and times are whole updates,
0.02, of at least 4 units."""


def kind(flow):
    """Return what a flow is called in the statements' ids."""
    return flow if flow in ("plain", "divided") else "finite group"


def label(flow, answers=None, **case):
    """Return a flow, or its group size, and the number of answers."""
    where = flow if kind(flow) == flow else f"G = {flow}"
    return where if answers is None else f"{where}, {answers} answers"


def answers_problem(answers, start):
    """Return one tabular prompt with a success rate at the start, wrong answers equally likely."""
    theta = np.zeros(answers)
    theta[0] = logit(start) + np.log(answers - 1.0)
    return gt.Problem(gt.Bandit(np.eye(answers)[:1]), gt.TabularSoftmax(1, answers), theta=theta)


@cache
def flow_of(flow, answers=2):
    """Return a flow by its name: plain, divided, or the group size."""
    if kind(flow) == flow:
        return {"plain": PlainFlow, "divided": DividedFlow}[flow](answers)
    return FiniteGroupFlow(answers, objective=finite_group_objective(GRPO, int(flow)))


@check(
    *stated("N7/flow, plain", "N7/flow, divided", "N7/flow, finite group"),
    cases=lambda quick: [{"flow": one, "answers": k} for one in FLOWS[: 3 if quick else 5] for k in ((2,) if quick else (2, 5))],
    broken={"wrong": True},
    setting=label,
)
def flows(flow, answers, wrong=False):
    """Success by the flow and by integration of the parameters along the mean update, grad J/V^power or that of groups."""
    problem, power = answers_problem(answers, START), 0.0 if flow == "plain" else 0.5

    def velocity(time, theta):
        if kind(flow) != flow:
            return gt.gradient_mean(problem, theta, "rloo" if wrong else GRPO, batch_size=1, group_size=int(flow))
        p = gt.moments(problem, theta).value[0]
        return gt.moments(problem, theta).gradient / (p * (1.0 - p)) ** (0.25 if wrong else power)

    ends = (0.0, TIMES[-1])
    path = solve_ivp(velocity, ends, problem.theta, method="DOP853", t_eval=TIMES, rtol=TOLERANCE, atol=TOLERANCE).y.T
    success = [gt.moments(problem, theta).value[0] for theta in path]
    return {f"N7/flow, {kind(flow)}": (np.abs(success - flow_of(flow, answers).success(START, np.array(TIMES))), 0.0)}


def escape_times(flow, starts, extra=0.0):
    """Return the times from success rates to 1/2 for two answers, by integration of dt/du = 1/(2 w(p) p (1 - p)).

    The weight w is 1 for plain steps and 1/sqrt(V) for divided ones; with `extra` it is divided by that power of V once more.
    """
    powers, groups = {"plain": 0.0, "divided": 0.5}, None if kind(flow) == flow else finite_group_objective(GRPO, int(flow))

    def slowness(u, time):
        p = expit(u)
        weight = groups.slope(p) if groups else 1.0
        return np.array([(p * expit(-u)) ** (powers.get(flow, 0.0) + extra - 1.0) / (2.0 * weight)])

    solve: dict[str, Any] = {"y0": np.zeros(1), "method": "DOP853", "rtol": 1e-9, "atol": 1e-9}
    return np.array([solve_ivp(slowness, (logit(start), logit(TO)), **solve).y[0, -1] for start in starts])


@check(
    *stated("N7/escape, plain", "N7/escape, divided", "N7/escape, finite group"),
    cases=lambda quick: [{"flow": one} for one in FLOWS[: 3 if quick else 5]],
    broken={"extra": 0.15},
    setting=label,
)
def escapes(flow, extra=0.0):
    """The slope of the time of escape."""
    slope, _ = log_log_slope(RARE, escape_times(flow, RARE, extra))
    return {f"N7/escape, {kind(flow)}": (slope, -0.5 if flow == "divided" else -1.0)}


@check(stated("N7/escape, crossover"), cases=[{"flow": "1024"}], broken={"flow": "64"}, setting=label)
def crossover(flow):
    """The distance of times with large groups from those with the true deviation."""
    return np.abs(escape_times(flow, BETWEEN) / flow_of("divided").time(BETWEEN, TO) - 1.0), CLOSE


@rows(cases=[{"flow": one} for one in FLOWS])
def curves(flow):
    """The time from `SHOWN` to each success of the figure, and from each start to 1/2."""
    levels, starts = expit(np.linspace(-6.8, 6.2, 131)), np.geomspace(1e-5, 0.3, 46)
    levels = levels[levels > SHOWN]
    times = {"success": (levels, flow_of(flow).time(SHOWN, levels)), "escape": (starts, flow_of(flow).time(starts, TO))}
    for how, (rates, of_rates) in times.items():
        yield from ({"what": "curve", "how": how, "at": at, "estimate": t} for at, t in zip(rates, of_rates, strict=True))


@check(
    stated("N7/escape, simulated"),
    cases=lambda quick: [{"flow": one, "runs": 32 if quick else 128} | TRAINING for one in FLOWS[2 : 3 if quick else 5]],
    broken={"faster": 1.1},
    setting=label,
)
def trained(flow, step, batch_size, runs, rng, faster=1.0):
    """The mean time, in units of 1/eta updates, of runs to the level, against that of the flow."""
    problem, predicted = answers_problem(2, FROM), float(flow_of(flow).time(FROM, TO))
    steps = int(2.0 * predicted / step)
    sizes: dict[str, Any] = {"batch_size": batch_size, "group_size": int(flow), "steps": steps, "replications": runs}
    sizes |= {"rng": seed_of(rng), "workers": 1, "checkpoints": range(steps + 1)}
    there = gt.simulate_training(problem, problem.theta, GRPO, gt.Constant(faster * step), **sizes).objectives >= TO
    times = step * np.where(there.any(axis=1), there.argmax(axis=1), steps)
    return distance(summary(times), predicted, NOTICEABLE)
