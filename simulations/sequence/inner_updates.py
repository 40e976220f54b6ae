"""U15: the bias of token ratios against the step size and the number of updates, exact.

A policy takes m updates of size eta on one rollout. The mean update with token ratios is compared with that with trajectory
ratios, relative to the gradient. In the control the own sample is in the mean of the group, which gives a bias of 1/G that does
not vanish.
"""

from collections.abc import Iterator

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Comparison, log_log_slope
from grpo_theory.harness.study import Cell, Settings
from simulations.sequence.parts import composed
from simulations.statements import stated

U15, BY_STEP, BY_UPDATES = stated("U15", "U15/step", "U15/updates")

PROBLEMS = ("sequence-tabular", "sequence-shared", "kl-sequence")
STEPS = (0.003, 0.01, 0.03, 0.1)
UPDATES = (1, 2, 4, 8)
STEP, UPDATE = 0.01, 4
"""The step size at which the number of updates varies, and the number at which the step size does."""
GROUP_SIZE = 8
KERNELS = ("rloo", "dr_grpo")
"""Leave-one-out advantages, and broken: the own sample in the mean."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each problem; exact, so quick is no different."""
    return [Cell({"problem": name}) for name in PROBLEMS]


def mean_update(problem: gt.Problem, theta: Array, advantage: str, ratio: str) -> Array:
    """Return the exact mean of an estimate at theta from responses of the problem's own policy."""
    sizes = {"batch_size": 1, "group_size": GROUP_SIZE}
    return gt.gradient_mean(problem, theta, composed(advantage, ratio), **sizes, behaviour=problem.theta)


def biases(problem: gt.Problem, step: float, updates: int) -> list[float]:
    """Return the bias of each kernel with token ratios after `updates` expected updates, all on one policy's responses."""
    theta = np.array(problem.theta)
    for _ in range(updates):
        theta = theta + step * mean_update(problem, theta, "rloo", "token")
    wanted = mean_update(problem, theta, "rloo", "trajectory")
    scale = float(np.linalg.norm(wanted))
    return [float(np.linalg.norm(mean_update(problem, theta, kernel, "token") - wanted)) / scale for kernel in KERNELS]


def compare(settings: Settings) -> Iterator[Comparison]:
    """Yield the log-log slopes of the bias in eta and in m."""
    problem = gt.gallery.problem(settings["problem"])
    by_step = [biases(problem, step, UPDATE) for step in STEPS]
    by_updates = [biases(problem, STEP, updates) for updates in UPDATES]
    for statement, varied, curves in ((BY_STEP, STEPS, by_step), (BY_UPDATES, UPDATES, by_updates)):
        slope, broken = (log_log_slope(varied, curve)[0] for curve in np.transpose(curves))
        yield statement.compare(settings["problem"], slope, 1.0, broken=broken)
