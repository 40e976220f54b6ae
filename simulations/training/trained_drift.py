"""T6 to T8 along training: where the updates of a rollout point, and what clip and ratio are worth to whole runs.

The policies are those that minibatch training makes, each arm at its own best constant step, or at twice or four times that.
"""

import warnings
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim, Evidence
from grpo_theory.exact import StabilityWarning
from grpo_theory.simulate.records import simulate_iterates
from simulations.claims import claim
from simulations.harness.evidence import BoundedMean, evidence
from simulations.harness.kernels import kernel_at
from simulations.harness.step_search import best_step
from simulations.harness.study import Cell, Rows, Settings, Study
from simulations.harness.summary import summary
from simulations.sequence.parts import composed
from simulations.training.looks import look, summarised
from simulations.training.worlds import WORLDS, sampled

BATCH_SIZE, GROUP_SIZE = 16, 8
OPTIMISERS: Mapping[str, gt.Optimiser] = {"SGD": gt.SGD(), "Adam": gt.Adam()}
TIMES = {"best": 1.0, "twice": 2.0, "four times": 4.0}
"""What an arm's own best step is multiplied by: nobody knows a learning rate to better than a factor of two."""
SEEN = {
    "clip": composed("rloo", "token", "by sign"),
    "none": composed("rloo", "none"),
    "trajectory": composed("rloo", "trajectory", "upper only"),
}
LOOKED = SEEN | {"ratio": composed("rloo", "token")}
"""Whose mean updates are looked at along the runs of each arm: that of the token ratio without clip, too."""
ARMS = SEEN | {"broken": kernel_at("turned_mean", 1.0, "descends")}
"""Leave-one-out advantages, undivided, tokens added up; clips at 0.8 and 1.2.  The broken arm descends."""
AWAY = 0.05
"""One update in twenty that points away, as far as the others point along, undoes a tenth of the way; fewer pass for noise."""
POINT = 0.01
"""One point of success at the end is less than two runs with other seeds differ by."""
POINTED = {"T6/trained": "clip", "T7/trained": "trajectory", "T8/trained": "none"}
UNCLIPPED = "T6/unclipped, trained"
"""Of the token ratio without clip, along the runs with it."""
AHEAD = {"T8/dropped": "clip", "T8/clip": "none"}
"""By statement, which of these two arms may be ahead of the other by at most a point."""
NAMES = {"best": "trained", "twice": "twice the step", "four times": "four times the step"}


def cells(quick: bool) -> list[Cell]:
    """One cell for each world, length of runs, optimiser and updates a rollout, one chunk for each arm; quick has one."""
    if quick:
        return [_cell("two", 16, 16, "Adam")]
    return [
        _cell(name, rollouts, inner, optimiser)
        for name, world in WORLDS.items()
        for rollouts, minibatches in world.minibatches.items()
        for inner in minibatches
        for optimiser in world.centres
    ]


def _cell(name: str, rollouts: int, inner: int, optimiser: str) -> Cell:
    world = WORLDS[name]
    sizes = {"batch_size": BATCH_SIZE, "group_size": GROUP_SIZE, "rollouts": rollouts, "inner_steps": inner}
    problems = {"problems": world.problems, "tuning_problems": world.tuning_problems, "runs": world.runs}
    grid = {"optimiser": optimiser, "step_sizes": world.steps(optimiser, inner)}
    return Cell({"world": name, "arms": list(ARMS)} | sizes | problems | grid, len(ARMS), shared=True)


class Trainer(NamedTuple):
    """How an arm is trained in a cell."""

    settings: Settings
    estimator: gt.Estimator

    def success(self, problem: gt.Problem, step: float, seed: np.random.SeedSequence) -> Array:
        """Return the exact objective at the end of each run with a constant step, (R,).

        A grid of steps ends with some that are too large.  The filter for that stays, because filters are common to all threads.
        """
        warnings.filterwarnings("ignore", category=StabilityWarning, module=__name__.replace(".", r"\."))
        runs = gt.simulate_training(problem, problem.theta, self.estimator, gt.Constant(step), **self._options(seed))
        return runs.objectives[:, -1]

    def iterates(self, problem: gt.Problem, step: float, seed: np.random.SeedSequence) -> Array:
        """Return all iterates of such runs, (R, n + 1, d)."""
        return next(simulate_iterates(problem, problem.theta, self.estimator, gt.Constant(step), **self._options(seed)))

    def _options(self, seed: np.random.SeedSequence) -> dict[str, Any]:
        inner = self.settings["inner_steps"]
        sizes = {name: self.settings[name] for name in ("batch_size", "group_size", "inner_steps")}
        runs = {"steps": self.settings["rollouts"] * inner, "replications": self.settings["runs"]}
        return sizes | runs | {"optimiser": OPTIMISERS[self.settings["optimiser"]], "rng": seed, "workers": 1}


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> dict[str, Any]:
    """Find one arm's best step; train anew on other problems, on draws that all arms share; and look at updates on the way.

    The broken arm takes the middle of the grid.
    """
    arm, grid, world = settings["arms"][chunk], np.array(settings["step_sizes"]), WORLDS[settings["world"]]
    tuning, judging, looking = (np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, part)) for part in range(3))
    trainer, problems = Trainer(settings, ARMS[arm]), list(world.drawn(judging, settings["problems"]))
    if arm == "broken":
        middle = grid[grid.size // 2]
        return {"success": {"best": [trainer.success(problem, middle, own).tolist() for problem, own in problems]}}
    rehearsals = world.drawn(tuning, settings["tuning_problems"])
    tried = np.concatenate([[trainer.success(problem, step, own) for step in grid] for problem, own in rehearsals], axis=1)
    step, rng = best_step(grid, -tried.mean(axis=1)), np.random.default_rng(looking)
    success: dict[str, list[list[float]]] = {name: [] for name in (TIMES if arm in AHEAD.values() else ["best"])}
    looks = []
    for problem, own in problems:
        iterates = trainer.iterates(problem, step, own)
        looks.append(look(problem, iterates, settings["inner_steps"], LOOKED, rng))
        success["best"].append(gt.objective(problem, iterates[:, -1]).tolist())
        for name in list(success)[1:]:
            success[name].append(trainer.success(problem, TIMES[name] * step, own).tolist())
    return {
        "step": step,
        "interior": bool(0 < tried.mean(axis=1).argmax() < grid.size - 1),
        "tuning": [summary(sample) for sample in tried],
        "success": success,
        "looks": summarised(looks, list(LOOKED)),
    }


def rows(settings: Settings, results: list[Any]) -> Rows:
    """What each arm reached, by how much one is ahead of another, success at each step size, and what the looks said."""
    found, world = dict(zip(settings["arms"], results, strict=True)), WORLDS[settings["world"]]
    names = ("world", "rollouts", "inner_steps", "optimiser")
    title = world.title if world.alone else f"{settings['problems']} problems of {world.title}"
    common = {name: settings[name] for name in names} | {"title": title, "prediction": np.nan}
    table: Rows = []
    for arm in SEEN:
        at = common | {"arm": arm}
        tuning = zip(settings["step_sizes"], found[arm]["tuning"], strict=True)
        table += [at | {"quantity": "tuning", "step": step} | tried for step, tried in tuning]
        for name, sample in found[arm]["success"].items():
            own = {"at": name, "step": TIMES[name] * found[arm]["step"], "interior": found[arm]["interior"]}
            table.append(at | {"quantity": "success"} | own | summary(sampled(sample, world.alone)))
        table += [at | {"at": "best"} | seen for seen in found[arm]["looks"]]
    for statement, one in AHEAD.items():
        (other,) = set(AHEAD.values()) - {one}
        for name in TIMES:
            pair = {"quantity": "ahead", "statement": statement, "at": name, "arm": one}
            for rival, where in ((other, name), ("broken", "best")):
                ahead = _ahead(found[one]["success"][name], found[rival]["success"][where], world.alone)
                table.append(common | pair | {"rival": rival} | ahead)
    return table


def _ahead(one: list[list[float]], other: list[list[float]], alone: bool) -> dict[str, float]:
    """Summarise the differences on the problems that both have; run by run they are of the same draws."""
    both = min(len(one), len(other))
    return summary(sampled((np.array(one[:both]) - np.array(other[:both])).tolist(), alone))


def claims(table: pd.DataFrame) -> list[Claim]:
    """Shares of updates that point away, who points nearer to the gradient, and who is ahead at the end, by cell."""
    found = []
    for keys, part in table.groupby(["title", "rollouts", "optimiser", "inner_steps"], sort=False):
        where = "{}, {} rollouts, {}, m = {}".format(*keys)
        found += [claim(name, where, *both, facts=facts) for name, both, facts in (*_pointing(part), *_ending(part))]
    return found


def _pointing(part: pd.DataFrame) -> Iterator[tuple[str, tuple[Evidence, Evidence], dict[str, float]]]:
    """Yield what the looks say along each arm's own runs; the control's updates have advantages that lost their sign."""
    rows = part[part["part"].isin(["all", "little clipped"])].set_index(["arm", "part", "quantity", "estimator"]).sort_index()
    for statement, arm in POINTED.items():
        facts = {f"mean cosine, {name}": float(rows.loc[(arm, "all", "cosine", name), "estimate"]) for name in LOOKED}
        for column in ("clipped", "log ratio"):
            own = rows.xs((arm, "all", column), level=("arm", "part", "quantity"))
            facts[column] = float(own["estimate"].iloc[0])
        parts = {"": "all", ", little clipped": "little clipped"} if arm == "clip" else {"": "all"}
        for ending, among in parts.items():
            if (arm, among, "away", arm) in rows.index:
                own, control = (_share(rows.loc[(arm, among, "away", name)]) for name in (arm, "broken"))
                yield statement + ending, (own, control), facts
    own, control = (_share(rows.loc[("clip", "all", "away", name)]) for name in ("ratio", "broken"))
    yield UNCLIPPED, (own, control), {}
    own, control = (evidence(rows.loc[("clip", "all", "less", name)].to_dict(), 0.0) for name in ("none", "broken"))
    yield "T8/nearer, trained", (own, control), {}


def _share(row: pd.Series) -> Evidence:
    return BoundedMean(float(row["estimate"]), AWAY, replications=int(row["replications"]))


def _ending(part: pd.DataFrame) -> Iterator[tuple[str, tuple[Evidence, Evidence], dict[str, float]]]:
    """Yield by how much one arm is ahead at the end; the control has the broken arm behind it."""
    ahead = part.dropna(subset="statement").set_index(["statement", "at", "rival"])
    success = part[part["quantity"] == "success"].set_index(["arm", "at"])
    for statement, one in AHEAD.items():
        (other,) = set(AHEAD.values()) - {one}
        for at, ending in NAMES.items():
            own, control = (evidence(ahead.loc[(statement, at, rival)].to_dict(), POINT) for rival in (other, "broken"))
            facts = {f"success, {arm}": float(success.loc[(arm, at), "estimate"]) for arm in (one, other)}
            facts |= {f"step, {arm}": float(success.loc[(arm, at), "step"]) for arm in (one, other)}
            facts["best steps at an end of the grid"] = float(
                (~success.loc[[(one, at), (other, at)], "interior"].astype(bool)).sum()
            )
            yield f"{statement}, {ending}", (own, control), facts


STUDY = Study(
    "trained_drift",
    "T6 to T8 along training: where updates off policy point, and what clip and ratio are worth to whole runs",
    cells,
    compute,
    rows,
    claims,
    (
        *POINTED,
        "T6/trained, little clipped",
        UNCLIPPED,
        "T8/nearer, trained",
        *(f"{statement}, {ending}" for statement in AHEAD for ending in NAMES.values()),
    ),
)
