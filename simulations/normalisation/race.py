"""Divide or not: plain and standardised advantages, each at its own best step size, under plain ascent and under Adam."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.estimation import find
from grpo_theory.estimation.centring import centre
from grpo_theory.estimation.registry import make_estimator
from grpo_theory.evidence import Claim
from grpo_theory.exact import StabilityWarning
from simulations.claims import claim
from simulations.harness.evidence import evidence
from simulations.harness.step_search import best_step
from simulations.harness.study import Cell, Rows, Settings, Study
from simulations.harness.summary import summary
from simulations.normalisation.prompts import MIXTURES, mixture, prompts

N_PROMPTS = 4
CORRELATIONS = (0.0, 0.2, 0.7)
"""Orthogonal, slightly and strongly correlated."""
GROUP_SIZES = (2, 8, 64)
EXACT = 0
"""The group size that stands for exact gradients of all prompts."""
UPDATES, EVERY = 64, 4
"""Of each training, and after how many of them success is looked at."""
OPTIMISERS: Mapping[str, gt.Optimiser] = {"SGD": gt.SGD(), "Adam": gt.Adam()}
GRIDS = {"SGD": tuple(2.0**k for k in range(0, 13)), "Adam": tuple(2.0**k for k in range(-6, 6))}
"""From steps that hardly move anything in 64 updates to steps that put a policy on one answer at once."""
PRINTED = {"plain": 1.0, "divided": 0.5}
"""The paper's steps 1/X^2 and 1/(2 X^2), of one prompt each; X = 1 here."""
TUNING_RUNS, QUICK_RUNS = 128, 128
RUNS = {2: 4096, 8: 2048, 64: 1024, EXACT: 1}
"""Small groups are noisy."""
BROKEN_SHARE = 8
"""The broken arm, which is far off, is trained an eighth as often."""
LEAST_VARIANCE = 1e-12
"""Where a prompt is learned to the last digit, rounding would be divided by 0."""
POINT = 0.01
"""One point of success on average over the training: less is lost in what two runs with other seeds differ by, some points."""


def out_of_step(batch, advantages):
    """Broken: standardised advantages, each given to the response before its own, as an index that is off by one does."""
    n_groups, group_size = batch.rewards.shape
    for b in range(n_groups):
        deviation = np.sqrt(centre(batch.rewards[b], advantages[b]) / (group_size - 1.0))
        first = advantages[b, 0]
        for g in range(group_size):
            own = advantages[b, g + 1] if g + 1 < group_size else first
            advantages[b, g] = own / deviation if deviation > 0.0 else 0.0


ARMS = {
    "plain": find("dr_grpo"),
    "divided": find("grpo"),
    "broken": make_estimator("out_of_step", out_of_step, minimum_group_size=2),
}


def cells(quick: bool) -> list[Cell]:
    """One cell for each problem, group size and contest; quick has hard, strongly correlated prompts at G = 8 alone."""
    correlations, mixtures, sizes = ((0.7,), ("hard",), (8,)) if quick else (CORRELATIONS, MIXTURES, (*GROUP_SIZES, EXACT))
    common = {"updates": UPDATES, "tuning_runs": TUNING_RUNS}
    runs = {size: {"runs": QUICK_RUNS if quick else count} for size, count in RUNS.items()}
    return [
        Cell({"correlation": correlation, "mixture": name, "group_size": size, "contest": contest} | common | runs[size])
        for correlation in correlations
        for name in mixtures
        for size in sizes
        for contest in (*OPTIMISERS, "printed steps")
        if not (size == EXACT and contest == "printed steps")
    ]


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> Mapping[str, Any]:
    """Train each arm, at its best step where it may choose, on draws that all arms share; return mean successes over the runs.

    The broken arm takes the step of the one that it is a copy of.
    """
    warnings.filterwarnings("ignore", category=StabilityWarning, module=__name__.replace(".", r"\."))
    tuning, judging = seed.spawn(2)
    found: dict[str, Any] = {}
    for arm, other in (("plain", "plain"), ("divided", "divided"), ("broken", "divided")):
        if arm != other:
            step = found["steps"][other]
        elif settings["contest"] in OPTIMISERS:
            grid = np.array(GRIDS[settings["contest"]])
            losses = np.array([-success(settings, arm, at, settings["tuning_runs"], tuning).mean() for at in grid])
            step = best_step(grid, losses)
        else:
            step = PRINTED[arm]
        found.setdefault("steps", {})[arm] = step
        runs = max(1, settings["runs"] // (BROKEN_SHARE if arm == "broken" else 1))
        found[arm] = success(settings, arm, step, runs, judging).tolist()
    return found


def success(settings: Settings, arm: str, step: float, runs: int, seed: np.random.SeedSequence) -> Array:
    """Return the success of each run, averaged over its updates and the prompts; of one run where gradients are exact.

    With the printed steps an update is that of one prompt, and as many of them as there are prompts count as one.
    """
    problem = prompts(settings["correlation"], mixture(settings["mixture"], N_PROMPTS))
    if settings["group_size"] == EXACT:
        return np.array([exact_success(problem, arm, OPTIMISERS[settings["contest"]], step, settings["updates"])])
    batch_size = N_PROMPTS if settings["contest"] in OPTIMISERS else 1
    each = N_PROMPTS // batch_size
    trained = gt.simulate_training(
        problem,
        problem.theta,
        ARMS[arm],
        gt.Constant(step),
        batch_size=batch_size,
        group_size=settings["group_size"],
        steps=settings["updates"] * each,
        replications=runs,
        optimiser=OPTIMISERS.get(settings["contest"], gt.SGD()),
        checkpoints=range(EVERY * each, settings["updates"] * each + 1, EVERY * each),
        rng=seed,
        workers=1,
    )
    return trained.objectives.mean(axis=1)


def exact_success(problem: gt.Problem, arm: str, optimiser: gt.Optimiser, step: float, updates: int) -> float:
    """Return the success averaged over updates by the mean of the prompts' exact gradients, divided by their deviations or not.

    The broken arm has the mean of its estimates as groups grow: 0.
    """
    theta = problem.theta[:, None].copy()
    moments, reached = np.zeros((2, *theta.shape)), []
    for count in range(1, updates + 1):
        at = gt.moments(problem, theta[:, 0])
        gradient = (at.prompt_weights * WEIGHTS[arm](at.reward_variance)) @ at.prompt_gradients
        optimiser.move(theta, gradient[:, None], moments, optimiser.settings, step, count)
        if count % EVERY == 0:
            reached.append(float(gt.objective(problem, theta[:, 0])))
    return float(np.mean(reached))


WEIGHTS: Mapping[str, Callable[[Array], Array]] = {
    "plain": np.ones_like,
    "divided": lambda variances: 1.0 / np.sqrt(np.maximum(variances, LEAST_VARIANCE)),
    "broken": np.zeros_like,
}
"""What prompts' exact gradients are multiplied by."""


def rows(settings: Settings, results: list[Any]) -> Rows:
    """What each arm reached, and by how much the plain one is ahead of the divided and of the broken one."""
    (found,) = results
    names = ("correlation", "mixture", "group_size", "contest", "updates")
    common = {name: settings[name] for name in names} | {"prediction": np.nan}
    reached = {arm: np.array(found[arm]) for arm in ARMS}
    table = [
        common | {"quantity": "success", "arm": arm, "step": found["steps"][arm]} | summary(sample)
        for arm, sample in reached.items()
    ]
    for arm in ("divided", "broken"):
        row = {"quantity": "plain less", "arm": arm, "step": found["steps"][arm]}
        table.append(common | row | summary(reached["plain"][: len(reached[arm])] - reached[arm]))
    return table


def claims(table: pd.DataFrame) -> list[Claim]:
    """How far plain is ahead, against a point either way; the control puts the broken arm in the divided one's place."""
    found = []
    keys = ["correlation", "mixture", "group_size", "contest"]
    for (correlation, name, size, contest), part in table.groupby(keys, sort=False):
        at = part[part["quantity"] == "plain less"].set_index("arm")
        arms = part[part["quantity"] == "success"].set_index("arm")
        facts = {f"{what}, {arm}": float(arms.loc[arm, column]) for arm in arms.index for what, column in FACTS.items()}
        where = f"correlation {correlation:g}, {name}, {contest}, " + ("exact" if size == EXACT else f"G = {size}")
        for statement, bound in (("division/pays", -POINT), ("division/harmless", POINT)):
            pair = (evidence(at.loc[arm].to_dict(), bound) for arm in ("divided", "broken"))
            found.append(claim(statement, where, *pair, facts=facts))
    return found


FACTS = {"success": "estimate", "step": "step"}

STUDY = Study(
    "race",
    "Divide by the standard deviation or not: success over a training, each arm at its own best step",
    cells,
    compute,
    rows,
    claims,
    ("division/pays", "division/harmless"),
)
