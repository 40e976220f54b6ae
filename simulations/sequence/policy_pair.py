"""An old and a current policy on a tree, the gradients that an update off policy may be the estimate of, and exact updates."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.estimation import find
from grpo_theory.harness.study import Rows
from simulations.sequence.parts import composed, cosine, turned
from simulations.sequence.tokens import Tokens

LOW = HIGH = 0.2
"""The widths of the clips."""
GROUP_SIZE = 8
RATIOS = ("none", "token", "geometric", "trajectory")


@cache
def estimators() -> dict[str, gt.Estimator]:
    """Return the estimators that are compared, by name."""
    return {
        **{ratio: composed("rloo", ratio) for ratio in RATIOS},
        "token, clipped": composed("rloo", "token", "by sign"),
        "trajectory, clipped": composed("rloo", "trajectory", "upper only"),
        "tic": find("tic_grpo"),
        "tic, unclipped": composed("dr_grpo", "trajectory", "none", "constant"),
    }


class Pair:
    """The old and the current policy, and the gradients that the update may be the estimate of."""

    def __init__(self, problem: gt.Problem, theta: Array) -> None:
        features = problem.policy.jacobian()[0]
        paths = problem.policy.paths
        self.old, self.now = (Tokens(paths, features @ vector, features) for vector in (problem.theta, theta))
        self.rewards = problem.bandit.mean_reward[0]

    def gradient(self, tokens: Tokens) -> Array:
        """Return grad J at a policy, (d,)."""
        return (tokens.response_probabilities * self.rewards) @ tokens.response_scores

    def surrogate_gradient(self) -> Array:
        """Return the gradient, at the current policy, of J with old prefixes, the current token, and old continuations, (d,).

        A sum over edges: reach of the prefix, times the current token's probability and score, times the old value beyond.
        """
        p = self.old.response_probabilities
        incidence = self.old.paths.incidence
        through = p @ incidence
        beyond = (p * self.rewards) @ incidence / through
        reach = through / self.old.probabilities
        return (reach * self.now.probabilities * beyond) @ self.now.scores

    def kept_gradient(self) -> Array:
        """Return E_k[1_D grad log P_k (r - mu_0)], (d,)."""
        p, q = self.old.response_probabilities, self.now.response_probabilities
        kept = q / p <= 1.0 + HIGH
        return (q * kept * (self.rewards - p @ self.rewards)) @ self.now.response_scores

    def clipped(self) -> float:
        """Return the expected share of tokens that the clip by sign drops; of rewards 0 and 1 it is by them."""
        ratios, r = self.old.of_responses(self.now.probabilities / self.old.probabilities), self.rewards[:, None]
        dropped = self.old.paths.taken * (r * (ratios > 1.0 + HIGH) + (1.0 - r) * (ratios < 1.0 - LOW))
        p = self.old.response_probabilities
        return float(p @ dropped.sum(axis=1) / (p @ self.old.paths.lengths))

    def divergence(self) -> float:
        """Return KL(P_0 || P_k) of the responses over the horizon: nats a token."""
        p, q = self.old.response_probabilities, self.now.response_probabilities
        return float(p @ np.log(p / q)) / self.old.paths.horizon


def measured_updates(problem: gt.Problem, now: gt.Point, old: gt.Point, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield a row for each estimator and quantity; lengths are relative to that of the current gradient."""
    pair, horizon = Pair(problem, now.theta), problem.policy.paths.horizon
    gradient, shrunk = pair.gradient(pair.now), 1.0 - 1.0 / GROUP_SIZE
    scale = float(np.linalg.norm(gradient))
    targets = {"to current": gradient, "to old": pair.gradient(pair.old), "to surrogate": pair.surrogate_gradient()}
    of_tic = {"to shrunk": shrunk * gradient, "to kept": shrunk * pair.kept_gradient()}

    def rows_of(name: str, mean: Array, **measured: float) -> Rows:
        wanted = targets | of_tic if name.startswith("tic") else targets
        measured |= {target: float(np.linalg.norm(mean - vector)) / scale for target, vector in wanted.items()}
        measured["cosine"] = cosine(mean, gradient)
        return [{"estimator": name, "quantity": quantity, "estimate": value} for quantity, value in measured.items()]

    yield {"estimator": "none", "quantity": "nats a token", "estimate": pair.divergence()}
    yield {"estimator": "none", "quantity": "clipped", "estimate": pair.clipped()}
    for name in names:
        law = gt.exact.law_between(now, old, estimators()[name], batch_size=1, group_size=GROUP_SIZE)
        factor = float(horizon) if name.startswith("tic") else 1.0
        yield from rows_of(name, factor * law.mean, variance=factor**2 * law.trace / scale**2)
        if name == "none":
            yield from rows_of("turned", turned(law.mean, gradient))
