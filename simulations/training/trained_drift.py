"""T6 to T8 along training: where updates off policy point, and what clip and ratio are worth to whole runs.

The policies are those that minibatch training makes. Most settings have a kind of problem, with one run on each of many problems
drawn from it, which are the sample. Some have one problem, whose runs are the sample. Each arm has the best of the constant steps
tried, or twice or four times that, the same for all problems. In the controls advantages have lost their sign, or an arm stays at
its start. A first run on other draws was replaced because fixed problems took too long, and not for what it found.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.evidence import Claim, Evidence
from grpo_theory.evidence.reading import BoundedMean, evidence
from grpo_theory.harness.study import Cell, Rows, Settings
from grpo_theory.harness.summary import summary
from simulations.best_rate import LEAD_FACTS, lead
from simulations.seeds import child_seed, seed_of
from simulations.sequence.off_policy import Pairs
from simulations.statements import stated
from simulations.training.drift_arms import ARMS, LOOKED
from simulations.training.looks import followed
from simulations.training.worlds import WORLDS

POINTED = {
    "clip": stated("T6/trained"),
    "trajectory": stated("T7/trained"),
    "none": stated("T8/trained"),
}
"""Where the mean update of each arm points along its own runs."""
LITTLE_CLIPPED, UNCLIPPED, NEARER = stated("T6/trained, little clipped", "T6/unclipped, trained", "T8/nearer, trained")
DOUBLINGS = {"best": 0, "twice": 1, "four times": 2}
"""How often an arm's own best step is doubled: nobody knows a learning rate to better than a factor of two."""
BEYOND = max(DOUBLINGS.values())
ENDINGS = {"best": "trained", "twice": "twice the step", "four times": "four times the step"}
AHEAD = {"clip": "T8/dropped", "none": "T8/clip"}
"""By how little one of these two arms is ahead of the other, by the former."""
OTHER = {"clip": "none", "none": "clip"}
ENDS = {(arm, at): stated(f"{name}, {ending}") for arm, name in AHEAD.items() for at, ending in ENDINGS.items()}
"""Where whole runs end at each step size."""

BATCH_SIZE, GROUP_SIZE = 16, 8
FACTS = {"success": "estimate", "step": "step"}
"""Columns of the table, by what the facts of a claim call them."""
AWAY = 0.05
"""One update in twenty that points away, as far as the others point along, undoes a tenth of the way; fewer pass for noise."""
POINT = 0.01
"""One point of success at the end is less than two runs with other seeds differ by."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each world, length of runs, optimiser and updates a rollout, one chunk for each arm; quick has one."""
    if quick:
        return [_cell("two", 16, 16, "Adam", 64)]
    return [
        _cell(name, rollouts, inner, optimiser, world.units)
        for name, world in WORLDS.items()
        for rollouts, minibatches in world.minibatches.items()
        for inner in minibatches
        for optimiser in world.centres
    ]


def _cell(name: str, rollouts: int, inner: int, optimiser: str, units: int) -> Cell:
    steps = WORLDS[name].steps(optimiser, inner, BEYOND)
    sizes = {"batch_size": BATCH_SIZE, "group_size": GROUP_SIZE, "rollouts": rollouts, "inner_steps": inner}
    counts = {"units": units, "runs": WORLDS[name].runs}
    grid = {"optimiser": optimiser, "steps": steps, "tried": len(steps) - BEYOND}
    return Cell({"world": name, "arms": list(ARMS)} | sizes | counts | grid, len(ARMS), shared=True)


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> dict[str, Any]:
    """Train an arm at each step of the grid, on problems and draws that all arms share, and look at updates on the way."""
    seed = seed_of(rng)
    running, looking = (child_seed(seed, part) for part in range(2))
    problems = list(WORLDS[settings["world"]].drawn(running, settings["units"] // settings["runs"]))
    arm = ARMS[settings["arms"][chunk]]
    success, looks = followed(settings, arm, problems, Pairs, np.random.default_rng(looking))
    starts = [float(gt.objective(problem, problem.theta)) for problem, _ in problems for _ in range(settings["runs"])]
    return {"success": success.tolist(), "looks": looks, "starts": starts}


def rows(settings: Settings, results: list[Any]) -> Rows:
    """What each arm reached, by how much one is ahead of another, success at each step size, and what the looks said."""
    steps, tried = settings["steps"], settings["tried"]
    success = {arm: np.array(run["success"]) for arm, run in zip(settings["arms"], results, strict=True)}
    grids, starts = {arm: reached[:tried] for arm, reached in success.items()}, np.array(results[0]["starts"])[None]
    table: Rows = []
    for (arm, reached), run in zip(success.items(), results, strict=True):
        table += [
            {"quantity": "tuning", "arm": arm, "step": step} | summary(own) for step, own in zip(steps, reached, strict=True)
        ]
        best = grids[arm].mean(axis=1).argmax()
        for at, shift in DOUBLINGS.items():
            judged = [reached[shift:][:tried]] if shift else None
            row = {"quantity": "success", "at": at, "arm": arm, "step": steps[best + shift]}
            table.append(row | lead([grids[arm]], judged=judged))
        table += [{"arm": arm, "at": "best"} | seen for seen in run["looks"]]
    for arm, at in ENDS:
        rivals = {OTHER[arm]: (grids[OTHER[arm]], success[OTHER[arm]][DOUBLINGS[at] :][:tried]), "start": (starts, starts)}
        for rival, (side, values) in rivals.items():
            judged = [success[arm][DOUBLINGS[at] :][:tried], values] if DOUBLINGS[at] else None
            ahead = lead([grids[arm], side], (1.0, -1.0), judged)
            table.append({"quantity": "ahead", "at": at, "arm": arm, "rival": rival} | ahead)
    common = {name: settings[name] for name in ("world", "rollouts", "inner_steps", "optimiser")}
    common |= {"title": WORLDS[settings["world"]].label(settings["units"]), "prediction": np.nan}
    return [common | row for row in table]


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Shares of updates that point away, who points nearer to the gradient, and who is ahead at the end, by cell."""
    for keys, part in table.groupby(["title", "rollouts", "optimiser", "inner_steps"], sort=False):
        setting = "{}, {} rollouts, {}, m = {}".format(*keys)
        yield from _pointing(setting, part)
        yield from _ending(setting, part)


def _pointing(setting: str, part: pd.DataFrame) -> Iterator[Claim]:
    """Yield what the looks say along each arm's own runs; the control's updates have advantages that lost their sign."""
    rows = part[part["part"].isin(["all", "little clipped"])].set_index(["arm", "part", "quantity", "estimator"]).sort_index()

    def away(arm: str, among: str, estimator: str) -> Evidence:
        row = rows.loc[(arm, among, "away", estimator)]
        return BoundedMean(float(row["estimate"]), AWAY, replications=int(row["replications"]))

    for arm, statement in POINTED.items():
        facts = {f"mean cosine, {name}": float(rows.loc[(arm, "all", "cosine", name), "estimate"]) for name in LOOKED}
        facts |= {name: float(rows.loc[(arm, "all", name, ""), "estimate"]) for name in ("clipped", "log ratio")}
        yield statement.claim(setting, away(arm, "all", arm), away(arm, "all", "broken"), facts=facts)
        if arm == "clip" and (arm, "little clipped", "away", arm) in rows.index:
            little = "little clipped"
            yield LITTLE_CLIPPED.claim(setting, away(arm, little, arm), away(arm, little, "broken"), facts=facts)
    yield UNCLIPPED.claim(setting, away("clip", "all", "ratio"), away("clip", "all", "broken"))
    own, control = (evidence(rows.loc[("clip", "all", "less", name)].to_dict(), 0.0) for name in ("none", "broken"))
    yield NEARER.claim(setting, own, control)


def _ending(setting: str, part: pd.DataFrame) -> Iterator[Claim]:
    """Yield by how much one arm is ahead at the end; the control has runs that stay at the start behind it."""
    ahead = part[part["quantity"] == "ahead"].set_index(["arm", "at", "rival"])
    success = part[part["quantity"] == "success"].set_index(["arm", "at"])
    for (arm, at), statement in ENDS.items():
        own, control = (ahead.loc[(arm, at, rival)] for rival in (OTHER[arm], "start"))
        facts = {
            f"{name}, {one}": float(success.loc[(one, at), column]) for name, column in FACTS.items() for one in (arm, OTHER[arm])
        }
        facts |= {fact: float(own[column]) for column, fact in LEAD_FACTS.items()}
        yield statement.claim(setting, evidence(own.to_dict(), POINT), evidence(control.to_dict(), POINT), facts)
