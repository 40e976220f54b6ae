"""Figure 4 and U9 on policies of rising quality: errors, constants and best group of the language model's head as it learns.

All exact, by the closed forms that `error_law` checks by enumeration.  An error is that of one group about its own prompt's
gradient, so that the spread between prompts, the same for all estimators, does not hide what tells them apart.
"""

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import exact, largest
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from grpo_theory.theory import baseline_trace, break_even_group_size, leave_one_out_traces
from simulations.claims import claim, unconverted
from simulations.gradient.trained_heads import trained_heads

PROBLEMS = ("lm-zero-shot", "lm-few-shot")
QUALITIES = (0.15, 0.2, 0.25, 0.35, 0.45, 0.6, 0.7, 0.85)
JUDGED = (0.15, 0.35, 0.6, 0.85)
GROUP_SIZES = (4, 8, 16, 32, 64)
NEAR, SAME = 0.2, 0.05
"""Over Figure 4's axis, where errors fall 16-fold, a fifth is a fifteenth of the height, and 5% a line's width."""
SHOWN = ("reinforce", "oracle", "rloo")
WRONG_SIGN, PAIRS = "oracle, wrong sign", "means of pairs"
"""The controls: V added to the reward instead of taken off, always worse than no baseline; and a baseline of one other reward,
leave-one-out in groups of 2, whose second-order term does not fall with G."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each start; exact, so quick is no different."""
    return [Cell({"problem": problem, "qualities": list(QUALITIES)}) for problem in PROBLEMS]


def errors(moments: gt.Moments, group_size: int) -> dict[str, float]:
    """Return the mean error of one group about its prompt's gradient, by estimator, the controls' among them."""
    traces: dict[str, Array] = {
        "reinforce": baseline_trace(moments, 0.0) / group_size,
        "oracle": baseline_trace(moments, moments.value) / group_size,
        "optimal": baseline_trace(moments, moments.optimal_baseline) / group_size,
        "rloo": leave_one_out_traces(moments, group_size),
        WRONG_SIGN: baseline_trace(moments, -moments.value) / group_size,
        PAIRS: leave_one_out_traces(moments, 2) * 2.0 / group_size,
    }
    return {name: float(moments.prompt_weights @ trace) for name, trace in traces.items()}


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> Rows:
    """Train the head and compute, at each quality, the constants of the error law, Assumption 2's measures and the errors."""
    problem = gt.gallery.problem(settings["problem"])
    found = []
    for quality, theta in zip(settings["qualities"], trained_heads(problem, settings["qualities"]), strict=True):
        law, moments = gt.group_size_law(problem, theta), gt.moments(problem, theta)
        f = moments.prompt_weights
        policy = {
            "quality": quality,
            **{"c1": law.c1, "c2": law.c2, "c3": law.c3, "optimum": law.optimum},
            "correlation_mean": float(f @ np.abs(moments.score_reward_correlation)),
            "vanilla_wins": float(f @ (moments.optimal_baseline < moments.value / 2.0)),
            "break_even": break_even_group_size(moments),
        }
        found += [
            policy | {"group_size": size, "estimator": name, "estimate": error}
            for size in GROUP_SIZES
            for name, error in errors(moments, size).items()
        ]
    return found


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each policy, group size and estimator."""
    common = {"problem": settings["problem"], "prediction": np.nan, **EXACT}
    return [common | row for row in results[0]]


def _facts(row: pd.Series) -> dict[str, float]:
    return {
        **{name: row[name] for name in ("c1", "c2", "c3")},
        "G*": row["optimum"],
        "mean |corr(||W||^2, Z)|": row["correlation_mean"],
        "share of prompts where no baseline beats V": row["vanilla_wins"],
        "leave-one-out beats no baseline above G": row["break_even"],
    }


def _policy_claims(where: str, policy: pd.DataFrame) -> list[Claim]:
    """One policy: leave-one-out against no baseline and against the oracle."""
    error = policy.pivot_table(index="group_size", columns="estimator", values="estimate", dropna=False)
    ratio = {name: error[name] / error["oracle"] - 1.0 for name in ("rloo", PAIRS)}
    excess = [largest(error[name] / error["reinforce"] - 1.0) for name in ("rloo", WRONG_SIGN)]
    near = [ratio[name][8] for name in ("rloo", PAIRS)]
    same = [largest(ratio[name][[32, 64]]) for name in ("rloo", PAIRS)]
    facts = _facts(policy.iloc[0])
    return [
        claim(statement, where, *(exact(value, bound) for value in values), facts=facts)
        for statement, values, bound in (
            ("U6/vanilla, trained", excess, 0.0),
            ("U6/near, G=8", near, NEAR),
            ("U6/same, G=32", same, SAME),
        )
    ]


def _quality_claims(problem: str, part: pd.DataFrame) -> list[Claim]:
    """From each policy to the next better one; the control sees the better one through groups of 4 instead of 64."""
    found = []
    at = part.set_index(["estimator", "quality", "group_size"])["estimate"]
    for name in SHOWN:
        for worse, better in pairwise(JUDGED):
            before = at[(name, worse, 64)]
            falls = (exact(float(np.log(at[(name, better, size)] / before)), 0.0) for size in (64, 4))
            found.append(claim("U6/quality", f"{problem} ({name}), success {worse:g} to {better:g}", *falls))
    return found


def claims(table: pd.DataFrame) -> list[Claim]:
    """Judge Figure 4's statements at mean successes of 0.15, 0.35, 0.6 and 0.85."""
    found = []
    for name, part in table.groupby("problem", sort=False):
        problem = str(name)
        for quality in JUDGED:
            found += _policy_claims(f"{problem}, success {quality:g}", part[part["quality"] == quality])
        found += _quality_claims(problem, part)
    return found


STUDY = unconverted(
    "quality_path",
    "Figure 4: errors, constants and winners as the language model's head learns",
    cells,
    compute,
    rows,
    claims,
    ("U6/vanilla, trained", "U6/near, G=8", "U6/same, G=32", "U6/quality"),
)
