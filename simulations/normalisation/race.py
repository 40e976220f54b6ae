"""Divide by the standard deviation or not: success over a training, each arm at its own best step.

Plain and standardised advantages are compared, under plain ascent and under Adam. In the control the policy descends.

These choices were made before the results of any run were seen:

- Only settings in which both answers are possible are judged.
- Groups of 2 and 3 are not judged. With two reward values all their mixed groups have one deviation. So dividing is a factor,
  which a tuned step undoes. With groups of 4, dividing changes the weights of prompts by at most 7%, beside a factor.
- Orthogonal prompts and exact gradients are not judged. Nothing limits the step there, and either arm learns a prompt at once.
- One point of success, averaged over the run, is noticeable: a few hundred questions can just show it.
- Each arm is taken at the best of the steps that were tried. The limits of its lead count the choice.

Made-up prompts and the heads of SmolLM2 are fixed problems, and their limits count runs. Random features are a kind of problem.
Each dimension has 96 draws of it, numbered from 0, and one step for all draws. Their leads are means over draws.

These choices were made when results were known. Earlier versions of this study saw one draw of random features for each
dimension. They searched for steps from 1 to 16384 with SGD and from 1/16 to 16 with Adam, and judged groups of 4 as well. The
grids have the best of those steps inside. Four hard prompts that are nearly alike had theirs at the end, so that SGD's grid for
made-up prompts goes on from there. A first run of this version had half as many draws and half as many runs on raw heads. Its
limits were too wide to tell a gain of a point from none. A second run lacked the largest step on raw heads, where in two settings
the best step was at the end.

The steps of the paper are a contest of their own, which is counted apart: it compares two lengths of the updates as well.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import evidence
from grpo_theory.harness.study import Cell, Rows, Settings
from simulations.best_rate import lead
from simulations.normalisation.prompts import MIXTURES
from simulations.normalisation.race_problems import N_PROMPTS, RAW, WHITENED, problem_of
from simulations.normalisation.race_runs import ARMS, OPTIMISERS, PRINTED_STEPS, rates_of, reached
from simulations.seeds import seed_of
from simulations.statements import stated

DIVISION, PAYS, HARMLESS = stated("division", "division/pays", "division/harmless")
PAYS_AT_PRINTED_STEPS = stated("division/printed steps")

GROUP_SIZES = (8, 16, 32, 64)
SOME_SIZES = (8, 32)
"""Where all four would take too long."""
CORRELATIONS = (0.2, 0.7)
"""Of the made-up prompts: slightly and strongly correlated."""
DIMENSIONS = (16, 32, 64)
"""Of the random problems of 64 prompts: the fewer, the more the prompts share."""
PAPER_CORRELATIONS, PAPER_SIZES = (0.0, *CORRELATIONS), (2, 8, 64)
"""Where the steps of the paper are tried."""
BATCH = 32
"""Prompts of an update, drawn anew for each; of the made-up problems as many as there are."""
UPDATES = 64
HEADS = (
    ("lm-few-shot", 32, (RAW, WHITENED), {"Adam": GROUP_SIZES, "SGD": (32,)}),
    ("lm-zero-shot", 32, (RAW, WHITENED), {"Adam": SOME_SIZES, "SGD": (32,)}),
    ("lm-instruct", 32, (RAW, WHITENED), {"Adam": SOME_SIZES, "SGD": (32,)}),
    ("lm-few-shot", 128, (RAW,), {"Adam": (32,)}),
)
"""Heads of SmolLM2, numbers of questions, features, group sizes by contest."""
DESIGNS: Mapping[tuple[str, str], tuple[int, Sequence[float]]] = {
    ("made up", "SGD"): (384, range(1, 17)),
    ("made up", "Adam"): (384, range(-2, 6)),
    ("random", "SGD"): (4, range(3, 11)),
    ("random", "Adam"): (4, range(-2, 6)),
    ("head", "SGD"): (64, range(4, 10)),
    (WHITENED, "Adam"): (96, (-0.5, 0.5, 1.5, 2.5)),
    (RAW, "Adam"): (80, (-0.5, 0.5, 1.5, 2.5)),
}
"""By problem and optimiser: runs at each step, of random features on each draw; and the powers of two that are the steps.

SGD's are in units of 1/(mean squared length of the features), Adam's in logits that a step can move.
"""
PRINTED_RUNS, QUICK_RUNS = 128, 64
DRAWS, QUICK_DRAWS = 96, 16
"""Of random features."""
POINT = 0.01
"""Less is what two runs with other seeds differ by."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each problem, contest and group size; a quick run has one problem of each family."""
    problems = [*_made_up(quick), *_random(quick), *_heads(quick)]
    return [Cell(problem | {"contest": contest, "group_size": size}) for problem, contest, size in problems]


def _made_up(quick: bool) -> list[tuple[dict[str, Any], str, int]]:
    races: list[tuple[dict[str, Any], str, int]] = []
    for correlation in (0.7,) if quick else PAPER_CORRELATIONS:
        for mixture in ("easy and hard",) if quick else MIXTURES:
            problem = {"family": "made up", "correlation": correlation, "mixture": mixture}
            problem |= {"batch_size": N_PROMPTS, "updates": UPDATES}
            printed = (8,) if quick else PAPER_SIZES
            races += [(problem | {"runs": PRINTED_RUNS}, PRINTED_STEPS, size) for size in printed]
            if correlation in CORRELATIONS:
                sizes = (8,) if quick else GROUP_SIZES
                races += [(problem | _design("made up", one, quick), one, size) for one in OPTIMISERS for size in sizes]
    return races


def _random(quick: bool) -> list[tuple[dict[str, Any], str, int]]:
    common = {"family": "random", "batch_size": BATCH, "updates": UPDATES, "draws": QUICK_DRAWS if quick else DRAWS}
    dimensions, sizes = ((32,), (32,)) if quick else (DIMENSIONS, GROUP_SIZES)
    contests = ("Adam",) if quick else OPTIMISERS
    return [
        (common | {"dimension": dimension} | _design("random", contest), contest, size)
        for dimension in dimensions
        for contest in contests
        for size in sizes
    ]


def _heads(quick: bool) -> list[tuple[dict[str, Any], str, int]]:
    common = {"family": "head", "batch_size": BATCH, "updates": UPDATES}
    if quick:
        problem = common | {"head": "lm-few-shot", "questions": 32, "features": WHITENED, "updates": UPDATES // 2}
        return [(problem | _design(WHITENED, "Adam", quick), "Adam", 32)]
    return [
        (
            common
            | {"head": head, "questions": questions, "features": features}
            | _design("head" if contest == "SGD" else features, contest),
            contest,
            size,
        )
        for head, questions, kinds, contests in HEADS
        for features in kinds
        for contest, sizes in contests.items()
        for size in sizes
    ]


def _design(problem: str, contest: str, quick: bool = False) -> dict[str, Any]:
    runs, powers = DESIGNS[problem, contest]
    return {"runs": QUICK_RUNS if quick else runs, "powers": list(powers)}


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Mapping[str, Any]:
    """Train each arm at each of its steps, on draws that all arms share; return their successes (S, units), and the steps."""
    seed = seed_of(rng)
    steps = {arm: rates_of(settings, arm).tolist() for arm in ARMS}
    return {"steps": steps, "success": {arm: reached(settings, arm, seed).tolist() for arm in ARMS}}


def rows(settings: Settings, results: list[Any]) -> Rows:
    """What each arm reached at its best step, and by how much the plain one is ahead of the divided and of the broken one."""
    (raced,) = results
    names = ("family", "contest", "group_size", "updates")
    common = {"problem": title(settings, problem_of(settings).name)} | {name: settings[name] for name in names}
    sides = {arm: np.array(success) for arm, success in raced["success"].items()}
    best = {arm: raced["steps"][arm][int(side.mean(axis=1).argmax())] for arm, side in sides.items()}
    leads = {("success", arm): lead([side]) for arm, side in sides.items()}
    leads |= {("plain less", arm): lead([sides["plain"], sides[arm]], (1.0, -1.0)) for arm in ("divided", "broken")}
    return [
        common | {"quantity": quantity, "arm": arm, "step": best[arm], "prediction": np.nan} | row
        for (quantity, arm), row in leads.items()
    ]


def title(settings: Settings, name: str) -> str:
    """Return what the problem of a cell is called in tables."""
    if settings["family"] == "made up":
        return f"{name}, {settings['mixture']}"
    return name if settings["family"] == "random" else f"{name}, {settings['questions']} questions"


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """How far plain is ahead, against a point either way; the control puts the broken arm in the divided one's place."""
    for (problem, contest, size), part in table.groupby(["problem", "contest", "group_size"], sort=False):
        at = part[part["quantity"] == "plain less"].set_index("arm")
        arms = part[part["quantity"] == "success"].set_index("arm")
        named = {"success": "estimate", "step": "step"}
        facts = {f"{what}, {arm}": float(arms.loc[arm, column]) for arm in arms.index for what, column in named.items()}
        bounds = {PAYS_AT_PRINTED_STEPS: -POINT} if contest == PRINTED_STEPS else {PAYS: -POINT, HARMLESS: POINT}
        for statement, bound in bounds.items():
            own, control = (evidence(at.loc[arm].to_dict(), bound) for arm in ("divided", "broken"))
            yield statement.claim(f"{problem}, {contest}, G = {size}", own, control, facts)
