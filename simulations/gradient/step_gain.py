"""Efficiency beside what one step of the best length gains, on a language model's heads.

Efficiency is the share of the exact gradient's gain where curvature is the same in all directions. Here no curvature is assumed:
estimates are drawn, and the exact objective is computed along each. The step length of the largest mean gain is found on a
quarter of the draws and judged on the others. In the control, groups get the advantages of other groups.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence.reading import mean_of
from grpo_theory.harness import check
from simulations.gradient.groups import RESPONSES, advantages_of
from simulations.normalisation.heads import hidden_states
from simulations.statements import stated

GAIN = stated("efficiency/gain")
SIZES = {"lm-zero-shot": (3, 6), "lm-few-shot": (3, 5), "lm-instruct": (3, 8)}
"""The best group sizes of RLOO and of GRPO by efficiency, which are the study `efficiency`'s."""
ESTIMATORS = ("rloo", "grpo")
STEPS = 1.4 ** np.arange(-12.0, 24.0)
"""In units of the length at which the exact gradient moves the largest logit by one."""
AT_ONCE = 16
"""The draws whose logits stay in the second level of cache."""


class Head:
    """A head's logits and probabilities (M, K), success probabilities (M, K), and products of hidden states (M, M)."""

    def __init__(self, problem):
        hidden = hidden_states(problem)
        self.logits, self.products = problem.policy.logits(problem.theta), hidden @ hidden.T
        self.probabilities, self.success = problem.at(problem.theta).probabilities, problem.bandit.mean_reward

    def gains(self, directions, steps):
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

    def exact_direction(self):
        """Return how the exact gradient moves the logits, (M, K)."""
        value = (self.probabilities * self.success).sum(axis=1, keepdims=True)
        return self.products @ (self.probabilities * (self.success - value)) / len(self.products)

    def drawn(self, estimator, group_size, rng, shift):
        """Return the logit gradients of one estimate of the gradient, by prompt, (M, K); shifted, with others' advantages."""
        prompts = rng.integers(len(self.logits), size=RESPONSES // group_size)
        below = self.probabilities.cumsum(axis=1)[prompts]
        responses = (rng.random((len(prompts), group_size, 1)) * below[:, None, -1:] > below[:, None]).sum(axis=-1)
        rewards = (rng.random(responses.shape) < self.success[prompts[:, None], responses]).astype(np.float64)
        advantages = np.roll(advantages_of(estimator, rewards), shift, axis=0) / group_size
        sums = np.bincount(prompts, -advantages.sum(axis=1), minlength=len(self.logits))
        places = prompts[:, None] * self.logits.shape[1] + responses
        weights = np.bincount(places.ravel(), advantages.ravel(), minlength=self.logits.size).reshape(self.logits.shape)
        return (weights + sums[:, None] * self.probabilities) / len(prompts)

    def estimates(self, estimator, group_size, rng, draws, shift=0):
        """Yield how estimates of the gradient move the logits, some of so many draws at a time, (N, M, K)."""
        for first in range(0, draws, AT_ONCE):
            drawn = [self.drawn(estimator, group_size, rng, shift) for _ in range(min(AT_ONCE, draws - first))]
            moved = self.products @ np.concatenate(drawn, axis=1)
            yield moved.reshape(len(moved), len(drawn), -1).transpose(1, 0, 2)


def cases(quick):
    """Each head with each estimator at its best group size; quick has one head."""
    return [
        {"problem": name, "estimator": estimator, "group_size": size, "draws": 256 if quick else 3072}
        for name in (("lm-few-shot",) if quick else SIZES)
        for estimator, size in zip(ESTIMATORS, SIZES[name], strict=True)
    ]


@check(GAIN, cases=cases, broken={"shift": 1, "share": 8}, setting="{problem}, {estimator}, G = {group_size}")
def gain(problem, estimator, group_size, draws, rng, shift=0, share=1):
    """The mean gain relative to the exact gradient's; the broken driver, which is far off, draws an eighth as often."""
    problem, sizes = gt.gallery.problem(problem), {"batch_size": RESPONSES // group_size, "group_size": group_size}
    head, judges = Head(problem), 3 * (draws // share) // 4
    exact = head.exact_direction()
    steps = STEPS / np.abs(exact).max()
    choosing = head.estimates(estimator, group_size, rng, draws // share - judges, shift)
    best = int(np.concatenate([head.gains(some, steps) for some in choosing]).mean(axis=0).argmax())
    # Those that judge are asked at one step alone: of a draw the many steps are what costs.
    judging = head.estimates(estimator, group_size, rng, judges, shift)
    gains = np.concatenate([head.gains(some, steps[best : best + 1]) for some in judging])[:, 0]
    efficiency = gt.efficiency(problem, problem.theta, estimator, **sizes)
    return mean_of(gains / head.gains(exact[None], steps).max()), efficiency
