"""Where runs on stale rollouts are made."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

import grpo_theory as gt
from grpo_theory.simulate.update.optimiser import ascend
from simulations.runs.worlds import WORLDS, World
from simulations.training.worlds import race_problem


class PlainAscent:
    """`SGD` without its warning of large steps: a grid has some on purpose, and to look for them takes as long as the runs."""

    move, n_moments, settings = ascend, 0, np.empty(0)


class Place(NamedTuple):
    """Where runs are made: what it is called, its problem by draw, the middle of the learning rates, and the optimiser.

    Pilots on other seeds found the middle.
    """

    title: str
    make: Callable[[int], gt.Problem]
    middle: float = 1.0
    optimiser: gt.Optimiser = gt.Adam()


def stopping(_: int) -> gt.Problem:
    """Return where to stop: one constructed problem, so that all draws of it are the same."""
    return race_problem("stopping")


PLACES: Mapping[str, Place] = {
    "strong transfer": Place("prompts teach each other", World(transfer=0.1).problem),
    "strong transfer, rare success": Place("the same, success below 2%", World(transfer=0.1, easiest=0.02, rarest=1e-4).problem),
    "weak transfer": Place("prompts teach each other less", WORLDS["transfer"].problem),
    "weak transfer, plain ascent": Place("the same, plain ascent", WORLDS["transfer"].problem, 128.0, PlainAscent()),
    "competing": Place("prompts compete", WORLDS["shared"].problem),
    "tabular": Place("prompts share nothing", WORLDS["few prompts"]._replace(dimension=0).problem),
    "stopping": Place("where to stop, 1 to 8 tokens", stopping, 0.125),
}
"""Softmax policies of one token, 32 shared features and success from 0.1% to 50%, but where a name says otherwise. All but the
last are worlds, which are drawn."""
