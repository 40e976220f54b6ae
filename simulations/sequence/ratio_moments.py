"""T4: the second moment of the trajectory ratio against the horizon, clipped and not, exact.

On random trees the policy moves a little way in a random direction. In the control the ratio is squared.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import exact, largest
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from simulations.sequence.parts import features_of, of_length
from simulations.sequence.tokens import Tokens
from simulations.statements import stated

CLIPPED, CURSE = stated("T4/clipped", "T4/curse")

HORIZONS, QUICK_HORIZONS = (1, 2, 3, 4, 6, 8, 10, 12), (1, 2, 4, 8)
DRIFTS = (0.1, 0.3, 1.0)
"""Lengths of theta_k - theta_0, where scores are 1-Lipschitz."""
TREES, QUICK_TREES = 20, 5
VOCABULARY_SIZE, DIMENSION = 2, 2
HIGH = 0.2
"""The clip's upper width, as practised."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each horizon."""
    common = {"drifts": list(DRIFTS), "dimension": DIMENSION, "high": HIGH, "trees": QUICK_TREES if quick else TREES}
    return [Cell({"horizon": horizon, **common}) for horizon in (QUICK_HORIZONS if quick else HORIZONS)]


def moments(p: Array, rho: Array) -> dict[str, float]:
    """Return second moments of a ratio under the old policy, and how many responses have a ratio that is too high.

    "share dropped" are those among what the old policy draws, "mass dropped" those among what the current one would draw.

    Parameters
    ----------
    p, rho : ndarray, shape (K,)
        The old policy's probabilities of the responses, and the ratios.
    """
    kept = rho <= 1.0 + HIGH
    return {
        "trajectory": float(p @ rho**2),
        "dropped": float(p @ np.where(kept, rho, 0.0) ** 2),
        "capped": float(p @ np.minimum(rho, 1.0 + HIGH) ** 2),
        "doubled": float(p @ rho**4),
        "share dropped": float(p @ ~kept),
        "mass dropped": float((p * rho) @ ~kept),
    }


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Rows:
    """Return the moments on every tree at every drift, in a random direction; the prediction is the bound."""
    horizon, table = settings["horizon"], []
    paths = gt.TokenTree(1, VOCABULARY_SIZE, horizon).paths
    for tree in range(settings["trees"]):
        features = features_of(rng, 1, paths, settings["dimension"])[0]
        theta, away = rng.normal(size=(2, settings["dimension"]))
        old = Tokens(paths, features @ theta, features)
        for drift in settings["drifts"]:
            now = Tokens(paths, old.logits + features @ of_length(drift, away), features)
            p, curse = old.response_probabilities, float(np.exp(horizon * drift**2))
            bounds = {"trajectory": curse, "doubled": curse, "dropped": 1.0 + HIGH, "capped": 1.0 + HIGH}
            for ratio, value in moments(p, now.response_probabilities / p).items():
                row = {"tree": tree, "drift": drift, "ratio": ratio}
                table.append(row | {"prediction": bounds.get(ratio, np.nan), "estimate": value})
    return table


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each tree, drift and ratio."""
    return [{"horizon": settings["horizon"], **EXACT} | row for row in results[0]]


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Both bounds at each drift, at the worst horizon and tree."""
    for drift, part in table.groupby("drift", sort=False):
        unbounded = part[part["ratio"].isin(("trajectory", "doubled"))]
        exponents = np.log(unbounded["estimate"]) / np.log(unbounded["prediction"])
        worst = exponents.groupby(unbounded["ratio"]).agg(largest)
        highest = part.groupby("ratio")["estimate"].agg(largest)
        typical = {"median": float(exponents[unbounded["ratio"] == "trajectory"].median())}
        setting = f"drift {drift:g}"
        yield CURSE.claim(setting, exact(worst["trajectory"], 1.0), exact(worst["doubled"], 1.0), facts=typical)
        own, control = (exact(highest[name], 1.0 + HIGH) for name in ("dropped", "doubled"))
        yield CLIPPED.claim(setting, own, control)
