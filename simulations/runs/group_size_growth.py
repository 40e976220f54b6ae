"""Where the growth of the best group size with the budget comes from: division's weights, its noise, interference, rare answers.

GRPO is taken apart into the weights that division gives to prompts and the noise that it adds. Rare answers, interference between
prompts and the step's own best length are switched off one at a time. Each run is judged at the step that other runs found best
for its arm, group size and budget. They chose it four times over, and intervals count what a choice adds.

The world, the budgets and the margins were chosen after trials on other seeds. A point of success (0.01) is noticeable, and half
a point where the control is GRPO, whose gain was about two.

Two choices were made after a first run of the study. Parts of division are judged at the largest budget alone, where the smaller
ones were inconclusive; and what breaks the closed form was chosen.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim, Evidence, Statement
from grpo_theory.evidence.reading import difference, evidence
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from grpo_theory.theory.finite_group import mixed_share
from simulations.runs.chosen_steps import trained_with_each
from simulations.runs.sized import RESPONSES, WORLDS, Ends, best_steps, judged, summaries, trained
from simulations.runs.tuning import FOLDS
from simulations.runs.weights import LENT, arm_estimator
from simulations.seeds import child_seed, seed_of
from simulations.sources import OURS, derived

LATE = Statement(
    "growth/late",
    "question beside arXiv 2603.12151 (P1)",
    "GRPO with groups of 64 ends above GRPO with groups of 4 at the largest budget, though far below at the smallest",
    "ordering",
    whose=OURS,
)
WEIGHTS = Statement(
    "growth/weights alone",
    derived(38),
    "groups of 64, the others' mean as baseline, the largest budget: with division's weights, known, in place of division, "
    "success is within 0.01",
    "upper bound",
    whose=OURS,
)
NOISE = Statement(
    "growth/noise alone",
    derived(38),
    "groups of 64, the largest budget: divided by the standard deviation, with its weight taken out again, success is within "
    "0.01 of undivided (rloo)",
    "upper bound",
    whose=OURS,
)
UNDIVIDED = Statement(
    "growth/undivided",
    derived(38),
    "without division groups of 64 gain at most 0.005 over groups of 4 at the largest budget",
    "upper bound",
    whose=OURS,
)
LENDING = Statement(
    "growth/lent weights",
    derived(38),
    "groups of 4 with the weights of groups of 64 end at most 0.01 below GRPO with groups of 64",
    "upper bound",
    whose=OURS,
)
VISIBLE = Statement(
    "growth/rare answers",
    derived(38),
    "where all prompts start above 0.1, GRPO with groups of 64 ends below GRPO with groups of 4",
    "ordering",
    whose=OURS,
)
APART = Statement(
    "growth/no interference",
    derived(38),
    "tabular prompts, one right answer, any large step: mean success is 1 - mean_m (1 - p)(1 - mixed_G(p)/M)^(C/G), within 0.01",
    "upper bound",
    whose=OURS,
)
EFFICIENCY = Statement(
    "growth/efficiency",
    derived(38),
    "at the policies that runs reach, a step's efficiency (rloo) is less with groups of 64 than with groups of 4",
    "ordering",
    whose=OURS,
)

SMALL, LARGE = SIZES = (4, LENT)
BUDGETS = (512, 2048, 8192)
SOON, *_, LAST = BUDGETS
RUNS = {
    ("small", "grpo"): 4608,
    ("small", "weights"): 4608,
    ("small", "rloo"): 3072,
    ("small", "noise"): 3072,
    ("small", "oracle"): 1024,
    ("small", "lent"): 2048,
    ("small", "dropped"): 2048,
    ("visible", "grpo"): 2048,
    ("apart", "grpo"): 12288,
    ("small", "efficiency"): 8,
}
"""By world and arm at the largest budget, half as many at others: as many as the smallest difference that is judged needs."""
QUICK = 32
"""A quick run has this many times fewer."""
LEAST = 2 * FOLDS
"""Two runs for each choice of the step, whose spread says what the choice adds."""
ARMS = ("grpo", "rloo", "weights", "noise", "oracle", "dropped")
POINT, HALF_POINT = 0.01, 0.005
"""A point of success is what a few hundred questions can just show."""
SURE = 1e5
"""A step after which a tabular prompt is solved, to rounding, once a group of it had a signal."""


def cells(quick: bool) -> list[Cell]:
    """Each arm in the world with interference and rare answers, GRPO in the two that lack one, and the efficiency of a step."""
    return [
        Cell({"world": world, "arm": arm, "budgets": list(BUDGETS), "runs": max(runs // QUICK, LEAST) if quick else runs})
        for (world, arm), runs in RUNS.items()
    ]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Rows:
    """Return the rows of an arm: by group size and budget; and those of groups of 64 at the step of groups of 4."""
    seed = seed_of(rng)
    problem, runs = WORLDS[settings["world"]].problem(), [settings["runs"]]
    runs = (len(settings["budgets"]) - 1) * [max(settings["runs"] // 2, LEAST)] + runs
    if settings["arm"] == "efficiency":
        return _efficiencies(problem, settings["budgets"], settings["runs"], seed)
    found: list[Ends] = []
    steps_of = {}
    for size in SIZES[:-1] if settings["arm"] == "lent" else SIZES:
        estimator, seeds = arm_estimator(settings["arm"], size), child_seed(seed, size)
        steps = np.full((FOLDS, len(settings["budgets"])), SURE)
        if settings["world"] != "apart":
            steps = best_steps(problem, estimator, size, settings["budgets"], child_seed(seeds, 0))
        found += judged(problem, estimator, size, settings["budgets"], steps, runs, child_seed(seeds, 1))
        steps_of[size] = steps
    table = summaries(found)
    if (settings["world"], settings["arm"]) == ("small", "grpo"):
        same = judged(problem, "grpo", LARGE, settings["budgets"], steps_of[SMALL], runs, child_seed(seed, 0))
        table += [{"arm": "same step"} | row for row in summaries(same)]
    return table


def _efficiencies(problem: gt.Problem, budgets: Sequence[int], runs: int, seed: np.random.SeedSequence) -> Rows:
    """Return the efficiency of rloo at the start and at the policies that runs of GRPO reach, by group size.

    Fixed is the number of responses, or (broken) the number of prompts: groups then cost nothing.
    """
    estimator = arm_estimator("grpo", SMALL)
    steps = best_steps(problem, estimator, SMALL, budgets, child_seed(seed, 0))
    reached = {0: problem.theta[None]}
    for c, (budget, own) in enumerate(zip(budgets, steps.T, strict=True)):

        def ends(step: float, share: int, seed: np.random.SeedSequence, budget: int = budget) -> Array:
            return trained(problem, estimator, SMALL, step, [budget // RESPONSES], share, seed).theta

        reached[budget] = trained_with_each(own, ends, runs, child_seed(seed, 1 + c))
    table: Rows = []
    for budget, policies in reached.items():
        for size in SIZES:
            paid, free = (_efficiency(problem, policies, batch, size) for batch in (RESPONSES // size, RESPONSES // LARGE))
            table.append({"budget": budget, "group_size": size, "step": np.nan, "free": free, "estimate": paid, **EXACT})
    return table


def _efficiency(problem: gt.Problem, policies: Array, batch_size: int, group_size: int) -> float:
    one = [gt.efficiency(problem, theta, "rloo", batch_size=batch_size, group_size=group_size) for theta in policies]
    return float(np.mean(one))


def coverage(success: Array, group_size: int, budget: int, *, second: bool = False) -> float:
    """Return the mean success where each prompt is solved by its first group with signal (docs/derivations.md, section 38).

    Or (broken) by its second.
    """
    signal, groups = mixed_share(success, group_size) / success.size, budget // group_size
    missed = (1.0 - signal) ** groups + second * groups * signal * (1.0 - signal) ** (groups - 1)
    return float(1.0 - ((1.0 - success) * missed).mean())


def rows(settings: Settings, results: list[Any]) -> Rows:
    """Return the rows, with the closed form where there is no interference."""
    start = WORLDS[settings["world"]].problem()
    rates = gt.moments(start, start.theta).value
    table: Rows = []
    for row in results[0]:
        exact = {"prediction": np.nan, "second": np.nan, "free": np.nan}
        if settings["world"] == "apart":
            exact["prediction"] = coverage(rates, row["group_size"], row["budget"])
            exact["second"] = coverage(rates, row["group_size"], row["budget"], second=True)
        table.append({"world": settings["world"], "arm": settings["arm"]} | exact | row)
    return table


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Judge each part alone."""
    at = table.set_index(["world", "arm", "group_size", "budget"])

    def small(arm: str, size: int, budget: int) -> Mapping[str, Any]:
        return at.loc[("small", arm, size, budget)]

    def gain(arm: str, budget: int = LAST, world: str = "small", bound: float = 0.0) -> Evidence:
        return difference(at.loc[(world, arm, LARGE, budget)], at.loc[(world, arm, SMALL, budget)], bound)

    def apart(one: str, other: str) -> Evidence:
        found = difference(small(one, LARGE, LAST), small(other, LARGE, LAST), POINT)
        return Evidence(abs(found.estimate), POINT, found.standard_error, replications=found.replications)

    gains = {f"gain of 64 over 4 at {budget} ({arm})": gain(arm, budget).estimate for arm in ARMS for budget in BUDGETS}
    loss, early = (
        difference(small("grpo", SMALL, budget), small("grpo", LARGE, budget)) for budget in (LAST, SOON)
    )  # fmt: skip
    yield LATE.claim("small", loss, early, facts=gains)
    yield WEIGHTS.claim("small", apart("weights", "grpo"), apart("rloo", "grpo"))
    yield NOISE.claim("small", apart("noise", "rloo"), apart("grpo", "rloo"))
    yield UNDIVIDED.claim("small", gain("rloo", bound=HALF_POINT), gain("grpo", bound=HALF_POINT))
    lent, stopped = (difference(small("grpo", LARGE, LAST), small("lent", SMALL, budget), POINT) for budget in (LAST, SOON))
    yield LENDING.claim("small", lent, stopped)
    yield VISIBLE.claim("visible", gain("grpo", world="visible"), gain("grpo"))
    for (_, _, size, budget), row in at.loc[["apart"]].iterrows():
        if size == LARGE:
            own, control = (
                Evidence(abs(row["estimate"] - row[name]), POINT, row["standard_error"], replications=int(row["replications"]))
                for name in ("prediction", "second")
            )
            yield APART.claim(f"apart, G = {size}, C = {budget}", own, control)
    for budget in (0, *BUDGETS):
        less, more = (small("efficiency", size, budget) for size in (LARGE, SMALL))
        broken = evidence({**less, "estimate": less["free"] - more["free"]}, 0.0)
        yield EFFICIENCY.claim(f"small, after {budget} responses", difference(less, more), broken)
