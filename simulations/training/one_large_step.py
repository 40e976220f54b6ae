"""T8: inner updates without a ratio against one large update, one token.

Without a ratio the updates that a rollout serves are compared with one update on all of it, path by path. Each problem is one of
the gallery's. In the control no mean is subtracted from the rewards.
"""

from collections.abc import Iterator

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence import Comparison
from grpo_theory.harness.study import Cell, Settings
from simulations.seeds import seed_of
from simulations.statements import stated

ONE_TOKEN = stated("T8/one token")

PROBLEMS = ("tabular", "linear", "mixed", "conflict")
ESTIMATORS, BROKEN = ("dr_grpo", "rloo", "grpo"), "reinforce"
"""Three whose advantages add up to 0 in every group, and one whose do not."""
INNER_STEPS, ROLLOUTS, STEP = 8, 16, 0.5
BATCH_SIZE, GROUP_SIZE, RUNS = 16, 4, 64


def cells(quick: bool) -> list[Cell]:
    """One cell for each problem; an identity on every path, so quick is no different."""
    sizes = {"batch_size": BATCH_SIZE, "group_size": GROUP_SIZE, "runs": RUNS}
    return [Cell({"problem": name, "inner_steps": INNER_STEPS, "rollouts": ROLLOUTS, "step": STEP} | sizes) for name in PROBLEMS]


def compare(settings: Settings, rng: np.random.Generator) -> Iterator[Comparison]:
    """Yield, for each estimator, the largest difference of the parameters between the two ways over all runs."""
    gaps = {name: largest_gap(settings, name, seed_of(rng)) for name in (*ESTIMATORS, BROKEN)}
    for name in ESTIMATORS:
        yield ONE_TOKEN.compare(f"{settings['problem']} ({name})", gaps[name], 0.0, broken=gaps[BROKEN])


def largest_gap(settings: Settings, estimator: str, seed: np.random.SeedSequence) -> float:
    """Return the largest difference of any parameter between many updates a rollout and one, over runs on the same draws."""
    problem, inner = gt.gallery.problem(settings["problem"]), settings["inner_steps"]
    many, one = (
        gt.simulate_training(
            problem,
            problem.theta,
            estimator,
            gt.Constant(settings["step"] * inner / updates),
            batch_size=settings["batch_size"],
            group_size=settings["group_size"],
            steps=settings["rollouts"] * updates,
            inner_steps=updates,
            replications=settings["runs"],
            rng=seed,
            workers=1,
        ).theta
        for updates in (inner, 1)
    )
    return float(np.abs(many - one).max())
