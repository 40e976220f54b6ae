"""N4: prompts with orthogonal features do not interact, exact.

This is tested step by step, and along whole paths, on random problems. In the control the features of two prompts have a
correlation of 0.1.
"""

from collections.abc import Iterator

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array, Integers
from grpo_theory.evidence import Comparison, Statement
from grpo_theory.evidence.reading import largest
from grpo_theory.harness.study import Cell, Settings
from simulations.seeds import seed_of
from simulations.statements import stated

STEPS_APART, PATHS_APART = stated("N4", "N4/paths")

PROMPTS, ANSWERS, WIDTH = 4, 4, 3
"""Prompts, responses to each, and features of a response that are its prompt's own."""
ORTHOGONAL, CORRELATED = 0.0, 0.1
"""Correlations of the features of two prompts: as stated, and broken."""
STEPS = 200
"""Along a path, fifty a prompt: so that success rates change much."""
RULES = ("undivided", "divided")
"""The step at a prompt is its gradient over 1, or over the standard deviation of its reward."""


def prompts_apart(rng: np.random.Generator, correlation: float) -> gt.Problem:
    """Return random prompts with X_i = A_i Q_i', Q_i' Q_j = correlation I, so that X_i X_j' = correlation A_i A_j'."""
    own, shared = np.sqrt(1.0 - correlation), np.sqrt(correlation)
    turned = np.linalg.qr(rng.normal(size=((PROMPTS + 1) * WIDTH,) * 2))[0]
    blocks = turned.reshape(PROMPTS + 1, WIDTH, -1)
    axes = own * blocks[:-1] + shared * blocks[-1]
    features = rng.normal(size=(PROMPTS, ANSWERS, WIDTH)) @ axes
    right = np.eye(ANSWERS)[rng.integers(ANSWERS, size=PROMPTS)]
    return gt.Problem(gt.Bandit(right), gt.LinearSoftmax(features))


def step_of(problem: gt.Problem, theta: Array, prompt: int, rule: str) -> Array:
    """Return the step at a prompt, 1/X^2 times its gradient, divided or not."""
    moments = gt.moments(problem, theta)
    variance = moments.value[prompt] * (1.0 - moments.value[prompt])
    scale = np.sqrt(np.linalg.eigvalsh(problem.policy.tangent(theta).gram()).max())
    return np.asarray(moments.prompt_gradients[prompt] / scale**2 / (np.sqrt(variance) if rule == "divided" else 1.0))


def success(problem: gt.Problem, theta: Array) -> Array:
    """Return the prompts' success probabilities."""
    return np.asarray(gt.moments(problem, theta).value)


def largest_move(problem: gt.Problem, theta: Array, rule: str) -> float:
    """Return the largest change of a success probability that a step at another prompt makes."""
    before = success(problem, theta)
    moves = [np.abs(success(problem, theta + step_of(problem, theta, m, rule)) - before) for m in range(PROMPTS)]
    return float(np.where(np.eye(PROMPTS, dtype=bool), 0.0, moves).max())


def largest_parting(problem: gt.Problem, theta: Array, rule: str, order: Integers) -> float:
    """Return the largest difference, at the end, between a prompt trained in a random order with others and one trained alone."""
    together, alone = theta, [theta] * PROMPTS
    for m in order.tolist():
        together = together + step_of(problem, together, m, rule)
        alone[m] = alone[m] + step_of(problem, alone[m], m, rule)
    ends = [success(problem, one)[m] for m, one in enumerate(alone)]
    return float(np.abs(success(problem, together) - ends).max())


def cells(quick: bool) -> list[Cell]:
    """One cell for each rule; quick takes paths a tenth as long, and fewer problems."""
    sizes = {"problems": 2 if quick else 4, "steps": STEPS // 10 if quick else STEPS, "correlation": CORRELATED}
    return [Cell({"rule": rule} | sizes) for rule in RULES]


def compare(settings: Settings, rng: np.random.Generator) -> Iterator[Comparison]:
    """Yield the largest interaction over random problems, for prompts that are orthogonal and for some that are not."""
    own, broken = (
        largest_interactions(settings, correlation, seed_of(rng)) for correlation in (ORTHOGONAL, settings["correlation"])
    )
    for statement, gap in own.items():
        yield statement.compare(settings["rule"], gap, 0.0, broken=broken[statement])


def largest_interactions(settings: Settings, correlation: float, seed: np.random.SeedSequence) -> dict[Statement, float]:
    """Return the largest interaction of either kind over the same random problems with a correlation."""
    rng, moves, partings = np.random.default_rng(seed), [], []
    for _ in range(settings["problems"]):
        problem = prompts_apart(rng, correlation)
        theta = rng.normal(size=problem.policy.dimension)
        moves.append(largest_move(problem, theta, settings["rule"]))
        order = rng.integers(PROMPTS, size=(settings["steps"],))
        partings.append(largest_parting(problem, theta, settings["rule"], order))
    return {STEPS_APART: largest(moves), PATHS_APART: largest(partings)}
