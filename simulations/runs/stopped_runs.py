"""P4: groups that stop by their own rewards, in whole runs at an equal number of responses.

Groups that grow until they are mixed, and successive halving, are compared with groups of one size. The worlds are those of the
study `allocation`, whose rules set sizes before they sample. Every update spends 128 responses. Each rule trains at its own best
constant step, chosen on other runs, four times over; intervals count what a choice adds. In the controls the rule's runs are
stopped at a quarter of the responses, or have none.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim, Statement
from grpo_theory.evidence.reading import evidence
from grpo_theory.exact import objective
from grpo_theory.harness.study import Cell, Rows, Settings
from simulations.runs.allocation_places import CHECKPOINTS, TITLES, WORLDS, rates_of
from simulations.runs.chosen_steps import choice_variance_of, chosen_steps, same_shares, trained_with_each
from simulations.runs.stopped_trainer import RULES as STOPPED
from simulations.runs.stopped_trainer import SPENT, successes
from simulations.runs.tuning import tuned_summary
from simulations.seeds import child_seed, seed_of
from simulations.sources import OURS, derived

SETTING = "leave-one-out, plain ascent, 128 responses an update, constant steps, each rule at its best, chosen on other runs"
MIXED_RUNS = Statement(
    "allocation/stopped, whole runs",
    derived(33),
    "groups that stop at their first mixed size train a better policy than equal sizes",
    "ordering",
    SETTING,
    whose=OURS,
)
HALVING_RUNS = Statement(
    "allocation/halving, whole runs",
    derived(33),
    "groups by successive halving train a better policy than equal sizes",
    "ordering",
    SETTING,
    whose=OURS,
)
STATED = {"first mixed": MIXED_RUNS, "halving": HALVING_RUNS}
ARMS = tuple(STOPPED)
RUNS = {"tabular": 512, "shared": 2048}
"""Twice as many as in the study `allocation`.  Chosen after a first run on other draws, in which as many decided nothing."""
TUNING_RUNS, QUICK_RUNS = 64, 16


def cells(quick: bool) -> list[Cell]:
    """One cell for each world, one chunk for each rule; a quick run has one world and few runs."""
    listed = []
    for world, runs in list(RUNS.items())[: 1 if quick else None]:
        counts = {"runs": QUICK_RUNS if quick else runs, "tuning_runs": QUICK_RUNS if quick else TUNING_RUNS}
        listed.append(Cell({"world": world, "optimiser": "SGD", "arms": list(ARMS)} | counts, len(ARMS), shared=True))
    return listed


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> dict[str, Any]:
    """Train with one rule; return the success of each run at the checkpoints, and the steps."""
    arm, rates = settings["arms"][chunk], rates_of(settings)
    tuning, judging = (child_seed(seed_of(rng), part) for part in (0, 1))
    reached = partial(_reached, settings["world"], arm)
    tried = np.stack([reached(CHECKPOINTS, rate, settings["tuning_runs"], tuning) for rate in rates])
    by_updates = {}
    for c, updates in enumerate(CHECKPOINTS):
        steps = chosen_steps(rates, tried[..., c])
        judged = trained_with_each(steps, partial(reached, [updates]), settings["runs"], child_seed(judging, c))
        by_updates[str(updates)] = {"success": judged[:, 0].tolist(), "rate": float(np.exp(np.log(steps).mean()))}
    return by_updates


def _reached(world: str, arm: str, updates: Sequence[int], rate: float, runs: int, seed: np.random.SeedSequence) -> Array:
    """Return mean success after numbers of updates, shape (runs, C)."""
    return successes(WORLDS[world].problem(), STOPPED[arm], rate, updates, np.random.default_rng(seed), runs)


def rows(settings: Settings, results: list[Any]) -> Rows:
    """Success of each rule at the checkpoints, and by how much equal sizes are ahead of it, and of it stopped early."""
    by_arm = dict(zip(settings["arms"], results, strict=True))
    judged = {arm: [np.array(one[str(updates)]["success"]) for updates in CHECKPOINTS] for arm, one in by_arm.items()}
    added = [choice_variance_of([ends[c] for ends in judged.values()]) for c in range(len(CHECKPOINTS))]
    problem = WORLDS[settings["world"]].problem()
    start = float(objective(problem, problem.theta))
    table: Rows = []
    for arm, ends in judged.items():
        for c, updates in enumerate(CHECKPOINTS):
            about = {"world": settings["world"], "rule": arm, "responses": updates * SPENT, "prediction": np.nan}
            about |= {"rate": by_arm[arm][str(updates)]["rate"]}
            table.append(about | {"quantity": "success"} | tuned_summary(ends[c], added[c]))
            ahead = same_shares(judged["equal"][c], ends[c])
            table.append(about | {"quantity": "equal ahead"} | tuned_summary(ahead, 2.0 * added[c]))
            early = same_shares(judged["equal"][c], ends[0]) if c else judged["equal"][c] - start
            of_both = added[c] + (added[0] if c else 0.0)
            table.append(about | {"quantity": "equal ahead, stopped early"} | tuned_summary(early, of_both))
    return table


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """By how much equal sizes are ahead of each rule's; the control's rule has a quarter of the responses, or none."""
    for (world, responses), part in table.groupby(["world", "responses"], sort=False):
        by = part.set_index(["quantity", "rule"])
        facts = {f"success, {arm}": float(by.loc[("success", arm), "estimate"]) for arm in ARMS}
        for rule, statement in STATED.items():
            own, control = (evidence(by.loc[(f"equal ahead{how}", rule)], 0.0) for how in ("", ", stopped early"))
            yield statement.claim(f"{TITLES[world]}, {responses:,} responses", own, control, facts=facts)
