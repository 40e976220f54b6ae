"""N12: does division gain where features are learned, and does the gain end where orthogonality is lost?  Sampled runs.

Networks of two layers learn by plain ascent in groups of 8. Each arm is taken at the best of the constant steps tried, for each
length of a run. Inputs, right answers and the start are drawn. Limits count draws, the runs on them and the choice of the step.
In the control advantages have the wrong sign in the divided arm's place. For orthogonality the control has prompts that share no
parameter, so that all their cosines are 0.

One point of success is noticeable, as in the race of dividing or not. The margin, the lengths of the runs and which draws there
are were chosen before results were seen. An earlier version of this study saw five networks. A first run of this version had half
as many draws. Its limits were too wide to tell a gain of a point from none.
"""

import warnings
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.estimation import find
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import evidence, exact
from grpo_theory.exact import StabilityWarning
from grpo_theory.harness.study import Cell, Rows, Settings
from grpo_theory.simulate.step_grid import StepGrid
from grpo_theory.simulate.training import finite_objectives
from simulations.best_rate import lead
from simulations.kernels import kernel_at
from simulations.normalisation.heads import near_orthogonal, state
from simulations.normalisation.networks import network_problem, pair_cosines
from simulations.normalisation.phases import NOTICEABLE, ORTHOGONAL
from simulations.seeds import child_seed, seed_of
from simulations.statements import stated

PAYS, HARMLESS = stated("N12/pays, learned features", "N12/harmless, learned features")
LOST_SAMPLED = stated("N12/III, sampled, learned features")

GRID = tuple(2.0**power for power in range(8))
"""Steps: in pilots the best of either arm were inside it at each length."""
BUDGETS, QUICK_BUDGETS = (10, 20, 40, 80), (10, 20)
NETWORKS = ((4, "easy"), (4, "hard"), (16, "easy"), (16, "hard"))
"""Width and mixture."""
BATCH_SIZE, GROUP_SIZE = 20, 8
DRAWS, QUICK_DRAWS, RUNS = 96, 24, 4
"""Draws of inputs and starts, and runs on each. Of the runs on a draw, the first has its gradients examined."""
ARMS = {"plain": find("dr_grpo"), "divided": find("grpo"), "broken": kernel_at("turned_mean", 1.0, "descends")}


def cells(quick: bool) -> list[Cell]:
    """One cell for each network, one chunk for each arm; quick has one."""
    budgets, draws = (QUICK_BUDGETS, QUICK_DRAWS) if quick else (BUDGETS, DRAWS)
    common = {"budgets": list(budgets), "draws": draws, "runs": RUNS, "arms": list(ARMS), "steps": list(GRID)}
    return [
        Cell({"width": width, "mixture": mixture} | common, len(ARMS), shared=True)
        for width, mixture in NETWORKS[: 1 if quick else None]
    ]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> dict[str, Any]:
    """Train one arm on all draws; return success and the share of |cos| < 0.1, each (S, draws, budgets).

    The broken arm has the middle of the grid.
    """
    seed, arm, steps = seed_of(rng), settings["arms"][chunk], settings["steps"]
    steps = [steps[len(steps) // 2]] if arm == "broken" else steps
    found = [trained(settings, arm, steps, draw, child_seed(seed, draw)) for draw in range(settings["draws"])]
    success, shares = np.stack(found, axis=2)
    return {"success": success.tolist(), "orthogonality": shares.tolist()}


def trained(settings: Settings, arm: str, steps: list[float], draw: int, seed: np.random.SeedSequence) -> Array:
    """Return success of the runs on a draw, and the share of near-orthogonal pairs in the first of them, (2, S, budgets)."""
    # A grid of steps ends with some that are too large; the filter stays, because filters are common to all threads.
    warnings.filterwarnings("ignore", category=StabilityWarning, module=__name__.replace(".", r"\."))
    problem, budgets = network_problem(settings["width"], draw, mixture=settings["mixture"]), settings["budgets"]
    grid = StepGrid.of(problem, ARMS[arm], steps, np.ones(budgets[-1]), (BATCH_SIZE, GROUP_SIZE))
    looks = grid.looks(lambda theta: measured(problem, theta, settings["runs"]), settings["runs"], seed, budgets)
    return np.stack([looks[..., 0].mean(axis=1), looks[:, 0, :, 1]])


def measured(problem: gt.Problem, theta: Array, each: int) -> Array:
    """Return the success of policies (R, d), and of each so many one share of near-orthogonal pairs, shape (R, 2).

    A run that left the numbers has no success, and keeps its prompts orthogonal.
    """
    measures = np.stack([finite_objectives(problem, theta), np.ones(len(theta))], axis=1)
    measures[np.isnan(measures[:, 0]), 0] = 0.0
    for run in np.flatnonzero(np.isfinite(theta).all(axis=1) & (np.arange(len(theta)) % each == 0)):
        now = state(problem.policy.logits(theta[run]), problem.bandit.mean_reward)
        measures[run, 1] = near_orthogonal(pair_cosines(problem.policy.tangent(theta[run]).adjoint_by_prompt(now.covectors)))
    return measures


def rows(settings: Settings, results: list[Any]) -> Rows:
    """What each arm reached, by how much plain training is ahead of the others, and how orthogonal its prompts are."""
    arms = dict(zip(settings["arms"], results, strict=True))
    common = {name: settings[name] for name in ("width", "mixture")} | {"prediction": np.nan}
    table: Rows = []
    for arm, (b, budget) in product(arms, enumerate(settings["budgets"])):
        plain, own, shares = (
            np.array(arms[one][what])[:, :, b] for one, what in (("plain", "success"), (arm, "success"), (arm, "orthogonality"))
        )
        leads = {"success": lead([own]), "orthogonality": lead([own], judged=[shares])}
        if arm != "plain":
            leads["plain less"] = lead([plain, own], (1.0, -1.0))
        at = common | {"arm": arm, "updates": budget, "step": settings["steps"][int(own.mean(axis=1).argmax())]}
        table += [at | {"quantity": quantity} | row for quantity, row in leads.items()]
    return table


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Who is ahead at the end of runs of each length, and whether orthogonality is lost at the end of the longest."""
    for (width, mixture), part in table.groupby(["width", "mixture"], sort=False):
        networks = f"networks of width {width:g}, {mixture}"
        at = part.set_index(["quantity", "arm", "updates"]).sort_index()
        for updates in (budgets := sorted(part["updates"].unique())):
            named = {"success": "estimate", "step": "step"}
            facts = {
                f"{name}, {arm}": float(at.loc[("success", arm, updates), column])
                for (name, column), arm in product(named.items(), ("plain", "divided"))
            }
            for statement, bound in ((PAYS, -NOTICEABLE), (HARMLESS, NOTICEABLE)):
                own, control = (evidence(at.loc[("plain less", arm, updates)].to_dict(), bound) for arm in ("divided", "broken"))
                yield statement.claim(f"{networks}, {updates:g} updates", own, control, facts)
        share = evidence(at.loc[("orthogonality", "plain", budgets[-1])].to_dict(), ORTHOGONAL)
        yield LOST_SAMPLED.claim(networks, share, exact(1.0, ORTHOGONAL))
