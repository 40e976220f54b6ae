"""U3 to U5 without randomness: the exact error of the leave-one-out estimator by enumeration, beside the printed laws."""

from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.evidence import Claim, log_log_slope
from grpo_theory.evidence.reading import exact, largest
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from grpo_theory.theory import leave_one_out_traces, remainder_bound
from simulations.claims import claim, unconverted

GROUP_SIZES = (2, 4, 8, 16, 32, 64)
BATCH_SIZE = 4
DIVIDED = "grpo"
"""The controls of bounds and rates send GRPO as it is practised through the same enumeration: divided by the group's standard
deviation it estimates another gradient, so what the laws leave over does not vanish as they say; its variance alone is larger by
the factor 1/Var(Z), at least 4 for binary rewards."""
RATE_MARGIN = 0.15
"""A slope of 2 is told from one of 1 by half; over G = 8 to 64 the next order bends an exact power law by less than this."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each problem and group size; exact, so quick is no different."""
    return [
        Cell({"problem": name, "batch_size": BATCH_SIZE, "group_size": size})
        for name in gt.gallery.names("gradient")
        for size in GROUP_SIZES
    ]


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> dict[str, Any]:
    """Enumerate the errors of the leave-one-out and the oracle estimator, and evaluate the closed forms.

    Returns the constants of the law, and each quantity as (estimate, prediction).
    """
    problem = gt.gallery.problem(settings["problem"])
    b, g = settings["batch_size"], settings["group_size"]
    exact_moments, law = gt.moments(problem, problem.theta), gt.group_size_law(problem, problem.theta)
    loo, oracle, divided = (
        gt.gradient_law(problem, problem.theta, name, batch_size=b, group_size=g) for name in ("rloo", "oracle", DIVIDED)
    )
    closed = leave_one_out_traces(exact_moments, g)
    printed = exact_moments.oracle_trace / g + exact_moments.second_order / g**2
    reward_range = float(np.ptp(problem.bandit.values))
    live = exact_moments.score_power > 0.0
    power = float(exact_moments.prompt_weights @ exact_moments.score_power)

    def over_bounds(found: gt.GradientLaw) -> tuple[float, float]:
        """What an error has beyond its first terms, relative to the bounds: the largest of a prompt, and that of the batch."""
        ratios = (found.prompt_traces - exact_moments.oracle_trace / g) / remainder_bound(exact_moments, g, reward_range)
        batch = (found.mse - (law.c1 + law.c2 / g) / b) / (reward_range**2 * power / (b * g**2))
        return float(np.max(ratios[live])), batch

    (over, over_batch), (over_divided, over_batch_divided) = over_bounds(loo), over_bounds(divided)
    quantities = {
        "mse": (loo.mse, float(law.mse(b, g))),
        "mse, printed": (loo.mse, (law.c1 + law.c2 / g + law.c3 / g**2) / b),
        "prompt mse": (loo.prompt_mse, float(exact_moments.prompt_weights @ closed)),
        "mse of the oracle": (oracle.mse, (law.c1 + law.c2 / g) / b),
        "prompt mse of the oracle": (oracle.prompt_mse, law.c2 / g),
        "largest relative gap": (float(np.max(np.abs(loo.prompt_traces / closed - 1.0)[live])), 0.0),
        "largest relative gap, printed": (float(np.max(np.abs(printed / closed - 1.0)[live])), 0.0),
        "largest remainder over bound": (over, 1.0),
        "remainder of the batch over bound": (over_batch, 1.0),
        "mse, divided": (divided.mse, float(law.mse(b, g))),
        "prompt mse, divided": (divided.prompt_mse, float(exact_moments.prompt_weights @ closed)),
        "largest remainder over bound, divided": (over_divided, 1.0),
        "remainder of the batch over bound, divided": (over_batch_divided, 1.0),
    }
    constants = {"c1": law.c1, "c2": law.c2, "c3": law.c3, "optimum": law.optimum, "paper_optimum": law.paper_optimum}
    return {"constants": constants, "quantities": quantities}


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each quantity, with the constants of the problem's law."""
    common = {**settings, **results[0]["constants"], **EXACT}
    return [
        common | {"quantity": name, "estimate": estimate, "prediction": prediction}
        for name, (estimate, prediction) in results[0]["quantities"].items()
    ]


def _law_claims(problem: str, at: pd.DataFrame) -> list[Claim]:
    """The exact law against enumeration, by prompt and by batch; the controls' has G^2 for G(G-1), at G = 2 half of the term."""

    def gap(name: str) -> float:
        return largest((at.loc[name, "estimate"] / at.loc[name, "prediction"] - 1.0).abs())

    gaps = [largest(at.loc[name, "estimate"]) for name in ("largest relative gap", "largest relative gap, printed")]
    return [
        claim("U3/corrected", problem, *(exact(gap, 0.0) for gap in gaps)),
        claim("U4/corrected", problem, *(exact(gap(name), 0.0) for name in ("mse", "mse, printed"))),
    ]


def _remainder_claims(problem: str, at: pd.DataFrame) -> list[Claim]:
    """The printed O(1/G^2) remainder with the explicit constant (range of Z)^2; the controls divide."""
    found = []
    for statement, name in (
        ("U3/printed", "largest remainder over bound"),
        ("U4/printed", "remainder of the batch over bound"),
    ):
        ratios = (largest(at.loc[quantity, "estimate"]) for quantity in (name, f"{name}, divided"))
        found.append(claim(statement, problem, *(exact(ratio, 1.0) for ratio in ratios)))
    return found


def _rate_claims(problem: str, at: pd.DataFrame) -> list[Claim]:
    """Log-log slopes over G = 8..64, exact; the controls divide."""
    error = at[at["group_size"] >= 8].pivot(columns="group_size", values="estimate").T
    leading = float(at["c2"].iloc[0]) / error.index
    found = []
    for statement, quantity, excess, exponent in (
        ("U3/rate", "prompt mse", lambda mse: mse - leading, -2.0),
        ("U5/prompt", "prompt mse", lambda mse: mse / error["prompt mse of the oracle"] - 1.0, -1.0),
        ("U5/batch", "mse", lambda mse: mse - error["mse of the oracle"], -2.0),
    ):
        curves = [excess(error[name]) for name in (quantity, f"{quantity}, divided")]
        slopes = (log_log_slope(curve.index, curve)[0] for curve in curves)
        found.append(claim(statement, problem, *(exact(slope, exponent, RATE_MARGIN) for slope in slopes)))
    return found


def claims(table: pd.DataFrame) -> list[Claim]:
    """Read the exact claims off the table."""
    return [
        made
        for problem, part in table.groupby("problem", sort=False)
        for make in (_remainder_claims, _law_claims, _rate_claims)
        for made in make(str(problem), part.set_index("quantity"))
    ]


STUDY = unconverted(
    "error_law",
    "U3 to U5: the exact error law by enumeration",
    cells,
    compute,
    rows,
    claims,
    ("U3/printed", "U4/printed", "U3/corrected", "U4/corrected", "U3/rate", "U5/prompt", "U5/batch"),
)
