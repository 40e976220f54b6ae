"""SmolLM2's head in coordinates in which its questions are as orthogonal as a ridge says, and training by exact gradients.

The hidden states h stay as they are, and the head alone is trained. In features S h the same policies are heads over other
states. But steepest ascent, and the angle between two questions' gradients, differ. The gradients of two prompts i and j have the
inner product ``(c_i . c_j)(S h_i . S h_j)``. Let S = (E h h' + ridge I)^(-1/2). At a large ridge all questions share one
direction, as they do in the head's own coordinates; at a small one they share nothing.

The derivation is in docs/derivations.md, section 32.
"""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import squareform
from scipy.special import softmax

import grpo_theory as gt
from grpo_theory.problem.logits import HeadMap
from grpo_theory.validation import Array

OWN = np.inf
"""The ridge of the head's own coordinates: the larger it is, the nearer S is to a multiple of I."""
STRIDE = 0.02
"""The first update of every run moves theta by STRIDE sqrt(M): short enough to follow the flow of the gradient."""


@cache
def head_problem(name, ridge=OWN):
    """Return a problem whose policy is a head, in features (E h h' + ridge I)^(-1/2) h scaled to a mean squared length of 1.

    Parameters
    ----------
    name : str
        Of a problem of the gallery whose policy is a head.
    ridge : float
        What is added to the second moments of the hidden states; at `OWN` they are only scaled.
    """
    problem = gt.gallery.problem(name)
    hidden, n_answers = hidden_states(problem), problem.policy.n_responses
    root = np.eye(hidden.shape[1])
    if ridge != OWN:
        powers, directions = np.linalg.eigh(hidden.T @ hidden / len(hidden) + ridge * root)
        root = (directions / np.sqrt(powers)) @ directions.T
    root /= np.sqrt(((hidden @ root) ** 2).sum(axis=1).mean())
    theta = np.linalg.solve(root, problem.theta.reshape(n_answers, -1).T).T
    policy = gt.SoftmaxHead(hidden @ root, n_answers)
    return gt.Problem(problem.bandit, policy, theta=theta.ravel(), name=f"{name}, {label(ridge)}")


def hidden_states(problem):
    """Return the features h of each prompt of a head, shape (M, H)."""
    return problem.policy.logit_map.hidden


def label(ridge):
    """Return what coordinates are called in tables."""
    return "own" if ridge == OWN else f"ridge {ridge:g}"


def gram(problem):
    """Return the inner products g of the prompts' features, X_i X_j' = g_ij I, shape (M, M)."""
    logit_map = problem.policy.logit_map
    hidden = logit_map.hidden if isinstance(logit_map, HeadMap) else logit_map.features[:, 0]
    return hidden @ hidden.T


class State(NamedTuple):
    """A policy on its way: success and its standard deviation (M,), and the gradients' logit gradients c (M, K)."""

    logits: Array
    value: Array
    deviation: Array
    logit_gradients: Array


def state(logits: Array, success: Array) -> State:
    """Return the state at logits (M, K) with expected rewards (M, K) of 0 and 1."""
    probabilities = softmax(logits, axis=1)
    value = (probabilities * success).sum(axis=1)
    missed = (probabilities * (1.0 - success)).sum(axis=1)
    return State(logits, value, np.sqrt(value * missed), probabilities * (success - value[:, None]))


def ascent(problem: gt.Problem, power: float, updates: int, stride: float = STRIDE) -> Iterator[State]:
    """Yield the states of steepest ascent along the mean of V_i^(power/2) grad J_i, the start and one after each update.

    Gradients are exact, and all prompts count alike. The step is constant. It gives the first update the length stride sqrt(M),
    whatever the power. A power of 0 takes the gradients as they are, -1 divides them by the prompts' standard deviations, and 1
    multiplies.
    """
    products, success = gram(problem), problem.bandit.mean_reward
    now = state(problem.policy.logits(problem.theta), success)
    yield now
    step = 0.0
    for _ in range(updates):
        scales = np.zeros_like(now.deviation)
        np.power(now.deviation, power, out=scales, where=now.deviation > 0.0)
        pushes = now.logit_gradients * scales[:, None]
        moves = products @ pushes
        step = step or stride * np.sqrt(len(products) / (pushes * moves).sum())
        now = state(now.logits + step * moves, success)
        yield now


def cosines(products: Array, logit_gradients: Array) -> Array:
    """Return cosines of pairs of prompts' gradients, shape (M (M - 1)/2,), from products (M, M) and logit gradients (M, K)."""
    both = logit_gradients @ logit_gradients.T * products
    lengths = np.sqrt(np.diag(both))
    return np.asarray(squareform(both / np.outer(lengths, lengths), checks=False))


NEAR = 0.1
"""Cosines below are those of near-orthogonal gradients, as in the paper."""


def near_orthogonal(cosines_of: Array, limit: float = NEAR) -> float:
    """Return the share of cosines below a limit in absolute value."""
    return float((np.abs(cosines_of) < limit).mean())
