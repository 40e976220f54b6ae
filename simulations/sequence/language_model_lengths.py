"""T15 on SmolLM2: what dividing by the own length does to the optimum, exact.

Answers have one to three tokens. The head is trained in whitened coordinates, in which no direction of the hidden states
outweighs the others. Here theta is the head times the root of the second moment of the hidden states behind the prefixes that the
model reaches. Where an update is zero does not depend on the coordinates. In the controls the update forgets a tenth of the
penalty, or is turned.
"""

from functools import cache
from typing import Any

import numpy as np
from scipy.optimize import minimize

import grpo_theory as gt
from grpo_theory.exact.derivatives import gradient
from grpo_theory.harness import check
from grpo_theory.problem.logits import PrefixHeadMap
from simulations.sequence.language_model import SEVERAL
from simulations.sequence.parts import NOTICEABLE, composed, cosine, mean_update, turned
from simulations.statements import stated

STRENGTHS = (0.3, 0.1)
"""Of the penalty KL(pi || the model itself): with it the maximiser is interior."""
QUESTIONS, QUICK_QUESTIONS = 8, 2
"""Of each category; quick takes fewer, and one strength."""
RIDGE = 0.01
"""Of the whitening, as where the head is trained further (`simulations/gradient/quality_path.py`)."""
STEPS, QUICK_STEPS = 200, 60
"""The most steps to the maximiser."""
LEFT = 0.01
"""The most of the model's gradient that may be left at the maximiser, a fifth of what is judged; it is in the table."""


@cache
def held_near(name, questions, strength):
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


def update_by(problem, theta, aggregation, share=1.0):
    """Return the mean update of leave-one-out advantages by a way of adding up tokens, with a share of the penalty, (d,)."""
    penalised = gt.Problem(problem.bandit, problem.policy, gt.KL(share * problem.kl.strength, problem.kl.reference))
    return mean_update(penalised, theta, composed("rloo", "none", "none", aggregation))


@cache
def maximiser(problem, steps):
    """Return where the objective is highest, by a quasi-Newton method from the model; raise if it is not reached."""

    def downhill(x):
        return -float(gt.objective(problem, x)), -gradient(problem, x)

    options: Any = {"maxiter": steps, "maxfun": 2 * steps, "ftol": 1e-15, "gtol": 1e-8, "maxcor": 30}
    best = np.asarray(minimize(downhill, problem.theta, jac=True, method="L-BFGS-B", options=options).x)
    left = float(np.linalg.norm(gradient(problem, best)) / np.linalg.norm(gradient(problem, problem.theta)))
    if left > LEFT:
        raise ValueError(f"the maximiser must be reached within {steps} steps, to {LEFT:g} of the gradient, got {left:.2g}")
    return best


def cases(quick):
    """Each strength of the penalty."""
    strengths, questions, steps = (STRENGTHS[:1], QUICK_QUESTIONS, QUICK_STEPS) if quick else (STRENGTHS, QUESTIONS, STEPS)
    return [{"strength": strength, "problem": SEVERAL, "questions": questions, "steps": steps} for strength in strengths]


@check(
    *stated("T15/language model", "T15/language model, direction"),
    cases=cases,
    broken={"share": 0.9, "turn": True},
    setting="{problem}, KL {strength:g}",
)
def own_length(problem, questions, strength, steps, share=1.0, turn=False):
    """How long the mean update at the maximiser is, relative to that at the model, and which way the latter points."""
    held = held_near(problem, questions, strength)
    best, slope = maximiser(held, steps), gradient(held, held.theta)
    left, whole = (
        np.linalg.norm(update_by(held, best, *rule)) / np.linalg.norm(update_by(held, held.theta, *rule))
        for rule in (("own length", share), ("sum",))
    )
    divided = update_by(held, held.theta, "own length")
    facts = {"update, divided by the horizon": whole, "gain": gt.objective(held, best) - gt.objective(held, held.theta)}
    return {
        "T15/language model": (left, NOTICEABLE, facts),
        "T15/language model, direction": (1.0 - cosine(turned(divided, slope) if turn else divided, slope), NOTICEABLE, facts),
    }
