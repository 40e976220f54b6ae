"""Where the growth of the best group size with the budget comes from: division's weights, its noise, interference, rare answers.

GRPO is taken apart into the weights that division gives to prompts and the noise that it adds. Rare answers, interference between
prompts and the step's own best length are switched off one at a time. Every arm trains on the same draws of a world, at every
step of a grid. What is judged is the lead at the best steps of the grid, one for all draws, and limits count draws.

The world and the budgets were chosen because the best size grew in them, on a draw that is judged no more. So the study says why
it grows there, and not how often it does. A point of success (0.01) is noticeable, and half a point where the gain was about two.

Choices were made after data were seen. Parts of division are judged at the largest budget alone. What breaks the closed form was
chosen. The numbers of draws were set after a first run, for what it left undecided. Two controls there had lost their power,
because GRPO gained nothing: groups of 4 that stop at a sixteenth of the responses take its place. Efficiencies are compared by
the logarithm of their ratio, because their differences are too skewed.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim, Evidence
from grpo_theory.evidence.reading import evidence
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from grpo_theory.simulate.training import finite_objectives
from grpo_theory.theory.finite_group import mixed_share
from simulations.best_rate import lead
from simulations.runs.sized import RESPONSES, RUNS, STEPS, WORLDS, over_draws
from simulations.runs.weights import LENT, arm_estimator
from simulations.seeds import seed_of
from simulations.statements import stated

LATE, WEIGHTS, NOISE, UNDIVIDED = stated("growth/late", "growth/weights alone", "growth/noise alone", "growth/undivided")
LENDING, VISIBLE, APART = stated("growth/lent weights", "growth/rare answers", "growth/no interference")
EFFICIENCY = stated("growth/efficiency")

SMALL, LARGE = SIZES = (4, LENT)
BUDGETS = (512, 2048, 8192)
SOON, *_, LAST = BUDGETS
DRAWN = {
    "small": {
        ("grpo", SMALL): 192,
        ("grpo", LARGE): 192,
        ("weights", SMALL): 24,
        ("weights", LARGE): 96,
        ("rloo", SMALL): 128,
        ("rloo", LARGE): 128,
        ("noise", SMALL): 24,
        ("noise", LARGE): 96,
        ("oracle", SMALL): 24,
        ("oracle", LARGE): 24,
        ("dropped", SMALL): 24,
        ("dropped", LARGE): 24,
        ("lent", SMALL): 128,
    },
    "visible": {("grpo", SMALL): 128, ("grpo", LARGE): 128},
    "apart": {("grpo", LARGE): 320},
    "policies": {("rloo", SMALL): 96},
}
"""By world the arms and group sizes, and how many draws each has: most where a difference of few points is judged."""
QUICK_DRAWS = 6
RUNS_APART = 32
"""Without interference success does not depend on the draw, so that all runs are alike."""
POINT, HALF_POINT = 0.01, 0.005
"""A point of success is what a few hundred questions can just show."""
SURE = 1e5
"""A step after which a tabular prompt is solved, to rounding, once a group of it had a signal."""
SUCCESS, GAIN, SAME_STEP = "success", "gain of 64 over 4", "gain of 64 over 4, both at the step of 4"
EFFICIENCY_LEADS = ("log ratio of the efficiency of 64 to that of 4", "the same, for as many prompts")
LEADS = {
    "small": (
        ("weights", "grpo", LARGE, LAST),
        ("rloo", "grpo", LARGE, LAST),
        ("weights", "rloo", LARGE, LAST),
        ("noise", "rloo", LARGE, LAST),
        ("grpo", "lent", SMALL, LAST),
        ("grpo", "lent", SMALL, SOON),
        ("rloo", "rloo", SMALL, SOON),
    ),
    "visible": (("grpo", "grpo", SMALL, SOON),),
}
"""By world, an arm with groups of 64, at the largest budget, less another with its group size and budget."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each world, with one chunk for each arm and group size, all on the same draws."""
    listed = []
    for world, arms in DRAWN.items():
        drawn = [[*arm, QUICK_DRAWS if quick else draws] for arm, draws in arms.items()]
        listed.append(Cell({"world": world, "arms": drawn}, len(arms), shared=True))
    return listed


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> list[Any]:
    """Return the success of an arm at a group size, by step, draw and budget; or what a step's efficiency is."""
    (arm, size, draws), seed = settings["arms"][chunk], seed_of(rng)
    if settings["world"] == "policies":
        return _efficiencies(draws, seed).tolist()
    steps, runs = ([SURE], RUNS_APART) if settings["world"] == "apart" else (STEPS, RUNS)
    return over_draws(settings["world"], arm_estimator(arm, size), size, BUDGETS, (draws, runs), seed, steps).tolist()


def _efficiencies(draws: int, seed: np.random.SeedSequence) -> Array:
    """Return a step's efficiency (rloo) at the start and at policies that runs of GRPO in groups of 4 reach at their best step.

    Its shape is (3, draws, 1 + budgets). The first is of groups of 4, and the second of groups of 64 for as many responses. The
    last (broken) is of groups of 64 for as many prompts, as if groups cost nothing.
    """

    def reached(problem: gt.Problem, theta: Array) -> Array:
        return np.concatenate([finite_objectives(problem, theta)[:, None], theta], axis=-1)

    runs = over_draws("small", "grpo", SMALL, BUDGETS, (draws, 1), seed, look=reached)
    best = runs[..., 0].mean(axis=1).argmax(axis=0)
    policies = runs[best, :, np.arange(len(BUDGETS)), 1:]
    sizes, found = ((SMALL, RESPONSES), (LARGE, RESPONSES), (LARGE, RESPONSES * LARGE // SMALL)), np.empty((3, draws, 4))
    for draw in range(draws):
        problem = WORLDS["small"].problem(draw)
        for place, theta in enumerate([problem.theta, *policies[:, draw]]):
            for k, (size, responses) in enumerate(sizes):
                found[k, draw, place] = gt.efficiency(problem, theta, "rloo", batch_size=responses // size, group_size=size)
    return found


def coverage(success: Array, group_size: int, budget: int, *, second: bool = False) -> float:
    """Return the mean success where each prompt is solved by its first group with signal (docs/derivations.md, section 38).

    Or (broken) by its second.
    """
    signal, groups = mixed_share(success, group_size) / success.size, budget // group_size
    missed = (1.0 - signal) ** groups + second * groups * signal * (1.0 - signal) ** (groups - 1)
    return float(1.0 - ((1.0 - success) * missed).mean())


def rows(settings: Settings, results: list[Any]) -> Rows:
    """Return success by arm, group size and budget, and the leads that are judged; limits count draws and the choice of steps."""
    world = settings["world"]
    found = {(arm, size): np.array(result) for (arm, size, _), result in zip(settings["arms"], results, strict=True)}
    table: Rows = []

    def add(quantity: str, arm: str, size: int, budget: int, row: dict[str, Any]) -> None:
        known = {"step": np.nan, "prediction": np.nan, "second": np.nan}
        about = {"world": world, "quantity": quantity, "arm": arm, "group_size": size, "budget": budget}
        table.append(about | known | row)

    if world == "policies":
        efficiencies = found["rloo", SMALL]
        for place, budget in enumerate((0, *BUDGETS)):
            for size, values in zip(SIZES, efficiencies[..., place], strict=False):
                add("efficiency", "rloo", size, budget, lead([values[None]]))
            for quantity, ratios in zip(
                EFFICIENCY_LEADS, np.log(efficiencies[1:, :, place] / efficiencies[0, :, place]), strict=True
            ):
                add(quantity, "rloo", LARGE, budget, lead([ratios[None]]))
        return table
    start = WORLDS[world].problem()
    rates = gt.moments(start, start.theta).value
    for (arm, size), ends in found.items():
        for c, budget in enumerate(BUDGETS):
            row = lead([ends[..., c]]) | {"step": STEPS[ends[..., c].mean(axis=1).argmax()]}
            if world == "apart":
                forms = (coverage(rates, size, budget, second=second) for second in (False, True))
                row |= dict(zip(("step", "prediction", "second"), (SURE, *forms), strict=True))
                gain = coverage(rates, LARGE, budget) - coverage(rates, SMALL, budget)
                add(GAIN, arm, size, budget, {"estimate": gain, "low": gain, "high": gain, **EXACT})
            elif size == LARGE:
                large, small = sides = _same_draws(ends[..., c], found[arm, SMALL][..., c])
                add(GAIN, arm, size, budget, lead(sides, (1.0, -1.0)))
                if (world, arm) == ("small", "grpo"):
                    add(SAME_STEP, arm, size, budget, lead([small, small], (1.0, -1.0), judged=[large, small]))
            add(SUCCESS, arm, size, budget, row)
    for arm, other, size, budget in LEADS.get(world, ()):
        sides = _same_draws(found[arm, LARGE][..., -1], found[other, size][..., BUDGETS.index(budget)])
        add(_less(other, size, budget), arm, LARGE, LAST, lead(sides, (1.0, -1.0)))
    return table


def _less(other: str, size: int, budget: int) -> str:
    return f"64 less {other}, {size}, at {budget}"


def _same_draws(one: Array, other: Array) -> list[Array]:
    """Return two arms, of shape (steps, draws), at the draws that both have."""
    draws = min(one.shape[1], other.shape[1])
    return [one[:, :draws], other[:, :draws]]


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Judge each part alone."""
    at = table.set_index(["world", "quantity", "arm", "group_size", "budget"])

    def gain(arm: str, budget: int = LAST, world: str = "small", bound: float = 0.0, sign: float = 1.0) -> Evidence:
        row = at.loc[(world, GAIN, arm, LARGE, budget)]
        return evidence({**row, "estimate": sign * row["estimate"]}, bound)

    def less(arm: str, other: str, budget: int = LAST, world: str = "small", bound: float = POINT) -> Evidence:
        return evidence(at.loc[(world, _less(other, SMALL, budget), arm, LARGE, LAST)], bound)

    def apart(arm: str, other: str) -> Evidence:
        row = at.loc[("small", _less(other, LARGE, LAST), arm, LARGE, LAST)]
        return evidence({**row, "estimate": abs(row["estimate"])}, POINT)

    arms = table[(table["quantity"] == GAIN) & (table["world"] == "small")]["arm"].unique()
    gains = {f"gain of 64 over 4 at {budget} ({arm})": gain(arm, budget).estimate for arm in arms for budget in BUDGETS}
    yield LATE.claim("small", gain("grpo", sign=-1.0), gain("grpo", SOON, sign=-1.0), facts=gains)
    yield WEIGHTS.claim("small", apart("weights", "grpo"), apart("rloo", "grpo"))
    yield NOISE.claim("small", apart("noise", "rloo"), apart("rloo", "grpo"))
    yield UNDIVIDED.claim("small", gain("rloo", bound=HALF_POINT), less("rloo", "rloo", SOON, bound=HALF_POINT))
    yield LENDING.claim("small", less("grpo", "lent"), less("grpo", "lent", SOON))
    yield VISIBLE.claim("visible", gain("grpo", world="visible"), less("grpo", "grpo", SOON, "visible", 0.0))
    for budget in BUDGETS:
        row = at.loc[("apart", SUCCESS, "grpo", LARGE, budget)]
        own, control = (
            evidence({**row, "estimate": abs(row["estimate"] - row[form])}, POINT) for form in ("prediction", "second")
        )
        yield APART.claim(f"apart, G = {LARGE}, C = {budget}", own, control)
    for budget in (0, *BUDGETS):
        own, broken = (evidence(at.loc[("policies", name, "rloo", LARGE, budget)], 0.0) for name in EFFICIENCY_LEADS)
        yield EFFICIENCY.claim(f"small, after {budget} responses", own, broken)
