"""T15: where training ends if responses are divided by their own lengths, exact.

The exact mean update is taken at the maximiser, and the mean dynamics are followed from there. In the control there is no
baseline.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from scipy.integrate import solve_ivp

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import exact, largest
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from simulations.seeds import seed_of
from simulations.sequence.parts import composed, features_of, generator_of, mean_update, random_bandit
from simulations.sequence.stopping import stopping
from simulations.statements import stated

T15, OPTIMUM, COST = stated("T15", "T15/optimum", "T15/cost")

KINDS = ("tabular, KL", "shared features, KL", "stop or go on")
"""A logit for every prefix and token; features that prefixes and prompts share; and one parameter, without a penalty."""
SEEDS, QUICK_SEEDS = 12, 1
VOCABULARY_SIZE, HORIZON, END = 3, 3, 0
PROMPTS, DIMENSION, STRENGTH = 2, 3, 0.2
LARGEST_LOSS = 0.05
"""A user would notice if a twentieth of what training gains were lost."""
TIME = 4000.0
"""How long training goes on: a few hundred times the reciprocal of a typical curvature."""
SIZES = {"batch_size": 1, "group_size": 2}
"""Of the group whose noise at the maximiser is the unit of the mean update there."""
RULES = {"own length": ("rloo", "own length"), "constant": ("rloo", "constant"), "no baseline": ("reinforce", "own length")}


def problem_of(kind: str, rng: np.random.Generator) -> gt.Problem:
    """Return a problem with an interior maximiser."""
    if kind == "stop or go on":
        return stopping(8, False)
    paths = gt.TokenTree(1, VOCABULARY_SIZE, HORIZON, END).paths
    features = features_of(rng, PROMPTS, paths, DIMENSION) if kind.startswith("shared") else None
    tree = gt.TokenTree(PROMPTS, VOCABULARY_SIZE, HORIZON, END, features)
    bandit = random_bandit(rng, PROMPTS, paths.n_responses, one_in=3)
    reference = rng.dirichlet(np.full(paths.n_responses, 3.0), size=PROMPTS)
    return gt.Problem(bandit, tree, gt.KL(STRENGTH, reference))


def cells(quick: bool) -> list[Cell]:
    """One cell for each kind of problem, split by seeds; exact."""
    seeds = QUICK_SEEDS if quick else SEEDS
    common = {"prompts": PROMPTS, "dimension": DIMENSION, "strength": STRENGTH}
    return [Cell({"kind": kind, **common}, 1 if kind == "stop or go on" else seeds, shared=True) for kind in KINDS]


def _update(problem: gt.Problem, theta: Array, rule: str) -> Array:
    advantage, aggregation = RULES[rule]
    return mean_update(problem, theta, composed(advantage, "none", "none", aggregation), baseline=advantage == "rloo")


def end_of_training(problem: gt.Problem, theta: Array, rule: str) -> Array:
    """Return where the mean dynamics d theta/dt = E update has come to from a parameter by a time that is long, shape (d,)."""
    flow = solve_ivp(lambda _, x: _update(problem, x, rule), (0.0, TIME), theta, method="LSODA", rtol=1e-7, atol=1e-9)
    return np.asarray(flow.y[:, -1])


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Rows:
    """Return update at the maximiser over its noise, and the share lost and change of length where training from there ends."""
    problem = problem_of(settings["kind"], generator_of(chunk, seed_of(rng)))
    start = np.ones(1) if problem.policy.dimension == 1 else problem.theta
    best = gt.find_optimum(problem, start)
    scale = np.sqrt(gt.gradient_law(problem, best, composed("rloo", "none", "none", "own length"), **SIZES).trace)
    top, bottom = gt.objective(problem, best), gt.objective(problem, problem.theta)
    lengths, table = problem.policy.paths.lengths, []
    for rule in RULES:
        measured = {"update": float(np.linalg.norm(_update(problem, best, rule)) / scale)}
        if not settings["kind"].startswith("tabular"):
            end = end_of_training(problem, best, rule)
            measured["loss"] = float((top - gt.objective(problem, end)) / (top - bottom))
            means = [float(problem.bandit.prompt_weights @ (problem.at(theta).probabilities @ lengths)) for theta in (best, end)]
            measured["longer"] = means[1] / means[0] - 1.0
        common = {"seed": chunk, "rule": rule}
        table += [common | {"quantity": quantity, "estimate": value} for quantity, value in measured.items()]
    return table


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each problem, rule and quantity."""
    common = {"kind": settings["kind"], "prediction": 0.0, **EXACT}
    return [common | row | ({"prediction": np.nan} if row["quantity"] == "longer" else {}) for rows in results for row in rows]


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Whether the maximiser stays, on every problem; and the loss where it moves, at worst."""
    for (kind, seed), part in table.groupby(["kind", "seed"], sort=False):
        updates = part[part["quantity"] == "update"].set_index("rule")["estimate"]
        setting = str(kind) if kind == "stop or go on" else f"{kind}, {seed + 1}"
        yield OPTIMUM.claim(setting, exact(updates["own length"], 0.0), exact(updates["no baseline"], 0.0))
    losses = table[table["quantity"] == "loss"]
    for kind, part in losses.groupby("kind", sort=False):
        worst = part.groupby("rule")["estimate"].agg(largest)
        own, control = (exact(worst[rule], LARGEST_LOSS) for rule in ("own length", "no baseline"))
        yield COST.claim(str(kind), own, control)
