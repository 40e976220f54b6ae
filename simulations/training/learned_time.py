"""T14, T8: updates to a level of the objective if features are learned, each composition at its best step size.

Networks of two layers are drawn at random, and are the sample; an arm has one step for all of them. The level of a problem is two
thirds of the way from its start to the best response at each prompt. In the control three signs of TIC-GRPO's eight are wrong,
which leaves a quarter of its mean update.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.estimation.composition import make_estimator
from grpo_theory.evidence import Claim
from grpo_theory.harness.study import Cell, Rows, Settings
from simulations.seeds import seed_of
from simulations.statements import stated
from simulations.training.compositions import ARMS as COMPOSITIONS
from simulations.training.contests import Contest, contest_claims, time_rows, updates_to_level
from simulations.training.minibatch_trainer import step_grid
from simulations.training.random_networks import Network

WITHOUT_RATIO, THAN_GRPO = stated("T8/time, learned features", "T14/against GRPO, learned features")
THAN_GSPO, RATIO_ALONE = stated("T14/against GSPO, learned features", "T14/ratio, learned features")
CLIP_ALONE, BOTH = stated("T14/clip, learned features", "T14/both, learned features")
THAN_NO_RATIO = stated("T14/against no ratio, learned features")
NOTICEABLE = 1.05
"""A twentieth more updates is not noticed: two runs that differ in nothing but the seed differ by more."""
CONTESTS = (
    Contest(WITHOUT_RATIO, "no ratio", ("neither",), NOTICEABLE),
    Contest(THAN_GRPO, "TIC", ("GRPO",)),
    Contest(THAN_GSPO, "TIC", ("GSPO",)),
    Contest(RATIO_ALONE, "ratio alone", ("neither",)),
    Contest(CLIP_ALONE, "clip alone", ("neither",)),
    Contest(BOTH, "TIC", ("ratio alone", "clip alone")),
    Contest(THAN_NO_RATIO, "TIC", ("no ratio",)),
)


def wrong_for_three(batch, advantages):
    """A as in dr_grpo, with the wrong sign for the first three responses of each group: for the control."""
    n_groups, group_size = batch.rewards.shape
    for b in range(n_groups):
        mean = batch.rewards[b].mean()
        for g in range(group_size):
            sign = -1.0 if g < 3 else 1.0
            advantages[b, g] = sign * (batch.rewards[b, g] - mean)


ARMS: Mapping[str, gt.Estimator] = {
    arm: COMPOSITIONS[arm] for arm in ("TIC", "GRPO", "GSPO", "neither", "ratio alone", "clip alone", "no ratio")
} | {
    "broken": replace(COMPOSITIONS["TIC"], name="broken", advantage=make_estimator("wrong_for_three", wrong_for_three).advantage)
}
NETWORKS: Mapping[str, Network] = {
    "2 tokens, width 8": Network(2, 8, "SGD", tuple(2.0**power for power in range(0, 8)), prompts=8, inputs=8, one_in=4),
    "4 tokens, width 8": Network(4, 8, "Adam", tuple(2.0**power for power in range(-7, 1)), prompts=8, inputs=8, one_in=4),
}
"""With grids around the best steps that pilots on other problems found for all arms; TIC-GRPO divides by the horizon."""
WAY = 2.0 / 3.0
"""The share of the way from the start to the best responses at which the level lies."""
SIZES = {"batch_size": 16, "group_size": 8, "rollouts": 32, "inner_steps": 8}
PROBLEMS, QUICK_PROBLEMS, RUNS = 64, 8, 4
"""Few runs on each problem, at eight steps: as many as are trained side by side."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each kind of network, one chunk for each arm; quick has one, with every second step."""
    common = SIZES | {"problems": QUICK_PROBLEMS if quick else PROBLEMS, "runs": RUNS, "arms": list(ARMS)}
    grids = {name: list(kind.steps[:: 2 if quick else 1]) for name, kind in NETWORKS.items()}
    return [
        Cell(common | {"network": name, "optimiser": kind.optimiser, "steps": grids[name]}, len(ARMS), shared=True)
        for name, kind in list(NETWORKS.items())[: 1 if quick else None]
    ]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> list[list[float]]:
    """Train an arm at each step of the grid, on problems and draws that all arms share; return times (steps, problems)."""
    inner, arm = settings["inner_steps"], ARMS[settings["arms"][chunk]]
    checkpoints, times = inner * np.arange(settings["rollouts"] + 1), []
    for problem, seed in NETWORKS[settings["network"]].drawn(seed_of(rng), settings["problems"]):
        objectives = step_grid(settings, problem, arm).objectives(settings["runs"], seed, checkpoints.tolist())
        times.append([updates_to_level(along, checkpoints, level(problem)).mean() for along in objectives])
    return np.array(times).T.tolist()


def level(problem: gt.Problem) -> float:
    """Return the objective two thirds of the way from the start to the best response at each prompt."""
    start = float(gt.objective(problem, problem.theta))
    best = float(problem.bandit.prompt_weights @ problem.bandit.mean_reward.max(axis=1))
    return start + WAY * (best - start)


def rows(settings: Settings, results: list[Any]) -> Rows:
    """Times to the level at the best step and at all that were tried, and their differences; problems are the sample."""
    times = {arm: np.array(found) for arm, found in zip(settings["arms"], results, strict=True)}
    names = ("network", "optimiser", "inner_steps", "batch_size", "group_size")
    common = {name: settings[name] for name in names}
    common |= {"updates": settings["rollouts"] * settings["inner_steps"], "prediction": np.nan}
    steps = {arm: list(settings["steps"]) for arm in times}
    return [common | row for row in time_rows(CONTESTS, steps, times)]


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Differences of times, the worst of an arm's rivals; the control puts the broken TIC-GRPO in the arm's place."""
    for (network, optimiser), part in table.groupby(["network", "optimiser"], sort=False):
        yield from contest_claims(CONTESTS, f"{network}, {optimiser}", part)
