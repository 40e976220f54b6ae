"""U12, U13: the weights of the limit law, exact.

The weights are computed for each group size and baseline. In the controls a mean is taken twice, an oracle's values are off, or
means are over pairs.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.evidence import Comparison, Statement, log_log_slope
from grpo_theory.evidence.rules import IDENTITY_TOLERANCE
from grpo_theory.harness.study import Cell, Settings
from grpo_theory.theory import leave_one_out_covariance, leave_one_out_parts
from simulations.kernels import kernel_at
from simulations.limit.prompt_weights import PromptBaselines, dependence
from simulations.statements import stated

U12, U13, U13_ESTIMATED, U13_CORRELATED = stated("U12", "U13", "U13/estimated", "U13/correlated")

PROBLEMS = ("kl-tabular", "kl-linear", "conflict", "single")
ASSUMED = ("kl-tabular", "indifferent", "balanced")
"""Where Corollary 10's assumption holds."""
GROUP_SIZES = (4, 8, 16)
"""At which all groups are enumerated."""
CURVE = tuple(range(GROUP_SIZES[0], GROUP_SIZES[-1] + 1))
"""At which the closed form is drawn."""
TWICE = kernel_at("scaled_mean", 2.0, "twice the mean")
"""The control of Corollary 9: a leave-one-out mean that is taken twice has a baseline of 2 V however large the group."""
OFFSET_VALUE = 0.2
"""The control of Corollary 10: an oracle whose values are off by a fifth of the reward's range."""
Data = Iterator[dict[str, Any]]


def cells(quick: bool) -> list[Cell]:
    """One cell for each part and problem; exact, so quick is no different."""
    parts = {
        "group size": PROBLEMS,
        "baseline": (*PROBLEMS, "indifferent", "balanced"),
        "estimated": ASSUMED,
    }
    return [Cell({"part": part, "problem": problem}) for part, names in parts.items() for problem in names]


def _noise(problem: gt.Problem, best: np.ndarray, group_size: int) -> np.ndarray:
    """Covariance of one prompt's leave-one-out estimate, in closed form."""
    return leave_one_out_covariance(problem, best, batch_size=1, group_size=group_size)


def _enumerated(problem: gt.Problem, best: np.ndarray, estimator: str | gt.Estimator, group_size: int) -> np.ndarray:
    """Covariance of one prompt's estimate, by enumeration of all groups."""
    return gt.gradient_covariance(problem, best, estimator, batch_size=1, group_size=group_size)


def _by_group_size(name: str) -> Data:
    """Differences of the weights from the oracle's, of leave-one-out and of the control's kernel: all groups enumerated.

    And those of leave-one-out in closed form, on a fine grid of group sizes.
    """
    for size in CURVE:
        baselines = PromptBaselines(name, size)
        problem, best = baselines.problem, baselines.best
        oracle = baselines.weights(baselines.moments.value)
        noises = {"rloo - oracle, closed form": _noise(problem, best, size)}
        if size in GROUP_SIZES:
            noises["rloo - oracle"] = _enumerated(problem, best, "rloo", size)
            noises["control"] = _enumerated(problem, best, TWICE, size)
        for quantity, noise in noises.items():
            difference = float(np.abs(baselines.of_noise(noise) - oracle).max())
            yield {"quantity": quantity, "group_size": size, "estimate": difference}


def _by_baseline(name: str) -> Data:
    """By what factor weights lie above the least of any baseline: the oracle's, a wrong oracle's, and those of two baselines."""
    baselines = PromptBaselines(name, 4)
    value, holds = baselines.moments.value, dependence(baselines.problem, baselines.best)
    tried = {
        "oracle": value,
        "optimal": baselines.moments.optimal_baseline,
        "reinforce": 0.0 * value,
        "control": value + OFFSET_VALUE,
    }
    for quantity, baseline in tried.items():
        yield {"quantity": quantity, "dependence": holds, "estimate": baselines.lead(baselines.weights(baseline))}


def _by_estimated(name: str) -> Data:
    """How far leave-one-out's weights, and those of means over pairs, lie above the least of any baseline, by group size."""
    for size in GROUP_SIZES:
        baselines = PromptBaselines(name, size)
        problem, best = baselines.problem, baselines.best
        between, oracle, second = leave_one_out_parts(problem, best)
        pairs = between + (oracle + second) / size
        for quantity, noise in (("rloo - least", _noise(problem, best, size)), ("control", pairs)):
            excess = float((baselines.of_noise(noise) - baselines.least).max())
            yield {"quantity": quantity, "group_size": size, "estimate": excess}


def compare(settings: Settings) -> Iterator[Comparison | dict[str, Any]]:
    """Yield the rows of a part, and what they say of its statements."""
    part, problem = settings["part"], settings["problem"]
    tabulate, judge = PARTS_OF[part]
    rows = list(tabulate(problem))
    yield from ({"part": part, "problem": problem} | row for row in rows)
    yield from judge(problem, pd.DataFrame(rows))


def _by_size(statement: Statement, own: str, problem: str, rows: pd.DataFrame) -> Iterator[Comparison]:
    """A difference that falls as G^-2; the control's falls as G^-1."""
    curves = (rows[rows["quantity"] == quantity] for quantity in (own, "control"))
    slope, broken = (log_log_slope(curve["group_size"], curve["estimate"])[0] for curve in curves)
    yield statement.compare(problem, slope, -2.0, broken=broken)


def _least(problem: str, rows: pd.DataFrame) -> Iterator[Comparison]:
    """No baseline has a smaller weight than the oracle; the control's oracle has values that are off."""
    at = rows.set_index("quantity")["estimate"]
    measured = rows["dependence"].iloc[0]
    facts = {"dependence of Q'WW'Q and Z": measured, "of b*": at["optimal"], "of no baseline": at["reinforce"]}
    statement = U13 if measured < IDENTITY_TOLERANCE else U13_CORRELATED
    yield statement.compare(problem, at["oracle"], 1.0, broken=at["control"], facts=facts)


PARTS_OF: dict[str, tuple[Callable[[str], Data], Callable[[str, pd.DataFrame], Iterator[Comparison]]]] = {
    "group size": (_by_group_size, partial(_by_size, U12, "rloo - oracle")),
    "baseline": (_by_baseline, _least),
    "estimated": (_by_estimated, partial(_by_size, U13_ESTIMATED, "rloo - least")),
}
"""What is tabulated of a problem, and what is read off."""
