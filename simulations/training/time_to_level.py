"""T14, T8: updates to a level of the objective on two fixed problems, each composition at its best step size of those tried.

Training runs of an arm are compared with those of its rivals, draw by draw; limits count runs and the choice of the step. The
steps tried are five, around the best that a pilot on other draws finds. A first run had nine for all arms, with fewer runs at
each, and its limits were wide. A second had three, whose ends were often the best. The five were introduced after that was seen.
In the control every second sign of TIC-GRPO's is wrong.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from grpo_theory.arrays import Array, Integers
from grpo_theory.evidence import Claim
from grpo_theory.harness.study import Cell, Rows, Settings
from grpo_theory.harness.summary import summary
from simulations.seeds import child_seed, seed_of
from simulations.statements import stated
from simulations.training.compositions import ARMS
from simulations.training.contests import Contest, behind, contest_claims, time_rows, updates_to_level
from simulations.training.minibatch_trainer import step_grid
from simulations.training.worlds import race_problem

T14, WITHOUT_RATIO, THAN_GRPO, THAN_GSPO = stated("T14", "T8/training", "T14/against GRPO", "T14/against GSPO")
THAN_WIDE_GSPO, RATIO_ALONE, CLIP_ALONE, BOTH = stated("T14/against GSPO, wide clip", "T14/ratio", "T14/clip", "T14/both")
THAN_NO_CLIP, THAN_NO_RATIO = stated("T14/against no clip", "T14/against no ratio")

LEVELS = {"sequence-shared": 0.68, "stopping": 0.745}
"""Two thirds of the way from the start to where noise-free ascent is after 1,024 steps of 16."""
INNER_STEPS = (4, 8)
BATCH_SIZE, GROUP_SIZE, ROLLOUTS = 16, 8, 16
STEPS = tuple(2.0**power for power in range(2, 11))
"""The pilot's, the same for all arms.  TIC-GRPO divides by the horizon, 3 or 8: so much shorter are its steps along J."""
PILOT_RUNS, RUNS, QUICK_RUNS = 32, 640, 128
"""At each step; all runs that are not the pilot's choose between five steps, and all judge."""
NEIGHBOURS = 2
"""How many steps of the pilot's grid are tried on either side of its best."""
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
    runs = {"pilot_steps": list(STEPS), "pilot_runs": PILOT_RUNS, "runs": QUICK_RUNS if quick else RUNS, "arms": list(ARMS)}
    sizes = {"batch_size": BATCH_SIZE, "group_size": GROUP_SIZE, "rollouts": ROLLOUTS, "optimiser": "SGD"}
    levels, numbers = (list(LEVELS.items())[-1:], INNER_STEPS[:1]) if quick else (LEVELS.items(), INNER_STEPS)
    where = [{"problem": name, "level": level} for name, level in levels]
    return [Cell(one | {"inner_steps": inner} | sizes | runs, len(ARMS), shared=True) for one, inner in product(where, numbers)]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> dict[str, Any]:
    """Train an arm at the steps around a pilot's best, on draws that all arms share; keep the objective after every rollout."""
    arm, wide = settings["arms"][chunk], settings["pilot_steps"]
    piloting, running = (child_seed(seed_of(rng), part) for part in (1, 2))
    _, tried = _trained(settings, arm, wide, settings["pilot_runs"], piloting)
    best = int(tried.mean(axis=1).argmin())
    steps = wide[max(best - NEIGHBOURS, 0) : best + NEIGHBOURS + 1]
    objectives, times = _trained(settings, arm, steps, settings["runs"], running)
    at_best = objectives[times.mean(axis=1).argmin()]
    pilot, along = ([summary(at) for at in values] for values in (tried, at_best.T))
    return {"pilot": pilot, "steps": steps, "times": times.tolist(), "objective": along}


def _trained(settings: Settings, arm: str, steps: list[float], runs: int, seed: np.random.SeedSequence) -> tuple[Array, Array]:
    """Return the objective after each rollout, (steps, runs, rollouts + 1), and the updates to the level, (steps, runs)."""
    problem, updates = race_problem(settings["problem"]), checkpoints(settings)
    objectives = step_grid({**settings, "steps": steps}, problem, ARMS[arm]).objectives(runs, seed, updates.tolist())
    return objectives, np.array([updates_to_level(along, updates, settings["level"]) for along in objectives])


def checkpoints(settings: Settings) -> Integers:
    """Return the numbers of updates after the rollouts, from none."""
    return settings["inner_steps"] * np.arange(settings["rollouts"] + 1)


def rows(settings: Settings, results: list[Any]) -> Rows:
    """Times to the level, their differences between arms, mean objectives along the way, and times at each step size."""
    runs = dict(zip(settings["arms"], results, strict=True))
    times = {arm: np.array(run["times"]) for arm, run in runs.items()}
    updates = checkpoints(settings).tolist()
    table = time_rows(CONTESTS, {arm: run["steps"] for arm, run in runs.items()}, times)
    for arm, run in runs.items():
        pilot = zip(settings["pilot_steps"], run["pilot"], strict=True)
        table += [{"quantity": "pilot", "arm": arm, "step": step} | at for step, at in pilot]
        objective = zip(updates, run["objective"], strict=True)
        table += [{"quantity": "objective", "arm": arm, "update": update} | at for update, at in objective]
        table.append({"quantity": "ablation", "arm": arm, "rival": BASE} | behind(times[arm], times[BASE]))
    names = ("problem", "inner_steps", "level", "batch_size", "group_size")
    common = {name: settings[name] for name in names} | {"updates": updates[-1], "prediction": np.nan}
    return [common | row for row in table]


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Differences of times, the worst of an arm's rivals; the control puts the broken TIC-GRPO in the arm's place."""
    for (problem, inner), part in table.groupby(["problem", "inner_steps"], sort=False):
        yield from contest_claims(CONTESTS, f"{problem} (m = {inner})", part)
