"""U9: which group size trains the best policy at a fixed budget, by simulation at checkpoints of training."""

import dataclasses
from collections.abc import Mapping
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.evidence import Claim, Evidence
from grpo_theory.evidence.reading import difference, distance, evidence, farthest, highest
from grpo_theory.harness.study import Cell, Rows, Settings
from grpo_theory.intervals import best_set
from grpo_theory.theory import TrainingLaw, leave_one_out_parts
from simulations.claims import claim, unconverted
from simulations.training.cases import CASES, case_law, case_problem, case_settings, case_steps, schedule_label
from simulations.training.controlled import collected, guide, objectives_by_group_size
from simulations.training.grid import HALF_DOUBLING, on_grid

GROUP_SIZES = (2, 4, 8, 16, 32, 64, 128)
CHECKPOINTS = (1, 2, 4, 8, 16, 32)
BUDGET = 1024
LARGER = {2048: ("kl-linear",), 4096: ("linear", "kl-linear")}
RUNS, CHUNK_RUNS, QUICK_RUNS = 512, 256, 64
CLOSE = (("linear", "Constant"), ("linear", "Harmonic"), ("mixed", "Harmonic"))
MORE_RUNS = 1280
"""Where the usual number did not decide most rows, which say how many would."""
SET_LEVEL = 0.95
LAW_MARGIN = 0.2
"""A loss that is a fifth off is a budget that is a fifth off: a quarter of the way to the next one, which is twice as large."""
REACH = 0.1
"""The second order's share of the loss up to which the first is trusted: half the margin, for the third may add as much again."""
SECOND_REACH = 0.4
"""That up to which the first two are: the third is then expected to be a sixth."""
EXPANDED = ("linear", "kl-linear", "kl-tabular")
"""Where a quick run finds the second order, with constant steps only: few parameters."""
LAWS = ("U9/policy-law", "U9/policy-law, beyond", "U9/second order")
LAW_BATCH = 64
"""Rivals of the printed group size have this many prompts in a batch or more."""


def cells(quick: bool) -> list[Cell]:
    """Every case at the budget of the paper's Figure 5, two of them at the larger budgets of its Table 2."""
    found = []
    for case in CASES:
        larger = [budget for budget, names in LARGER.items() if case[0] in names and case[2][0] == "Constant"]
        for budget in (BUDGET, *(() if quick else larger)):
            usual = MORE_RUNS if (case[0], case[2][0]) in CLOSE else RUNS
            runs = QUICK_RUNS if quick else usual if budget == BUDGET else usual // 2
            chunk = min(runs, CHUNK_RUNS * BUDGET // budget)
            sizes = {"budget": budget, "group_sizes": list(GROUP_SIZES), "checkpoints": list(CHECKPOINTS), "runs": chunk}
            expanded = not quick or (case[0] in EXPANDED and case[2][0] == "Constant")
            found.append(Cell(case_settings(*case) | sizes | {"expanded": expanded}, runs // chunk))
    return found


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> Mapping[str, Any]:
    """Train with every group size; return objectives and controls, and the loss to second order with the first chunk."""
    problem = case_problem(settings)
    checkpoints = settings["checkpoints"]
    guides = [guide(case_law(settings, n)) for n in checkpoints]
    found = objectives_by_group_size(problem, guides, case_steps(settings, checkpoints[-1]), settings, seed)
    return found | {"second_order": second_orders(settings) if chunk == 0 and settings["expanded"] else None}


def second_orders(settings: Settings) -> list[float]:
    """Return the second order of the loss at the last checkpoint, with each group size."""
    steps, sizes = settings["checkpoints"][-1], np.array(settings["group_sizes"], dtype=np.float64)
    plans = np.repeat(sizes[:, None], steps, axis=1)
    return [float(loss) for loss in case_law(settings, steps).second_order(settings["budget"], plans)]


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each checkpoint and group size: the loss against the noise-free run, simulated and to first order."""
    plain, controlled = collected(results)
    problem, budget, sizes = case_problem(settings), settings["budget"], settings["group_sizes"]
    runs = controlled.shape[1]
    start = gt.group_size_law(problem, problem.theta)
    common = {"problem": problem.name, "schedule": schedule_label(settings), "budget": budget, "replications": runs}
    found = []
    for c, n in enumerate(settings["checkpoints"]):
        law = case_law(settings, n)
        undamped = law_without_damping(settings, n)
        second = results[0]["second_order"] if n == settings["checkpoints"][-1] else None
        kept = best_set(controlled[:, :, c].T, SET_LEVEL)
        here = gt.group_size_law(problem, law.path[-1])
        facts = {"checkpoint": n, "noise_free": law.objective, "optimum": law.optimum, "gradient_optimum": here.optimum}
        for g, size in enumerate(sizes):
            sample = controlled[g, :, c]
            row = {
                "batch_size": budget // size,
                "group_size": size,
                "estimate": float(law.objective - sample.mean()),
                "standard_error": float(sample.std(ddof=1) / np.sqrt(runs)),
                "plain_standard_error": float(plain[g, :, c].std(ddof=1) / np.sqrt(runs)),
                "prediction": law.loss(budget, size),
                "undamped": undamped.loss(budget, size),
                "second_order": float("nan") if second is None else second[g],
                "in_set": bool(kept[g]),
                "printed_at_start": start.paper_optimum,
            }
            found.append(common | facts | row)
    return found


def _telling_checkpoint(part: pd.DataFrame, printed: int) -> tuple[int, int]:
    """Return the checkpoint, and the other group size, where the law expects most of replacing the printed one.

    Only checkpoints at which noise costs with every group size, and group sizes whose batch is large enough for the law.
    """
    ratios: dict[tuple[int, int], float] = {}
    for checkpoint, at in part.set_index("group_size").groupby("checkpoint"):
        losses = at["prediction"]
        if (losses > 0.0).all():
            others = losses[at["batch_size"] >= LAW_BATCH].drop(printed)
            ratios[int(checkpoint), int(others.idxmin())] = float(losses[printed] / others.min())
    return max(ratios, key=lambda key: ratios[key])


def _printed_claim(where: str, part: pd.DataFrame) -> Claim:
    """The printed group size of the start against the best by the law; the control puts the worst in its place."""
    printed = on_grid(float(part["printed_at_start"].iloc[0]), part["group_size"].unique())
    checkpoint, rival = _telling_checkpoint(part, printed)
    at = part[part["checkpoint"] == checkpoint].set_index("group_size")
    worst = int(at["prediction"].idxmax())
    facts = {"printed G": float(printed), "other G": float(rival), "worst G (control)": float(worst), "n": float(checkpoint)}
    facts["loss ratio expected"] = float(at.loc[printed, "prediction"] / at.loc[rival, "prediction"])
    return claim("U9/printed", where, *(difference(at.loc[size], at.loc[rival]) for size in (printed, worst)), facts=facts)


def law_without_damping(settings: Settings, steps: int) -> TrainingLaw:
    """Return a law that is known to be wrong: every step's noise is weighed as if it stayed what it was to the end.

    What later steps do to it, the transport of the second derivative in docs/derivations.md, section 14, is left out.
    """
    law, problem, sizes = case_law(settings, steps), case_problem(settings), case_steps(settings, steps)
    curvature = gt.hessian(problem, law.path[-1])
    weights = (
        [-0.5 * size**2 * np.vdot(curvature, part) for part in leave_one_out_parts(problem, theta)]
        for size, theta in zip(sizes, law.path, strict=False)
    )
    return dataclasses.replace(law, constants=np.array(list(weights)))


def _law_claims(where: str, part: pd.DataFrame) -> list[Claim]:
    """Simulated over predicted loss, group size by group size; the control's law does not know that later steps damp noise.

    The law's own second order says to which rows its first, or both of them, should apply.
    """
    found = []
    for size, row in part[part["second_order"].notna()].iterrows():
        share = float(row["second_order"] / abs(row["prediction"]))
        facts = {"second order / first": share, "wrong law / law": float(row["undamped"] / row["prediction"])}
        setting = f"{where}, G = {size}"
        wrong = distance(row, row["undamped"], LAW_MARGIN)
        name = "U9/policy-law" if abs(share) <= REACH else "U9/policy-law, beyond"
        found.append(claim(name, setting, distance(row, row["prediction"], LAW_MARGIN), wrong, facts=facts))
        if abs(share) <= SECOND_REACH:
            found.append(
                claim(
                    "U9/second order",
                    setting,
                    distance(row, row["prediction"] + row["second_order"], LAW_MARGIN),
                    wrong,
                    facts=facts,
                )
            )
    return found


def _noise_claim(where: str, part: pd.DataFrame, after_one_step: pd.DataFrame) -> Claim:
    """Noise costs performance, at the group size of least predicted loss; the control stops the noise-free run early."""
    size = int(part["prediction"].abs().idxmin())
    row, early = part.loc[size], float(after_one_step.loc[size, "noise_free"])
    gain = {**row, "estimate": -row["estimate"]}
    stopped = {**row, "estimate": float(row["noise_free"]) - early - row["estimate"]}
    facts = {"objective lost by stopping after one step (control)": float(row["noise_free"]) - early}
    return claim("U9/noise-costs", where, evidence(gain, 0.0), evidence(stopped, 0.0), facts=facts)


def _excess(losses: pd.DataFrame, chosen: int) -> Evidence:
    """Return what a group size loses beyond half a doubling's worth of the rival from which it is the farthest, in its errors."""
    own, rivals = losses.loc[chosen], losses.drop(chosen)
    # A negative loss is a gain, of which the chosen size must keep the same share.
    factors = np.where(rivals["estimate"] >= 0.0, HALF_DOUBLING, 1.0 / HALF_DOUBLING)
    excesses = own["estimate"] - factors * rivals["estimate"]
    errors = np.hypot(own["standard_error"], factors * rivals["standard_error"])
    at = highest(excesses / errors)
    return Evidence(
        float(excesses[at]),
        0.0,
        float(errors[at]),
        replications=int(losses["replications"].min()),
        comparisons=len(rivals),
    )


def _transfer_claim(statement: str, where: str, before: pd.DataFrame, after: pd.DataFrame) -> Claim:
    """The group size that lost least in one setting, in another one.

    The control chooses as one does who compares group sizes at equal numbers of prompts, not at equal budgets: the largest.
    """
    best, best_there, largest = int(highest(-before["estimate"])), int(highest(-after["estimate"])), int(before.index.max())
    facts = {"G chosen": float(best), "best G there": float(best_there), "G of the control": float(largest)}
    return claim(statement, where, *(_excess(after, size) for size in (best, largest)), facts=facts)


def _curve_claims(where: str, small: pd.DataFrame, large: pd.DataFrame, earlier: pd.DataFrame) -> list[Claim]:
    """N times the loss at the largest over that at the smallest budget, less 1, group size by group size.

    The control takes the runs of the largest budget before they are done, when by the law their loss is the farthest from that of
    the end.
    """
    factor = float(large["budget"].iloc[0] / small["budget"].iloc[0])
    found = []
    for size, least in small.iterrows():
        early = earlier[earlier["group_size"] == size]
        undone = early.loc[farthest(early["prediction"], large.loc[size, "prediction"])]
        both = []
        for most in (large.loc[size], undone):
            ratio = factor * most["estimate"] / least["estimate"]
            error = factor * np.hypot(most["standard_error"], ratio / factor * least["standard_error"]) / abs(least["estimate"])
            runs = int(min(most["replications"], least["replications"]))
            both.append(Evidence(abs(float(ratio) - 1.0), LAW_MARGIN, float(error), replications=runs))
        facts = {
            "n of the control": undone["checkpoint"],
            "control, by the law": factor * undone["prediction"] / least["prediction"],
        }
        found.append(claim("U9/one curve", f"{where}, G = {size}", *both, facts=facts))
    return found


def _budget_claims(table: pd.DataFrame) -> list[Claim]:
    """From the smallest budget to the largest, where a problem was trained with several."""
    found = []
    for (problem, schedule), part in table.groupby(["problem", "schedule"], sort=False):
        least, most = int(part["budget"].min()), int(part["budget"].max())
        if least < most:
            last = part["checkpoint"] == CHECKPOINTS[-1]
            small, large = (part[last & (part["budget"] == budget)].set_index("group_size") for budget in (least, most))
            earlier = part[~last & (part["budget"] == most)]
            where = f"{problem}, {schedule}"
            found.append(_transfer_claim("U9/budgets", f"{where}, from N = {least} to {most}", small, large))
            found += _curve_claims(where, small, large, earlier)
    return found


def _schedule_claims(table: pd.DataFrame) -> list[Claim]:
    """From each schedule of a problem to each other, at the budget that all have."""
    found = []
    last = table[(table["checkpoint"] == CHECKPOINTS[-1]) & (table["budget"] == BUDGET)]
    for problem, part in last.groupby("problem", sort=False):
        losses = {str(schedule): one.set_index("group_size") for schedule, one in part.groupby("schedule", sort=False)}
        for before, after in permutations(losses, 2):
            where = f"{problem}, from {before} to {after}"
            found.append(_transfer_claim("U9/schedules", where, losses[before], losses[after]))
    return found


def claims(table: pd.DataFrame) -> list[Claim]:
    """Judge what becomes of the best group size elsewhere, the printed one, the law, and whether noise costs at all."""
    found = [*_budget_claims(table), *_schedule_claims(table)]
    for (problem, schedule, budget), part in table.groupby(["problem", "schedule", "budget"], sort=False):
        where = f"{problem}, {schedule}, N = {budget}"
        first, early, late = (part[part["checkpoint"] == n].set_index("group_size") for n in (CHECKPOINTS[0], *CHECKPOINTS[-2:]))
        found += [_printed_claim(where, part), *_law_claims(where, late), _noise_claim(where, early, first)]
    return found


STUDY = unconverted(
    "group_size",
    "U9: the group size that trains the best policy, at fixed budgets",
    cells,
    compute,
    rows,
    claims,
    ("U9/printed", *LAWS, "U9/noise-costs", "U9/budgets", "U9/one curve", "U9/schedules"),
)
