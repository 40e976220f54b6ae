"""N12: what division by the standard deviation gains, over orthogonality and mean deviation, exact.

A time course cannot say what ends a gain, because everything changes along it. Here the same policy is trained in other
coordinates, which change only how orthogonal the prompts are. It is also trained from other policies on the way, which change how
much their rewards vary. Gradients are exact, and first updates have the same length. The gain is the advantage in mean success of
dividing, averaged over the updates. In the control the arm multiplies: it loses for want of what division gains.
"""

from dataclasses import replace
from functools import cache

import numpy as np
from scipy.special import expit

from grpo_theory.harness import check
from simulations.normalisation.heads import OWN, ascent, cosines, gram, head_problem, hidden_states, label, near_orthogonal, state
from simulations.normalisation.phases import is_orthogonal
from simulations.normalisation.prompts import prompts as made_up
from simulations.statements import stated

ORTHOGONALITY, DEVIATION = stated("N12/orthogonality", "N12/deviation")
POWERLESS = {
    ("N12/deviation", "lm-few-shot, ridge 100, *"): "from these two starts the arm that multiplies does as is claimed of the one "
    "that divides",
}

PROBLEM, MADE_UP = "lm-few-shot", "made up"
PATH_RIDGE, PATH_STRIDE, MOST_UPDATES = 0.01, 0.1, 1000
"""Where the starts of SmolLM2's runs are trained to."""
GRID = {
    PROBLEM: ((OWN, 100.0, 10.0, 1.0, 0.1, 0.01), (0.15, 0.3, 0.5, 0.7, 0.85), (0.85, 0.3)),
    MADE_UP: ((0.97, 0.9, 0.6, 0.3, 0.0), (-4.0, -3.0, -2.0, 0.0, 2.0, 3.0, 4.0), (4.0, 0.0)),
}
"""Dials from the least orthogonal to the most: SmolLM2's ridges, correlations of the made-up prompts.

Then starts: mean successes of SmolLM2's questions, and mean logits of the made-up prompts, of which half are easier by SPREAD and
half harder. Of them those of the lowest and of the highest deviation.
"""
QUICK_GRID = {PROBLEM: ((OWN, 0.01), (0.3, 0.85), (0.85, 0.3)), MADE_UP: ((0.9, 0.0), (-2.0, 2.0), (2.0, -2.0))}
SPREAD, PROMPTS = 1.0, 16
UPDATES, STRIDE = 300, 0.02


def pairs(quick):
    """The least orthogonal features against the most, and the lowest deviation against the highest."""
    for name, (dials, starts, (low, high)) in (QUICK_GRID if quick else GRID).items():
        ends = {"prompts": name, "dial": dials[0], "other_dial": dials[-1]}
        yield from (ends | {"start": start, "other_start": start} for start in starts)
        ends = {"prompts": name, "start": low, "other_start": high}
        yield from (ends | {"dial": dial, "other_dial": dial} for dial in dials)


def where(prompts, dial):
    """Return what coordinates are called in tables."""
    return label(dial) if prompts == PROBLEM else f"correlation {dial:g}"


def title(prompts, dial, start, other_dial, other_start):
    """Return what a pair is called."""
    if dial == other_dial:
        return f"{prompts}, {where(prompts, dial)}, start {start:g} against {other_start:g}"
    return f"{prompts}, start {start:g}, {where(prompts, dial)} against {where(prompts, other_dial)}"


@cache
def problem_at(prompts, dial, start):
    """Return the problem in coordinates, at a start."""
    if prompts == MADE_UP:
        return made_up(dial, expit(start + np.array([-SPREAD, SPREAD] * (PROMPTS // 2))))
    problem = head_problem(PROBLEM, dial)
    theta = np.linalg.solve(gram(problem), trained_to(start)).T @ hidden_states(problem)
    return replace(problem, theta=theta.ravel())


@cache
def trained_to(success):
    """Return SmolLM2's logits where a path first has a mean success."""
    path = ascent(head_problem(PROBLEM, PATH_RIDGE), 0.0, MOST_UPDATES, PATH_STRIDE)
    return next(now.logits for now in path if now.value.mean() >= success)


def start_at(*place):
    """Return what a start is like."""
    problem = problem_at(*place)
    now, products = state(problem.policy.logits(problem.theta), problem.bandit.mean_reward), gram(problem)
    return {
        "success": now.value.mean(),
        "deviation": now.deviation.mean(),
        "feature_cosine": np.abs(cosines(products, np.ones_like(now.logit_gradients))).mean(),
        "orthogonality": near_orthogonal(cosines(products, now.logit_gradients)),
    }


@cache
def mean_success(power, *place):
    """Return mean success, averaged over the updates; raise if the gradient itself does not climb, because steps are too long."""
    problem = problem_at(*place)
    curve = np.array([now.value.mean() for now in ascent(problem, power, UPDATES, STRIDE)])
    if power == 0.0 and np.diff(curve).min() < 0.0:
        raise ValueError(f"steps must be short enough to climb, got a fall of {-np.diff(curve).min():.3g} on {problem.name}")
    return float(curve.mean())


def gain(power, *place):
    """Return the average advantage of dividing, or of another power of the deviation, from a start."""
    return mean_success(power, *place) - mean_success(0.0, *place)


@check(ORTHOGONALITY, DEVIATION, cases=pairs, broken={"power": 1.0}, setting=title)
def compared(prompts, dial, start, other_dial, other_start, power=-1.0):
    """The gain where prompts are less orthogonal or deviations lower, less that where they are not.

    Deviations are compared where prompts are near-orthogonal at all starts.
    """
    less = gain(power, prompts, dial, start) - gain(power, prompts, other_dial, other_start)
    own, other = (start_at(prompts, dial, one)["deviation"] for one in (start, other_start))
    if dial != other_dial:
        return {ORTHOGONALITY.id: (less, 0.0, {"mean deviation": own})}
    if not all(is_orthogonal(start_at(prompts, dial, one)["orthogonality"]) for one in GRID[prompts][1]):
        return None
    return {DEVIATION.id: (less, 0.0, {"high deviation": other, "low deviation": own})}
