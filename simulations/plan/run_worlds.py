"""Problems whose whole runs are predicted or advised on, and logs of their rollouts with sketches."""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple, Self

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array, Integers
from grpo_theory.estimation import find
from grpo_theory.problem.chains import KINDS
from grpo_theory.schedule import step_sizes
from grpo_theory.simulate.draw.streams import block_streams
from grpo_theory.simulate.training_blocks import BLOCK_RUNS, TrainingBlocks
from simulations.plan.estimator_pilots import chain
from simulations.runs.arms import success_rates
from simulations.runs.worlds import WORLDS

Seed = np.random.SeedSequence

WIDTHS = {"network of 3": 3, "network of 8": 8, "network of 32": 32}
LINEAR, WALK, CHAIN_OF_TWELVE = "linear", "walk", "chain"
PROMPTS, ANSWERS, INPUTS, SEED = 40, 16, 16, 3
"""Of the networks: success rates at the start are from 1/16 to 1/2, because the first policy is uniform."""
WALK_TOKENS, WALK_SUCCESS = 16, 0.1
SKETCH = 128
"""Numbers of a sketch: a squared length errs by 13%."""


@cache
def problem(name: str, draw: int = 0) -> gt.Problem:
    """Return a draw of a kind of problem, at the parameter at which training starts; the walk is one problem."""
    if name == WALK:
        return KINDS["goal walk"](WALK_TOKENS, WALK_SUCCESS)
    if name == CHAIN_OF_TWELVE:
        return chain(draw).listed()
    if name == LINEAR:
        return WORLDS["few prompts"].problem(draw)
    rng = np.random.default_rng((SEED, draw))
    inputs = rng.normal(size=(PROMPTS, INPUTS))
    ranks = rng.permuted(np.tile(np.arange(ANSWERS), (PROMPTS, 1)), axis=1)
    right = ranks < np.round(np.geomspace(1, ANSWERS / 2, PROMPTS))[:, None]
    policy = gt.TwoLayerSoftmax(inputs, WIDTHS[name], ANSWERS, scale=WIDTHS[name] ** -0.5)
    return gt.Problem(gt.Bandit(right.astype(float)), policy, theta=policy.start(rng))


class Listed(NamedTuple):
    """Responses that are drawn from a list: their cumulated probabilities (M, K), rewards (M, K) and sketches (M, K, J)."""

    below: Array
    success: Array
    sketches: Array

    @classmethod
    def at(cls, case: gt.Problem, theta: Array) -> Self:
        """Tabulate a problem at theta; all its sketches are by one projection."""
        scores, d = case.policy.scores(theta), case.policy.dimension
        if d > SKETCH:
            scores = scores @ (np.random.default_rng(SEED).normal(size=(d, SKETCH)) / np.sqrt(SKETCH))
        return cls(np.cumsum(case.policy.probabilities(theta), axis=1), case.bandit.mean_reward, scores)

    def draw(self, prompts: Integers, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw a response to each prompt (N,); return chances of success (N,) and sketches (N, J)."""
        below = self.below[prompts]
        responses = (rng.random(prompts.size)[:, None] * below[:, -1:] > below).sum(axis=1)
        return self.success[prompts, responses], self.sketches[prompts, responses]


class Walked(NamedTuple):
    """Responses that are drawn token by token along a chain, with the probabilities of tokens (S, V)."""

    chain: gt.TokenChain
    success: Array
    tokens: Array
    tangent: gt.LogitMap

    @classmethod
    def at(cls, case: gt.Problem, theta: Array) -> Self:
        """Tabulate a problem at theta."""
        chain, rewards = case.policy, case.bandit
        assert isinstance(chain, gt.TokenChain)
        assert isinstance(rewards, gt.StateRewards)
        logits = chain.logits(theta)[0].reshape(chain.transitions.shape)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        tokens = weights / weights.sum(axis=1, keepdims=True)
        return cls(chain, rewards.state_probabilities[:, -1], tokens, chain.tangent(theta))

    def draw(self, prompts: Integers, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw a response to each prompt (N,); return chances of success (N,) and scores (N, d)."""
        chain, p, rows = self.chain, self.tokens, np.arange(prompts.size)
        states, below = chain.starts[prompts], np.cumsum(self.tokens, axis=1)[:, :-1]
        covectors, goes_on = np.zeros((prompts.size, *p.shape)), np.ones(prompts.size, dtype=bool)
        for _ in range(chain.horizon):
            tokens = (rng.random(prompts.size)[:, None] > below[states]).sum(axis=1)
            covectors[rows, states] += np.where(goes_on[:, None], np.eye(p.shape[1])[tokens] - p[states], 0.0)
            ended = chain.ends[states, tokens]
            states = np.where(goes_on, chain.transitions[states, tokens], states)
            goes_on &= ~ended
        return self.success[states], self.tangent.adjoint_by_prompt(covectors.reshape(prompts.size, -1))


def sampler(case: gt.Problem, theta: Array) -> Listed | Walked:
    """Return what draws responses of a problem at theta."""
    return Walked.at(case, theta) if isinstance(case.policy, gt.TokenChain) else Listed.at(case, theta)


def courses(
    case: gt.Problem, starts: Array, estimator: str, rate: float, sizes: tuple[int, int], looks: Sequence[int], seed: Seed
) -> tuple[Array, Array]:
    """Train from each start (R, d); return success after numbers of updates, (R, looks), and the last parameters (R, d).

    `sizes` are the numbers of prompts and of responses to each.
    """
    if isinstance(case.policy, gt.TokenChain):
        runs = gt.simulate_training(
            case,
            starts,
            estimator,
            gt.Constant(rate),
            batch_size=sizes[0],
            group_size=sizes[1],
            steps=looks[-1],
            replications=len(starts),
            rng=seed,
            workers=1,
            checkpoints=looks,
        )
        return runs.objectives, runs.theta
    # The driver itself, because the check of stability that comes before whole runs takes longer than they do.
    blocks = TrainingBlocks.of(case, find(estimator), step_sizes(gt.Constant(rate), looks[-1]), (*sizes, 1), optimiser=gt.SGD())
    found, ends = [], []
    for first in range(0, len(starts), BLOCK_RUNS):
        with blocks.start(block_streams(seed, first // BLOCK_RUNS, 1), starts[first : first + BLOCK_RUNS]) as going:
            values = []
            for count in looks:
                going.advance(count)
                values.append(success_rates(case, going.theta) @ case.bandit.prompt_weights)
            found.append(np.stack(values, axis=1))
            ends.append(going.theta)
    return np.concatenate(found), np.concatenate(ends)


def draw_log(responses: Listed | Walked, prompts: Integers, size: int, rng: np.random.Generator) -> gt.RaggedRollouts:
    """Draw a group of responses to each of some prompts, each with its reward and sketch."""
    index = np.repeat(np.arange(prompts.size), size)
    success, sketches = responses.draw(prompts[index], rng)
    return gt.RaggedRollouts(index, (rng.random(index.size) < success).astype(float), sketches)
