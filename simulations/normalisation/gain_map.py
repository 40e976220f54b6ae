"""N12: what division by the standard deviation gains, over orthogonality and mean deviation, exact.

A time course cannot say what ends a gain, because everything changes along it. Here the same policy is trained in other
coordinates, which change only how orthogonal the prompts are. It is also trained from other policies on the way, which change how
much their rewards vary. Gradients are exact, and first updates have the same length. The gain is the advantage in mean success of
dividing, averaged over the updates. In the control the arm multiplies: it loses for want of what division gains.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit

import grpo_theory as gt
from grpo_theory.evidence import Comparison
from grpo_theory.evidence.reading import highest
from grpo_theory.harness.study import Cell, Settings
from simulations.normalisation.heads import OWN, ascent, cosines, gram, head_problem, hidden_states, label, near_orthogonal, state
from simulations.normalisation.phases import is_orthogonal
from simulations.normalisation.prompts import prompts
from simulations.statements import stated

ORTHOGONALITY, DEVIATION = stated("N12/orthogonality", "N12/deviation")
POWERLESS = {
    ("N12/deviation", "lm-few-shot, ridge 100, *"): "from these two starts the arm that multiplies does as is claimed of the one "
    "that divides",
}

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
MADE_UP = "made up"
POWERS = {"divided": -1.0, "multiplied": 1.0}


def cells(quick: bool) -> list[Cell]:
    """One cell for SmolLM2's prompts and one for made-up ones; a quick run looks at the ends of coordinates and starts."""
    dials = {
        PROBLEM: ((OWN, RIDGES[-1]), JUDGED) if quick else (RIDGES, SUCCESSES),
        MADE_UP: ((0.9, 0.0), (-2.0, 2.0)) if quick else (CORRELATIONS, LEVELS),
    }
    return [Cell({"prompts": name, "dials": list(of), "starts": list(starts)}) for name, (of, starts) in dials.items()]


def head_starts(ridge: float | str, successes: list[float]) -> Iterator[gt.Problem]:
    """Yield SmolLM2's head in coordinates, from where a path first has each mean success."""
    trained, problem = head_problem(PROBLEM, PATH_RIDGE), head_problem(PROBLEM, ridge)
    hidden, products = hidden_states(problem), gram(problem)
    path = ascent(trained, 0.0, MOST_UPDATES, PATH_STRIDE)
    now = next(path)
    for success in successes:
        while now.value.mean() < success:
            now = next(path)
        theta = (hidden.T @ np.linalg.solve(products, now.logits)).T
        yield replace(problem, theta=theta.ravel())


def made_up_starts(correlation: float, levels: list[float]) -> Iterator[gt.Problem]:
    """Yield made-up prompts with a correlation, half easier and half harder than each level."""
    spread = np.array([-SPREAD, SPREAD] * (PROMPTS // 2))
    return (prompts(correlation, expit(level + spread)) for level in levels)


def gains(problem: gt.Problem) -> list[dict[str, Any]]:
    """Return what a start is like, and the average advantage of each arm from it."""
    now = state(problem.policy.logits(problem.theta), problem.bandit.mean_reward)
    products = gram(problem)
    at = {
        "success": float(now.value.mean()),
        "deviation": float(now.deviation.mean()),
        "feature_cosine": float(np.abs(cosines(products, np.ones_like(now.covectors))).mean()),
        "orthogonality": near_orthogonal(cosines(products, now.covectors)),
    }
    plain = mean_success(problem, 0.0)
    return [at | {"arm": arm, "estimate": mean_success(problem, power) - plain} for arm, power in POWERS.items()]


def mean_success(problem: gt.Problem, power: float) -> float:
    """Return mean success, averaged over the updates; raise if the gradient itself does not climb, because steps are too long."""
    curve = np.array([now.value.mean() for now in ascent(problem, power, UPDATES, STRIDE)])
    if power == 0.0 and np.diff(curve).min() < 0.0:
        raise ValueError(f"steps must be short enough to climb, got a fall of {-np.diff(curve).min():.3g} on {problem.name}")
    return float(curve.mean())


def compare(settings: Settings) -> Iterator[Comparison | dict[str, Any]]:
    """Yield the gain from each start in all coordinates, and the two comparisons."""
    name, starts, rows = settings["prompts"], settings["starts"], []
    for dial in settings["dials"]:
        made_up = name == MADE_UP
        where = {"prompts": name, "coordinates": f"correlation {dial:g}" if made_up else label(dial)}
        problems = made_up_starts(dial, starts) if made_up else head_starts(dial, starts)
        for start, problem in zip(starts, problems, strict=True):
            rows += [where | {"start": start} | row for row in gains(problem)]
    yield from rows
    yield from by_orthogonality(name, pd.DataFrame(rows))
    yield from by_deviation(name, pd.DataFrame(rows))


def by_orthogonality(name: str, table: pd.DataFrame) -> Iterator[Comparison]:
    """Yield, from each start, the gain in the least orthogonal features less that in the most orthogonal ones."""
    at = table.set_index(["arm", "start", "coordinates"])["estimate"]
    order = table.groupby("coordinates")["feature_cosine"].mean().sort_values().index
    for start, part in table.groupby("start", sort=False):
        own, broken = (at[arm, start, order[-1]] - at[arm, start, order[0]] for arm in POWERS)
        where = f"{name}, start {start:g}, {order[-1]} against {order[0]}"
        facts = {"mean deviation": float(part["deviation"].iloc[0])}
        yield ORTHOGONALITY.compare(where, own, 0.0, broken=broken, facts=facts)


def by_deviation(name: str, table: pd.DataFrame) -> Iterator[Comparison]:
    """Yield, where prompts are near-orthogonal, the gain from the start of least deviation less that of the highest."""
    deviations = table.groupby("start")["deviation"].first()
    high, low = highest(deviations), highest(-deviations)
    facts = {"high deviation": float(deviations[high]), "low deviation": float(deviations[low])}
    at = table.set_index(["arm", "start", "coordinates"])["estimate"]
    for where, part in table.groupby("coordinates", sort=False):
        if is_orthogonal(part["orthogonality"]).all():
            own, broken = (at[arm, low, where] - at[arm, high, where] for arm in POWERS)
            yield DEVIATION.compare(f"{name}, {where}, start {low:g} against {high:g}", own, 0.0, broken=broken, facts=facts)
