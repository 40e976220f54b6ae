"""P7: whole runs on stale rollouts: how old may they be, with which ratio, and what is gained in wall time.

Rollouts lag by some updates, as in asynchronous trainers, or serve many updates, as in a few large stages of generation. Each arm
has the best constant learning rate of those tried, the same for all draws of a world. Where to stop is one constructed problem,
whose seeds stand for draws. All runs have equally many updates, each of equally many responses. In the control an arm descends.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import numpy as np

import grpo_theory as gt
from grpo_theory.estimation.parts import CLIPS, Clip, Ratio
from grpo_theory.harness import check, rows, run
from grpo_theory.simulate.optimisers import ascend
from grpo_theory.simulate.training import StepGrid
from simulations.best_rate import ahead, lead
from simulations.runs.arms import success_rates
from simulations.runs.worlds import WORLDS, World
from simulations.seeds import child_seed, seed_of
from simulations.sequence.parts import composed
from simulations.statements import stated
from simulations.training.worlds import race_problem

P7 = stated("P7")

CAP = 2.0
"""At which ratios are truncated: the cap that TRL and verl set for importance weights on the policy that sampled."""
FARTHEST = 5.0
"""What the relaxed clip lets pass, in either direction.  The paper's abstract gives no number; a clip of 0.2 passes 1.25."""


def veto(ratios, length, positive, widths, weights):
    """Weight r up to 1 + high if A > 0. If A < 0, weight r until a token's r leaves [1 - low, 1 + high], and 0 from there on."""
    for i in range(ratios.shape[1]):
        kept = True
        for t in range(length):
            below = ratios[t, i] <= 1.0 + widths[1]
            kept = below and (positive or (kept and ratios[t, i] >= 1.0 - widths[0]))
            weights[t, i] = ratios[t, i] if kept else 0.0


def minus_one(log_ratios, length, ratios):
    """Weight -1: it descends."""
    for t in range(length):
        for i in range(ratios.shape[1]):
            ratios[t, i] = -1.0


def grpo(ratio, clip="none"):
    """Return GRPO with a ratio and a clip."""
    return composed("grpo", ratio, clip, "own length")


ARMS = {
    "none": grpo("none"),
    "clip": grpo("token", "by sign"),
    "truncated": grpo("trajectory", CLIPS["cap"].with_widths(0.0, CAP - 1.0)),
    "veto": grpo("token", Clip("veto", veto, 1.0 - 1.0 / FARTHEST, FARTHEST - 1.0)),
    "descends": grpo(Ratio("minus one", minus_one)),
}
"""The arms are no ratio, GRPO's clipped token ratios, the response's ratio, truncated, and mu-GRPO's relaxed clip. The relaxed
clip has its veto on responses of negative advantage, as its abstract has them. The last arm is broken. On policy all the others
are one estimator."""


class PlainAscent:
    """`SGD` without its warning of large steps: a grid has some on purpose, and to look for them takes as long as the runs."""

    move, n_moments, settings = staticmethod(ascend), 0, np.empty(0)


class Place(NamedTuple):
    """Where runs are made: what it is called, its problem by draw, the middle of the learning rates, and the optimiser.

    Pilots on other seeds found the middle.
    """

    title: str
    make: Callable[[int], gt.Problem]
    middle: float = 1.0
    optimiser: gt.Optimiser = gt.Adam()


PLACES = {
    "strong transfer": Place("prompts teach each other", World(transfer=0.1).problem),
    "strong transfer, rare success": Place("the same, success below 2%", World(transfer=0.1, easiest=0.02, rarest=1e-4).problem),
    "weak transfer": Place("prompts teach each other less", WORLDS["transfer"].problem),
    "weak transfer, plain ascent": Place("the same, plain ascent", WORLDS["transfer"].problem, 128.0, PlainAscent()),
    "competing": Place("prompts compete", WORLDS["shared"].problem),
    "tabular": Place("prompts share nothing", WORLDS["few prompts"]._replace(dimension=0).problem),
    "stopping": Place("where to stop, 1 to 8 tokens", lambda _: race_problem("stopping"), 0.125),
}
"""Softmax policies of one token, 32 shared features and success from 0.1% to 50%, but where a name says otherwise. All but the
last are worlds, which are drawn; that is one constructed problem, so that all draws of it are the same."""
LOST = 0.05
"""A gain of 40 points of which a twentieth is lost is 2 points less: a benchmark of 500 questions has that standard error."""
UPDATE_COST = 1.0 / 3.0
"""What the update of a response costs where its generation costs 1: trainers report that generation takes three quarters."""
UPDATES, BATCH_SIZE, GROUP_SIZE = 64, 16, 8
SHORT = 32
"""The updates of the race against time, before success saturates; in turn there is time for three quarters of them."""


class Layout(NamedTuple):
    """How old rollouts are: by how many rollouts they lag, and how many updates each serves; and the updates of a run."""

    lag: int
    inner_steps: int
    steps: int = UPDATES


ON_POLICY, FOUR_STAGES = Layout(0, 1), Layout(0, UPDATES // 4)
NEXT, FOUR, ASTRAY = (Layout(lag, 1) for lag in (1, 4, 16))
PARALLEL, IN_TURN = Layout(1, 1, SHORT), Layout(0, 1, round(SHORT / (1.0 + UPDATE_COST)))
BROKEN = "descends"
LAYOUTS = {
    "on policy": (ON_POLICY, IN_TURN),
    "none": (FOUR, ASTRAY, PARALLEL),
    "clip": (NEXT, FOUR, ASTRAY, FOUR_STAGES),
    "truncated": (FOUR, ASTRAY, FOUR_STAGES, PARALLEL),
    "veto": (FOUR_STAGES,),
    BROKEN: (ASTRAY,),
}
"""Those of each arm: all that are trained. What is stated was planned; the response's ratio in stages is beside."""
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
LAGGED = ("none", "clip", "truncated")
HERE, CLIPPED, LATE = (("on policy", *ON_POLICY), ("clip", *FOUR_STAGES), ("on policy", *IN_TURN))
JUDGED = {
    "P7/stages": (("veto",), FOUR_STAGES, HERE, LOST),
    "P7/veto": (("veto",), FOUR_STAGES, CLIPPED, 0.0),
    "P7/a lag lets the clip act": (("clip",), NEXT, HERE, 0.0),
    "P7/lag, a sixteenth of the run": (LAGGED, FOUR, HERE, LOST),
    "P7/lag, a quarter of the run": (LAGGED, ASTRAY, HERE, LOST),
    "P7/wall time": (("none", "truncated"), PARALLEL, LATE, 0.0),
}
"""By statement of which arms it is, in which layout, what they are compared with, and what they may lose of the gain on policy.

A lag of 16 of 64 updates is one stage of four, too.
"""


def cases(quick):
    """Each world; quick has one, and few draws."""
    return [{"world": name, "draws": QUICK_DRAWS if quick else DRAWS} for name in ((COURSES_OF,) if quick else PLACES)]


def deal(world, draws, **_):
    """Return the rates, arms and sizes of a world."""
    rates = [PLACES[world].middle * 2.0**power for power in POWERS]
    sizes = {"runs": RUNS, "batch_size": BATCH_SIZE, "group_size": GROUP_SIZE}
    return {"world": world, "draws": draws, "rates": rates, "arms": list(LAYOUTS)} | sizes, len(LAYOUTS)


@run(dealt=deal, shared=True)
def trained(world, rates, arms, draws, runs, batch_size, group_size, rng, chunk):
    """Train an arm with each layout at each rate; return each draw's mean success at the end, and the course at the best rate.

    A rollout has as many prompts as the updates that it serves need, so that an update has as many responses in all layouts.
    """
    arm, place, table = arms[chunk], PLACES[world], []
    estimator, problems = ARMS["none" if arm == "on policy" else arm], [place.make(draw) for draw in range(draws)]
    for layout in LAYOUTS[arm]:
        sizes, success = (batch_size * layout.inner_steps, group_size, layout.inner_steps, layout.lag), []
        for draw, problem in enumerate(problems):
            grid = StepGrid.of(problem, estimator, rates, np.ones(layout.steps), sizes, place.optimiser)
            look = partial(mean_success, problem)
            found = grid.looks(look, runs, child_seed(seed_of(rng), draw), looks(world, layout))
            success.append(found.mean(axis=1))  # (rates, looks)
        by_draw = np.array(success)
        ends, course = by_draw[..., -1].T, by_draw.mean(axis=0)
        table.append({"key": [arm, *layout], "success": ends, "course": course[course[:, -1].argmax()], "rates": rates})
    return table


def mean_success(problem, theta):
    """Return the mean success of policies (R, d), which is the objective; 0 for a run that diverged."""
    return np.nan_to_num(success_rates(problem, theta).mean(axis=-1))


def looks(world, layout):
    """Return the numbers of updates at which success is kept: the last, and those before where courses are drawn."""
    every = max(CHECKPOINTS, layout.inner_steps) if world == COURSES_OF else layout.steps
    return list(range(0, layout.steps + 1, every))


@cache
def starts(world, draws):
    """Return the success at the start, by draw."""
    return np.array([gt.objective(problem, problem.theta) for problem in map(PLACES[world].make, range(draws))])


def ends_of(found):
    """Return success (rates, draws) by arm and layout."""
    return {tuple(one["key"]): np.array(one["success"]) for one in found}


@check(
    *stated(*JUDGED),
    of=trained,
    cases=lambda quick: [one | {"arm": arm} for one in cases(quick) for arm in TITLES],
    broken={"descends": True},
    setting=lambda world, arm, **_: f"{world}, {TITLES[arm]}",
)
def below(found, world, draws, arm, descends=False):
    """By how much an arm is below what it is compared with; in the broken case one that descends is in its place."""
    ends, start, sides = ends_of(found), starts(world, draws), {}
    for name, (arms, layout, against, lost) in JUDGED.items():
        if arm in arms:
            own, rival = ends[arm, *layout], ends[against]
            here, there = (lead([one])["estimate"] for one in (own, rival))
            facts = {"success at the start": start.mean(), "success here": here, "success of the other": there}
            facts |= {"share of the gain lost": (there - here) / (there - start.mean())}
            facts |= {"learning rate": found[0]["rates"][own.mean(axis=-1).argmax()]}
            sides[name] = ahead((1.0 - lost) * rival + lost * start, ends[BROKEN, *ASTRAY] if descends else own, **facts)
    return sides


@rows(of=trained, cases=cases)
def courses(found, world, draws):
    """What each layout of an arm reached, how, and what it lacks of training on policy, for the figure."""
    ends = ends_of(found)
    for one in found:
        layout, own = Layout(*one["key"][1:]), np.array(one["success"])
        about = {"arm": one["key"][0]} | layout._asdict()
        yield about | {"quantity": "success", "start": starts(world, draws).mean()} | lead([own])
        yield about | {"quantity": "below on policy"} | lead([ends[HERE], own], (1.0, -1.0))
        for update, mean in zip(looks(world, layout), one["course"], strict=True):
            yield about | {"quantity": "course", "update": update, "estimate": mean}
