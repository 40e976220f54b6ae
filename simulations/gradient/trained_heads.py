"""The language model's head, trained further by exact gradients to stated mean successes: policies of rising quality.

The hidden states stay as they are, so what is trained is the head alone: theta, 10 x 576 numbers.  In plain coordinates gradient
ascent on J stalls below 0.4, because one direction of the hidden states carries nearly all of their power.  So the step is the
exact gradient in whitened features, h -> (E h h' + RIDGE I)^(-1/2) h: in the head's own coordinates

    theta <- theta + STEP grad J (E h h' + RIDGE I)^(-1).

Nothing is drawn, and the last step to each policy is shortened so that mean success is what was asked for.
"""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import brentq
from scipy.special import softmax

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.problem.logit_map import HeadMap

RIDGE, STEP = 0.01, 3.0
MOST_STEPS = 1000


def _gains(logits: Array, success: Array) -> tuple[float, Array]:
    """Return mean success J, and M times its derivatives in the logits."""
    probabilities = softmax(logits, axis=1)
    values = (probabilities * success).sum(axis=1, keepdims=True)
    return float(values.mean()), probabilities * (success - values)


def trained_heads(problem: gt.Problem, qualities: Sequence[float]) -> list[Array]:
    """Return the head's theta at each of some mean successes along one path of training.

    Parameters
    ----------
    problem : Problem
        Its policy is a head, and its prompts are equally likely.
    qualities : sequence of float
        Mean successes in (0, 1), rising; where the problem's own theta has more already it is returned.

    Returns
    -------
    list of ndarray, each of shape (d,)

    Raises
    ------
    TypeError
        If the policy is not a head.
    ValueError
        If a mean success is not reached in 1,000 steps.
    """
    head = problem.policy.logit_map
    if not isinstance(head, HeadMap):
        raise TypeError(f"problem must have a policy that is a head over hidden states, got {type(head).__name__}")
    success, hidden = problem.bandit.mean_reward, head.hidden
    n_prompts, width = hidden.shape
    whitened = np.linalg.solve(hidden.T @ hidden / n_prompts + RIDGE * np.eye(width), hidden.T).T
    kernel = STEP * hidden @ whitened.T / n_prompts
    total, gains = np.zeros_like(success), np.zeros_like(success)
    logits = before = hidden @ problem.theta.reshape(-1, width).T
    thetas: list[Array] = []

    def reached(share: float, quality: float) -> float:
        return _gains(before + share * (logits - before), success)[0] - quality

    for _ in range(MOST_STEPS):
        value, following = _gains(logits, success)
        while len(thetas) < len(qualities) and value >= qualities[len(thetas)]:
            share = 1.0 if before is logits else brentq(reached, 0.0, 1.0, args=(qualities[len(thetas)],), xtol=1e-14)
            taken = total - (1.0 - share) * gains
            thetas.append(problem.theta + (STEP / n_prompts * taken.T @ whitened).reshape(-1))
        if len(thetas) == len(qualities):
            return thetas
        gains, before = following, logits
        total, logits = total + gains, logits + kernel @ gains
    raise ValueError(f"mean success {qualities[len(thetas)]} must be reached within {MOST_STEPS} steps, got {value:.3f}")
