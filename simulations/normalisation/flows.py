"""One tabular prompt in small steps: its success by the flow of the mean update, and the time of escape, by integration."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp
from scipy.special import expit, logit

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.estimation.trainers import CONVENTIONS
from grpo_theory.theory import DividedFlow, FiniteGroupFlow, PlainFlow, SuccessFlow, finite_group_objective

GRPO = CONVENTIONS["openrlhf_group_norm"].with_parameters(epsilon=0.0)
"""Divided by the group's own standard deviation (ddof 1), nothing added to it."""
START, TIMES = 0.01, (1.0, 10.0, 60.0)
TOLERANCE = 1e-11
"""Of the solver of differential equations, relative and absolute."""


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


def undivided(p: float) -> float:
    """Return the weight w of plain steps."""
    return 1.0


def divided(p: float, power: float = 0.5) -> float:
    """Return w of steps that are divided by a power of the variance."""
    return (p * (1.0 - p)) ** -power


def of_groups(p: float, size: int) -> float:
    """Return w of steps that are divided by the groups' own deviation."""
    return float(finite_group_objective(GRPO, size).slope(p))
