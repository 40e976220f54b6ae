"""T1, T2: the updates of GRPO and TIC-GRPO term by term, exact.

On random problems the library's update of a rollout is compared with the sum of the terms, as printed and as corrected. In the
control the update has another clip.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.estimation.ratio import CLIPS
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import exact, largest
from grpo_theory.exact import token_weights
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from simulations.sequence.parts import composed, of_length, random_problem
from simulations.sequence.tokens import Tokens
from simulations.statements import stated

T1, T2, T1_PRINTED, T1_CORRECTED, T2_PRINTED = stated("T1", "T2", "T1/printed", "T1/corrected", "T2/printed")
T2_SIGN, T2_CORRECTED = stated("T2/sign", "T2/corrected")

WAYS = {
    T1_PRINTED: ("T1", "printed"),
    T1_CORRECTED: ("T1", "corrected"),
    T2_PRINTED: ("T2", "printed"),
    T2_SIGN: ("T2", "sign"),
    T2_CORRECTED: ("T2", "corrected"),
}
"""Each decomposition and the way of writing it: as printed, with only the sign turned, and right."""
TREES = ((3, 1, None), (2, 3, 1), (3, 2, 0), (2, 4, None), (2, 6, 0))
"""Vocabulary size, horizon and end token."""
COUNT, QUICK_COUNT = 50, 10
"""Random problems of each tree."""
PROMPTS, DIMENSION, GROUP_SIZE = 4, 4, 5
LOW, HIGH = 0.2, 0.28
DRIFT = 0.5
"""The length of theta_k - theta_0; scores are 1-Lipschitz."""
READINGS = ("batch", "any weights", "leave-one-out")
"""Weights 1/B and 1/G with the own sample in mu_c; any weights; and 1/B and 1/G without the own sample in mu_c."""
UPDATES = {
    "right": {
        "T1": composed("dr_grpo", "token", CLIPS["by sign"].with_widths(LOW, HIGH), "own length"),
        "T2": composed("dr_grpo", "trajectory", CLIPS["upper only"].with_widths(LOW, HIGH), "constant"),
    },
    "broken": {
        "T1": composed("dr_grpo", "token", CLIPS["two-sided"].with_widths(LOW, HIGH), "own length"),
        "T2": composed("dr_grpo", "trajectory", CLIPS["cap"].with_widths(LOW, HIGH), "constant"),
    },
}
"""The updates that the decompositions are about, and the same with other clips."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each tree; exact, so quick only draws fewer problems."""
    common = {"count": QUICK_COUNT if quick else COUNT, "drift": DRIFT, "low": LOW, "high": HIGH, "group_size": GROUP_SIZE}
    return [Cell({"tree": list(tree), "prompts": PROMPTS, "dimension": DIMENSION, **common}) for tree in TREES]


class Rollout:
    """A group of each prompt, drawn by the old policy: responses (B, G), weights zeta xi (B, G), rewards and advantages."""

    def __init__(self, problem: gt.Problem, reading: str, rng: np.random.Generator) -> None:
        point, n_prompts = problem.at(problem.theta), problem.bandit.n_prompts
        size = (n_prompts, GROUP_SIZE)
        self.drawn = np.array([rng.choice(p.size, GROUP_SIZE, p=p / p.sum()) for p in point.probabilities])
        success = np.take_along_axis(problem.bandit.mean_reward, self.drawn, axis=1)
        self.rewards = (rng.uniform(size=size) < success).astype(np.float64)
        self.weights = rng.uniform(0.1, 1.0, size) if reading == "any weights" else np.full(size, 1.0 / self.rewards.size)
        means = self.rewards.mean(axis=1, keepdims=True)
        if reading == "leave-one-out":
            means = (GROUP_SIZE * means - self.rewards) / (GROUP_SIZE - 1)
        self.advantages = self.rewards - means


def update(problem: gt.Problem, theta: Array, estimator: gt.Estimator, rollout: Rollout) -> Array:
    """Return the update that the library's estimator makes of a rollout, sum zeta xi A u, shape (d,)."""
    weights = token_weights(problem.at(theta), problem.at(problem.theta), estimator)
    total = np.zeros(problem.policy.dimension)
    for m, drawn in enumerate(rollout.drawn):
        tables = weights.covectors(np.array([m]))[0]
        signs = (rollout.advantages[m] < 0.0).astype(int) if weights.depends_on_sign else np.zeros(drawn.size, dtype=int)
        pushed = (rollout.weights[m] * rollout.advantages[m]) @ tables[signs, drawn]
        total += problem.policy.tangent(theta).adjoint_by_prompt(np.eye(len(rollout.drawn))[m][:, None] * pushed)[m]
    return total


class Sides:
    """What both decompositions are made of, token by token, for one rollout: all arrays (B, G, T) or (B, G, T, d)."""

    def __init__(self, problem: gt.Problem, features: Array, theta: Array, rollout: Rollout) -> None:
        paths = problem.policy.paths
        old, now = ([Tokens(paths, one @ vector, one) for one in features] for vector in (problem.theta, theta))
        rewards = problem.bandit.mean_reward

        def along(values: list[Array]) -> Array:
            return np.stack([one[drawn] for one, drawn in zip(values, rollout.drawn, strict=True)])

        def value(tokens: list[Tokens]) -> Array:
            return np.array([one.response_probabilities @ r for one, r in zip(tokens, rewards, strict=True)])[:, None]

        self.taken, self.lengths = paths.taken[rollout.drawn], paths.lengths[rollout.drawn]
        self.score_0 = along([one.of_responses(one.scores) for one in old])
        self.score_k = along([one.of_responses(one.scores) for one in now])
        self.ratio = along([n.of_responses(n.probabilities / o.probabilities) for n, o in zip(now, old, strict=True)])
        self.rho = np.where(self.taken, self.ratio, 1.0).prod(axis=2)
        self.mu_0, self.mu_k = value(old), value(now)
        self.mean_length = np.mean([one.response_probabilities @ paths.lengths for one in old])
        self.horizon = paths.horizon
        self.rollout = rollout
        positive = rollout.advantages[..., None] >= 0.0
        self.kept = np.where(positive, self.ratio <= 1.0 + HIGH, self.ratio >= 1.0 - LOW) & self.taken

    def _sum(self, by_response: Array, by_token: Array, vectors: Array) -> Array:
        return np.einsum("bg,bg,bgt,bgtd->d", self.rollout.weights, by_response, by_token.astype(np.float64), vectors)

    def grpo(self, way: str) -> Array:
        """Return (1/TT) ghat + X1 + X2 + X3 + X4, as printed or corrected."""
        advantages, share = self.rollout.advantages, 1.0 / self.lengths
        centred, excess = self.rollout.rewards - self.mu_0, self.rollout.rewards - advantages - self.mu_0
        gap = 1.0 / self.mean_length - share
        ghat = self._sum(centred, self.taken, self.score_0) / self.mean_length
        moved = self.ratio[..., None] * self.score_k - self.score_0  # (grad P_k - grad P_0)/P_0
        x1 = self._sum(share * advantages, self.kept, moved)
        x2 = -self._sum(share * excess, self.kept, self.score_0)
        x3 = self._sum(centred, self.taken & ~self.kept, self.score_0) / self.mean_length
        x4 = -self._sum(gap * centred, self.kept, self.score_0)
        return ghat + x1 + x2 + (x3 if way == "printed" else -x3) + x4

    def tic(self, way: str) -> Array:
        """Return (1/T) gtilde + Y1 + Y2, as printed, with the sign of Y2 turned, or corrected."""
        advantages, rewards = self.rollout.advantages, self.rollout.rewards
        kept = self.rho <= 1.0 + HIGH
        gtilde = self._sum(self.rho * (rewards - self.mu_k), self.taken, self.score_k)
        y1 = self._sum(kept * self.rho * (self.mu_k - rewards + advantages), self.taken, self.score_k)
        left_out = rewards - self.mu_k if way == "corrected" else advantages
        y2 = self._sum(~kept * self.rho * left_out, self.taken, self.score_k)
        return (gtilde + y1 + (y2 if way == "printed" else -y2)) / self.horizon


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Rows:
    """Return the largest discrepancies between updates and their terms, relative to the update, and how much is clipped."""
    gaps: dict[tuple[str, str, str], list[float]] = {}
    clipped = []
    for _ in range(settings["count"]):
        problem = random_problem(rng, *settings["tree"], n_prompts=settings["prompts"], dimension=settings["dimension"])
        features = problem.policy.jacobian()
        away = rng.normal(size=problem.policy.dimension)
        theta = problem.theta + of_length(settings["drift"], away)
        for reading in READINGS:
            rollout = Rollout(problem, reading, rng)
            sides = Sides(problem, features, theta, rollout)
            clipped.append(1.0 - sides.kept.sum() / sides.taken.sum())
            lefts = {
                kernel: {name: update(problem, theta, rule, rollout) for name, rule in rules.items()}
                for kernel, rules in UPDATES.items()
            }
            for statement, (decomposition, way) in WAYS.items():
                terms = sides.grpo(way) if decomposition == "T1" else sides.tic(way)
                scale = np.linalg.norm(lefts["right"][decomposition]) + 1e-3
                for kernel, left in lefts.items():
                    gap = float(np.linalg.norm(left[decomposition] - terms) / scale)
                    gaps.setdefault((statement.id, reading, kernel), []).append(gap)
    share = float(np.mean(clipped))
    return [
        {"statement": name, "reading": reading, "kernel": kernel, "estimate": largest(of_problems), "clipped": share}
        for (name, reading, kernel), of_problems in gaps.items()
    ]


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each way of writing a decomposition, reading, and kernel: the largest discrepancy."""
    vocabulary_size, horizon, end_token = settings["tree"]
    tree = f"T = {horizon}, V = {vocabulary_size}{'' if end_token is None else ', end token'}"
    return [{"tree": tree, "prediction": 0.0, **EXACT} | row for row in results[0]]


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Each way of writing each decomposition, under each reading, over all trees."""
    stated = {statement.id: statement for statement in WAYS}
    for (name, reading), part in table.groupby(["statement", "reading"], sort=False):
        gaps = part.groupby("kernel")["estimate"].agg(largest)
        own, control = (exact(gaps[kernel], 0.0) for kernel in ("right", "broken"))
        yield stated[name].claim(str(reading), own, control, facts={"clipped": float(part["clipped"].mean())})
