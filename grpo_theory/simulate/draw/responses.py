"""ResponseDraws at a fixed policy, response by response: prompts and outcomes, tile by tile."""

from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np

from grpo_theory.arrays import Array, Integers
from grpo_theory.compiler import F2, F3, I1, I2, compile_driver, record_type, stage
from grpo_theory.problem import Point
from grpo_theory.simulate.draw.prompt_tables import alias_table, draw_prompts


class OutcomeTables(NamedTuple):
    """What the draws come from: the problem at the policy that samples.

    Attributes
    ----------
    prompt_threshold, prompt_choices : ndarray, shapes (1, M) and (1, 2 M)
        The prompts' alias table.
    thresholds : ndarray, shape (O - 1, M)
        The distribution function of the outcomes.
    responses : ndarray of int64, shape (O,)
    """

    prompt_threshold: Array
    prompt_choices: Integers
    thresholds: Array
    responses: Integers


class ResponseDraws(NamedTuple):
    """Tiles of S replications of B groups each; lane b S + r is group b of replication r of the tile.

    Attributes
    ----------
    prompts : ndarray of int64, shape (tiles, B S)
    outcomes : ndarray of int64, shape (tiles, G, B S)
    """

    prompts: Integers
    outcomes: Integers


OUTCOME_TABLES = record_type(OutcomeTables, F2, I2, F2, I1)


@stage
def look_up(table, columns, found):
    """Read the column of each lane from a table (rows, M), into found (rows, N)."""
    for k in range(table.shape[0]):
        for i in range(found.shape[1]):
            found[k, i] = table[k, np.uintp(columns[i])]


@stage
def invert_outcomes(uniforms, thresholds, outcomes):
    """Draw outcomes (G, N) from uniforms (G, N): the number of thresholds (O - 1, N) of the lane that the uniform has reached.

    The thresholds are the distribution function of the lane's outcomes: a whole response, reward included, is one draw.
    """
    for g in range(outcomes.shape[0]):
        for i in range(outcomes.shape[1]):
            outcomes[g, i] = 0
        for o in range(thresholds.shape[0]):
            for i in range(outcomes.shape[1]):
                outcomes[g, i] += uniforms[g, i] >= thresholds[o, i]


def fill_outcomes(uniforms, tables, prompts, outcomes):
    """Turn uniforms (tiles, 1 + G, N) into prompts (tiles, N) and outcomes (tiles, G, N)."""
    thresholds = np.empty((tables.thresholds.shape[0], prompts.shape[1]))
    for s in range(prompts.shape[0]):
        draw_prompts(uniforms[s, 0], tables.prompt_threshold, tables.prompt_choices, prompts[s])
        look_up(tables.thresholds, prompts[s], thresholds)
        invert_outcomes(uniforms[s, 1:], thresholds, outcomes[s])


@cache
def compiled_fill_outcomes() -> Any:
    """Compile `fill_outcomes`, or read it from the cache."""
    return compile_driver(fill_outcomes, numba.void(F3, OUTCOME_TABLES, I2, numba.int64[:, :, ::1]))


def tabulate(point: Point) -> OutcomeTables:
    """Return the tables from which prompts, and outcomes at a point, are drawn."""
    return OutcomeTables(
        *alias_table(point.bandit.prompt_weights[None]),
        _thresholds(point.outcome_probabilities),
        point.outcome_responses,
    )


def _thresholds(probabilities: Array) -> Array:
    """Return the distribution functions of laws (M, O), all but their last values, shape (O - 1, M).

    From its last possible outcome on a law's function is above every uniform.
    """
    below = np.cumsum(probabilities, axis=1)
    possible = np.cumsum(probabilities[:, ::-1], axis=1)[:, ::-1] > 0.0
    below[:, :-1][~possible[:, 1:]] = 2.0
    return np.ascontiguousarray(below[:, :-1].T)


def block_draws(
    generator: np.random.Generator, tables: OutcomeTables, tiles: int, tile: int, batch_size: int, group_size: int
) -> ResponseDraws:
    """Draw a block tile by tile, so that the first tiles are the same whatever the number of them."""
    n_groups = batch_size * tile
    uniforms = generator.random((tiles, 1 + group_size, n_groups))
    draws = ResponseDraws(np.empty((tiles, n_groups), dtype=np.int64), np.empty((tiles, group_size, n_groups), dtype=np.int64))
    compiled_fill_outcomes()(uniforms, tables, *draws)
    return draws


def by_replication(draws: ResponseDraws, batch_size: int) -> tuple[Integers, Integers]:
    """Return prompts (R, B) and outcomes (R, B, G) of the replications, one after another."""
    tiles, group_size, n_groups = draws.outcomes.shape
    tile = n_groups // batch_size
    prompts = draws.prompts.reshape(tiles, batch_size, tile).transpose(0, 2, 1)
    outcomes = draws.outcomes.reshape(tiles, group_size, batch_size, tile).transpose(0, 3, 2, 1)
    return prompts.reshape(-1, batch_size), outcomes.reshape(-1, batch_size, group_size)
