"""Divide by the standard deviation or not: success over a training, each arm at its own best step.

Plain and standardised advantages are compared, under plain ascent and under Adam. In the control, each response gets the
advantage of the one after it.

These choices were made before the results of any run were seen:

- Only settings in which both answers are possible are judged.
- Groups of 2 and 3 are not judged. With two reward values all their mixed groups have one deviation. So dividing is a factor,
  which a tuned step undoes.
- Orthogonal prompts and exact gradients are not judged. Nothing limits the step there, and either arm learns a prompt at once.
- One point of success, averaged over the run, is noticeable: a few hundred questions can just show it.
- Each arm has its own best step of a grid, found by other draws than those that judge it.

The length and number of runs are decided by what they cost. The search for a step was changed four times, when other draws led to
steps that were too far apart. Intervals are those of runs at the steps that were found; other draws find others.

The steps of the paper are a contest of their own, which is counted apart: it compares two lengths of the updates as well.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from grpo_theory.evidence import PARTS, Claim, Statement
from grpo_theory.evidence.reading import evidence
from grpo_theory.harness.study import Cell, Rows, Settings
from grpo_theory.harness.summary import summary
from simulations.normalisation.prompts import MIXTURES
from simulations.normalisation.race_problems import N_PROMPTS, RAW, WHITENED, problem_of
from simulations.normalisation.race_runs import ARMS, OPTIMISERS, PRINTED, PRINTED_STEPS, success, tuned_step
from simulations.seeds import child_seed, seed_of
from simulations.sources import NORMALIZATION, OURS

DIVISION = Statement(
    "division",
    f"beside {NORMALIZATION}",
    "do advantages divided by the group's standard deviation (grpo) have higher success over a whole run than undivided ones "
    "(dr_grpo)? Rewards have two values, answers have one token, and the policy is log-linear or a frozen model's head",
    PARTS,
)
PAYS = Statement(
    "division/pays",
    "measured",
    "prompts share features, groups of 4 to 64, each side at its own best constant step. With division the success averaged "
    "over a run is higher by at least one point of a hundred",
    "ordering",
    whose=OURS,
)
HARMLESS = Statement(
    "division/harmless", "measured", "there, with division, it is lower by at most one point of a hundred", "ordering", whose=OURS
)
PAYS_AT_PRINTED_STEPS = Statement(
    "division/printed steps",
    "measured",
    "at the paper's steps, 1/(2X^2) divided and 1/X^2 not: divided, it is higher by at least one point of a hundred",
    "ordering",
    whose=OURS,
)

GROUP_SIZES = (4, 8, 16, 32, 64)
SOME_SIZES = (8, 32)
"""Where all five would take too long."""
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
RUNS = {
    "made up": {"tuning_runs": 128, "neighbours": 1, "runs": 1024, "broken_runs": 512},
    "random": {"tuning_runs": 32, "neighbours": 1, "runs": 256, "broken_runs": 64},
    "head": {"tuning_runs": 16, "neighbours": 1, "runs": 128, "broken_runs": 128},
    RAW: {"tuning_runs": 12, "neighbours": 2, "runs": 96, "broken_runs": 48},
}
"""Raw are heads under Adam, whose runs take longest and differ most; the broken arm is far off, and needs fewer."""
PRINTED_RUNS = {"tuning_runs": 0, "runs": 128, "broken_runs": 128}
QUICK_RUNS = {"tuning_runs": 4, "neighbours": 1, "runs": 64, "broken_runs": 64}
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
            problem |= {"batch_size": N_PROMPTS, "updates": UPDATES} | _runs("made up", quick)
            printed = (8,) if quick else PAPER_SIZES
            races += [(problem | PRINTED_RUNS, PRINTED_STEPS, size) for size in printed]
            if correlation in CORRELATIONS:
                sizes = (8,) if quick else GROUP_SIZES
                races += [(problem, contest, size) for contest in OPTIMISERS for size in sizes]
    return races


def _random(quick: bool) -> list[tuple[dict[str, Any], str, int]]:
    common = {"family": "random", "batch_size": BATCH, "updates": UPDATES} | _runs("random", quick)
    dimensions, sizes = ((32,), (32,)) if quick else (DIMENSIONS, GROUP_SIZES)
    contests = ("Adam",) if quick else OPTIMISERS
    return [(common | {"dimension": one}, contest, size) for one in dimensions for contest in contests for size in sizes]


def _heads(quick: bool) -> list[tuple[dict[str, Any], str, int]]:
    common = {"family": "head", "batch_size": BATCH, "updates": UPDATES}
    if quick:
        problem = common | {"head": "lm-few-shot", "questions": 32, "features": WHITENED, "updates": UPDATES // 2}
        return [(problem | _runs("head", quick), "Adam", 32)]
    return [
        (
            common
            | {"head": head, "questions": questions, "features": features}
            | _runs(RAW if (features, contest) == (RAW, "Adam") else "head", quick),
            contest,
            size,
        )
        for head, questions, kinds, contests in HEADS
        for features in kinds
        for contest, sizes in contests.items()
        for size in sizes
    ]


def _runs(family: str, quick: bool) -> dict[str, int]:
    return QUICK_RUNS if quick else RUNS[family]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Mapping[str, Any]:
    """Train each arm, at its best step where it may choose, on draws that all arms share; return mean successes over the runs.

    The broken arm takes the step of the one that it is a copy of.
    """
    tuning, judging = (child_seed(seed_of(rng), part) for part in (0, 1))
    tuned = settings["contest"] != PRINTED_STEPS
    steps = {arm: tuned_step(settings, arm, tuning) if tuned else step for arm, step in PRINTED.items()}
    steps["broken"] = steps["divided"]
    runs = {arm: settings["broken_runs" if arm == "broken" else "runs"] for arm in steps}
    reached = {arm: success(settings, arm, [step], runs[arm], judging)[0].tolist() for arm, step in steps.items()}
    return {"steps": steps, "name": problem_of(settings).name, **reached}


def rows(settings: Settings, results: list[Any]) -> Rows:
    """What each arm reached, and by how much the plain one is ahead of the divided and of the broken one."""
    (raced,) = results
    names = ("family", "contest", "group_size", "updates")
    common = {"problem": title(settings, raced["name"])} | {name: settings[name] for name in names} | {"prediction": np.nan}
    reached = {arm: np.array(raced[arm]) for arm in ARMS}
    samples = {("success", arm): sample for arm, sample in reached.items()}
    samples |= {("plain less", arm): reached["plain"][: len(reached[arm])] - reached[arm] for arm in ("divided", "broken")}
    return [
        common | {"quantity": quantity, "arm": arm, "step": raced["steps"][arm]} | summary(sample)
        for (quantity, arm), sample in samples.items()
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
