"""Stop or go on: two prompts, one parameter, and a maximiser between them, for the dynamics of length."""

from dataclasses import replace
from functools import cache

import numpy as np
from scipy.interpolate import CubicSpline

import grpo_theory as gt
from grpo_theory.estimation import AGGREGATIONS
from grpo_theory.validation import Array
from simulations.sequence.parts import composed, mean_update

LOW, HIGH, POINTS = -1.0, 3.0, 49
"""The parameters between which fields are interpolated, and at how many: cubic splines, to about 1e-6."""


RULES = {
    "own length": ("own length", "rloo", 1),
    "constant": ("constant", "rloo", 1),
    "no baseline": ("own length", "reinforce", 1),
    "squared": ("constant", "rloo", 2),
}
"""Aggregation, advantage, and the power of T to divide by; the last two are for controls."""


def stopping(horizon: int, equal: bool) -> gt.Problem:
    """Return the problem: at one prompt going on pays, at the other, whose logit is twice as large, stopping does.

    Only the first token depends on theta, and pays; its token 0 ends the response unless all lengths are equal.  Then
    J = (1/2) [1 - p(theta) + p(2 theta)], p the logistic function, which has its maximum at theta = 1.0613.
    """
    end = None if equal else 0
    features = np.zeros((2, gt.TokenTree(2, 2, horizon, end).n_logits, 1))
    features[:, 0, 0] = 1.0, 2.0
    tree = gt.TokenTree(2, 2, horizon, end, features)
    stops = np.array([response[0] == 0 for response in tree.responses])
    return gt.Problem(gt.Bandit(np.stack([~stops, stops]).astype(np.float64)), tree)


def update_rule(rule: str, horizon: int, own_mean: bool = False) -> gt.Estimator:
    """Return the update on policy by a rule, with the own sample in the mean of the group or not."""
    aggregation, advantage, power = RULES[rule]
    constant = replace(AGGREGATIONS[aggregation], constant=float(horizon**power))
    advantage = "dr_grpo" if own_mean and advantage == "rloo" else advantage
    return composed(advantage, "none", "none", aggregation if aggregation == "own length" else constant)


@cache
def fields(horizon: int, equal: bool, rule: str) -> tuple[CubicSpline, CubicSpline]:
    """Return the exact mean update, which with leave-one-out advantages is the same for every group size, and the gradient."""
    problem, grid = stopping(horizon, equal), np.linspace(LOW, HIGH, POINTS)
    baseline = RULES[rule][1] == "rloo"
    updates = [mean_update(problem, np.array([x]), update_rule(rule, horizon), baseline=baseline)[0] for x in grid]
    gradients = [gt.moments(problem, [x]).gradient[0] for x in grid]
    return CubicSpline(grid, updates), CubicSpline(grid, gradients)


def mean_path(update: CubicSpline, step: float, steps: int) -> Array:
    """Return theta_0 = 0, theta_1, ..., theta_steps under the mean update with a constant step."""
    grid = np.linspace(LOW, HIGH, 1 << 14)
    values = update(grid)
    scale = (len(grid) - 1) / (HIGH - LOW)
    path = np.zeros(steps + 1)
    for n in range(steps):
        position = (path[n] - LOW) * scale
        cell = int(position)
        share = position - cell
        path[n + 1] = path[n] + step * ((1.0 - share) * values[cell] + share * values[cell + 1])
    return path
