"""Efficiency beside what one step of the best length gains, on a language model's heads.

Efficiency is the share of the exact gradient's gain where curvature is the same in all directions. Here no curvature is assumed:
estimates are drawn, and the exact objective is computed along each. The step length of the largest mean gain is found on half of
the draws and judged on the other half. In the control, groups get the advantages of other groups.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import evidence
from grpo_theory.harness.study import EXACT, Cell, Settings
from grpo_theory.harness.summary import summary
from simulations.gradient.groups import RESPONSES, advantages_of
from simulations.normalisation.heads import hidden_states
from simulations.statements import stated

GAIN = stated("efficiency/gain")

SIZES = {"lm-zero-shot": (3, 6), "lm-few-shot": (3, 5), "lm-instruct": (3, 8)}
"""The best group sizes of RLOO and of GRPO by efficiency, which are the study `efficiency`'s."""
ESTIMATORS = ("rloo", "grpo")
DRAWS, QUICK_DRAWS, BROKEN_SHARE = 4096, 256, 8
"""The broken driver, which is far off, draws an eighth as often."""
STEPS = tuple(1.4**power for power in range(-12, 24))
"""In units of the length at which the exact gradient moves the largest logit by one."""
AT_ONCE = 16
"""The draws whose logits stay in the second level of cache."""


class Head(NamedTuple):
    """A head's logits and probabilities (M, K), success probabilities (M, K), and products of hidden states (M, M)."""

    logits: Array
    probabilities: Array
    success: Array
    products: Array

    @classmethod
    def of(cls, problem: gt.Problem) -> "Head":
        """Return the head of a problem at its theta."""
        point, hidden = problem.at(problem.theta), hidden_states(problem)
        return cls(problem.policy.logits(point.theta), point.probabilities, problem.bandit.mean_reward, hidden @ hidden.T)

    def gains(self, directions: Array, steps: Array) -> Array:
        """Return by how much steps (S,) along each of N directions in logits (N, M, K) raise the objective, (N, S)."""
        gains = np.empty((len(directions), len(steps)))
        now = float((self.probabilities * self.success).sum(axis=1).mean())
        # Responses first, because sums along a long axis are many times faster than as many along one of ten numbers.
        start, success = self.logits.T[:, None], np.ascontiguousarray(self.success.T)[:, None]
        along = np.ascontiguousarray(np.moveaxis(directions, -1, 0))
        for s, step in enumerate(steps):
            weights = start + step * along
            weights -= weights.max(axis=0)
            np.exp(weights, out=weights)
            reached = weights.sum(axis=0)
            weights *= success
            gains[:, s] = (weights.sum(axis=0) / reached).mean(axis=-1) - now
        return gains

    def exact_direction(self) -> Array:
        """Return how the exact gradient moves the logits, (M, K)."""
        value = (self.probabilities * self.success).sum(axis=1, keepdims=True)
        return self.products @ (self.probabilities * (self.success - value)) / len(self.products)

    def drawn(self, settings: Settings, rng: np.random.Generator, *, shifted: bool) -> Array:
        """Return the covectors of one estimate of the gradient, by prompt, (M, K); shifted, groups get others' advantages."""
        group_size = settings["group_size"]
        batch_size = RESPONSES // group_size
        prompts = rng.integers(len(self.logits), size=batch_size)
        below = self.probabilities.cumsum(axis=1)[prompts]
        responses = (rng.random((batch_size, group_size, 1)) * below[:, None, -1:] > below[:, None]).sum(axis=-1)
        rewards = (rng.random(responses.shape) < self.success[prompts[:, None], responses]).astype(np.float64)
        advantages = np.roll(advantages_of(settings["estimator"], rewards), int(shifted), axis=0) / group_size
        sums = np.bincount(prompts, -advantages.sum(axis=1), minlength=len(self.logits))
        places = prompts[:, None] * self.logits.shape[1] + responses
        weights = np.bincount(places.ravel(), advantages.ravel(), minlength=self.logits.size).reshape(self.logits.shape)
        return (weights + sums[:, None] * self.probabilities) / batch_size

    def estimates(self, settings: Settings, rng: np.random.Generator, draws: int, *, shifted: bool) -> Iterator[Array]:
        """Yield how estimates of the gradient move the logits, some of so many draws at a time, (N, M, K)."""
        for first in range(0, draws, AT_ONCE):
            drawn = [self.drawn(settings, rng, shifted=shifted) for _ in range(min(AT_ONCE, draws - first))]
            moved = self.products @ np.concatenate(drawn, axis=1)
            yield moved.reshape(len(moved), len(drawn), -1).transpose(1, 0, 2)


def cells(quick: bool) -> list[Cell]:
    """One cell for each head and estimator at its best group size; quick has one head."""
    names = ("lm-few-shot",) if quick else tuple(SIZES)
    return [
        Cell({"problem": name, "estimator": estimator, "group_size": size, "draws": QUICK_DRAWS if quick else DRAWS})
        for name in names
        for estimator, size in zip(ESTIMATORS, SIZES[name], strict=True)
    ]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> dict[str, Any]:
    """Return the gain of each draw that judges, relative to the exact gradient's; and of a driver that mixes up groups."""
    problem, size = gt.gallery.problem(settings["problem"]), settings["group_size"]
    head, sizes = Head.of(problem), {"batch_size": RESPONSES // size, "group_size": size}
    exact = head.exact_direction()
    steps = np.array(STEPS) / np.abs(exact).max()
    most = float(head.gains(exact[None], steps).max())
    efficiency = gt.efficiency(problem, problem.theta, settings["estimator"], **sizes)
    judged: dict[str, Any] = {"exact": most, "efficiency": efficiency}
    for name, draws in (("whole", settings["draws"]), ("broken", settings["draws"] // BROKEN_SHARE)):
        shifted, judges = name == "broken", draws // 2
        choosing = [head.gains(some, steps) for some in head.estimates(settings, rng, draws - judges, shifted=shifted)]
        chosen = steps[[int(np.concatenate(choosing).mean(axis=0).argmax())]]
        # Those that judge are asked at one step alone: of a draw the many steps are what costs.
        judging = np.concatenate([head.gains(some, chosen) for some in head.estimates(settings, rng, judges, shifted=shifted)])
        judged[name] = (judging[:, 0] / most).tolist()
    return judged


def rows(settings: Settings, results: list[Any]) -> Iterator[dict[str, Any]]:
    """The mean gain beside the efficiency, right and broken, and the exact gradient's gain."""
    (judged,) = results
    common = {name: settings[name] for name in ("problem", "estimator", "group_size")}
    for name in ("whole", "broken"):
        yield common | {"quantity": name, "prediction": judged["efficiency"]} | summary(np.array(judged[name]))
    yield common | {"quantity": "exact", "prediction": np.nan, "estimate": judged["exact"]} | EXACT


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Whether efficiency is the share that a step gains, on each head."""
    for keys, part in table.groupby(["problem", "estimator", "group_size"], sort=False):
        at = part.set_index("quantity")
        yield GAIN.claim("{}, {}, G = {}".format(*keys), evidence(at.loc["whole"]), evidence(at.loc["broken"]))
