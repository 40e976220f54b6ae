"""Prompts and outcomes at a fixed policy, response by response, for pilots."""

from typing import NamedTuple

import numpy as np

from grpo_theory.problem import Point
from grpo_theory.simulate.draw.prompt_tables import alias_rows
from grpo_theory.validation import Array, Integers


class OutcomeTables(NamedTuple):
    """What the draws come from: the problem at the policy that samples.

    Attributes
    ----------
    prompts : ndarray, shape (M, 2)
        The prompts' alias table, see `alias_rows`.
    thresholds : ndarray, shape (O - 1, M)
        The distribution function of the outcomes, all but its last value.
    """

    prompts: Array
    thresholds: Array


def tabulate(point: Point) -> OutcomeTables:
    """Return the tables from which prompts, and outcomes at a point, are drawn.

    From its last possible outcome on a law's distribution function is above every uniform.
    """
    probabilities = point.outcome_probabilities
    below = np.cumsum(probabilities, axis=1)
    possible = np.cumsum(probabilities[:, ::-1], axis=1)[:, ::-1] > 0.0
    below[:, :-1][~possible[:, 1:]] = 2.0
    return OutcomeTables(alias_rows(point.bandit.prompt_weights), np.ascontiguousarray(below[:, :-1].T))


def invert(uniforms: Array, tables: OutcomeTables) -> tuple[Integers, Integers]:
    """Turn uniforms (1 + G, ...) into prompts (...) and outcomes (G, ...); a whole response, reward included, is one draw."""
    x = uniforms[0] * len(tables.prompts)
    places = x.astype(np.int64)
    threshold, other = tables.prompts[places].transpose(-1, *range(x.ndim))
    prompts = np.where(x - places >= threshold, other.astype(np.int64), places)
    outcomes = np.zeros(uniforms[1:].shape, dtype=np.int64)
    for reached in tables.thresholds:
        outcomes += uniforms[1:] >= reached[prompts]
    return prompts, outcomes


def draw_responses(
    generator: np.random.Generator, tables: OutcomeTables, replications: int, batch_size: int, group_size: int
) -> tuple[Integers, Integers]:
    """Draw prompts (R, B) and outcomes (R, B, G)."""
    prompts, outcomes = invert(generator.random((1 + group_size, batch_size, replications)), tables)
    return np.ascontiguousarray(prompts.T), np.ascontiguousarray(outcomes.T)
