"""Networks of two layers on inputs as orthogonal as the paper's, and their ascent along exact gradients.

Inputs are normal, of as many dimensions as make their mean |cos| that of the paper's representations.  Of the eight answers to a
prompt four are right if it is easy, and one if it is hard.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

import grpo_theory as gt
from grpo_theory.problem.logits import LogitMap
from grpo_theory.validation import Array
from simulations.normalisation.heads import State, state

PROMPTS, ANSWERS, INPUTS = 40, 8, 82
"""Normal vectors of 82 dimensions have a mean |cos| of sqrt(2/(82 pi)) = 0.088, as printed."""
RIGHT = {"easy": ANSWERS // 2, "hard": 1}
"""How many answers are right."""
BOTH = "easy and hard"
"""Of a mixture with every second prompt hard."""
TITLE = "networks of width {width}, {mixture}"
"""What cases of widths and mixtures are called."""
STRIDE = 0.1
"""The first update's root mean square change of a prompt's logits."""


class Place(NamedTuple):
    """A policy on its way: its parameters, its probabilities and gradients in the logits, and the derivatives of the logits."""

    theta: Array
    now: State
    tangent: LogitMap

    @property
    def gradients(self) -> Array:
        """The prompts' gradients, shape (M, d)."""
        return self.tangent.adjoint_by_prompt(self.now.logit_gradients)


def network_problem(width: int, seed: int, draw: int = 0, mixture: str = BOTH) -> gt.Problem:
    """Return a problem of a seed with a network at one of the draws of a start."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(PROMPTS, INPUTS))
    ranks = rng.permuted(np.tile(np.arange(ANSWERS), (PROMPTS, 1)), axis=1)
    hard, easy = (RIGHT[mixture if mixture != BOTH else one] for one in ("hard", "easy"))
    right = ranks < np.where(np.arange(PROMPTS) % 2 == 0, hard, easy)[:, None]
    policy = gt.TwoLayerSoftmax(inputs, width, ANSWERS, scale=width**-0.5)
    return gt.Problem(gt.Bandit(right.astype(float)), policy, theta=policy.start(np.random.default_rng([seed, draw])))


def linearised(problem: gt.Problem) -> gt.Problem:
    """Return the problem of the linear policy with the features of a network's start, at parameters that count from there.

    At such a start all logits are 0, those of the network and those of the linear policy.
    """
    policy = gt.Policy(problem.policy.tangent(problem.theta))
    return gt.Problem(problem.bandit, policy, theta=np.zeros(policy.dimension))


def ascent(problem: gt.Problem, power: float, updates: int, stride: float = STRIDE) -> Iterator[Place]:
    """Yield the places of ascent along the sum of V_i^(power/2) grad J_i, the start and one after each update.

    Gradients are exact, and all prompts count alike. The step is constant. Its first update moves the logits of a prompt by
    stride in the root mean square. A power of 0 takes the gradients as they are, and -1 divides them by the prompts' standard
    deviations.
    """
    policy, theta, step = problem.policy, problem.theta, 0.0
    for n in range(updates + 1):
        tangent = policy.tangent(theta)
        now = state(policy.logits(theta), problem.bandit.mean_reward)
        yield Place(theta, now, tangent)
        if n < updates:
            push = tangent.adjoint(now.logit_gradients * now.deviation[:, None] ** power)
            step = step or stride * np.sqrt(len(now.value)) / float(np.linalg.norm(tangent.logits(push)))
            theta = theta + step * push


def pair_cosines(vectors: Array) -> Array:
    """Return the cosines of all pairs of vectors (M, d), shape (M (M - 1)/2,)."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return (unit @ unit.T)[np.triu_indices(len(unit), 1)]
