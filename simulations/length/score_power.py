"""How random responses are, and what grows with their length, exact, up to 4,096 tokens.

A score is a sum over tokens, each with mean 0 given what came before, so squared lengths add up. What counts is how uncertain
tokens are, and not how many there are.

In one control only responses that succeed are averaged, whose tokens' scores have another mean. In another, the task is one whose
tokens are nearly sure and whose reward tells of each. In that of the ratios, second moments grow like the average over states.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Comparison
from grpo_theory.harness.study import Cell, Settings
from grpo_theory.problem import ChainPoint
from grpo_theory.problem.chains import KINDS
from grpo_theory.problem.recursion import visits
from simulations.length.grid import RATES, kinds_and_rates
from simulations.length.points import chain_point
from simulations.statements import stated

POWER, LARGER, UNCORRELATED_AT_LENGTH = stated("length/score power", "length/larger groups", "length/uncorrelated")
RATIO = stated("length/trajectory ratio")

SHORT, LONG = 64, 1024
"""Twice the size is the least that a trainer can set who knows powers of two."""
CORRELATED = 0.1
"""A correlation r moves the best baseline from the value by r standard deviations of the reward times the relative spread of
||W||^2, which is below 1 here: a tenth is what a reader would not look up a baseline for."""
DRIFT = 0.05
"""The standard deviation by which the behaviour policy's logits differ: a token's ratio is then within a few percent of 1."""
SEED = 35
FORGETS = "bigram text"
"""The kind whose responses have one length and forget their first state."""
SURE = "copy"
"""The kind whose tokens are nearly sure, and whose reward tells of each: one that moves the digit has a long score and mostly no
success."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each kind of task and success rate."""
    return kinds_and_rates(quick)


def compare(settings: Settings) -> Iterator[Comparison | dict[str, Any]]:
    """Yield, by length, the constants of the error law and the score power; and what each statement says of them."""
    kind, rate = settings["kind"], settings["success"]
    setting, sizes = f"{kind}, success {rate:g}", {}
    for length in settings["lengths"]:
        problem = KINDS[kind](length, rate)
        point, law = chain_point(problem), gt.group_size_law(problem, problem.theta)
        power = float(point.moments.prompt_weights @ point.moments.score_power)
        sizes[length] = law.optimum
        common = {"setting": setting, "kind": kind, "success": rate, "length": length}
        facts = {"optimum": law.optimum, "c1": law.c1, "c2": law.c2, "c3": law.c3, "score_power": power}
        for name, value in facts.items():
            yield common | {"quantity": name, "estimate": value}
        if length == LONG:
            yield _power(setting, point)
            yield from _correlation(setting, kind, rate, point)
            if kind == FORGETS:
                yield _ratio(setting, point)
    sure = (KINDS[SURE](length, _other(rate)) for length in (SHORT, LONG))
    short, long = (gt.group_size_law(one, one.theta).optimum for one in sure)
    less, broken = (2.0 * (one - 1.0) - (other - 1.0) for one, other in ((sizes[SHORT], sizes[LONG]), (short, long)))
    yield LARGER.compare(setting, less, 0.0, broken=broken, facts=_by_length(sizes))


def _other(rate: float) -> float:
    """Return the other success rate, at which the task of a control differs from the one that is judged."""
    return RATES[0] if rate == RATES[1] else RATES[1]


def _by_length(sizes: dict[int, float]) -> dict[str, float]:
    return {f"best group size at {length:,} tokens": size for length, size in sizes.items()}


def _power(setting: str, point: ChainPoint) -> Comparison:
    """Powers carried along responses, against sums over the states visited; the control has responses that succeed."""
    walk, p = point.walk(point.state_probabilities, point.unit_shares), point.state_probabilities
    visited = visits(walk, point.chain.starts).sum(axis=1)
    tokens = visited @ (1.0 - (p**2).sum(axis=1)) / point.moments.score_power
    given = point.own_sums.products[:, 1, 0, 0] / point.own_sums.mass[:, 1] / point.moments.score_power
    return POWER.compare(setting, _furthest(tokens), 1.0, broken=_furthest(given))


def _furthest(ratios: Array) -> float:
    """Return the ratio of a prompt that is furthest from 1."""
    return float(ratios[np.argmax(np.abs(ratios - 1.0))])


def _correlation(setting: str, kind: str, rate: float, point: ChainPoint) -> Iterator[Comparison]:
    """The correlation at the prompt where it is greatest; the control has the task whose reward tells of every token."""
    if kind == FORGETS:
        return  # E||W||^4 needs the products of all pairs of its 1,458 parameters
    sure = KINDS[SURE](LONG, _other(rate))
    found, broken = (float(np.abs(one.moments.score_reward_correlation).max()) for one in (point, sure.at(sure.theta)))
    yield UNCORRELATED_AT_LENGTH.compare(setting, found, CORRELATED, broken=broken)


def _ratio(setting: str, point: ChainPoint) -> Comparison:
    """Growth at the last token, against the eigenvalue; the control is the average of sum p^2/p_0 over the states visited."""
    chain, rng = point.chain, np.random.default_rng(SEED)
    theta = point.theta + DRIFT * rng.standard_normal(point.theta.size)
    behaviour = np.exp(chain.token_log_probabilities(theta))
    squares = point.state_probabilities**2 / behaviour
    walk = point.walk(squares, point.unit_shares)
    kernel = np.zeros((chain.n_states, chain.n_states))
    np.add.at(kernel, (np.arange(chain.n_states)[:, None], chain.transitions), squares)
    own = [_closed(kernel, int(start)) for start in chain.starts]
    here = visits(walk, chain.starts)[:, -2:].sum(axis=2)
    growth = here[:, 1] / here[:, 0]
    visited = visits(point.walk(behaviour, point.unit_shares), chain.starts)[:, -1]
    average = visited @ squares.sum(axis=1)
    first = int(np.argmax(np.abs(growth / own - 1.0)))
    facts = {"growth a token": float(growth[first]), "second moment": float(here[first, 1])}
    return RATIO.compare(setting, float(growth[first]), float(own[first]), broken=float(average[first]), facts=facts)


def _closed(kernel: Array, start: int) -> float:
    """Return the largest eigenvalue of what can be reached from a state."""
    reached = np.zeros(len(kernel), dtype=np.bool_)
    reached[start] = True
    for _ in range(len(kernel)):
        reached |= (kernel[reached] > 0.0).any(axis=0)
    return float(np.abs(np.linalg.eigvals(kernel[np.ix_(reached, reached)])).max())
