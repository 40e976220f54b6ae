"""U6, exactly: leave-one-out against every prompt-only baseline as groups grow, where Assumption 2 holds and where it does not.

Everything is enumerated.  With a baseline C(x) the trace at a prompt is 1/G times a parabola in C, which three values of C
determine; its least value is that of the best baseline there is.  Leave-one-out's trace is a_1/G + a_2/(G(G-1)), which two group
sizes determine; a_1 is the limit of G times it as G grows.
"""

from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import exact
from grpo_theory.evidence.rules import IDENTITY_TOLERANCE
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from simulations.claims import claim, unconverted
from simulations.kernels import kernel_at

CONSTANTS = (0.0, 0.5, 1.0)
GROUP_SIZES = (8, 16)
SHORT, ADDED = "0.8 of the mean", "mean added"
"""The controls' kernels.  With a mean that is a fifth too small the baseline tends to 0.8 V, which costs E||W||^2 V^2/25 where
b* = V; with one that is added instead of taken off it tends to -V, always worse than none for V != 0."""


def cells(quick: bool) -> list[Cell]:
    """Every problem of the gradient, and those on which Assumption 2 holds; exact, so quick is no different."""
    others = (name for name in gt.gallery.names("assumption") if name not in gt.gallery.names("training"))
    return [Cell({"problem": name}) for name in (*gt.gallery.names("gradient"), *others)]


def least_of_parabola(values: Array) -> Array:
    """Return the least values over all C of parabolas (3, M) with these values at `CONSTANTS`; where flat, their value."""
    at_0, at_half, at_1 = values
    curvature = 2.0 * (at_0 - 2.0 * at_half + at_1)
    slope = at_1 - at_0 - curvature
    return np.asarray(at_0 - np.divide(slope**2, 4.0 * curvature, out=np.zeros_like(at_0), where=curvature > 0.0))


def limit_of(traces: Array) -> Array:
    """Return the limits of G times a_1/G + a_2/(G(G-1)), given its values (2, M) at `GROUP_SIZES`."""
    small, large = GROUP_SIZES
    return np.asarray(((large - 1) * large * traces[1] - (small - 1) * small * traces[0]) / (large - small))


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> dict[str, float]:
    """Enumerate the traces; return what is left of each error, times G, as groups grow, and Assumption 2's measures."""
    problem = gt.gallery.problem(settings["problem"])
    moments = gt.moments(problem, problem.theta)

    def traces(estimator: str | gt.Estimator, size: int) -> Array:
        return gt.gradient_law(problem, problem.theta, estimator, batch_size=1, group_size=size).prompt_traces

    kernels: dict[str, str | gt.Estimator] = {
        "rloo": "rloo",
        SHORT: kernel_at("scaled_mean", 0.8),
        ADDED: kernel_at("scaled_mean", -1.0),
    }
    parabola = np.array([traces(kernel_at("constant_baseline", value), 1) for value in CONSTANTS])
    limits = {name: limit_of(np.array([traces(kernel, size) for size in GROUP_SIZES])) for name, kernel in kernels.items()}
    limits |= {"best": least_of_parabola(parabola), "reinforce": parabola[0]}
    correlations = np.abs(moments.score_reward_correlation)
    return {
        **{name: float(moments.prompt_weights @ limit) for name, limit in limits.items()},
        "correlation_mean": float(moments.prompt_weights @ correlations),
        "correlation_max": float(correlations.max()),
    }


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each estimator: the limit of G times its error, beside that of the best prompt-only baseline."""
    found = results[0]
    common = {"problem": settings["problem"], "prediction": found["best"], **EXACT}
    common |= {name: found[name] for name in ("correlation_mean", "correlation_max")}
    return [common | {"estimator": name, "estimate": found[name]} for name in ("best", "reinforce", "rloo", SHORT, ADDED)]


def claims(table: pd.DataFrame) -> list[Claim]:
    """Judge the corollary where its assumption holds, and the same words as a claim of their own where it does not."""
    found = []
    for problem, part in table.groupby("problem", sort=False):
        limit, row = part.set_index("estimator")["estimate"], part.iloc[0]
        holds = row["correlation_max"] < IDENTITY_TOLERANCE
        facts = {"mean |corr(||W||^2, Z)|": row["correlation_mean"], "max |corr|": row["correlation_max"]}
        for statement, other, control in (
            ("U6/printed" if holds else "U6/correlated", "best", SHORT),
            ("U6/strict" if holds else "U6/strict, correlated", "reinforce", ADDED),
        ):
            own, wrong = (exact(limit[name] / limit[other] - 1.0, 0.0) for name in ("rloo", control))
            found.append(claim(statement, str(problem), own, wrong, facts=facts))
    return found


STUDY = unconverted(
    "prompt_baselines",
    "U6: leave-one-out against every prompt-only baseline, by enumeration",
    cells,
    compute,
    rows,
    claims,
    ("U6/printed", "U6/strict", "U6/correlated", "U6/strict, correlated"),
)
