"""P7: whole runs on stale rollouts: how old may they be, with which ratio, and what is gained in wall time.

Rollouts lag by some updates, as in asynchronous trainers, or serve many updates, as in a few large stages of generation. Each arm
has the best constant learning rate of those tried, the same for all draws of a world. Where to stop is one constructed problem,
whose seeds stand for draws. All runs have equally many updates, each of equally many responses. In the control an arm descends.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim, Statement
from grpo_theory.evidence.reading import evidence
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from grpo_theory.simulate.step_grid import StepGrid
from simulations.best_rate import LEAD_FACTS, lead
from simulations.runs.arms import success_rates
from simulations.runs.stale_arms import ARMS
from simulations.runs.stale_places import PLACES
from simulations.seeds import child_seed, seed_of
from simulations.statements import stated

P7, STAGES, VETO = stated("P7", "P7/stages", "P7/veto")
SIXTEENTH, QUARTER = (stated(f"P7/lag, {share} of the run") for share in ("a sixteenth", "a quarter"))
WALL, ACTS = stated("P7/wall time", "P7/a lag lets the clip act")

LOST = 0.05
"""A gain of 40 points of which a twentieth is lost is 2 points less: a benchmark of 500 questions has that standard error."""
UPDATE_COST = 1.0 / 3.0
"""What the update of a response costs where its generation costs 1: trainers report that generation takes three quarters."""
UPDATES, BATCH_SIZE, GROUP_SIZE = 64, 16, 8
SHORT = 32
"""The updates of the race against time, before success saturates; in turn there is time for three quarters of them."""
LAGS = {4: SIXTEENTH, 16: QUARTER}
"""Those about which something is stated; 16 updates of 64 are one stage of four, too."""


class Layout(NamedTuple):
    """How old rollouts are: by how many rollouts they lag, and how many updates each serves; and the updates of a run."""

    lag: int
    inner_steps: int
    steps: int = UPDATES


ON_POLICY, FOUR_STAGES = Layout(0, 1), Layout(0, UPDATES // 4)
NEXT, FOUR, ASTRAY = (Layout(lag, 1) for lag in (1, *LAGS))
PARALLEL, IN_TURN = Layout(1, 1, SHORT), Layout(0, 1, round(SHORT / (1.0 + UPDATE_COST)))
BROKEN = "descends"
LAYOUTS: Mapping[str, Sequence[Layout]] = {
    "on policy": (ON_POLICY, IN_TURN),
    "none": (FOUR, ASTRAY, PARALLEL),
    "clip": (NEXT, FOUR, ASTRAY, FOUR_STAGES),
    "truncated": (FOUR, ASTRAY, FOUR_STAGES, PARALLEL),
    "veto": (FOUR_STAGES,),
    BROKEN: (ASTRAY,),
}
"""Those of each arm: all that are trained. What is stated was planned; the response's ratio in stages is beside."""
RIVALS = {
    "on policy": ("on policy", *ON_POLICY),
    "allowed": ("on policy", *ON_POLICY),
    "clip": ("clip", *FOUR_STAGES),
    "in turn": ("on policy", *IN_TURN),
}
"""What an arm is compared with; "allowed" takes the loss that is allowed off the gain on policy."""
TITLES = {
    "none": "no ratio",
    "clip": "token ratio, clipped",
    "truncated": "response's ratio, truncated",
    "veto": "relaxed clip and veto",
}
"""Of the arms, in what is judged and drawn."""
DRAWS, QUICK_DRAWS, RUNS = 40, 4, 4
"""Draws of a world, numbers 0 to 39, and runs on each: with eight rates these fill a vector."""
CHECKPOINTS, COURSES_OF = 8, "strong transfer"
"""Updates from one look at the objective to the next, or more where a rollout serves more; and the world of the looks."""
POWERS = tuple(range(-4, 4))
"""The grid of learning rates doubles and halves the middle."""
QUICK_PLACES = (COURSES_OF,)


def cells(quick: bool) -> list[Cell]:
    """One cell for each world, one chunk for each arm; quick has one world and few draws."""
    sizes = {"draws": QUICK_DRAWS if quick else DRAWS, "runs": RUNS, "batch_size": BATCH_SIZE, "group_size": GROUP_SIZE}
    places = QUICK_PLACES if quick else PLACES
    rates = {name: [PLACES[name].middle * 2.0**power for power in POWERS] for name in places}
    return [
        Cell({"world": name, "rates": rates[name], "arms": list(LAYOUTS)} | sizes, len(LAYOUTS), shared=True) for name in places
    ]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> list[dict[str, Any]]:
    """Train an arm with each layout at each rate; return each draw's mean success at the end, and the mean course.

    A rollout has as many prompts as the updates that it serves need, so that an update has as many responses in all layouts.
    """
    arm, place = settings["arms"][chunk], PLACES[settings["world"]]
    estimator, problems = ARMS["none" if arm == "on policy" else arm], [place.make(draw) for draw in range(settings["draws"])]
    table = []
    for layout in LAYOUTS[arm]:
        sizes = settings["batch_size"] * layout.inner_steps, settings["group_size"], layout.inner_steps, layout.lag
        success = []
        for draw, problem in enumerate(problems):
            grid = StepGrid.of(problem, estimator, settings["rates"], np.ones(layout.steps), sizes, place.optimiser)
            look = partial(mean_success, problem)
            found = grid.looks(look, settings["runs"], child_seed(seed_of(rng), draw), looks(settings["world"], layout))
            success.append(found.mean(axis=1))  # (rates, looks)
        by_draw = np.array(success)
        table.append(layout._asdict() | {"success": by_draw[..., -1].T.tolist(), "course": by_draw.mean(axis=0).tolist()})
    return table


def mean_success(problem: gt.Problem, theta: Array) -> Array:
    """Return the mean success of policies (R, d), which is the objective; 0 for a run that diverged."""
    return np.nan_to_num(success_rates(problem, theta).mean(axis=-1))


def looks(world: str, layout: Layout) -> list[int]:
    """Return the numbers of updates at which success is kept: the last, and those before where courses are drawn."""
    every = max(CHECKPOINTS, layout.inner_steps) if world == COURSES_OF else layout.steps
    return list(range(0, layout.steps + 1, every))


def rows(settings: Settings, results: list[Any]) -> Rows:
    """What each layout of an arm reached and how; and what it lacks of what it is compared with, in pairs of draws."""
    ends, courses = {}, {}
    for arm, found in zip(settings["arms"], results, strict=True):
        for one in found:
            key = (arm, *(one[name] for name in Layout._fields))
            ends[key], courses[key] = np.array(one["success"]), one["course"]
    make = PLACES[settings["world"]].make
    starts = np.array([gt.objective(problem, problem.theta) for problem in map(make, range(settings["draws"]))])
    against = {name: ends[key] for name, key in RIVALS.items()}
    against["allowed"] = (1.0 - LOST) * against["allowed"] + LOST * starts
    table: Rows = []
    for key, own in ends.items():
        about = {"world": settings["world"], "arm": key[0]} | dict(zip(Layout._fields, key[1:], strict=True))
        about |= {"prediction": np.nan}
        best = int(own.mean(axis=-1).argmax())
        reached = {"rate": settings["rates"][best], "start": float(starts.mean())}
        table.append(about | {"quantity": "success"} | reached | lead([own]))
        course = zip(looks(settings["world"], Layout(*key[1:])), courses[key][best], strict=True)
        table += [about | {"quantity": "course", "update": at} | EXACT | {"estimate": mean} for at, mean in course]
        table += [about | {"quantity": f"below {name}"} | lead([rival, own], (1.0, -1.0)) for name, rival in against.items()]
    return table


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """By how much an arm is below what it is compared with; the control puts the arm that descends in its place."""
    for world, part in table[table["quantity"] != "course"].groupby("world", sort=False):
        at = part.set_index(["quantity", "arm", *Layout._fields])
        yield _claim(STAGES, str(world), at, "veto", FOUR_STAGES, "allowed")
        yield _claim(VETO, str(world), at, "veto", FOUR_STAGES, "clip")
        yield _claim(ACTS, str(world), at, "clip", NEXT, "on policy")
        for lag, statement in LAGS.items():
            for arm in ("none", "clip", "truncated"):
                yield _claim(statement, str(world), at, arm, Layout(lag, 1), "allowed")
        for arm in ("none", "truncated"):
            yield _claim(WALL, str(world), at, arm, PARALLEL, "in turn")


def _claim(statement: Statement, world: str, at: pd.DataFrame, arm: str, layout: Layout, against: str) -> Claim:
    own, control = (evidence(at.loc[(f"below {against}", *one)], 0.0) for one in ((arm, *layout), (BROKEN, *ASTRAY)))
    here = at.loc[("success", arm, *layout)]
    rival = at.loc[("success", *RIVALS[against])]
    facts = {"success at the start": here["start"], "success here": here["estimate"], "success of the other": rival["estimate"]}
    facts["share of the gain lost"] = (rival["estimate"] - here["estimate"]) / (rival["estimate"] - here["start"])
    lacking = at.loc[(f"below {against}", arm, *layout)]
    facts |= {"learning rate": here["rate"]} | {fact: float(lacking[column]) for column, fact in LEAD_FACTS.items()}
    return statement.claim(f"{world}, {TITLES[arm]}", own, control, facts=facts)
