"""U15: the bias of token ratios after m updates of size eta on one rollout, exact."""

from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim, log_log_slope
from grpo_theory.evidence.reading import exact
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from simulations.claims import claim, unconverted
from simulations.sequence.parts import composed

PROBLEMS = ("sequence-tabular", "sequence-shared", "kl-sequence")
STEPS = (0.003, 0.01, 0.03, 0.1)
UPDATES = (1, 2, 4, 8)
STEP, UPDATE = 0.01, 4
"""The step size at which the number of updates varies, and the number at which the step size does."""
GROUP_SIZE = 8
RATE_MARGIN = 0.1
"""A tenth of the exponent: over a factor of 30 in the step size it is one of 1.4 in the bias, too little to choose a step by."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each problem; exact, so quick is no different."""
    return [
        Cell({"problem": name, "steps": list(STEPS), "updates": list(UPDATES), "group_size": GROUP_SIZE}) for name in PROBLEMS
    ]


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> dict[str, Any]:
    """Return the length of the mean's distance from that with trajectory ratios, and the control's, with an own sample's too."""
    problem = gt.gallery.problem(settings["problem"])
    pairs = [(step, UPDATE) for step in settings["steps"]] + [(STEP, updates) for updates in settings["updates"]]
    found = []
    for step, updates in pairs:
        theta = _drifted(problem, step, updates, settings["group_size"])
        wanted = _mean(problem, theta, "rloo", "trajectory", settings["group_size"])
        token, own = (_mean(problem, theta, name, "token", settings["group_size"]) for name in ("rloo", "dr_grpo"))
        found.append({"step": step, "updates": updates} | _distances(token, own, wanted))
    return {"rows": found}


def _distances(token: Array, own: Array, wanted: Array) -> dict[str, float]:
    scale = float(np.linalg.norm(wanted))
    return {"bias": float(np.linalg.norm(token - wanted)) / scale, "own": float(np.linalg.norm(own - wanted)) / scale}


def _mean(problem: gt.Problem, theta: Array, advantage: str, ratio: str, group_size: int) -> Array:
    """Return the exact mean of an estimate at theta from responses of the problem's own policy."""
    sizes = {"batch_size": 1, "group_size": group_size}
    return gt.gradient_mean(problem, theta, composed(advantage, ratio), **sizes, behaviour=problem.theta)


def _drifted(problem: gt.Problem, step: float, updates: int, group_size: int) -> Array:
    """Return the policy after so many expected updates, all on responses of the problem's own policy."""
    theta = np.array(problem.theta)
    for _ in range(updates):
        theta = theta + step * _mean(problem, theta, "rloo", "token", group_size)
    return theta


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each step size, number of updates and kernel; the bias is relative to the gradient."""
    zero = {"prediction": 0.0, **EXACT}
    common = {"problem": settings["problem"], "group_size": settings["group_size"]}
    found = []
    for row in results[0]["rows"]:
        place = {"step": row["step"], "updates": row["updates"], "drift": row["step"] * row["updates"]}
        for kernel, name in (("rloo", "bias"), ("dr_grpo", "own")):
            found.append(common | place | {"advantage": kernel, "estimate": row[name]} | zero)
    return found


def claims(table: pd.DataFrame) -> list[Claim]:
    """Log-log slopes in eta and in m; the control's kernel has the own sample in the mean, a bias of 1/G that does not vanish."""
    found = []
    for problem, part in table.groupby("problem", sort=False):
        for statement, varied, held in (
            ("U15/step", "step", part["updates"] == UPDATE),
            ("U15/updates", "updates", part["step"] == STEP),
        ):
            curves = (
                part[held & (part["advantage"] == kernel)].groupby(varied)["estimate"].first() for kernel in ("rloo", "dr_grpo")
            )
            slopes = (log_log_slope(curve.index, curve)[0] for curve in curves)
            found.append(claim(statement, str(problem), *(exact(slope, 1.0, RATE_MARGIN) for slope in slopes)))
    return found


STUDY = unconverted(
    "inner_updates",
    "U15: the bias of token ratios against the step size and the number of updates, exact",
    cells,
    compute,
    rows,
    claims,
    ("U15/step", "U15/updates"),
)
