"""T15 on SmolLM2: what dividing by the own length does to the optimum, exact.

Answers have one to three tokens. The head is trained in whitened coordinates, in which no direction of the hidden states
outweighs the others. Here theta is the head times the root of the second moment of the hidden states behind the prefixes that the
model reaches. Where an update is zero does not depend on the coordinates. In the controls the update forgets the penalty, or is
turned.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.optimize import minimize

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Comparison
from grpo_theory.exact.surface import gradient
from grpo_theory.harness.study import Cell, Settings
from grpo_theory.problem.prefix_head import PrefixHeadMap
from simulations.sequence.checkpoints import SEVERAL
from simulations.sequence.parts import NOTICEABLE, composed, cosine, mean_update, turned
from simulations.statements import stated

OPTIMUM, DIRECTION = stated("T15/language model", "T15/language model, direction")

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
    best = np.asarray(minimize(downhill, problem.theta, jac=True, method="L-BFGS-B", options=options).x)
    left = float(np.linalg.norm(gradient(problem, best)) / np.linalg.norm(gradient(problem, problem.theta)))
    if left > LEFT:
        raise ValueError(f"the maximiser must be reached within {steps} steps, to {LEFT:g} of the gradient, got {left:.2g}")
    return best


def compare(settings: Settings) -> Iterator[Comparison]:
    """Yield how long the mean update at the maximiser is, relative to that at the model, and which way the latter points."""
    problem = held_near(settings["problem"], settings["questions"], settings["strength"])
    best, slope = maximiser(problem, settings["steps"]), gradient(problem, problem.theta)
    there, here = ({rule: update_by(problem, theta, rule) for rule in RULES} for theta in (best, problem.theta))
    left = {rule: float(np.linalg.norm(there[rule]) / np.linalg.norm(here[rule])) for rule in RULES}
    gain = float(gt.objective(problem, best) - gt.objective(problem, problem.theta))
    setting, facts = f"{settings['problem']}, KL {settings['strength']:g}", {"update, divided by the horizon": left["constant"]}
    facts["gain"] = gain
    yield OPTIMUM.compare(setting, left["own length"], NOTICEABLE, broken=left["penalty forgotten"], facts=facts)
    divided = here["own length"]
    cost, broken = (1.0 - cosine(update, slope) for update in (divided, turned(divided, slope)))
    yield DIRECTION.compare(setting, cost, NOTICEABLE, broken=broken, facts=facts)
