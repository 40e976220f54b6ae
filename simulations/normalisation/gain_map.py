"""N12 by intervention: what division by the standard deviation gains, over orthogonality and mean standard deviation.

A time course cannot say what ends a gain, because everything changes along it.  Here the same policy is trained on in other
coordinates, which change how orthogonal the prompts are and nothing else; and from other policies on the way, which change how
much their rewards vary.  Exact gradients, first updates of the same length; the gain is the advantage in mean success of
dividing, averaged over the updates.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit

import grpo_theory as gt
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import exact, highest
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from simulations.claims import claim, unconverted
from simulations.normalisation.heads import OWN, ascent, cosines, gram, head_problem, hidden_states, label, near_orthogonal, state
from simulations.normalisation.phases import is_orthogonal
from simulations.normalisation.prompts import prompts

PROBLEM = "lm-few-shot"
PATH_RIDGE = 0.01
"""Where the starts of SmolLM2's runs are trained to."""
RIDGES = (OWN, 100.0, 10.0, 1.0, 0.1, 0.01)
SUCCESSES = (0.15, 0.3, 0.5, 0.7, 0.85)
"""Of SmolLM2's starts; deviations fall from 0.3 on."""
JUDGED = (0.3, 0.85)
CORRELATIONS = (0.97, 0.9, 0.6, 0.3, 0.0)
LEVELS = (-4.0, -3.0, -2.0, 0.0, 2.0, 3.0, 4.0)
"""Mean logits of success of the made-up prompts, of which half are easier by SPREAD and half harder."""
SPREAD, PROMPTS = 1.0, 16
UPDATES, STRIDE, PATH_STRIDE = 300, 0.02, 0.1
MOST_UPDATES = 1000
POWERS = {"divided": -1.0, "multiplied": 1.0}


def cells(quick: bool) -> list[Cell]:
    """One cell for each system of coordinates, real or made up; a quick run looks at the ends."""
    ridges, successes = ((OWN, RIDGES[-1]), JUDGED) if quick else (RIDGES, SUCCESSES)
    correlations, levels = ((0.9, 0.0), (-2.0, 2.0)) if quick else (CORRELATIONS, LEVELS)
    common = {"updates": UPDATES, "stride": STRIDE}
    return [
        *(Cell({"prompts": PROBLEM, "ridge": ridge, "starts": list(successes), **common}) for ridge in ridges),
        *(Cell({"prompts": "made up", "correlation": one, "starts": list(levels), **common}) for one in correlations),
    ]


def problems(settings: Settings) -> list[gt.Problem]:
    """Return the problems of a cell, one for each start."""
    if settings["prompts"] != PROBLEM:
        levels = np.array([-SPREAD, SPREAD] * (PROMPTS // 2))
        return [prompts(settings["correlation"], expit(start + levels)) for start in settings["starts"]]
    trained, problem = head_problem(PROBLEM, PATH_RIDGE), head_problem(PROBLEM, settings["ridge"])
    hidden, products = hidden_states(problem), gram(problem)
    found: list[gt.Problem] = []
    for now in ascent(trained, 0.0, MOST_UPDATES, PATH_STRIDE):
        while len(found) < len(settings["starts"]) and now.value.mean() >= settings["starts"][len(found)]:
            theta = (hidden.T @ np.linalg.solve(products, now.logits)).T
            found.append(replace(problem, theta=theta.ravel()))
        if len(found) == len(settings["starts"]):
            return found
    raise ValueError(f"the path must reach a mean success of {settings['starts'][-1]:g}")


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> Rows:
    """Return the average advantage of each arm from each start, and what the start is like."""
    found = []
    for start, problem in zip(settings["starts"], problems(settings), strict=True):
        now = state(problem.policy.logits(problem.theta), problem.bandit.mean_reward)
        products = gram(problem)
        angles = np.abs(cosines(products, np.ones_like(now.covectors)))
        at = {
            "start": start,
            "success": float(now.value.mean()),
            "deviation": float(now.deviation.mean()),
            "feature_cosine": float(angles.mean()),
            "orthogonality": near_orthogonal(cosines(products, now.covectors)),
        }
        plain = _success(problem, 0.0, settings)
        for arm, power in POWERS.items():
            found.append(at | {"arm": arm, "estimate": _success(problem, power, settings) - plain})
    return found


def _success(problem: gt.Problem, power: float, settings: Settings) -> float:
    """Return mean success, averaged over the updates; raise if the gradient itself does not climb, because steps are too long."""
    path = ascent(problem, power, settings["updates"], settings["stride"])
    curve = np.array([now.value.mean() for now in path])
    if power == 0.0 and np.diff(curve).min() < 0.0:
        raise ValueError(f"steps must be short enough to climb, got a fall of {-np.diff(curve).min():.3g} on {problem.name}")
    return float(curve.mean())


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each start and arm."""
    where = label(settings["ridge"]) if "ridge" in settings else f"correlation {settings['correlation']:g}"
    common = {"prompts": settings["prompts"], "coordinates": where}
    last = {"prediction": np.nan, **EXACT}
    return [common | row | last for row in results[0]]


def claims(table: pd.DataFrame) -> list[Claim]:
    """The gain at the least and the most orthogonal features, and, where prompts are near-orthogonal, from two starts.

    The control is the arm that multiplies: what it loses it loses for the want of what division gains.
    """
    found = []
    for name, part in table.groupby("prompts", sort=False):
        at = part.set_index(["arm", "start", "coordinates"])["estimate"]
        order = part.groupby("coordinates")["feature_cosine"].mean().sort_values().index
        for start in part["start"].unique():
            gains = (exact(at[arm, start, order[-1]] - at[arm, start, order[0]], 0.0) for arm in POWERS)
            deviation = float(part.loc[part["start"] == start, "deviation"].iloc[0])
            where = f"{name}, start {start:g}, {order[-1]} against {order[0]}"
            found.append(claim("N12/orthogonality", where, *gains, facts={"mean deviation": deviation}))
        deviations = part.groupby("start")["deviation"].first()
        high = highest(deviations)
        low = highest(-deviations)
        for where in order:
            if not is_orthogonal(part.loc[part["coordinates"] == where, "orthogonality"]).all():
                continue
            gains = (exact(at[arm, low, where] - at[arm, high, where], 0.0) for arm in POWERS)
            facts = {"high deviation": float(deviations[high]), "low deviation": float(deviations[low])}
            found.append(claim("N12/deviation", f"{name}, {where}, start {low:g} against {high:g}", *gains, facts=facts))
    return found


STUDY = unconverted(
    "gain_map",
    "N12: what division by the standard deviation gains, over orthogonality and mean deviation",
    cells,
    compute,
    rows,
    claims,
    ("N12/orthogonality", "N12/deviation"),
)
