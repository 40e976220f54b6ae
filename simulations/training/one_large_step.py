"""T8: inner updates without a ratio against one large update, one token.

Without a ratio the updates that a rollout serves are compared with one update on all of it, path by path. Each problem is one of
the gallery's. In the control no mean is subtracted from the rewards.
"""

from typing import Any

import numpy as np

import grpo_theory as gt
from grpo_theory.harness import check
from simulations.seeds import seed_of
from simulations.statements import stated

PROBLEMS = ("tabular", "linear", "mixed", "conflict")
ESTIMATORS, BROKEN = ("dr_grpo", "rloo", "grpo"), "reinforce"
"""Three whose advantages add up to 0 in every group, and one whose do not."""
INNER_STEPS, ROLLOUTS, STEP = 8, 16, 0.5
SIZES: dict[str, Any] = {"batch_size": 16, "group_size": 4, "replications": 64, "workers": 1}


CASES = [{"problem": problem, "estimator": estimator} for problem in PROBLEMS for estimator in ESTIMATORS]


@check(stated("T8/one token"), cases=CASES, broken={"estimator": BROKEN}, setting="{problem} ({estimator})")
def largest_gap(problem, estimator, rng):
    """The largest difference of any parameter between many updates a rollout and one, over runs on the same draws."""
    problem, seed = gt.gallery.problem(problem), seed_of(rng)
    many, one = (
        gt.simulate_training(
            *(problem, problem.theta, estimator, gt.Constant(STEP * INNER_STEPS / updates)),
            **SIZES | {"steps": ROLLOUTS * updates, "inner_steps": updates, "rng": seed},
        ).theta
        for updates in (INNER_STEPS, 1)
    )
    return np.abs(many - one).max(), 0.0
