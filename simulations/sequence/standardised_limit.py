"""U14, U15: advantages divided by the group's standard deviation against those divided by the prompt's, off policy, exact."""

from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.estimation.registry import make_estimator
from grpo_theory.evidence import Claim, log_log_slope
from grpo_theory.evidence.reading import exact
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from simulations.claims import claim, unconverted
from simulations.sequence.divergences import STEP
from simulations.sequence.parts import composed
from simulations.sequence.standardised import leave_out, standardised

PROBLEMS = ("sequence-tabular", "sequence-shared", "linear")
GROUP_SIZES = (256, 512, 1024)
DRIFT, STRAY = 0.5, 0.01
RATE_MARGIN = 0.1
"""A tenth of the exponent: over these group sizes it is a factor of 1.2, which nobody who chooses a group size would notice."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each problem, exact; quick takes the first alone."""
    settings = {"group_sizes": list(GROUP_SIZES), "drift": DRIFT, "stray": STRAY}
    return [Cell({"problem": name} | settings) for name in PROBLEMS[: 1 if quick else None]]


def off_the_limit(batch, advantages):
    """The same less what it is with the prompt's own standard deviation."""
    n_groups, group_size = batch.rewards.shape
    for b in range(n_groups):
        variance = leave_out(batch.rewards[b], advantages[b])
        if variance > 0.0:
            for g in range(group_size):
                advantages[b, g] *= 1.0 / np.sqrt(variance) - 1.0 / batch.standard_deviations[b]


def off_by_variance(batch, advantages):
    """Broken: the variance in the place of the standard deviation, its root forgotten."""
    n_groups, group_size = batch.rewards.shape
    for b in range(n_groups):
        variance = leave_out(batch.rewards[b], advantages[b])
        if variance > 0.0:
            for g in range(group_size):
                advantages[b, g] *= 1.0 / variance - 1.0 / batch.standard_deviations[b]


def by_standard_error(batch, advantages):
    """Broken: the standard error of the mean in the place of the standard deviation."""
    n_groups, group_size = batch.rewards.shape
    for b in range(n_groups):
        variance = leave_out(batch.rewards[b], advantages[b])
        if variance > 0.0:
            for g in range(group_size):
                advantages[b, g] /= np.sqrt(variance / group_size)


KERNELS = {
    function.__name__: make_estimator(function.__name__, function, minimum_group_size=2)
    for function in (standardised, off_the_limit, off_by_variance, by_standard_error)
}


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> dict[str, Any]:
    """Return squared sizes and variances group size by group size, and errors of the KL term's weights."""
    problem = gt.gallery.problem(settings["problem"])
    rng = np.random.default_rng(seed)
    drift, stray = (
        settings[name] * step / np.linalg.norm(step)
        for name, step in zip(("drift", "stray"), rng.normal(size=(2, problem.policy.dimension)), strict=True)
    )
    theta = problem.theta + drift
    then, here, astray = (problem.at(at).token_log_probabilities for at in (problem.theta, theta, theta + stray))
    found: dict[str, Any] = {
        "printed": _weight_error(np.expm1(here - then), here - then),
        "printed, astray": _weight_error(np.expm1(here - then), astray - then),
        "corrected": _weight_error(np.expm1(then - here), here - then),
        "corrected, astray": _weight_error(np.expm1(then - here), astray - then),
    }
    for name, kernel in KERNELS.items():
        chosen = composed(kernel, "token")
        laws = [
            gt.gradient_law(problem, theta, chosen, batch_size=1, group_size=size, behaviour=problem.theta)
            for size in settings["group_sizes"]
        ]
        found[name] = [law.trace + float(law.mean @ law.mean) for law in laws]
        found[f"{name}, variance"] = [float(law.prompt_weights @ law.prompt_traces) for law in laws]
    return found


def _weight_error(weights: Array, log_ratios: Array) -> float:
    """Return the largest error of a token's weight W_t as the derivative of -k3 in log pi, with r = pi_0/pi and log pi/pi_0."""
    stepped = log_ratios + 1j * STEP
    return float(np.abs(weights + (np.exp(-stepped) + stepped).imag / STEP).max())


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each quantity and group size."""
    zero = {"prediction": 0.0, **EXACT}
    found = []
    for name, values in results[0].items():
        sizes = settings["group_sizes"] if isinstance(values, list) else [0]
        for size, value in zip(sizes, np.atleast_1d(values), strict=True):
            row = {"problem": settings["problem"], "quantity": name, "group_size": size, "estimate": float(value)}
            found.append(row | zero)
    return found


SLOPES = (
    ("U14/standardised", "off_the_limit", "off_by_variance"),
    ("U15/variance", "standardised, variance", "by_standard_error, variance"),
)
WEIGHTS = (("U14/printed", "printed"), ("U14/corrected", "corrected"))


def claims(table: pd.DataFrame) -> list[Claim]:
    """Log-log slopes in G, and the weights of the KL term; the controls send broken kernels, and another policy."""
    found = []
    for problem, part in table.groupby("problem", sort=False):
        for statement, own, broken in SLOPES:
            curves = (part[part["quantity"] == name].set_index("group_size")["estimate"] for name in (own, broken))
            slopes = (log_log_slope(curve.index, curve)[0] for curve in curves)
            found.append(claim(statement, str(problem), *(exact(slope, -1.0, RATE_MARGIN) for slope in slopes)))
        gaps = part.set_index("quantity")["estimate"]
        for statement, own in WEIGHTS:
            found.append(claim(statement, str(problem), exact(gaps[own], 0.0), exact(gaps[f"{own}, astray"], 0.0)))
    return found


STUDY = unconverted(
    "standardised_limit",
    "U14, U15: standardised advantages and token ratios as the group grows, exact",
    cells,
    compute,
    rows,
    claims,
    tuple(statement for statement, *_ in (*SLOPES, *WEIGHTS)),
)
