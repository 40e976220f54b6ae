"""T14, T8: updates to a level of the objective if features are learned, each composition at its best step size.

Networks of two layers are drawn at random. The level of a problem is two thirds of the way from its start to the best response at
each prompt. In the control three signs of TIC-GRPO's eight are wrong, which leaves a quarter of its mean update.
"""

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.estimation.composition import make_estimator
from grpo_theory.evidence import Claim, Statement
from grpo_theory.exact import StabilityWarning
from grpo_theory.harness.study import Cell, Rows, Settings
from grpo_theory.harness.summary import summary
from simulations.seeds import child_seed, seed_of
from simulations.sources import OURS, TIC_GRPO
from simulations.training.arms import chosen_step
from simulations.training.compositions import ARMS as COMPOSITIONS
from simulations.training.contests import Contest, contest_claims, difference_rows, updates_to_level
from simulations.training.minibatch_trainer import OPTIMISERS
from simulations.training.random_networks import Network


def learned(part: str, text: str, kind: str = "ordering") -> Statement:
    """Return a question of ours about the updates that networks need to a level."""
    return Statement(f"{part}, learned features", f"question beside {TIC_GRPO}", text, kind, WHERE, whose=OURS)


WHERE = "networks of two layers on trees of two tokens, eight updates a rollout; best constant steps, chosen on other problems"
WITHOUT_RATIO = learned(
    "T8/time", "without ratio and clip at most 5% more updates to a level than with token ratios clipped by sign", "upper bound"
)
THAN_GRPO = learned("T14/against GRPO", "TIC-GRPO takes fewer updates to a level than GRPO as published")
THAN_GSPO = learned("T14/against GSPO", "TIC-GRPO takes fewer updates to a level than GSPO as published")
RATIO_ALONE = learned(
    "T14/ratio", "the trajectory ratio in the place of the token ratio, nothing else changed, takes fewer updates"
)
CLIP_ALONE = learned(
    "T14/clip", "the upper-only clip in the place of the clip by sign, nothing else changed, takes fewer updates"
)
BOTH = learned("T14/both", "both together take fewer updates than either alone")
THAN_NO_RATIO = learned(
    "T14/against no ratio", "TIC-GRPO takes fewer updates to a level than the same estimator without ratio and clip"
)
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
    "2 tokens, width 8": Network(2, 8, "SGD", tuple(2.0**power for power in range(1, 7)), prompts=8, inputs=8, one_in=4),
    "4 tokens, width 8": Network(4, 8, "Adam", tuple(2.0**power for power in range(-6, 0)), prompts=8, inputs=8, one_in=4),
}
"""With grids around the best steps that pilots on other problems found for all arms; TIC-GRPO divides by the horizon."""
WAY = 2.0 / 3.0
"""The share of the way from the start to the best responses at which the level lies."""
SIZES = {"batch_size": 16, "group_size": 8, "rollouts": 32, "inner_steps": 8}
COUNTS, QUICK_COUNTS = {"problems": 40, "tuning_problems": 4, "runs": 32}, {"problems": 8, "tuning_problems": 2, "runs": 2}


def cells(quick: bool) -> list[Cell]:
    """One cell for each kind of network, one chunk for each arm; quick has one, with every second step."""
    common = SIZES | (QUICK_COUNTS if quick else COUNTS) | {"arms": list(ARMS)}
    return [
        Cell(
            common | {"network": name, "optimiser": kind.optimiser, "steps": list(kind.steps[:: 2 if quick else 1])},
            len(ARMS),
            shared=True,
        )
        for name, kind in list(NETWORKS.items())[: 1 if quick else None]
    ]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> dict[str, Any]:
    """Find one arm's best step; then train anew on other problems, on draws that all arms share."""
    arm, grid = settings["arms"][chunk], np.array(settings["steps"])
    rehearsals, problems = (
        list(_drawn(settings, child_seed(seed_of(rng), part), count))
        for part, count in enumerate(("tuning_problems", "problems"))
    )
    tried = [summary(np.array([_times(settings, arm, step, *one).mean() for one in rehearsals])) for step in grid]
    chosen = chosen_step(grid, np.array([times["estimate"] for times in tried]))
    times = [_times(settings, arm, chosen["step"], *one).tolist() for one in problems]
    return chosen | {"tuning": tried, "times": times}


def _drawn(settings: Settings, seed: np.random.SeedSequence, count: str) -> Iterator[tuple[gt.Problem, np.random.SeedSequence]]:
    """Draw problems, each with a seed for its runs."""
    for index in range(settings[count]):
        drawing, running = (child_seed(seed, index, part) for part in (0, 1))
        yield NETWORKS[settings["network"]].problem(np.random.default_rng(drawing)), running


def level(problem: gt.Problem) -> float:
    """Return the objective two thirds of the way from the start to the best response at each prompt."""
    start = float(gt.objective(problem, problem.theta))
    best = float(problem.bandit.prompt_weights @ problem.bandit.mean_reward.max(axis=1))
    return start + WAY * (best - start)


def _times(settings: Settings, arm: str, step: float, problem: gt.Problem, seed: np.random.SeedSequence) -> Array:
    """Return the updates to the level of each run with a constant step, (R,).

    A grid of steps ends with some that are too large.  The filter for that stays, because filters are common to all threads.
    """
    warnings.filterwarnings("ignore", category=StabilityWarning, module=__name__.replace(".", r"\."))
    inner = settings["inner_steps"]
    updates = settings["rollouts"] * inner
    sizes = {name: settings[name] for name in ("batch_size", "group_size", "inner_steps")}
    runs = gt.simulate_training(
        problem,
        problem.theta,
        ARMS[arm],
        gt.Constant(step),
        **sizes,
        optimiser=OPTIMISERS[settings["optimiser"]],
        steps=updates,
        replications=settings["runs"],
        checkpoints=range(0, updates + 1, inner),
        rng=seed,
        workers=1,
    )
    return updates_to_level(runs, level(problem))


def rows(settings: Settings, results: list[Any]) -> Rows:
    """Times to the level at the chosen steps and at all that were tried, and their differences; problems are the sample."""
    runs = dict(zip(settings["arms"], results, strict=True))
    updates = settings["rollouts"] * settings["inner_steps"]
    times = {arm: np.array(run["times"]).mean(axis=1) for arm, run in runs.items()}
    table: Rows = []
    for arm, run in runs.items():
        reached = float((np.array(run["times"]) < updates).mean())
        at_best = {"step": run["step"], "interior": run["interior"], "reached": reached}
        table.append({"quantity": "time", "arm": arm} | at_best | summary(times[arm]))
        tried = zip(settings["steps"], run["tuning"], strict=True)
        table += [{"quantity": "tuning", "arm": arm, "step": step} | at for step, at in tried]
    table += difference_rows(CONTESTS, times)
    names = ("network", "optimiser", "inner_steps", "batch_size", "group_size")
    common = {name: settings[name] for name in names} | {"updates": updates, "prediction": np.nan}
    return [common | row for row in table]


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Paired differences of times, the worst of an arm's rivals; the control puts the broken TIC-GRPO in the arm's place."""
    for (network, optimiser), part in table.groupby(["network", "optimiser"], sort=False):
        yield from contest_claims(CONTESTS, f"{network}, {optimiser}", part)
