"""N12: does division gain where features are learned, and does the gain end where orthogonality is lost?  Sampled runs.

Networks of two layers learn by plain ascent in groups of 8. Each arm has its own best constant step for each length of a run,
chosen on other runs; intervals count the choice. In the control advantages have the wrong sign in the divided arm's place. For
orthogonality the control has gradients of prompts that share no parameter.

These choices were made before the results of these runs were seen. One point of success is noticeable, as in the race of dividing
or not. One network loses its orthogonality under exact gradients, and one keeps it. Pilots had other inputs.
"""

import warnings
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.estimation import find
from grpo_theory.evidence import Claim, Statement
from grpo_theory.evidence.reading import evidence
from grpo_theory.exact import StabilityWarning
from grpo_theory.harness.study import Cell, Rows, Settings
from grpo_theory.harness.summary import summary
from grpo_theory.schedule import step_sizes
from grpo_theory.simulate.draw.streams import block_streams
from grpo_theory.simulate.training_blocks import BLOCK_RUNS, TrainingBlocks, starting_points
from grpo_theory.simulate.update.optimiser import SGD
from simulations.kernels import kernel_at
from simulations.normalisation.heads import near_orthogonal, state
from simulations.normalisation.networks import network_problem, of_their_own, pair_cosines
from simulations.normalisation.phases import NOTICEABLE, ORTHOGONAL
from simulations.runs.tuning import choice_variance, tuned, tuned_summary
from simulations.seeds import child_seed, seed_of
from simulations.sources import NORMALIZATION, OURS

PAYS = Statement(
    "N12/pays, learned features",
    f"question beside {NORMALIZATION}",
    "where features are learned, each arm at its own best constant step: divided, success ends higher by at least a point",
    "ordering",
    whose=OURS,
)
HARMLESS = Statement(
    "N12/harmless, learned features",
    f"question beside {NORMALIZATION}",
    "there, divided, success ends lower by at most a point",
    "ordering",
    whose=OURS,
)
LOST_SAMPLED = Statement(
    "N12/III, sampled, learned features",
    f"question beside {NORMALIZATION}",
    "at the end of the longest of such runs without division the share of |cos| < 0.1 is at most 2/3",
    "upper bound",
    whose=OURS,
)

GRID = tuple(2.0**power for power in range(1, 8))
"""Steps: in pilots the best of either arm were inside it at each length."""
BUDGETS, QUICK_BUDGETS = (10, 20, 40, 80), (10, 20)
NETWORKS = ((4, "easy", 21), (4, "easy", 22), (4, "hard", 21), (16, "easy", 21), (16, "hard", 21))
"""Width, mixture and seed of the inputs."""
BATCH_SIZE, GROUP_SIZE = 20, 8
RUNS, QUICK_RUNS, LOOK_EACH = (64, 768), (8, 64), 4
"""Runs that tune and runs that judge. Of the latter the gradients of one in four are examined.

Half as many tuning runs chose steps so far apart that three quarters of the verdicts were inconclusive.
"""
ARMS = {"plain": find("dr_grpo"), "divided": find("grpo"), "broken": kernel_at("turned_mean", 1.0, "descends")}
MEASURES = ("success", "orthogonality", "apart")


def cells(quick: bool) -> list[Cell]:
    """One cell for each network, one chunk for each arm; quick has one."""
    budgets, runs = (QUICK_BUDGETS, QUICK_RUNS) if quick else (BUDGETS, RUNS)
    common = {"budgets": list(budgets), "runs": list(runs), "arms": list(ARMS), "steps": list(GRID)}
    return [
        Cell({"width": width, "mixture": mixture, "seed": seed} | common, len(ARMS), shared=True)
        for width, mixture, seed in NETWORKS[: 1 if quick else None]
    ]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> dict[str, Any]:
    """Tune one arm and train it anew, on draws that all arms share; the broken one takes the middle of the grid."""
    seed = seed_of(rng)
    arm, budgets = settings["arms"][chunk], settings["budgets"]
    problem = network_problem(settings["width"], settings["seed"], mixture=settings["mixture"])
    train = partial(_trained, problem, arm, budgets)
    if arm == "broken":
        middle = GRID[len(GRID) // 2]
        return {"judged": train(middle, len(budgets), settings["runs"][1], child_seed(seed, 1)).tolist()}
    found = tuned(train, len(budgets), settings["steps"], tuple(settings["runs"]), seed)
    return {"judged": found.judged.tolist(), "tuning": found.tuning.tolist(), "chosen": found.chosen.tolist()}


def _trained(
    problem: gt.Problem, arm: str, budgets: list[int], step: float, count: int, runs: int, seed: np.random.SeedSequence
) -> Array:
    """Return the `MEASURES` of runs with a constant step at the first `count` budgets, shape (runs, count, 3)."""
    # A grid of steps ends with some that are too large; the filter stays, because filters are common to all threads.
    warnings.filterwarnings("ignore", category=StabilityWarning, module=__name__.replace(".", r"\."))
    steps = step_sizes(gt.Constant(step), budgets[count - 1])
    blocks = TrainingBlocks.of(problem, ARMS[arm], steps, (BATCH_SIZE, GROUP_SIZE, 1), optimiser=SGD())
    starts, parts = starting_points(problem.policy, problem.theta, runs), []
    for first in range(0, runs, BLOCK_RUNS):
        with blocks.start(block_streams(seed, first // BLOCK_RUNS, 1), starts[first : first + BLOCK_RUNS]) as going:
            looks = []
            for until in budgets[:count]:
                going.advance(until)
                looks.append(_measured(problem, going.theta))
            parts.append(np.stack(looks, axis=1))
    return np.concatenate(parts)


def _measured(problem: gt.Problem, theta: Array) -> Array:
    """Return the `MEASURES` of policies (R, d), shape (R, 3): shares of one run in four, and of the others NaN.

    A run that left the numbers has no success, and no share.
    """
    finite = np.asarray(np.isfinite(theta).all(axis=1))
    measures = np.full((len(theta), len(MEASURES)), np.nan)
    pi = np.exp(problem.policy.log_probabilities(np.where(finite[:, None], theta, 0.0)))
    measures[:, 0] = np.where(finite, (pi * problem.bandit.mean_reward).sum(axis=-1).mean(axis=-1), 0.0)
    for run in np.flatnonzero(finite & (np.arange(len(theta)) % LOOK_EACH == 0)):
        now = state(problem.policy.logits(theta[run]), problem.bandit.mean_reward)
        measures[run, 1] = near_orthogonal(pair_cosines(problem.policy.tangent(theta[run]).adjoint_by_prompt(now.covectors)))
        measures[run, 2] = near_orthogonal(pair_cosines(of_their_own(now.covectors)))
    return measures


def rows(settings: Settings, results: list[Any]) -> Rows:
    """What each arm reached, by how much plain training is ahead of the others, and how orthogonal its prompts are."""
    budgets = settings["budgets"]
    judged = {arm: np.array(one["judged"], dtype=np.float64) for arm, one in zip(settings["arms"], results, strict=True)}
    success = {arm: measures[:, :, 0] for arm, measures in judged.items()}
    added = {arm: choice_variance(success[arm]) if arm != "broken" else 0.0 for arm in success}
    common = {name: settings[name] for name in ("width", "mixture", "seed")} | {"prediction": np.nan}
    table: Rows = []
    for arm, budget in product(success, budgets):
        b = budgets.index(budget)
        at = common | {"arm": arm, "updates": budget}
        table.append(at | {"quantity": "success"} | tuned_summary(success[arm][:, b], added[arm]))
        behind = success["plain"][:, b] - success[arm][:, b]
        table.append(at | {"quantity": "plain less"} | tuned_summary(behind, added["plain"] + added[arm]))
        for q, quantity in enumerate(MEASURES[1:], 1):
            shares = judged[arm][:, b, q]
            table.append(at | {"quantity": quantity} | tuned_summary(shares[np.isfinite(shares)], 0.0))
    for arm, one in zip(settings["arms"], results, strict=True):
        table += [
            common | {"arm": arm, "updates": budget, "quantity": "chosen"} | summary(np.array(settings["steps"])[list(places)])
            for budget, places in zip(budgets, np.transpose(one.get("chosen", [])), strict=False)
        ]
    return table


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Who is ahead at the end of runs of each length, and whether orthogonality is lost at the end of the longest."""
    for (width, mixture, seed), part in table.groupby(["width", "mixture", "seed"], sort=False):
        network = f"width {width:g}, {mixture}, inputs {seed:g}"
        at = part.set_index(["quantity", "arm", "updates"]).sort_index()
        for updates in (budgets := sorted(part["updates"].unique())):
            named = {"success, plain": ("success", "plain"), "success, divided": ("success", "divided")}
            named |= {"step, plain": ("chosen", "plain"), "step, divided": ("chosen", "divided")}
            facts = {name: float(at.loc[(*key, updates), "estimate"]) for name, key in named.items()}
            for statement, bound in ((PAYS, -NOTICEABLE), (HARMLESS, NOTICEABLE)):
                own, control = (evidence(at.loc[("plain less", arm, updates)].to_dict(), bound) for arm in ("divided", "broken"))
                yield statement.claim(f"{network}, {updates:g} updates", own, control, facts)
        own, control = (
            evidence(at.loc[(name, "plain", budgets[-1])].to_dict(), ORTHOGONAL) for name in ("orthogonality", "apart")
        )
        yield LOST_SAMPLED.claim(network, own, control)
