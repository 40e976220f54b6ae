"""The gradient simulator."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from math import prod

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.estimation import Estimator, find
from grpo_theory.exact.multisets import warn_of_table
from grpo_theory.problem import ChainPoint, Point, Problem
from grpo_theory.simulate.chain.gradients import ChainGradients
from grpo_theory.simulate.covector.estimator_covectors import OwnCovectors, covectors_of, is_called_for_size
from grpo_theory.simulate.draw.counting import LARGEST_GROUP
from grpo_theory.simulate.draw.outcome_law import outcome_law
from grpo_theory.simulate.draw.sizes import as_sizes
from grpo_theory.simulate.draw.streams import LANES, Rng, as_seed_sequence, stream_words
from grpo_theory.simulate.gradient_blocks import GradientBlocks
from grpo_theory.simulate.gradient_simulation import GradientSimulation
from grpo_theory.simulate.observe.errors import geometry
from grpo_theory.simulate.observe.moments import merge_moments
from grpo_theory.simulate.workers import map_in_order
from grpo_theory.validation import Array, as_count, as_real_array, check_shape, typed

BLOCK_RESPONSES = 1 << 21
JOB_BLOCKS = 16
"""The most blocks that a thread is given at once."""
JOB_PRODUCTS = 1 << 16
"""The most products of moments that a thread keeps for the blocks of a job, unless one block has more."""
JOBS_LEFT = 4
"""The jobs for each thread that are left at least, unless a job is one block."""


def block_replications(batch_size: int, group_size: int) -> int:
    """Return the number of replications in a block, whole tiles: fixed by the shape of a batch alone.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> block, problem = gt.block_replications(8, 4), gt.gallery.problem("two-arms")
    >>> asked = {"batch_size": 8, "group_size": 4, "replications": block, "rng": 0}
    >>> first = gt.simulate_gradients(problem, problem.theta, "rloo", **asked)
    >>> second = gt.simulate_gradients(problem, problem.theta, "rloo", **asked, first_block=1)
    >>> first.merge(second).replications == 2 * block
    True
    """
    tile_responses = LANES * prod(as_sizes(batch_size, group_size))
    return LANES * max(1, BLOCK_RESPONSES // tile_responses)


@typed
def simulate_gradients(
    problem: Problem,
    theta: ArrayLike,
    estimators: str | Estimator | Sequence[str | Estimator],
    *,
    batch_size: int,
    group_size: int,
    replications: int,
    rng: Rng | None = None,
    workers: int | None = None,
    behaviour: ArrayLike | None = None,
    directions: ArrayLike | None = None,
    first_block: int = 0,
) -> GradientSimulation:
    """Simulate gradient estimates, all estimators on the same draws.

    A replication is a batch of B prompts from f with G responses each.  Results are bit-identical for any number of workers,
    a replication is the same whatever the number of them, and memory does not grow with it.  The responses of a `TokenChain` are
    drawn token by token, from other streams than those of listed responses.

    Parameters
    ----------
    problem : Problem
    theta : array_like, shape (d,)
        The current policy's parameters.
    estimators : str, Estimator or sequence of them
        What to compare; E of them.
    batch_size, group_size : int
        B prompts, G responses each; G at most 32,768.
    replications : int
        The number of batches.
    rng : int, SeedSequence or Generator, optional
        The seed; fresh entropy if omitted.
    workers : int, optional
        The number of threads; all processors if omitted.
    behaviour : array_like, shape (d,), optional
        The parameters of the policy that samples; theta if omitted.
    directions : array_like, shape (J, d), optional
        Along which the mean and covariance of the estimate are kept; none if omitted.
    first_block : int, default 0
        The number of the first block.  Runs over disjoint ranges of blocks `merge` to the run over their union.  All but the
        last must have whole blocks (a multiple of `block_replications`).

    Returns
    -------
    GradientSimulation

    Raises
    ------
    ValueError
        If an argument is out of range, a kernel leaves an advantage that is not finite, or an importance ratio is infinite.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, sizes = gt.gallery.problem("linear"), {"batch_size": 8, "group_size": 4}
    >>> found = gt.simulate_gradients(problem, problem.theta, ["rloo", "oracle"], **sizes, replications=4096, rng=0)
    >>> difference, error = found.mse_difference("rloo", "oracle")
    >>> bool(difference > 5 * error)
    True
    """
    chosen = _choose(estimators)
    batch_size, group_size = as_sizes(batch_size, group_size)
    replications = as_count("replications", replications)
    first_block = as_count("first_block", first_block, 0)
    workers = as_count("workers", workers if workers is not None else os.cpu_count() or 1)
    if group_size > LARGEST_GROUP:
        raise ValueError(f"group_size must be at most {LARGEST_GROUP}, got {group_size}")
    for estimator in chosen:
        estimator.check_defined(group_size, problem.bandit.values, problem.policy.lengths)
    seed = as_seed_sequence(rng)
    current = problem.at(theta)
    sampler = current if behaviour is None else problem.at(problem.policy.check_theta(behaviour, "behaviour"))
    if isinstance(current, ChainPoint) and isinstance(sampler, ChainPoint):
        along, size = _as_directions(directions, problem.policy.dimension), block_replications(batch_size, group_size)
        on_chain = ChainGradients(current, sampler, chosen, (batch_size, group_size), along, size, stream_words(seed))
        return on_chain.simulate(first_block, replications, workers)
    size = min(replications, block_replications(batch_size, group_size))
    blocks = _tabulate(current, sampler, chosen, (batch_size, group_size), size, directions, seed)
    for one in blocks.covectors:
        if isinstance(one, OwnCovectors) and is_called_for_size(one, sampler):
            bandit = sampler.bandit
            warn_of_table(one.estimators[0].advantage, bandit.values.size, group_size, bandit.n_prompts, stacklevel=4)

    total, most = blocks.make_moments(), max(1, min(JOB_BLOCKS, JOB_PRODUCTS // len(blocks.pairs)))
    for moments in map_in_order(blocks.run, jobs_of(first_block, replications, size, workers, most), workers):
        merge_moments.run(total, moments)
    order = [blocks.estimators.index(estimator) for estimator in chosen]
    names = [estimator.name for estimator in chosen]
    return GradientSimulation.of_moments(names, total, order, current.moments.known_gradient_power)


def jobs_of(block: int, replications: int, block_replications: int, workers: int, most: int) -> Iterator[tuple[int, int]]:
    """Yield jobs: a first block, and the number of replications to simulate from it on.

    A job has several blocks, at most `most`, because handing a job to a thread takes as long as part of a block.  Jobs get
    smaller towards the end, so that threads end together.
    """
    while replications > 0:
        n_blocks = max(1, min(most, replications // (JOBS_LEFT * workers * block_replications)))
        yield block, min(replications, n_blocks * block_replications)
        block += n_blocks
        replications -= n_blocks * block_replications


def _choose(estimators: str | Estimator | Sequence[str | Estimator]) -> list[Estimator]:
    if isinstance(estimators, str | Estimator):
        estimators = [estimators]
    if not isinstance(estimators, Iterable) or (isinstance(estimators, np.ndarray) and estimators.ndim == 0):
        raise TypeError(f"estimators must be a name, an Estimator or a sequence of them, got {estimators!r}")
    chosen = [find(estimator, "estimators") for estimator in estimators]
    names = [estimator.name for estimator in chosen]
    if not names:
        raise ValueError("estimators must name at least one estimator, got none")
    if len(set(names)) < len(names):
        raise ValueError(f"estimators must name each estimator once, got {', '.join(names)}")
    return chosen


def _as_directions(directions: ArrayLike | None, dimension: int) -> Array:
    along = np.empty((0, dimension)) if directions is None else as_real_array("directions", directions, 2)
    check_shape("directions", along, (len(along), dimension), "(J, d)")
    return along


def _tabulate(
    current: Point,
    sampler: Point,
    estimators: list[Estimator],
    shape: tuple[int, int],
    block_replications: int,
    directions: ArrayLike | None,
    seed: np.random.SeedSequence,
) -> GradientBlocks:
    """Tabulate the problem for the drivers, and compile these."""
    along = _as_directions(directions, current.policy.dimension)
    blocks = GradientBlocks(
        covectors=covectors_of(current, sampler, estimators, *shape),
        law=outcome_law(sampler, shape[1]),
        geometry=geometry(current, along, shape[0]),
        n_directions=len(along),
        batch_size=shape[0],
        block_replications=block_replications,
        words=stream_words(seed),
    )
    blocks.compile()
    return blocks
