"""U9: which group size trains the best policy at a fixed budget, by simulation at checkpoints of training."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.evidence import Claim, Evidence
from grpo_theory.intervals import best_set
from simulations.claims import claim
from simulations.harness.evidence import difference, evidence
from simulations.harness.study import Cell, Rows, Settings, Study
from simulations.training.cases import CASES, case_law, case_problem, case_settings, case_steps, schedule_label
from simulations.training.controlled import objectives_by_group_size
from simulations.training.grid import on_grid

GROUP_SIZES = (2, 4, 8, 16, 32, 64, 128)
CHECKPOINTS = (1, 2, 4, 8, 16, 32)
BUDGET = 1024
LARGER = {2048: ("kl-linear",), 4096: ("linear", "kl-linear")}
RUNS, CHUNK_RUNS, QUICK_RUNS = 512, 256, 128
SET_LEVEL = 0.95
LAW_MARGIN = 0.2
LAW_BATCH = 64
"""The first order of the noise is judged where the batch has this many prompts or more."""


def cells(quick: bool) -> list[Cell]:
    """Every case at the budget of the paper's Figure 5; two of them at the larger budgets of its Table 2."""
    found = []
    for case in CASES:
        larger = [budget for budget, names in LARGER.items() if case[0] in names and case[2][0] == "Constant"]
        for budget in (BUDGET, *(() if quick else larger)):
            runs = QUICK_RUNS if quick else RUNS if budget == BUDGET else RUNS // 2
            chunk = min(runs, CHUNK_RUNS * BUDGET // budget)
            sizes = {"budget": budget, "group_sizes": list(GROUP_SIZES), "checkpoints": list(CHECKPOINTS), "runs": chunk}
            found.append(Cell(case_settings(*case) | sizes, runs // chunk))
    return found


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> Mapping[str, Any]:
    """Train with every group size; return the objective at the checkpoints, plain and controlled, (G, runs, checkpoints)."""
    problem = case_problem(settings)
    checkpoints = settings["checkpoints"]
    slopes = [case_law(settings, n).slopes for n in checkpoints]
    return objectives_by_group_size(problem, slopes, case_steps(settings, checkpoints[-1]), settings, seed, chunk)


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each checkpoint and group size: the loss against the noise-free run, simulated and to first order."""
    plain, controlled = (np.concatenate([result[name] for result in results], axis=1) for name in ("plain", "controlled"))
    problem, budget, sizes = case_problem(settings), settings["budget"], settings["group_sizes"]
    runs = controlled.shape[1]
    start = gt.group_size_law(problem, problem.theta)
    common = {"problem": problem.name, "schedule": schedule_label(settings), "budget": budget, "replications": runs}
    found = []
    for c, n in enumerate(settings["checkpoints"]):
        law = case_law(settings, n)
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


def _law_claim(where: str, part: pd.DataFrame) -> Claim:
    """Simulated over predicted loss, averaged over the group sizes with many prompts in a batch."""
    large = part[part["batch_size"] >= LAW_BATCH]
    predictions = large["prediction"].to_numpy()
    ratios, errors = large["estimate"].to_numpy() / predictions, large["standard_error"].to_numpy() / predictions
    error = float(np.sqrt((errors**2).sum()) / len(large))
    runs = int(large["replications"].iloc[0])
    both = (Evidence(float(ratios.mean()), wanted, error, LAW_MARGIN, runs) for wanted in (1.0, 2.0))
    return claim("U9/policy-law", where, *both)


def _noise_claim(where: str, part: pd.DataFrame) -> Claim:
    """Noise costs performance, at the group size of least predicted loss; the control asks for a loss twice as large."""
    row = part.loc[int(part["prediction"].abs().idxmin())]
    gain = {**row, "estimate": -row["estimate"]}
    return claim("U9/noise-costs", where, *(evidence(gain, bound) for bound in (0.0, -2.0 * abs(float(row["prediction"])))))


def _budget_claim(where: str, part: pd.DataFrame) -> Claim:
    """N times the loss is the same at the largest and the smallest budget, averaged over groups; the control leaves N out."""
    small, large = (part[part["budget"] == budget] for budget in (part["budget"].min(), part["budget"].max()))
    sizes = small.index[small["batch_size"] >= LAW_BATCH]
    a, b = small.loc[sizes], large.loc[sizes]
    factor = float(large["budget"].iloc[0] / small["budget"].iloc[0])
    ratios = (factor * b["estimate"] / a["estimate"]).to_numpy()
    errors = ratios * np.hypot(a["standard_error"] / a["estimate"], b["standard_error"] / b["estimate"]).to_numpy()
    error = float(np.sqrt((errors**2).sum()) / len(sizes))
    runs = int(min(a["replications"].min(), b["replications"].min()))
    both = (Evidence(float(ratios.mean()), wanted, error, 2.0 * LAW_MARGIN, runs) for wanted in (1.0, factor))
    budgets = {"smallest N": float(small["budget"].iloc[0]), "largest N": float(large["budget"].iloc[0])}
    return claim("U9/budgets", where, *both, facts=budgets)


def claims(table: pd.DataFrame) -> list[Claim]:
    """Judge the printed group size, the law and the budgets at the last checkpoint, and at the one before whether noise costs."""
    found = []
    last = table[table["checkpoint"] == CHECKPOINTS[-1]].set_index("group_size")
    for (problem, schedule), part in last.groupby(["problem", "schedule"], sort=False):
        if part["budget"].nunique() > 1:
            found.append(_budget_claim(f"{problem}, {schedule}", part))
    for (problem, schedule, budget), part in table.groupby(["problem", "schedule", "budget"], sort=False):
        where = f"{problem}, {schedule}, N = {budget}"
        early, late = (part[part["checkpoint"] == n].set_index("group_size") for n in CHECKPOINTS[-2:])
        found += [_printed_claim(where, part), _law_claim(where, late), _noise_claim(where, early)]
    return found


STUDY = Study(
    "group_size",
    "U9: the group size that trains the best policy, at fixed budgets",
    cells,
    compute,
    rows,
    claims,
    ("U9/printed", "U9/policy-law", "U9/noise-costs", "U9/budgets"),
)
