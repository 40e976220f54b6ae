"""Random problems whose policies are networks of two layers on trees of two tokens: on them runs off policy are compared."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

import grpo_theory as gt
from grpo_theory.problem.two_layer import TwoLayerMap
from simulations.seeds import child_seed
from simulations.sequence.parts import random_bandit


class Network(NamedTuple):
    """A kind of random problem: networks on trees of two tokens; one in `one_in` responses to a prompt succeeds as a rule.

    The steps are those that pilots on other problems found around the best of all arms.
    """

    horizon: int
    width: int
    optimiser: str
    steps: tuple[float, ...]
    prompts: int = 4
    inputs: int = 3
    one_in: int = 2

    def problem(self, rng: np.random.Generator) -> gt.Problem:
        """Draw a problem, and the network at which its training starts."""
        paths = gt.TokenTree(self.prompts, 2, self.horizon).paths
        inputs = rng.normal(size=(self.prompts, self.inputs))
        network = TwoLayerMap(inputs, self.width, paths.n_logits, "tanh", self.width**-0.5)
        bandit = random_bandit(rng, self.prompts, paths.n_responses, self.one_in)
        return gt.Problem(bandit, gt.Policy(network, paths), theta=rng.normal(size=network.dimension))

    def drawn(self, seed: np.random.SeedSequence, count: int) -> Iterator[tuple[gt.Problem, np.random.SeedSequence]]:
        """Draw problems, each with a seed for its runs."""
        for index in range(count):
            drawing, running = (child_seed(seed, index, part) for part in (0, 1))
            yield self.problem(np.random.default_rng(drawing)), running


NETWORKS: Mapping[str, Network] = {
    "2 tokens, width 4": Network(2, 4, "SGD", (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)),
    "4 tokens, width 8": Network(4, 8, "Adam", (0.03125, 0.0625, 0.125, 0.25, 0.5)),
}
