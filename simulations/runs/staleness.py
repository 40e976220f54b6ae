"""P7: whole runs on stale rollouts: how old may they be, with which ratio, and what is gained in wall time.

Rollouts lag by some updates, as in asynchronous trainers, or serve many updates, as in a few large stages of generation. Each arm
takes its own best constant learning rate, chosen on other seeds, four times over; intervals count what a choice adds. All runs
have equally many updates, each of equally many responses. In the control an arm descends.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from grpo_theory.arrays import Array
from grpo_theory.evidence import PARTS, Claim, Statement
from grpo_theory.evidence.reading import evidence
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from grpo_theory.simulate.step_grid import StepGrid
from simulations.runs.chosen_steps import choice_variance_of, chosen_steps, same_shares, trained_with_each
from simulations.runs.stale_arms import ARMS
from simulations.runs.stale_places import PLACES
from simulations.runs.tuning import tuned_summary
from simulations.seeds import child_seed, seed_of
from simulations.sources import MU_GRPO, OURS

SETTING = "training on small problems, Adam or plain ascent, constant learning rates, chosen on other seeds"
P7 = Statement(
    "P7",
    MU_GRPO,
    "responses may be far staler than is thought: a few large stages of generation and updates lose nothing",
    PARTS,
    formula="Responses may be far staler than is thought: a few large stages of generation and updates lose nothing.",
)
STAGES = Statement(
    "P7/stages",
    MU_GRPO,
    "four stages of generation and updates, a relaxed clip and a veto on negative advantages lose at most 5% of the success that "
    "on-policy training gains from as many responses",
    "upper bound",
    SETTING,
    formula="Four stages of generation and updates, a relaxed clip and a veto on negative advantages lose at most $5\\%$ of the "
    "success that on-policy training gains from as many responses.",
    measured=True,
)
VETO = Statement(
    "P7/veto",
    MU_GRPO,
    "in four stages of generation and updates, the relaxed clip with the veto ends with more success than GRPO's clip",
    "ordering",
    SETTING,
    measured=True,
)
SIXTEENTH, QUARTER = (
    Statement(
        f"P7/lag, {share} of the run",
        f"question beside {MU_GRPO}",
        f"rollouts that are {share} of the run old lose at most 5% of the success that on-policy training gains from as many "
        "responses",
        "upper bound",
        SETTING,
        formula=f"Rollouts that are {share} of the run old lose at most $5\\%$ of the success that on-policy training gains from "
        "as many responses.",
        whose=OURS,
    )
    for share in ("a sixteenth", "a quarter")
)
WALL = Statement(
    "P7/wall time",
    f"question beside {MU_GRPO}",
    "updates cost a third of generation. In the same time, generating and updating at once with a lag of 1 ends with more "
    "success than doing them in turn on policy",
    "ordering",
    SETTING,
    whose=OURS,
)
ACTS = Statement(
    "P7/a lag lets the clip act",
    f"question beside {MU_GRPO}",
    "with GRPO's clip a lag of 1 ends with more success than training on policy, where ratios are 1 and nothing is clipped",
    "ordering",
    SETTING,
    whose=OURS,
)

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
STALE = (*(Layout(lag, 1) for lag in (1, 4, 8, 16)), Layout(0, 4), FOUR_STAGES)
PARALLEL, IN_TURN = Layout(1, 1, SHORT), Layout(0, 1, round(SHORT / (1.0 + UPDATE_COST)))
ASTRAY, NEXT = Layout(max(LAGS), 1), Layout(1, 1)
CURVE = (Layout(8, 1), Layout(0, 4))
BROKEN = "descends"
LAYOUTS: Mapping[str, Sequence[Layout]] = {
    "on policy": (ON_POLICY, IN_TURN),
    "none": (*STALE, PARALLEL),
    "clip": STALE,
    "truncated": (*STALE, PARALLEL),
    "veto": STALE,
    BROKEN: (ASTRAY,),
}
"""Those of each arm."""
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
RUNS, CURVE_RUNS, TUNING_RUNS, QUICK_RUNS = 256, 96, 32, 16
"""Of layouts about which something is stated, and of those that the figure shows besides; a quarter goes with each choice."""
CHECKPOINTS = 4
"""Updates from one look at the objective to the next, or more where a rollout serves more."""
POWERS = tuple(range(-3, 4))
"""The grid of learning rates doubles and halves the middle."""
QUICK_PLACES = ("strong transfer",)


def cells(quick: bool) -> list[Cell]:
    """One cell for each world, one chunk for each arm; quick has one world and few runs."""
    judged, drawn = (QUICK_RUNS, QUICK_RUNS) if quick else (RUNS, CURVE_RUNS)
    runs = {"runs": judged, "curve_runs": drawn, "tuning_runs": TUNING_RUNS, "arms": list(LAYOUTS)}
    sizes = {"batch_size": BATCH_SIZE, "group_size": GROUP_SIZE}
    places = QUICK_PLACES if quick else PLACES
    rates = {name: [PLACES[name].middle * 2.0**power for power in POWERS] for name in places}
    return [Cell({"world": name, "rates": rates[name]} | sizes | runs, len(LAYOUTS), shared=True) for name in places]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> list[dict[str, Any]]:
    """Find, for each layout of an arm, its best learning rate; then train anew with it, on draws that all arms share."""
    arm, rates = settings["arms"][chunk], np.array(settings["rates"])
    tuning, judging = (child_seed(seed_of(rng), part) for part in (0, 1))
    table = []
    for layout in LAYOUTS[arm]:

        def courses(rate: float, runs: int, seed: np.random.SeedSequence, layout: Layout = layout) -> Array:
            return _train(settings, arm, layout, [rate], runs, seed)[0]

        tried = _train(settings, arm, layout, rates, settings["tuning_runs"], tuning)[..., -1]
        steps = chosen_steps(rates, tried)
        number = settings["curve_runs" if layout in CURVE or (layout == NEXT and arm != "clip") else "runs"]
        reached = trained_with_each(steps, courses, number, judging)
        chosen = {"step": float(np.exp(np.log(steps).mean())), "interior": bool(0 < tried.mean(axis=1).argmax() < len(rates) - 1)}
        course = zip(looks(layout), reached.mean(axis=0).tolist(), strict=True)
        table.append(layout._asdict() | chosen | {"success": reached[:, -1].tolist(), "course": list(course)})
    return table


def looks(layout: Layout) -> list[int]:
    """Return the numbers of updates at which the objective is kept."""
    return list(range(0, layout.steps + 1, max(CHECKPOINTS, layout.inner_steps)))


def _train(settings: Settings, arm: str, layout: Layout, rates: ArrayLike, runs: int, seed: np.random.SeedSequence) -> Array:
    """Train with constant learning rates (S,), and return the objective along the way, shape (S, R, C); see `looks`.

    A rollout has as many prompts as the updates that it serves need, so that an update has as many responses in all layouts.
    """
    place = PLACES[settings["world"]]
    sizes = settings["batch_size"] * layout.inner_steps, settings["group_size"], layout.inner_steps, layout.lag
    estimator, shape = ARMS["none" if arm == "on policy" else arm], np.ones(layout.steps)
    return StepGrid.of(place.make(), estimator, rates, shape, sizes, place.optimiser).objectives(runs, seed, looks(layout))


def rows(settings: Settings, results: list[Any]) -> Rows:
    """What each layout of an arm reached and how; and what it lacks of what it is compared with, run by run."""
    runs = {
        arm: {Layout(*(one[name] for name in Layout._fields)): one for one in found} for arm, found in _named(settings, results)
    }
    (on_policy, in_turn), clip = runs["on policy"].values(), runs["clip"][FOUR_STAGES]
    start = on_policy["course"][0][1]
    ends = np.array(on_policy["success"])
    # With each rival, how many times as much as a choice of its own adds to the variance of an arm it has of that.
    against = {"on policy": (ends, 1.0), "allowed": (ends - LOST * (ends - start), (1.0 - LOST) ** 2)}
    against |= {"clip": (np.array(clip["success"]), 1.0), "in turn": (np.array(in_turn["success"]), 1.0)}
    ascending = [np.array(one["success"]) for arm, found in runs.items() if arm != BROKEN for one in found.values()]
    added = choice_variance_of(ascending)
    table: Rows = []
    for arm, found in runs.items():
        for layout, one in found.items():
            success = np.array(one["success"])
            about = {"world": settings["world"], "arm": arm} | layout._asdict() | {"prediction": np.nan}
            reached = {"rate": one["step"], "interior": one["interior"], "start": start}
            table.append(about | {"quantity": "success"} | reached | tuned_summary(success, added))
            course = ({"quantity": "course", "update": at} | EXACT | {"estimate": mean} for at, mean in one["course"])
            table += [about | row for row in course]
            table += [
                about | {"quantity": f"below {name}"} | tuned_summary(same_shares(other, success), (1.0 + factor) * added)
                for name, (other, factor) in against.items()
            ]
    return table


def _named(settings: Settings, results: list[Any]) -> Iterator[tuple[str, Any]]:
    return zip(settings["arms"], results, strict=True)


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
    facts |= {"learning rate": here["rate"], "best rate inside the grid": float(here["interior"])}
    return statement.claim(f"{world}, {TITLES[arm]}", own, control, facts=facts)
