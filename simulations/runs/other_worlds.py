"""Worlds that are not linear in one token: responses of many tokens, features that are learned; and all worlds by name."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np

import grpo_theory as gt
from grpo_theory.laboratory.prompt_features import starting_logits, unit
from simulations.runs.worlds import FROZEN, SEED, WORLDS
from simulations.seeds import child_seed


class AnyWorld(Protocol):
    """What runs need of a world."""

    @property
    def generalises(self) -> bool:
        """Whether it has held-out prompts."""

    def problem(self, draw: int = 0, *, held_out: bool = False) -> gt.Problem:
        """Return the prompts that are trained on, or those held out, where training starts; the reward is 1 if right."""

    def graded(self, draw: int = 0) -> gt.Problem:
        """Return the problem that is trained on, with the rewards that training sees."""


class StepsWorld(NamedTuple):
    """Prompts whose answer takes many tokens, as a derivation does: it is right if all are, and ends with the first wrong one.

    Attributes
    ----------
    prompts, held_out : int
        Those that are trained on, and those that are not.
    tokens : int
        T, of a right answer.  At the start all tokens of a prompt are right equally often, p^(1/T).
    coherence : float
        The cosine of the features of a prompt's right tokens, and of its wrong ones.  Without any the tokens of few prompts are
        more than the dimension, and no parameter makes all of them right.
    dimension : int
        Of the features that all tokens of all prompts share.
    easiest, rarest : float
        Success rates at the start are spread evenly in their logarithm between these.
    """

    prompts: int = 8
    tokens: int = 16
    coherence: float = 0.5
    dimension: int = 32
    easiest: float = 0.5
    rarest: float = 1e-3
    held_out: int = 128

    @property
    def generalises(self) -> bool:
        """Yes: tokens of all prompts share their features."""
        return True

    def problem(self, draw: int = 0, *, held_out: bool = False) -> gt.Problem:
        """Return the prompts that are trained on, or those held out, at the parameter at which training starts."""
        count = self.held_out if held_out else self.prompts
        rng = np.random.default_rng(child_seed(np.random.SeedSequence(SEED), draw, int(held_out)))
        common = unit(rng.normal(size=(count, 1, 2, self.dimension)))
        own = unit(rng.normal(size=(count, self.tokens, 2, self.dimension)))
        features = unit(np.sqrt(self.coherence) * common + np.sqrt(1.0 - self.coherence) * own)
        # Edges are (prefix, token): token 0 is wrong and ends the answer, so that the prefixes are so many right tokens.
        often = np.geomspace(self.easiest, self.rarest, count) ** (1.0 / self.tokens)
        logits = np.broadcast_to(np.log(np.stack([1.0 - often, often], axis=1))[:, None], (count, self.tokens, 2))
        columns = np.concatenate([features, logits[..., None] / FROZEN], axis=-1).reshape(count, 2 * self.tokens, -1)
        policy = gt.TokenTree(count, 2, self.tokens, end_token=0, features=columns)
        right = [float(response == self.tokens * (1,)) for response in policy.responses]
        theta = np.zeros(self.dimension + 1)
        theta[-1] = FROZEN
        return gt.Problem(gt.Bandit(np.tile(right, (count, 1))), policy, theta=theta)

    def graded(self, draw: int = 0) -> gt.Problem:
        """Return the prompts that are trained on: no reward is wrong."""
        return self.problem(draw)


class NetworkWorld(NamedTuple):
    """Prompts of one token, each with one right answer, and a network of two layers that learns its features.

    All prompts share the outputs: prompts that have one right answer teach each other, others compete.  No prompts are held out,
    because their success at the start would be what the network makes of it, and not a dial.

    Attributes
    ----------
    prompts, answers : int
    inputs : int
        Numbers by which the network is told the prompt, normal and independent. They are as many as other worlds have dimensions,
        so that prompts have as much in common.
    width : int
        Of the layer between: twice the prompts, with which the network can have any success rates at the start.
    easiest, rarest : float
        Success rates at the start are spread evenly in their logarithm between these.
    """

    prompts: int = 8
    answers: int = 8
    inputs: int = 32
    width: int = 16
    easiest: float = 0.5
    rarest: float = 1e-3

    @property
    def generalises(self) -> bool:
        """No: no success rates are given to other prompts."""
        return False

    def problem(self, draw: int = 0, *, held_out: bool = False) -> gt.Problem:
        """Return the prompts, at the network at which training starts: a random first layer, and the least second one."""
        if held_out:
            raise ValueError("held_out must be False, because this world has no prompts that are held out, got True")
        rng = np.random.default_rng(child_seed(np.random.SeedSequence(SEED), draw, 0))
        told = rng.normal(size=(self.prompts, self.inputs))
        first = rng.normal(size=(self.width, self.inputs)) / np.sqrt(self.inputs)
        rights = rng.integers(self.answers, size=(self.prompts, 1)) == np.arange(self.answers)
        logits = starting_logits(np.geomspace(self.easiest, self.rarest, self.prompts), rights, rng)
        scale = self.width**-0.5
        second = np.linalg.lstsq(scale * np.tanh(told @ first.T), logits - logits.mean(axis=1, keepdims=True))[0].T
        policy = gt.TwoLayerSoftmax(told, self.width, self.answers, scale=scale)
        theta = np.concatenate([first.reshape(-1), second.reshape(-1)])
        return gt.Problem(gt.Bandit(rights.astype(np.float64)), policy, theta=theta)

    def graded(self, draw: int = 0) -> gt.Problem:
        """Return the prompts: no reward is wrong."""
        return self.problem(draw)


LONG, LEARNED = "16 tokens", "learned features"
ALL: Mapping[str, AnyWorld] = {**WORLDS, LONG: StepsWorld(), LEARNED: NetworkWorld()}
"""All worlds in which the frontier may be asked for."""
