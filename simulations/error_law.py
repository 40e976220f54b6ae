"""U3 to U5 without randomness: the exact error of the leave-one-out estimator by enumeration, beside the printed laws."""

from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.inference import Claim, Evidence, log_log_slope
from grpo_theory.theory import leave_one_out_traces, remainder_bound
from simulations.study import Cell, Rows, Settings, Study

SOURCE = "arXiv 2603.01162"
GROUP_SIZES = (2, 4, 8, 16, 32, 64)
BATCH_SIZE = 4


def cells(quick: bool) -> list[Cell]:
    """One cell a problem and group size; exact, so quick is no different."""
    return [
        Cell({"problem": name, "batch_size": BATCH_SIZE, "group_size": size})
        for name in gt.gallery.names()
        for size in GROUP_SIZES
    ]


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> dict[str, float]:
    """Enumerate the errors of the leave-one-out and the oracle estimator, and evaluate the closed forms."""
    problem = gt.gallery.problem(settings["problem"])
    b, g = settings["batch_size"], settings["group_size"]
    where = (problem.bandit, problem.policy, problem.theta)
    exact, law = gt.moments(*where), gt.group_size_law(*where)
    loo = gt.gradient_law(*where, "rloo", batch_size=b, group_size=g)
    oracle = gt.gradient_law(*where, "oracle", batch_size=b, group_size=g)
    closed = leave_one_out_traces(exact, g)
    remainder = loo.prompt_traces - exact.oracle_trace / g
    reward_range = float(np.ptp(problem.bandit.values))
    bound = remainder_bound(exact, g, reward_range)
    live = exact.score_power > 0.0
    power = float(exact.prompt_weights @ exact.score_power)
    return {
        "c1": law.c1,
        "c2": law.c2,
        "c3": law.c3,
        "optimum": law.optimum,
        "paper_optimum": law.paper_optimum,
        "mse": loo.mse,
        "mse_oracle": oracle.mse,
        "mse_closed": float(law.mse(b, g)),
        "mse_printed": (law.c1 + law.c2 / g + law.c3 / g**2) / b,
        "prompt_mse": loo.prompt_mse,
        "prompt_mse_oracle": oracle.prompt_mse,
        "closed_gap": float(np.max(np.abs(loo.prompt_traces / closed - 1.0)[live])),
        "printed_gap": float(np.max(np.abs((exact.oracle_trace / g + exact.second_order / g**2) / closed - 1.0)[live])),
        "prompt_ratio": float(np.max((remainder / bound)[live])),
        "batch_ratio": (loo.mse - (law.c1 + law.c2 / g) / b) / (reward_range**2 * power / (b * g**2)),
    }


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row a cell."""
    return [{**settings, **results[0]}]


def _law_claims(problem: str, part: pd.DataFrame) -> list[Claim]:
    """The exact law against enumeration, per prompt and per batch; controls put G^2 for G(G-1), as printed."""
    batch = part["mse"] / part["mse_closed"] - 1.0
    printed = part["mse"] / part["mse_printed"] - 1.0
    source = "docs/derivations.md, 2"
    return [
        Claim(
            "U3/corrected",
            source,
            "MSE(x) = trace Sigma_oracle/G + [Var(Z) E||W||^2 + ||g||^2]/(G(G-1)), every G >= 2",
            "identity",
            problem,
            Evidence(estimate=float(part["closed_gap"].max()), prediction=0.0),
            Evidence(estimate=float(part["printed_gap"].max()), prediction=0.0),
        ),
        Claim(
            "U4/corrected",
            source,
            "MSE = c1/B + c2/(BG) + c3/(BG(G-1)), every G >= 2",
            "identity",
            problem,
            Evidence(estimate=float(batch.abs().max()), prediction=0.0),
            Evidence(estimate=float(printed.abs().max()), prediction=0.0),
        ),
    ]


def _remainder_claims(problem: str, part: pd.DataFrame) -> list[Claim]:
    """The printed O(1/G^2) remainder with the explicit constant (range of Z)^2; the control claims O(1/G^3)."""
    statements = (
        ("U3/printed", "Theorem 2", "MSE(x) - trace Sigma_oracle/G <= (range Z)^2 E||W||^2/G^2", "prompt_ratio"),
        ("U4/printed", "Proposition 3", "MSE - c1/B - c2/(BG) <= (range Z)^2 E||W||^2/(BG^2)", "batch_ratio"),
    )
    return [
        Claim(
            key,
            f"{SOURCE}, {number}",
            statement,
            "upper bound",
            problem,
            Evidence(estimate=float(part[ratio].max()), prediction=1.0),
            Evidence(estimate=float((part[ratio] * part["group_size"]).max()), prediction=1.0),
        )
        for key, number, statement, ratio in statements
    ]


def _rate_claims(problem: str, part: pd.DataFrame) -> list[Claim]:
    """Log-log slopes over G = 8..64, exact; each control claims another exponent."""
    large = part[part["group_size"] >= 8]
    remainder = large["prompt_mse"] - large["c2"] / large["group_size"]
    ratio = large["prompt_mse"] / large["prompt_mse_oracle"] - 1.0
    difference = large["mse"] - large["mse_oracle"]
    statements = (
        ("U3/rate", "Theorem 2", "MSE(x) - trace Sigma_oracle/G falls as G^-2", remainder, -2.0, -3.0),
        ("U5/prompt", "Corollary 4", "per prompt, MSE(leave-one-out)/MSE(oracle) - 1 falls as G^-1", ratio, -1.0, -2.0),
        (
            "U5/batch",
            "Corollary 4",
            "per batch, MSE(leave-one-out) - MSE(oracle) falls as G^-2, not G^-1",
            difference,
            -2.0,
            -1.0,
        ),
    )
    found = []
    for key, number, statement, series, exponent, wrong in statements:
        slope, _ = log_log_slope(large["group_size"], series)
        evidence, control = (Evidence(estimate=slope, prediction=value, margin=0.15) for value in (exponent, wrong))
        found.append(Claim(key, f"{SOURCE}, {number}", statement, "rate", problem, evidence, control))
    return found


def claims(table: pd.DataFrame) -> list[Claim]:
    """Read the exact claims off the table."""
    return [
        claim
        for problem, part in table.groupby("problem", sort=False)
        for make in (_remainder_claims, _law_claims, _rate_claims)
        for claim in make(str(problem), part)
    ]


STUDY = Study("error_law", "U3 to U5: the exact error law by enumeration", cells, compute, rows, claims)
