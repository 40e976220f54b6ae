"""T15 on SmolLM2: does dividing by the response's own length move the optimum of answers of one to three tokens? Exact.

The head is trained in whitened coordinates, in which no direction of the hidden states outweighs the others: theta is the head
times the root of the second moment of the hidden states behind the prefixes that the model reaches.  Where an update is zero does
not depend on the coordinates.
"""

from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import minimize

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import exact
from grpo_theory.exact.surface import gradient
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from grpo_theory.problem.prefix_head import PrefixHeadMap
from simulations.claims import claim, unconverted
from simulations.sequence.checkpoints import SEVERAL
from simulations.sequence.parts import NOTICEABLE, composed, cosine, mean_update, turned

STRENGTHS = (0.3, 0.1)
"""Of the penalty KL(pi || the model itself): with it the maximiser is interior."""
QUESTIONS, QUICK_QUESTIONS = 8, 2
"""Of each category; quick takes fewer, and one strength."""
RIDGE = 0.01
"""Of the whitening, as where the head is trained further (`simulations/gradient/trained_heads.py`)."""
RULES = {"own length": ("own length", True), "penalty forgotten": ("own length", False), "constant": ("sum", True)}
"""How a rule adds up tokens, and whether it knows of the penalty; "constant" is the gradient itself."""
STEPS, QUICK_STEPS = 200, 60
"""The most steps to the maximiser."""
LEFT = 0.01
"""The most of the model's gradient that may be left at the maximiser, a fifth of what is judged; it is in the table."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each strength of the penalty."""
    strengths, questions, steps = (STRENGTHS[:1], QUICK_QUESTIONS, QUICK_STEPS) if quick else (STRENGTHS, QUESTIONS, STEPS)
    common = {"problem": SEVERAL, "questions": questions, "steps": steps}
    return [Cell({"strength": strength, **common}) for strength in strengths]


def held_near(name: str, questions: int, strength: float) -> gt.Problem:
    """Return the first questions of each category, in whitened coordinates, with a penalty on leaving the model."""
    problem, data = gt.gallery.problem(name), gt.data.long_answers()
    chosen = np.concatenate([np.flatnonzero(data.categories == c)[:questions] for c in range(len(data.category_names))])
    logit_map, paths = problem.policy.logit_map, problem.policy.paths
    assert isinstance(logit_map, PrefixHeadMap)
    hidden = logit_map.hidden[chosen]
    reached = paths.collect(problem.policy.probabilities(problem.theta))[chosen].reshape(*hidden.shape[:2], -1).sum(axis=-1)
    second = np.einsum("mp,mph,mpi->hi", reached, hidden, hidden, optimize=True) / reached.sum()
    values, vectors = np.linalg.eigh(second + RIDGE * np.eye(len(second)))
    head = problem.theta.reshape(-1, len(second)) @ (vectors * np.sqrt(values))
    policy = gt.TokenTree(
        len(chosen), paths.vocabulary_size, paths.horizon, gt.gallery.END_OF_ANSWER, hidden=hidden @ (vectors / np.sqrt(values))
    )
    theta = head.reshape(-1)
    bandit = gt.Bandit(problem.bandit.mean_reward[chosen])
    return gt.Problem(bandit, policy, gt.KL(strength, policy.probabilities(theta)), theta)


def update_by(problem: gt.Problem, theta: Array, rule: str) -> Array:
    """Return the mean update on policy of leave-one-out advantages by a rule, shape (d,)."""
    aggregation, penalised = RULES[rule]
    rewarded = problem if penalised else gt.Problem(problem.bandit, problem.policy, None, problem.theta)
    return mean_update(rewarded, theta, composed("rloo", "none", "none", aggregation))


def maximiser(problem: gt.Problem, steps: int) -> Array:
    """Return where the objective is highest, by a quasi-Newton method from the model; raise if it is not reached."""

    def downhill(x: Any) -> Any:
        return -float(gt.objective(problem, x)), -gradient(problem, x)

    options: Any = {"maxiter": steps, "maxfun": 2 * steps, "ftol": 1e-15, "gtol": 1e-8, "maxcor": 30}
    found = np.asarray(minimize(downhill, problem.theta, jac=True, method="L-BFGS-B", options=options).x)
    left = float(np.linalg.norm(gradient(problem, found)) / np.linalg.norm(gradient(problem, problem.theta)))
    if left > LEFT:
        raise ValueError(f"the maximiser must be reached within {steps} steps, to {LEFT:g} of the gradient, got {left:.2g}")
    return found


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> list[dict[str, Any]]:
    """Return the mean updates at the model and at the maximiser."""
    problem = held_near(settings["problem"], settings["questions"], settings["strength"])
    best = maximiser(problem, settings["steps"])
    top, bottom = gt.objective(problem, best), gt.objective(problem, problem.theta)
    slope = gradient(problem, problem.theta)
    found = [
        {"rule": "policy", "quantity": "value of the model", "estimate": float(problem.at(problem.theta).moments.value.mean())},
        {"rule": "policy", "quantity": "gain", "estimate": float(top - bottom)},
        {"rule": "policy", "quantity": "length", "estimate": length(problem, problem.theta)},
        {"rule": "policy", "quantity": "length at the maximiser", "estimate": length(problem, best)},
    ]

    for rule in RULES:
        there, here = (update_by(problem, theta, rule) for theta in (best, problem.theta))
        found.append({"rule": rule, "quantity": "update", "estimate": float(np.linalg.norm(there) / np.linalg.norm(here))})
        found.append({"rule": rule, "quantity": "cosine", "estimate": cosine(here, slope)})
        if rule == "own length":
            found.append({"rule": "turned", "quantity": "cosine", "estimate": cosine(turned(here, slope), slope)})
    return found


def length(problem: gt.Problem, theta: Array) -> float:
    """Return the mean number of tokens."""
    return float(problem.bandit.prompt_weights @ (problem.policy.probabilities(theta) @ problem.policy.paths.lengths))


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each rule and quantity: the update at the maximiser is relative to that at the model."""
    common = {"problem": settings["problem"], "strength": settings["strength"], "questions": settings["questions"]}
    return [
        common
        | {"rule": row["rule"], "quantity": row["quantity"]}
        | {"prediction": 0.0 if row["quantity"] == "update" else float("nan"), "estimate": row["estimate"]}
        | EXACT
        for row in results[0]
    ]


def claims(table: pd.DataFrame) -> list[Claim]:
    """Each strength by itself; the controls forget the penalty, or are turned."""
    found = []
    for strength, part in table.groupby("strength", sort=False):
        value = part.set_index(["rule", "quantity"])["estimate"]
        setting = f"{part['problem'].iloc[0]}, KL {strength:g}"
        facts = {"update, divided by the horizon": value["constant", "update"], "gain": value["policy", "gain"]}
        moved = (exact(value[rule, "update"], NOTICEABLE) for rule in ("own length", "penalty forgotten"))
        found.append(claim("T15/language model", setting, *moved, facts=facts))
        turns = (exact(1.0 - value[rule, "cosine"], NOTICEABLE) for rule in ("own length", "turned"))
        found.append(claim("T15/language model, direction", setting, *turns, facts=facts))
    return found


STUDY = unconverted(
    "language_model_lengths",
    "T15 on SmolLM2: what dividing by the own length does to the optimum, exact",
    cells,
    compute,
    rows,
    claims,
    ("T15/language model", "T15/language model, direction"),
)
