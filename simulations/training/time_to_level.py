"""T14, T8: updates to a level of the objective, each composition at its best step size.

Training runs of an arm are compared with those of its rivals, draw by draw. In the control every second sign of TIC-GRPO's is
wrong.
"""

import warnings
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.evidence import PARTS, Claim, Statement
from grpo_theory.exact import StabilityWarning
from grpo_theory.harness.study import Cell, Rows, Settings
from grpo_theory.harness.summary import summary
from grpo_theory.simulate.training import TrainingRuns
from simulations.seeds import child_seed, seed_of
from simulations.sources import OURS, TIC_GRPO
from simulations.training.arms import chosen_step, paired
from simulations.training.compositions import ARMS
from simulations.training.contests import Contest, contest_claims, difference_rows, updates_to_level
from simulations.training.worlds import race_problem

T14 = Statement(
    "T14",
    TIC_GRPO,
    "TIC reaches a given level sooner than GRPO and GSPO at the same budget",
    PARTS,
    formula="TIC reaches a given level sooner than GRPO and GSPO at the same budget.",
)
WITHOUT_RATIO = Statement(
    "T8/training",
    TIC_GRPO,
    "without ratio and clip GRPO needs at most 5% more updates to a level, each at its best step",
    "upper bound",
    measured=True,
)
THAN_GRPO = Statement(
    "T14/against GRPO",
    TIC_GRPO,
    "fewer updates to a level than GRPO as published, each at its best step size",
    "ordering",
    measured=True,
)
THAN_GSPO = Statement(
    "T14/against GSPO",
    TIC_GRPO,
    "fewer updates to a level than GSPO as published, each at its best step size",
    "ordering",
    measured=True,
)
THAN_WIDE_GSPO = Statement(
    "T14/against GSPO, wide clip",
    f"question beside {TIC_GRPO}",
    "fewer updates to a level than GSPO with a clip of 0.2, each at its best step size",
    "ordering",
    whose=OURS,
)
RATIO_ALONE = Statement(
    "T14/ratio",
    f"{TIC_GRPO}, ablation",
    "the trajectory ratio in the place of the token ratio, nothing else changed, takes fewer updates",
    "ordering",
    measured=True,
)
CLIP_ALONE = Statement(
    "T14/clip",
    f"{TIC_GRPO}, ablation",
    "the upper-only clip in the place of the clip by sign, nothing else changed, takes fewer updates",
    "ordering",
    measured=True,
)
BOTH = Statement(
    "T14/both", f"{TIC_GRPO}, ablation", "both together take fewer updates than either alone", "ordering", measured=True
)
THAN_NO_CLIP = Statement(
    "T14/against no clip",
    f"question beside {TIC_GRPO}",
    "fewer updates to a level than the trajectory ratio without a clip, which is unbiased but for the own sample",
    "ordering",
    whose=OURS,
)
THAN_NO_RATIO = Statement(
    "T14/against no ratio",
    f"question beside {TIC_GRPO}",
    "fewer updates to a level than the same estimator without ratio and clip, each at its best step size",
    "ordering",
    whose=OURS,
)

LEVELS = {"sequence-shared": 0.68, "stopping": 0.745}
"""Two thirds of the way from the start to where noise-free ascent is after 1,024 steps of 16."""
INNER_STEPS = (4, 8)
BATCH_SIZE, GROUP_SIZE, ROLLOUTS = 16, 8, 16
STEP_SIZES = tuple(2.0**power for power in range(2, 11))
"""Constant steps, the same for all arms.  TIC-GRPO divides by the horizon, 3 or 8: so much shorter are its steps along J."""
TUNING_RUNS, RUNS, CLOSE_RUNS = 64, 1024, 2560
CLOSE = ("TIC", "clip alone", "no clip", "no ratio")
"""Arms that pilots found near each other: their differences need more runs."""
QUICK_TUNING_RUNS, QUICK_RUNS = 16, 64
NOTICEABLE = 1.05
"""A twentieth more updates is not noticed: two runs that differ in nothing but the seed differ by more."""
CONTESTS = (
    Contest(WITHOUT_RATIO, "no ratio", ("neither",), NOTICEABLE),
    Contest(THAN_GRPO, "TIC", ("GRPO",)),
    Contest(THAN_GSPO, "TIC", ("GSPO",)),
    Contest(THAN_WIDE_GSPO, "TIC", ("GSPO, wide clip",)),
    Contest(RATIO_ALONE, "ratio alone", ("neither",)),
    Contest(CLIP_ALONE, "clip alone", ("neither",)),
    Contest(BOTH, "TIC", ("ratio alone", "clip alone")),
    Contest(THAN_NO_CLIP, "TIC", ("no clip",)),
    Contest(THAN_NO_RATIO, "TIC", ("no ratio",)),
)
BASE = "neither"


def cells(quick: bool) -> list[Cell]:
    """One cell for each problem and number of updates a rollout, one chunk for each arm; quick has one cell."""
    counts = {arm: QUICK_RUNS if quick else CLOSE_RUNS if arm in CLOSE else RUNS for arm in ARMS}
    runs = {"tuning_runs": QUICK_TUNING_RUNS if quick else TUNING_RUNS, "runs": counts, "arms": list(ARMS)}
    sizes = {"batch_size": BATCH_SIZE, "group_size": GROUP_SIZE, "step_sizes": list(STEP_SIZES[1::2] if quick else STEP_SIZES)}
    levels, numbers = (list(LEVELS.items())[-1:], INNER_STEPS[:1]) if quick else (LEVELS.items(), INNER_STEPS)
    where = [{"problem": name, "level": level} for name, level in levels]
    return [
        Cell(one | {"inner_steps": inner, "updates": ROLLOUTS * inner} | sizes | runs, len(ARMS), shared=True)
        for one, inner in product(where, numbers)
    ]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> dict[str, Any]:
    """Find one arm's best step size; then train anew with it, on draws that all arms share."""
    arm = settings["arms"][chunk]
    tuning, judging = (child_seed(seed_of(rng), part) for part in (0, 1))
    grid = settings["step_sizes"]
    tried = [updates_to_level(_train(settings, arm, step, settings["tuning_runs"], tuning), settings["level"]) for step in grid]
    means = np.mean(tried, axis=1)
    chosen = chosen_step(np.array(grid), means)
    runs = _train(settings, arm, chosen["step"], settings["runs"][arm], judging)
    return chosen | {
        "tuning": [summary(times) for times in tried],
        "times": updates_to_level(runs, settings["level"]).tolist(),
        "objective": [summary(objectives) for objectives in runs.objectives.T],
    }


def _train(settings: Settings, arm: str, step: float, runs: int, seed: np.random.SeedSequence) -> TrainingRuns:
    """Train with a constant step, and keep the objective after every rollout.

    A grid of steps ends with some that are too large.  The filter for that stays, because filters are common to all threads.
    """
    warnings.filterwarnings("ignore", category=StabilityWarning, module=__name__.replace(".", r"\."))
    problem, inner = race_problem(settings["problem"]), settings["inner_steps"]
    return gt.simulate_training(
        problem,
        problem.theta,
        ARMS[arm],
        gt.Constant(step),
        batch_size=settings["batch_size"],
        group_size=settings["group_size"],
        steps=settings["updates"],
        inner_steps=inner,
        replications=runs,
        checkpoints=range(0, settings["updates"] + 1, inner),
        rng=seed,
        workers=1,
    )


def rows(settings: Settings, results: list[Any]) -> Rows:
    """Times to the level, their differences between arms, mean objectives along the way, and times at each step size."""
    runs = dict(zip(settings["arms"], results, strict=True))
    times = {arm: np.array(run["times"]) for arm, run in runs.items()}
    updates = range(0, settings["updates"] + 1, settings["inner_steps"])
    table: Rows = []
    for arm, run in runs.items():
        reached = float((times[arm] < settings["updates"]).mean())
        at_best = {"step": run["step"], "interior": run["interior"], "reached": reached}
        objective, tuning = zip(updates, run["objective"], strict=True), zip(settings["step_sizes"], run["tuning"], strict=True)
        table += [
            {"quantity": "time", "arm": arm} | at_best | summary(times[arm]),
            *({"quantity": "objective", "arm": arm, "update": update} | at for update, at in objective),
            *({"quantity": "tuning", "arm": arm, "step": step} | at for step, at in tuning),
            {"quantity": "ablation", "arm": arm, "rival": BASE} | summary(paired(times[arm], times[BASE])),
        ]
    table += difference_rows(CONTESTS, times)
    names = ("problem", "inner_steps", "level", "batch_size", "group_size", "updates")
    common = {name: settings[name] for name in names} | {"prediction": np.nan}
    return [common | row for row in table]


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Paired differences of times, the worst of an arm's rivals; the control puts the broken TIC-GRPO in the arm's place."""
    for (problem, inner), part in table.groupby(["problem", "inner_steps"], sort=False):
        yield from contest_claims(CONTESTS, f"{problem} (m = {inner})", part)
