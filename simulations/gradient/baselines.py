"""U6 and R2: which baseline has the lower variance, on every problem, with Assumption 2 as measured there."""

from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.evidence import Claim
from grpo_theory.theory import baseline_trace, break_even_group_size, leave_one_out_traces
from simulations.claims import claim
from simulations.gradient.cells import gradient_cells, merge, simulate_and
from simulations.harness.evidence import evidence, exact
from simulations.harness.study import Cell, Rows, Settings, Study

ESTIMATORS = ("reinforce", "oracle", "optimal", "rloo", "optimal_loo")
GROUP_SIZES = (4, 64)
COMPARISONS = (
    ("U6/vanilla, G=4", 4, "rloo", "reinforce"),
    ("U6/vanilla, G=64", 64, "rloo", "reinforce"),
    ("U6/printed", 64, "oracle", "optimal"),
    ("R2", 64, "optimal", "oracle"),
    ("R2/plug-in, G=4", 4, "optimal_loo", "rloo"),
    ("R2/plug-in, G=64", 64, "optimal_loo", "rloo"),
)
"""Statement, group size, and the estimator that it says is at most as noisy as another."""
PAIRS = tuple(dict.fromkeys((first, second) for *_, first, second in COMPARISONS))
CONTROL_SHARE = 0.05
"""The controls claim a difference that is further off by this share of the larger error."""


def cells(quick: bool) -> list[Cell]:
    """Every problem at a small and at a large group."""
    return gradient_cells(ESTIMATORS, GROUP_SIZES, batch_size=4, quick=quick)


def _prediction(estimator: str, moments: gt.Moments, group_size: int) -> float:
    """Return the exact error for each prompt on average where there is a closed form, else NaN."""
    traces = {
        "reinforce": baseline_trace(moments, 0.0) / group_size,
        "oracle": baseline_trace(moments, moments.value) / group_size,
        "optimal": baseline_trace(moments, moments.optimal_baseline) / group_size,
        "rloo": leave_one_out_traces(moments, group_size),
    }
    return float(moments.prompt_weights @ traces[estimator]) if estimator in traces else float("nan")


def _parabola_gaps(settings: Settings) -> tuple[float, float]:
    """Return the largest relative gaps between enumerated variances (no baseline less V) and the parabola, once and doubled."""
    problem = gt.gallery.problem(settings["problem"])
    moments = gt.moments(problem, problem.theta)
    none, value = (
        gt.gradient_law(problem, problem.theta, name, batch_size=1, group_size=2).prompt_traces * 2
        for name in ("reinforce", "oracle")
    )
    excess = baseline_trace(moments, 0.0) - baseline_trace(moments, moments.value)
    once, doubled = (float(np.max(np.abs(none - value - factor * excess) / moments.score_power)) for factor in (1.0, 2.0))
    return once, doubled


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each estimator and one for each paired difference, with the assumption's measures on each."""
    simulation = merge(results)
    problem = gt.gallery.problem(settings["problem"])
    moments = gt.moments(problem, problem.theta)
    f = moments.prompt_weights
    group_size = settings["group_size"]
    parabola_gap, parabola_gap_doubled = results[0]["prediction"]
    common = {
        "problem": problem.name,
        "batch_size": settings["batch_size"],
        "group_size": group_size,
        "replications": simulation.replications,
        "value": float(f @ moments.value),
        "correlation_mean": float(f @ np.abs(moments.score_reward_correlation)),
        "correlation_max": float(np.max(np.abs(moments.score_reward_correlation))),
        "vanilla_wins": float(f @ (moments.optimal_baseline < moments.value / 2.0)),
        "break_even": break_even_group_size(moments),
        "parabola_gap": parabola_gap,
        "parabola_gap_doubled": parabola_gap_doubled,
    }
    found = []
    for name, estimate, error in zip(
        simulation.estimators, simulation.prompt_mse, simulation.prompt_mse_standard_error, strict=True
    ):
        row = {"estimator": name, "estimate": float(estimate), "standard_error": float(error)}
        found.append(common | row | {"prediction": _prediction(name, moments, group_size)})
    for first, second in PAIRS:
        estimate, error = simulation.prompt_mse_difference(first, second)
        prediction = _prediction(first, moments, group_size) - _prediction(second, moments, group_size)
        row = {"estimator": f"{first} - {second}", "estimate": estimate, "standard_error": error}
        found.append(common | row | {"prediction": prediction})
    return found


def _facts(row: pd.Series) -> dict[str, float]:
    return {
        "mean |corr(||W||^2, Z)|": row["correlation_mean"],
        "max |corr|": row["correlation_max"],
        "share of prompts where no baseline beats V": row["vanilla_wins"],
    }


def _comparison(statement: str, size: int, first: str, second: str, problem: str, part: pd.DataFrame) -> Claim:
    """Compare two estimators by their paired difference.

    The control claims that the difference lies further below what exact theory says (of the leave-one-out b*: below what it says
    of b* itself, which no prompt-only baseline can beat).
    """
    at = part[part["group_size"] == size].set_index("estimator")
    difference = at.loc[f"{first} - {second}"]
    best = "optimal" if first == "optimal_loo" else first
    errors = float(at.loc[best, "prediction"]), float(at.loc[second, "prediction"])
    floor = errors[0] - errors[1] - CONTROL_SHARE * max(errors)
    return claim(statement, problem, evidence(difference, 0.0), evidence(difference, floor), facts=_facts(difference))


def _identities(problem: str, row: pd.Series) -> list[Claim]:
    """Assumption 2 as an identity, with "correlation 1/2" as control; the parabola, with twice the parabola as control."""
    correlation, gaps = row["correlation_max"], (row["parabola_gap"], row["parabola_gap_doubled"])
    return [
        claim("U6/assumption", problem, exact(correlation, 0.0), exact(correlation, 0.5), facts=_facts(row)),
        claim("U6/corrected", problem, *(exact(gap, 0.0) for gap in gaps), facts=_facts(row)),
    ]


def claims(table: pd.DataFrame) -> list[Claim]:
    """Read the identities and the comparisons off the table."""
    found = []
    for problem, part in table.groupby("problem", sort=False):
        found += _identities(str(problem), part.iloc[0])
        found += [_comparison(*comparison, str(problem), part) for comparison in COMPARISONS]
    return found


STUDY = Study(
    "baselines",
    "U6, R2: no baseline, V, b*, and their leave-one-out twins",
    cells,
    simulate_and(_parabola_gaps),
    rows,
    claims,
    ("U6/assumption", "U6/corrected", *(statement for statement, *_ in COMPARISONS)),
)
