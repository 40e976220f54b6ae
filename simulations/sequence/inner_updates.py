"""U15: the bias of token ratios against the step size and the number of updates, exact.

A policy takes m updates of size eta on one rollout. The mean update with token ratios is compared with that with trajectory
ratios, relative to the gradient. In the control updates are as if the own sample were in the mean of a group of 1024. Their
bias of 1/1024 does not vanish.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence import log_log_slope
from grpo_theory.harness import check
from simulations.sequence.parts import composed
from simulations.statements import stated

U15 = stated("U15")

PROBLEMS = ("sequence-tabular", "sequence-shared", "kl-sequence")
STEPS, UPDATES = (0.003, 0.01, 0.03, 0.1), (1, 2, 4, 8)


def bias(problem, step, updates, kept):
    """Return the bias of token ratios after some expected updates, all on one policy's responses, relative to the gradient."""

    def mean_update(ratio):
        sizes = {"batch_size": 1, "group_size": 8}
        return gt.gradient_mean(problem, theta, composed("rloo", ratio), **sizes, behaviour=problem.theta)

    theta = np.array(problem.theta)
    for _ in range(updates):
        theta = theta + step * mean_update("token")
    wanted = mean_update("trajectory")
    return np.linalg.norm(kept * mean_update("token") - wanted) / np.linalg.norm(wanted)


@check(
    *stated("U15/step", "U15/updates"),
    cases=[{"problem": name} for name in PROBLEMS],
    broken={"kept": 1.0 - 1.0 / 1024.0},
    setting="{problem}",
)
def slopes(problem, kept=1.0):
    """The log-log slopes of the bias in eta, after four updates, and in m, with steps of 0.01."""
    found = gt.gallery.problem(problem)
    by_step = [bias(found, step, 4, kept) for step in STEPS]
    by_updates = [bias(found, 0.01, updates, kept) for updates in UPDATES]
    return {"U15/step": (log_log_slope(STEPS, by_step)[0], 1.0), "U15/updates": (log_log_slope(UPDATES, by_updates)[0], 1.0)}
