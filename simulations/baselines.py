"""U6 and R2: which baseline has the lower variance, on every problem, with Assumption 2 as measured there."""

from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.gallery import Problem
from grpo_theory.inference import Claim, Evidence
from grpo_theory.theory import baseline_trace, break_even_group_size, leave_one_out_traces
from simulations.gradient_cells import gradient_cells, merge, simulate_chunk
from simulations.study import Cell, Rows, Settings, Study

ESTIMATORS = ("reinforce", "oracle", "optimal", "rloo", "optimal_loo")
GROUP_SIZES = (4, 64)
SOURCE = "arXiv 2603.01162"
COMPARISONS = (
    ("U6/vanilla, G=4", f"{SOURCE}, Fig. 4", "leave-one-out below no baseline", 4, "rloo", "reinforce", "ordering"),
    ("U6/vanilla, G=64", f"{SOURCE}, Cor. 5", "leave-one-out below no baseline", 64, "rloo", "reinforce", "ordering"),
    ("U6/printed", f"{SOURCE}, Cor. 5", "the value baseline at most b*", 64, "oracle", "optimal", "upper bound"),
    ("R2", "Greensmith et al. 2004", "b* at most the value baseline", 64, "optimal", "oracle", "upper bound"),
    ("R2/plug-in, G=4", "measured", "leave-one-out b* at most leave-one-out mean", 4, "optimal_loo", "rloo", "upper bound"),
    (
        "R2/plug-in, G=64",
        "measured",
        "leave-one-out b* at most leave-one-out mean",
        64,
        "optimal_loo",
        "rloo",
        "upper bound",
    ),
)
PAIRS = tuple(dict.fromkeys((first, second) for *_, first, second, _ in COMPARISONS))


def cells(quick: bool) -> list[Cell]:
    """Every problem at a small and at a large group."""
    return gradient_cells(ESTIMATORS, GROUP_SIZES, batch_size=4, quick=quick)


def _prediction(estimator: str, exact: gt.Moments, group_size: int) -> float:
    """Return the exact error per prompt where there is a closed form, else NaN."""
    traces = {
        "reinforce": baseline_trace(exact, 0.0) / group_size,
        "oracle": baseline_trace(exact, exact.value) / group_size,
        "optimal": baseline_trace(exact, exact.optimal_baseline) / group_size,
        "rloo": leave_one_out_traces(exact, group_size),
    }
    return float(exact.prompt_weights @ traces[estimator]) if estimator in traces else float("nan")


def _parabola_gaps(problem: Problem, exact: gt.Moments) -> tuple[float, float]:
    """Return the largest relative gaps between enumerated variances (no baseline less V) and the parabola, once and doubled."""
    where = (problem.bandit, problem.policy, problem.theta)
    none, value = (
        gt.gradient_law(*where, name, batch_size=1, group_size=2).prompt_traces * 2 for name in ("reinforce", "oracle")
    )
    excess = baseline_trace(exact, 0.0) - baseline_trace(exact, exact.value)
    once, doubled = (float(np.max(np.abs(none - value - factor * excess) / exact.score_power)) for factor in (1.0, 2.0))
    return once, doubled


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row an estimator and one a paired difference, with the assumption's measures on each."""
    simulation = merge(results)
    problem = gt.gallery.problem(settings["problem"])
    exact = gt.moments(problem.bandit, problem.policy, problem.theta)
    f = exact.prompt_weights
    group_size = settings["group_size"]
    parabola_gap, parabola_gap_doubled = _parabola_gaps(problem, exact)
    common = {
        "problem": problem.name,
        "batch_size": settings["batch_size"],
        "group_size": group_size,
        "replications": simulation.replications,
        "value": float(f @ exact.value),
        "correlation_mean": float(f @ np.abs(exact.score_reward_correlation)),
        "correlation_max": float(np.max(np.abs(exact.score_reward_correlation))),
        "vanilla_wins": float(f @ (exact.optimal_baseline < exact.value / 2.0)),
        "break_even": break_even_group_size(exact),
        "parabola_gap": parabola_gap,
        "parabola_gap_doubled": parabola_gap_doubled,
    }
    found = []
    for name, estimate, error in zip(
        simulation.estimators, simulation.prompt_mse, simulation.prompt_mse_standard_error, strict=True
    ):
        row = {"estimator": name, "estimate": float(estimate), "standard_error": float(error)}
        found.append(common | row | {"prediction": _prediction(name, exact, group_size)})
    for first, second in PAIRS:
        estimate, error = simulation.prompt_mse_difference(first, second)
        prediction = _prediction(first, exact, group_size) - _prediction(second, exact, group_size)
        row = {"estimator": f"{first} - {second}", "estimate": estimate, "standard_error": error}
        found.append(common | row | {"prediction": prediction})
    return found


def _assumptions(row: pd.Series) -> dict[str, float]:
    return {
        "mean |corr(||W||^2, Z)|": row["correlation_mean"],
        "max |corr|": row["correlation_max"],
        "share of prompts where no baseline beats V": row["vanilla_wins"],
    }


def _evidence(difference: pd.Series, prediction: float) -> Evidence:
    return Evidence(
        estimate=float(difference["estimate"]),
        prediction=prediction,
        standard_error=float(difference["standard_error"]),
        replications=int(difference["replications"]),
    )


def _comparison(claim: tuple[str, str, str, int, str, str, str], problem: str, part: pd.DataFrame) -> Claim:
    """Compare two estimators by their paired difference.

    The control claims that the difference lies a further 5%, of the larger error, below what exact theory says (for the
    leave-one-out b*: below what it says of b* itself, which no prompt-only baseline can beat).
    """
    key, source, statement, size, first, second, kind = claim
    at = part[part["group_size"] == size].set_index("estimator")
    difference = at.loc[f"{first} - {second}"]
    best = "optimal" if first == "optimal_loo" else first
    exact = float(at.loc[best, "prediction"]), float(at.loc[second, "prediction"])
    floor = exact[0] - exact[1] - 0.05 * max(exact)
    evidence, control = (_evidence(difference, prediction) for prediction in (0.0, floor))
    statement = f"{statement}, G = {size}"
    return Claim(key, source, statement, kind, problem, evidence, control, _assumptions(difference))


def _identities(problem: str, row: pd.Series) -> list[Claim]:
    """Assumption 2 as an identity, with "correlation 1/2" as control; the parabola, with twice the parabola as control."""
    correlation = float(row["correlation_max"])
    return [
        Claim(
            "U6/assumption",
            f"{SOURCE}, Assumption 2",
            "||W||^2 and Z are uncorrelated given X: the largest |correlation| over prompts is 0",
            "identity",
            problem,
            Evidence(estimate=correlation, prediction=0.0),
            Evidence(estimate=correlation, prediction=0.5),
            _assumptions(row),
        ),
        Claim(
            "U6/corrected",
            "docs/derivations.md, 3",
            "trace Sigma_C - trace Sigma_V = E||W||^2 [(C-b*)^2 - (V-b*)^2]: C beats V iff it is nearer to b*",
            "identity",
            problem,
            Evidence(estimate=float(row["parabola_gap"]), prediction=0.0),
            Evidence(estimate=float(row["parabola_gap_doubled"]), prediction=0.0),
            _assumptions(row),
        ),
    ]


def claims(table: pd.DataFrame) -> list[Claim]:
    """Read the identities and the comparisons off the table."""
    found = []
    for problem, part in table.groupby("problem", sort=False):
        found += _identities(str(problem), part.iloc[0])
        found += [_comparison(claim, str(problem), part) for claim in COMPARISONS]
    return found


STUDY = Study("baselines", "U6, R2: no baseline, V, b*, and their leave-one-out twins", cells, simulate_chunk, rows, claims)
