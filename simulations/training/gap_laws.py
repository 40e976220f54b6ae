"""Constants over a ball around the maximiser, and what the mean gap during training is by the exact recursion and the bounds."""

from functools import cache
from math import ceil
from typing import Any

import numpy as np

import grpo_theory as gt
from grpo_theory.exact import Region, largest_error, longest_estimate, region, steepest_ray
from grpo_theory.harness.study import Settings
from grpo_theory.theory import constant_step_bound, gap_recursion, harmonic_step_bound, linearise, recursion_bound
from simulations.maximum import curvatures, maximum
from simulations.training.grid import doubling

BETWEEN = 64
"""Numbers of steps, spaced by ratio, at which the laws are computed beside the checkpoints."""
RADIUS, START = 1.0, 0.9


@cache
def surroundings(name: str) -> Region:
    """Return the constants over the ball, enlarged by a first step of at most 1/(2L)."""
    problem, best, _ = maximum(name)
    reach = longest_estimate(problem, best, radius=RADIUS) / (2.0 * curvatures(name)[0].max())
    return region(problem, best, radius=RADIUS, reach=reach)


def schedule(settings: Settings, factor: float = 1.0) -> gt.Constant | gt.Harmonic:
    """Return a constant step 1/(50 L), or beta/(i + i_0) with beta = 1/mu and a first step of at most 1/(2L), times a factor."""
    ball = surroundings(settings["problem"])
    if settings["schedule"] == "constant":
        return gt.Constant(factor * 0.02 / ball.smoothness)
    return gt.Harmonic(factor / ball.pl, ceil(2.0 * ball.smoothness / ball.pl))


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


def start_of(name: str) -> np.ndarray:
    """Return the start: along the direction of least curvature, where progress is slowest."""
    _, best, _ = maximum(name)
    return best + START * RADIUS * curvatures(name)[1][:, 0]


def predict(settings: Settings) -> dict[str, Any]:
    """Return the constants over the ball; on a fine grid of steps the exact recursion's gap, the bounds and the broken bound."""
    problem, best, highest = maximum(settings["problem"])
    ball, plan, n = surroundings(settings["problem"]), schedule(settings), np.array(moments(settings["steps"]))
    sizes = {"batch_size": settings["batch_size"], "group_size": settings["group_size"]}
    noise = largest_noise(settings["problem"], settings["estimator"], **sizes)
    start = start_of(settings["problem"])
    start_gap = highest - float(gt.objective(problem, start))
    steps = plan.steps(settings["steps"])
    linear = linearise(problem, best, settings["estimator"], **sizes)
    deviation = (start - best) @ linear.directions
    offset = plan.offset if isinstance(plan, gt.Harmonic) else 0
    if isinstance(plan, gt.Constant):
        bound, wrong = (constant_step_bound(ball, level, plan.step, start_gap, n) for level in (noise, 0.0))
    else:
        bound = harmonic_step_bound(ball, noise, plan.step_scale, n, offset=offset)
        wrong = np.full(len(n), np.nan)
    constants = {
        "L": ball.smoothness,
        "mu": ball.pl,
        "M": noise,
        "ray": first_ray(settings["problem"], settings["schedule"]),
        "step": float(steps[0]),
        "least_curvature": float(linear.curvatures.min()),
        "offset": offset,
    }
    gaps = {
        "prediction": gap_recursion(linear, steps, np.outer(deviation, deviation))[n - 1],
        "iterated": recursion_bound(ball, noise, steps, start_gap)[n - 1],
        "bound": bound,
        "control": wrong,
    }
    return {"constants": constants, "gaps": {name: values.tolist() for name, values in gaps.items()}}
