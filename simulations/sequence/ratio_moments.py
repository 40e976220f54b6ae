"""How the second moment of the trajectory ratio grows with the horizon, and what clipping does to it."""

from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import exact, largest
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from simulations.claims import claim, unconverted
from simulations.sequence.parts import features_of
from simulations.sequence.tokens import Tokens

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


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> list[dict[str, Any]]:
    """Return the moments on every tree at every drift, in a random direction."""
    rng = np.random.default_rng(seed)
    paths = gt.TokenTree(1, VOCABULARY_SIZE, settings["horizon"]).paths
    found = []
    for tree in range(settings["trees"]):
        features = features_of(rng, 1, paths, settings["dimension"])[0]
        theta, away = rng.normal(size=(2, settings["dimension"]))
        old = Tokens(paths, features @ theta, features)
        for drift in settings["drifts"]:
            now = Tokens(paths, old.logits + features @ (drift * away / np.linalg.norm(away)), features)
            p = old.response_probabilities
            for kind, value in moments(p, now.response_probabilities / p).items():
                found.append({"tree": tree, "drift": drift, "ratio": kind, "estimate": value})
    return found


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each tree, drift and ratio; the prediction is the bound."""
    bounds = {"dropped": 1.0 + HIGH, "capped": 1.0 + HIGH}
    found = []
    for row in results[0]:
        curse = np.exp(settings["horizon"] * row["drift"] ** 2) if row["ratio"] in ("trajectory", "doubled") else np.nan
        prediction = {"prediction": float(bounds.get(row["ratio"], curse))}
        settings_of = {key: row[key] for key in ("tree", "drift", "ratio")}
        found.append({"horizon": settings["horizon"], **settings_of, **prediction, "estimate": row["estimate"], **EXACT})
    return found


def claims(table: pd.DataFrame) -> list[Claim]:
    """Both bounds at each drift, at the worst horizon and tree."""
    found = []
    for drift, part in table.groupby("drift", sort=False):
        unbounded = part[part["ratio"].isin(("trajectory", "doubled"))]
        exponents = np.log(unbounded["estimate"]) / np.log(unbounded["prediction"])
        worst = exponents.groupby(unbounded["ratio"]).agg(largest)
        highest = part.groupby("ratio")["estimate"].agg(largest)
        typical = {"median": float(exponents[unbounded["ratio"] == "trajectory"].median())}
        both = exact(worst["trajectory"], 1.0), exact(worst["doubled"], 1.0)
        found.append(claim("T4/curse", f"drift {drift:g}", *both, facts=typical))
        found.append(
            claim("T4/clipped", f"drift {drift:g}", *(exact(highest[name], 1.0 + HIGH) for name in ("dropped", "doubled")))
        )
    return found


STUDY = unconverted(
    "ratio_moments",
    "T4: the second moment of the trajectory ratio against the horizon, clipped and not, exact",
    cells,
    compute,
    rows,
    claims,
    ("T4/curse", "T4/clipped"),
)
