"""The problems on which whole runs with several updates a rollout are raced, of sequences and of networks, and these runs."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

import grpo_theory as gt
from grpo_theory.problem.two_layer import TwoLayerMap
from grpo_theory.simulate.training import StepGrid
from simulations.seeds import child_seed
from simulations.sequence.parts import random_bandit, random_problem

OPTIMISERS: Mapping[str, gt.Optimiser] = {"SGD": gt.SGD(), "Adam": gt.Adam()}


def step_grid(settings, problem, estimator, *, keeps=False):
    """Return the runs of an arm on a problem whose rollouts serve several updates, with each of the settings' constant steps."""
    updates = settings["rollouts"] * settings["inner_steps"]
    sizes = tuple(settings[name] for name in ("batch_size", "group_size", "inner_steps"))
    optimiser = OPTIMISERS[settings["optimiser"]]
    return StepGrid.of(problem, estimator, settings["steps"], np.ones(updates), sizes, optimiser, keeps=keeps)


def drawn(make, seed, count):
    """Draw problems with ``make(rng)``, each with a seed for its runs."""
    for index in range(count):
        drawing, running = (child_seed(seed, index, part) for part in (0, 1))
        yield make(np.random.default_rng(drawing)), running


def race_problem(name: str) -> gt.Problem:
    """Return a problem of the gallery, or "stopping": where to stop, at four prompts, after up to eight tokens.

    A response is its length, and the nearer to 2, 4, 6 or 8 tokens, the likelier it is right.
    """
    if name != "stopping":
        return gt.gallery.problem(name)
    policy = gt.TokenTree(4, vocabulary_size=2, horizon=8, end_token=0)
    distances = np.abs(policy.paths.lengths - np.array([[2], [4], [6], [8]]))
    return gt.Problem(gt.Bandit(0.05 + 0.9 * np.exp(-distances / 2.0)), policy, name=name, title="where to stop")


class World(NamedTuple):
    """A kind of problem, and how runs on it are laid out.

    Attributes
    ----------
    title : str
    make : callable
        ``make(rng)`` draws a problem of the kind; where there is one only it returns that.
    minibatches : Mapping
        For each number of rollouts, the numbers of updates that each of them serves.
    centres : Mapping
        For each optimiser, the middle of the grid of steps for one update a rollout, where pilots on other seeds found it.
    doublings : int
        How often the grid doubles and halves that.
    units : int
        How many problems are drawn of the kind, each with one run; of a problem that is alone of its kind, how many runs.  At the
        level of a statement 200 can show a share of at most 5%.  Where a run takes long there are fewer, which cannot.
    runs : int
        How many of these are trained side by side on a problem: more than one where it is alone of its kind.
    """

    title: str
    make: Callable[[np.random.Generator], gt.Problem]
    minibatches: Mapping[int, tuple[int, ...]]
    centres: Mapping[str, float]
    doublings: int = 3
    units: int = 320
    runs: int = 1

    def label(self, units: int) -> str:
        """Return what a statement is about: so many problems of the kind, or the one that there is."""
        return f"one problem, {self.title}" if self.runs > 1 else f"{units} problems of {self.title}"

    def steps(self, optimiser: str, inner_steps: int, beyond: int) -> list[float]:
        """Return the grid, and its end doubled so many times.

        With m updates a rollout plain steps are shorter as 1/m, and Adam's, blind to scale, as 1/sqrt(m).
        """
        shorter = inner_steps if optimiser == "SGD" else np.sqrt(inner_steps)
        powers = range(-self.doublings, self.doublings + 1 + beyond)
        return [float(self.centres[optimiser] / shorter * 2.0**power) for power in powers]


def _random(horizon, dimension, n_prompts):
    return lambda rng: random_problem(rng, 2, horizon, None, n_prompts=n_prompts, dimension=dimension)


WORLDS: Mapping[str, World] = {
    "two": World("2 tokens, 6 parameters", _random(2, 6, 4), {16: (4, 16), 256: (16,)}, {"SGD": 24.0, "Adam": 0.6}),
    "four": World("4 tokens, 6 parameters", _random(4, 6, 4), {16: (2, 4, 16), 64: (16,)}, {"SGD": 24.0, "Adam": 0.8}),
    "eight": World("8 tokens, 6 parameters", _random(8, 6, 4), {16: (16,)}, {"Adam": 1.2}, doublings=2, units=96),
    "large": World("4 tokens, 200 parameters", _random(4, 200, 16), {8: (16,)}, {"Adam": 0.6}, doublings=2, units=48),
    "shared": World(
        "1 to 3 tokens, shared features",
        lambda rng: race_problem("sequence-shared"),
        {16: (4, 16), 64: (16,)},
        {"SGD": 45.0, "Adam": 1.2},
        units=324,
        runs=3,
    ),
    "stopping": World(
        "where to stop, 1 to 8 tokens",
        lambda rng: race_problem("stopping"),
        {16: (4, 16), 64: (16,)},
        {"SGD": 64.0, "Adam": 0.3},
        units=324,
        runs=3,
    ),
}
"""Trees of two tokens, four prompts (16 where there are 200 parameters) and random rewards; and the problems of T14.

Six parameters are shared by 12 to 1,020 prefixes, 200 by 240.  Adam alone where a run takes long.
"""


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


NETWORKS: Mapping[str, Network] = {
    "2 tokens, width 4": Network(2, 4, "SGD", (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)),
    "4 tokens, width 8": Network(4, 8, "Adam", (0.03125, 0.0625, 0.125, 0.25, 0.5)),
}
