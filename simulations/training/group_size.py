"""U9: the group size that trains the best policy, at fixed budgets.

Losses against the noise-free run at checkpoints of training are simulated and computed by the law. They show whether the best
group size changes with the budget and the schedule. They also judge the printed size and the law, and whether noise costs at all.

The controls have the largest or the worst group size, or a law that does not know that later steps damp noise. Others have runs
that are not done, or a noise-free run that is stopped early.
"""

from collections.abc import Iterator, Mapping
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import difference, distance, evidence, farthest, highest
from grpo_theory.harness.study import Cell, Rows, Settings
from simulations.seeds import seed_of
from simulations.statements import stated
from simulations.training.carried import carried, off_one_curve
from simulations.training.cases import (
    CASES,
    case_law,
    case_problem,
    case_settings,
    case_steps,
    law_without_damping,
    schedule_label,
    second_orders,
)
from simulations.training.controlled import collected, guide, losses, objectives_by_group_size
from simulations.training.grid import on_grid

SCHEDULES, PRINTED, LAW, LAW_BEYOND = stated("U9/schedules", "U9/printed", "U9/policy-law", "U9/policy-law, beyond")
SECOND_ORDER, NOISE_COSTS, BUDGETS, ONE_CURVE = stated("U9/second order", "U9/noise-costs", "U9/budgets", "U9/one curve")
GROUP_SIZES = (2, 4, 8, 16, 32, 64, 128)
CHECKPOINTS = (1, 2, 4, 8, 16, 32)
*_, HALF_WAY, END = CHECKPOINTS
BUDGET = 1024
LARGER = {2048: ("kl-linear",), 4096: ("linear", "kl-linear")}
RUNS, CHUNK_RUNS, QUICK_RUNS = 512, 256, 64
CLOSE = (("linear", "Constant"), ("linear", "Harmonic"), ("mixed", "Harmonic"))
MORE_RUNS = 1280
"""Where the usual number did not decide most rows, which say how many would."""
LAW_MARGIN = 0.2
"""A loss that is a fifth off is a budget that is a fifth off. It is a quarter of the way to the next one, which is twice as
large."""
REACH = 0.1
"""The second order's share of the loss up to which the first is trusted: half the margin, for the third may add as much again."""
SECOND_REACH = 0.4
"""That up to which the first two are: the third is then expected to be a sixth."""
EXPANDED = ("linear", "kl-linear", "kl-tabular")
"""Where a quick run finds the second order, with constant steps only: few parameters."""
LAW_BATCH = 64
"""Rivals of the printed group size have this many prompts in a batch or more."""


def cells(quick: bool) -> list[Cell]:
    """Every case at the budget of the paper's Figure 5, two of them at the larger budgets of its Table 2."""
    listed = []
    for case in CASES:
        larger = [budget for budget, names in LARGER.items() if case[0] in names and case[2][0] == "Constant"]
        for budget in (BUDGET, *(() if quick else larger)):
            usual = MORE_RUNS if (case[0], case[2][0]) in CLOSE else RUNS
            runs = QUICK_RUNS if quick else usual if budget == BUDGET else usual // 2
            chunk = min(runs, CHUNK_RUNS * BUDGET // budget)
            sizes = {"budget": budget, "group_sizes": list(GROUP_SIZES), "checkpoints": list(CHECKPOINTS), "runs": chunk}
            expanded = not quick or (case[0] in EXPANDED and case[2][0] == "Constant")
            listed.append(Cell(case_settings(*case) | sizes | {"expanded": expanded}, runs // chunk))
    return listed


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Mapping[str, Any]:
    """Train with every group size; return objectives and controls, and the loss to second order with the first chunk."""
    checkpoints = settings["checkpoints"]
    guides = [guide(case_law(settings, n)) for n in checkpoints]
    steps = case_steps(settings, checkpoints[-1])
    objectives = objectives_by_group_size(case_problem(settings), guides, steps, settings, seed_of(rng))
    return objectives | {"second_order": second_orders(settings) if chunk == 0 and settings["expanded"] else None}


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each checkpoint and group size: the loss against the noise-free run, simulated and to first order."""
    plain, controlled = collected(results)
    problem, budget, sizes = case_problem(settings), settings["budget"], settings["group_sizes"]
    common = {"problem": problem.name, "schedule": schedule_label(settings), "budget": budget}
    common["printed_at_start"] = gt.group_size_law(problem, problem.theta).paper_optimum
    table: Rows = []
    for c, n in enumerate(settings["checkpoints"]):
        law, undamped = case_law(settings, n), law_without_damping(settings, n)
        here = gt.group_size_law(problem, law.path[-1])
        facts = {"checkpoint": n, "noise_free": law.objective, "optimum": law.optimum, "gradient_optimum": here.optimum}
        at_the_end = results[0]["second_order"] if n == settings["checkpoints"][-1] else None
        simulated = losses(plain[:, :, c], controlled[:, :, c], law.objective)
        for size, second, loss in zip(sizes, at_the_end or [np.nan] * len(sizes), simulated, strict=True):
            row = {"batch_size": budget // size, "group_size": size, "second_order": second}
            row |= {"prediction": law.loss(budget, size), "undamped": undamped.loss(budget, size)}
            table.append(common | facts | row | loss)
    return table


def _printed(where: str, at: pd.DataFrame) -> Claim:
    """The printed group size of the start against the best by the law; the control puts the worst in its place.

    Only checkpoints at which noise costs with every group size count. Of these, the sizes are compared where the law expects most
    of replacing the printed one. Rivals have a batch that is large enough for the law.
    """
    losses, large = at["prediction"].unstack(), at["batch_size"].unstack().iloc[0] >= LAW_BATCH
    printed, costs = on_grid(at["printed_at_start"].iloc[0], losses.columns.to_numpy()), losses[(losses > 0.0).all(axis=1)]
    rivals = costs.loc[:, large].drop(columns=printed)
    checkpoint = highest(costs[printed] / rivals.min(axis=1))
    expected, rival = losses.loc[checkpoint], int(rivals.loc[checkpoint].idxmin())
    worst = int(expected.idxmax())
    facts = {"printed G": printed, "other G": rival, "worst G (control)": worst, "n": checkpoint}
    facts["loss ratio expected"] = expected[printed] / expected[rival]
    own, control = (difference(at.loc[(checkpoint, size)], at.loc[(checkpoint, rival)]) for size in (printed, worst))
    return PRINTED.claim(where, own, control, facts=facts)


def _laws(where: str, at_the_end: pd.DataFrame) -> Iterator[Claim]:
    """Simulated over predicted loss, group size by group size; the control's law does not know that later steps damp noise.

    The law's own second order says to which rows its first, or both of them, should apply.
    """
    for size, row in at_the_end[at_the_end["second_order"].notna()].iterrows():
        share = row["second_order"] / abs(row["prediction"])
        facts = {"second order / first": share, "wrong law / law": row["undamped"] / row["prediction"]}
        wrong = distance(row, row["undamped"], LAW_MARGIN)
        orders = {LAW if abs(share) <= REACH else LAW_BEYOND: row["prediction"]}
        if abs(share) <= SECOND_REACH:
            orders[SECOND_ORDER] = row["prediction"] + row["second_order"]
        for statement, loss in orders.items():
            yield statement.claim(f"{where}, G = {size}", distance(row, loss, LAW_MARGIN), wrong, facts=facts)


def _noise(where: str, at: pd.DataFrame) -> Claim:
    """Noise costs performance, at the group size of least predicted loss; the control stops the noise-free run early."""
    size = at.loc[HALF_WAY, "prediction"].abs().idxmin()
    row = at.loc[(HALF_WAY, size)]
    stopped = row["noise_free"] - at.loc[(CHECKPOINTS[0], size), "noise_free"]
    own, control = (evidence({**row, "estimate": added - row["estimate"]}, 0.0) for added in (0.0, stopped))
    return NOISE_COSTS.claim(where, own, control, facts={"objective lost by stopping after one step (control)": stopped})


def _one_curve(where: str, small: pd.DataFrame, large: pd.DataFrame) -> Iterator[Claim]:
    """N times the loss at the largest over that at the smallest budget, less 1, group size by group size.

    The control takes the runs of the largest budget before they are done. By the law their loss is then the farthest from that of
    the end.
    """
    factor = large["budget"].iloc[0] / small["budget"].iloc[0]
    for size, least in small.loc[END].iterrows():
        course = large.xs(size, level="group_size")
        undone = course.loc[farthest(course["prediction"].drop(END), course.loc[END, "prediction"])]
        own, control = (off_one_curve(most, least, factor, LAW_MARGIN) for most in (course.loc[END], undone))
        facts = {"n of the control": undone.name, "control, by the law": factor * undone["prediction"] / least["prediction"]}
        yield ONE_CURVE.claim(f"{where}, G = {size}", own, control, facts=facts)


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Judge what becomes of the best group size elsewhere, the printed one, the law, and whether noise costs at all."""
    keys = ["problem", "schedule", "budget"]
    runs = {key: one.set_index(["checkpoint", "group_size"]) for key, one in table.groupby(keys, sort=False)}
    for before, after in permutations(runs, 2):
        if before[0] == after[0] and before[2] == after[2] == BUDGET:
            where = f"{before[0]}, from {before[1]} to {after[1]}"
            yield SCHEDULES.claim(where, *carried(runs[before].loc[END], runs[after].loc[END]))
    for (problem, schedule), budgets in table.groupby(["problem", "schedule"], sort=False)["budget"]:
        least, most = budgets.min(), budgets.max()
        if least < most:
            small, large = (runs[problem, schedule, budget] for budget in (least, most))
            where = f"{problem}, {schedule}"
            yield BUDGETS.claim(f"{where}, from N = {least} to {most}", *carried(small.loc[END], large.loc[END]))
            yield from _one_curve(where, small, large)
    for (problem, schedule, budget), at in runs.items():
        where = f"{problem}, {schedule}, N = {budget}"
        yield _printed(where, at)
        yield from _laws(where, at.loc[END])
        yield _noise(where, at)
