"""Worlds in which whole runs are compared: small problems of known truth, with a dial for each thing that is said to matter.

Most are linear in one token. In one responses have many tokens, and in another a network learns its features.
"""

from typing import NamedTuple

import numpy as np

import grpo_theory as gt
from simulations.runs.prompt_features import Sharing, shared_features, starting_logits, unit
from simulations.seeds import child_seed

SEED = 20261125
DRAWS = 24
"""Of a world, at least, where a statement is about the kind of problem that it is: limits count draws."""
FROZEN = 1e3
"""Logits of the start are a feature, divided by this, times a parameter that begins here: it learns 1e-6 as fast as others."""


class World(NamedTuple):
    """A kind of problem: prompts with some right answers among wrong ones, and a softmax policy of given success rates at first.

    Features and starting logits are random, so that a statement about a world is judged over `DRAWS` of them. The draws are
    numbered, and none was chosen by what happens in it.

    Attributes
    ----------
    prompts : int
        Those that are trained on.  A finite set is what trainers have; each batch draws from it with replacement.
    answers : int
        K, to each prompt.  With more of them a rare right answer has more rivals to which probability can be lost.
    right : int
        How many of them are right.  One right answer is found or is not; several compete once one of them is reinforced.
    coherence : float
        The cosine of the features of a prompt's right answers: 1 if reinforcing one of them reinforces all.
    easiest, rarest : float
        Success rates at the start are spread evenly in their logarithm between these.  Below 1/G most groups have no success.
    dimension : int
        Of the features that all prompts share: what is learned at one moves others by about 1/sqrt(dimension) of it, in either
        direction.  0 is a tabular policy, in which prompts do not touch each other.
    transfer : float
        The share of a right answer's squared feature that lies in one direction, the same for all prompts. It makes prompts teach
        each other, and held-out ones learn.
    misled : float
        The share of the prompts, those of least success, at which a wrong answer has that direction instead. What easy prompts
        teach takes probability away from the right answers there.
    held_out : int
        Prompts with the same law of features and success rates that are not trained on.
    wrong : float
        The share of all rewards that are the wrong one of 0 and 1, as a verifier errs.  Above the rarest success rates, most of
        what is rewarded at rare prompts is wrong.
    """

    prompts: int = 128
    answers: int = 8
    right: int = 1
    coherence: float = 0.0
    easiest: float = 0.5
    rarest: float = 1e-3
    dimension: int = 32
    transfer: float = 0.0
    misled: float = 0.0
    held_out: int = 128
    wrong: float = 0.0

    def graded(self, draw: int = 0) -> gt.Problem:
        """Return the problem that is trained on: rewards are what a verifier gives, who errs."""
        right = self.problem(draw)
        rewards = self.wrong + (1.0 - 2.0 * self.wrong) * right.bandit.mean_reward
        return gt.Problem(gt.Bandit(rewards), right.policy, theta=right.theta)

    def problem(self, draw: int = 0, *, held_out: bool = False) -> gt.Problem:
        """Return the training prompts of a draw, or those held out, where training starts; the reward is 1 if right."""
        count = self.held_out if held_out else self.prompts
        rng = np.random.default_rng(child_seed(np.random.SeedSequence(SEED), draw, int(held_out)))
        rights = np.broadcast_to(np.arange(self.answers) < self.right, (count, self.answers))
        logits = starting_logits(np.geomspace(self.easiest, self.rarest, count), rights, rng)
        bandit = gt.Bandit(rights.astype(np.float64))
        if not self.dimension:
            return gt.Problem(bandit, gt.TabularSoftmax(count, self.answers), theta=logits.reshape(-1))
        sharing = Sharing(self.dimension, self.coherence, self.transfer, self.misled)
        features = np.concatenate([shared_features(rights, sharing, rng), logits[..., None] / FROZEN], axis=-1)
        theta = np.zeros(self.dimension + 1)
        theta[-1] = FROZEN
        return gt.Problem(bandit, gt.LinearSoftmax(features), theta=theta)


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


WORLDS = {
    "shared": World(),
    "tabular": World(dimension=0),
    "transfer": World(transfer=0.03),
    "misled": World(transfer=0.03, misled=0.25),
    "easy": World(rarest=0.1),
    "hard": World(easiest=0.02, rarest=1e-4),
    "coherent": World(answers=16, right=4, coherence=0.9, prompts=64, held_out=64),
    "incoherent": World(answers=16, right=4, prompts=64, held_out=64),
    "many answers": World(answers=64, prompts=16, rarest=1e-4, transfer=0.03, held_out=16),
    "few prompts": World(prompts=8),
    "wrong rewards": World(prompts=8, wrong=0.05),
}
"""Each differs from the first by what its name says; those of 16 or 64 answers have fewer prompts, at equal cost.

A transfer of 0.03 is 1/dimension, what two features have in common by chance.  Where there is none and the prompts are many, no
parameter solves all of them: they compete for 32 directions.  With few prompts one does, and a run that ends lower has lost what
it could have had.  Wrong rewards come with few prompts: one reward in twenty is wrong, so that the rarest prompt has fifty wrong
ones for each right one.
"""
LONG, LEARNED = "16 tokens", "learned features"
ALL: dict[str, World | StepsWorld | NetworkWorld] = {**WORLDS, LONG: StepsWorld(), LEARNED: NetworkWorld()}
"""All worlds in which the frontier may be asked for."""
