"""The gradient simulator: many batches of a fixed policy, all estimators on the same draws."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.estimation import Estimator, find
from grpo_theory.estimation.kernel import PROMPT_FIELDS
from grpo_theory.exact.score_moments import credited, token_weights
from grpo_theory.problem import ChainPoint, Point, Problem
from grpo_theory.simulate import advantages, draws
from grpo_theory.simulate.blocks import LANES, Rng, Streams, as_seed_sequence, block_generator, block_streams, map_in_order
from grpo_theory.simulate.chains import chain_gradients
from grpo_theory.simulate.gradient_simulation import GradientSimulation
from grpo_theory.simulate.observations import TokenRule, TrueGradient, observe, token_rule, truth_at
from grpo_theory.validation import Array, as_count, as_flag, as_real_array, check_shape, typed

BLOCK_RESPONSES = 1 << 21
"""The responses of a block, about: some hundredths of a second, between which work is shared out and can be ended."""
CALL_NUMBERS = 1 << 16
"""The numbers that the rows of a call take, unless one tile has more: few enough for a cache, many for a call."""
SUMMARY_TILES = 64
"""The number of tiles whose observations are summarised at once, fixed so that moments do not depend on what stands beside."""


@dataclass(frozen=True, eq=False)
class Family:
    """Estimators that share rows of sums: those of two reward values on the same contrasts, or one by itself.

    Attributes
    ----------
    estimators : list of Estimator
    rule : TokenRule
    table : advantages.AdvantageTable or None
        None where the kernel is called.
    caller : advantages.Caller or None
    n_rows : int
        2 where contrasts have means beside them.
    contrasts : bool
    by_sign : bool
        Whether advantages of either sign weigh differently.
    draw_errors : callable, optional
        Fills in the sums of errors of estimated values, T features, which are the last.
    """

    estimators: list[Estimator]
    rule: TokenRule
    table: advantages.AdvantageTable | None
    caller: advantages.Caller | None
    n_rows: int
    contrasts: bool
    by_sign: bool
    draw_errors: Callable | None = None

    def fill(self, law: draws.OutcomeLaw, batches: draws.Batches, sums: advantages.Sums, generator: np.random.Generator) -> None:
        """Fill in the sums of tiles."""
        if self.contrasts:
            advantages.fill_contrasts(law, self.table, batches, self.n_rows == 2, sums)
            return
        rows = sums.rows.reshape(-1, *sums.rows.shape[3:])
        if self.draw_errors is not None:
            n_features = rows.shape[1] - self.rule.edges.shape[1]
            self.draw_errors(generator, batches, sums.rows[:, :, 0, n_features:])
            rows = rows[:, :n_features]
        sums.weights[:] = 1.0
        if self.caller is not None:
            ordered = batches.ordered.reshape(len(rows), -1, LANES)
            advantages.sum_called(self.caller.advantages(batches), law.stride, ordered, self.by_sign, rows)
        else:
            prompts, counts = batches.prompts.reshape(-1, LANES), batches.counts.reshape(len(rows), -1, LANES)
            advantages.sum_tabulated(self.table, prompts, law.levels, prompts, counts, self.by_sign, rows)


def families_of(
    points: tuple[Point, Point], estimators: Sequence[Estimator], shape: tuple[int, int], law: draws.OutcomeLaw
) -> list[Family]:
    """Group estimators into families, at a current policy and the one that samples."""
    (current, sampler), group_size, families = points, shape[1], []
    shared: dict[tuple, tuple[TokenRule, list[Estimator]]] = {}
    for estimator in estimators:
        # u = sum_t share_t clip(r_t) c_t and v = -strength sum_t share_t slope_t c_t (docs/derivations.md, section 16).
        weights = token_weights(current, sampler, estimator)
        rule = token_rule(weights, estimator.aggregation.pool, *shape)
        size = advantages.table_size(current, estimator, group_size)
        tabulated = size is not None and size <= advantages.LARGEST_TABLE
        if tabulated and weights.n_features == 1 and sampler.bandit.values.size == 2:
            # Of D h_k + A n_k, estimators with the same gains share h and n (docs/derivations.md, section 17).
            alike = rule.gains.tobytes(), rule.pool, estimator.kl, estimator.advantage.reads & set(PROMPT_FIELDS)
            shared.setdefault(alike, (rule, []))[1].append(estimator)
        else:
            table = advantages.tabulate([estimator], sampler, group_size) if tabulated else None
            caller = None if tabulated else advantages.Caller(estimator, sampler, law)
            drawn = advantages.error_drawer(credited(sampler, estimator), estimator) if estimator.credit.continuations else None
            families.append(Family([estimator], rule, table, caller, 1, False, weights.depends_on_sign, drawn))
    for rule, members in shared.values():
        table = advantages.contrast_table(advantages.tabulate(members, sampler, group_size), group_size)
        centred = bool((np.abs(table.advantages[..., 0]) <= 1e-12).all())  # the advantages of every group add up to 0
        families.append(Family(members, rule, table, None, 1 if centred else 2, True, False))
    return families


class Workspace:
    """What one thread works in, block after block."""

    def __init__(
        self, law: draws.OutcomeLaw, truth: TrueGradient, families: list[Family], shape: tuple[int, int], n_responses: int
    ) -> None:
        self.law, self.truth, self.families = law, truth, families
        tile = shape[0] * LANES * max(one.n_rows * len(one.rule.gains) * n_responses for one in families)
        self.n_tiles = max(1, min(SUMMARY_TILES, CALL_NUMBERS // tile))
        self.room, self.group_size = draws.make_draw_room(law, *shape), shape[1]
        in_order = any(one.caller is not None for one in families)
        self.batches = draws.make_batches(law, self.n_tiles, *shape, in_order=in_order)
        self.sums = []
        for one in families:
            rows = np.empty((self.n_tiles, shape[0], one.n_rows, len(one.rule.gains), n_responses, LANES))
            self.sums.append(advantages.Sums(rows, np.empty((self.n_tiles, len(one.estimators), *rows.shape[1:3], LANES))))

    def observations(self, streams: Streams, generators: Sequence[np.random.Generator], replications: int) -> Array:
        """Return the observations of the next replications, shape (E, 4 + J, R), with a generator for each family's errors."""
        n_tiles, n_observations = -(-replications // LANES), 4 + len(self.truth.along)
        parts = [np.empty((n_tiles, len(one.estimators), n_observations, LANES)) for one in self.families]
        for first in range(0, n_tiles, self.n_tiles):
            size = min(self.n_tiles, n_tiles - first)
            batches = draws.Batches(self.batches.prompts[:size], self.batches.counts[:size], self.batches.ordered[:size])
            draws.fill_batches(self.law, self.group_size, streams, self.room, batches)
            for family, sums, part, generator in zip(self.families, self.sums, parts, generators, strict=True):
                own = advantages.Sums(sums.rows[:size], sums.weights[:size])
                family.fill(self.law, batches, own, generator)
                observe(family.rule, self.truth, batches, self.law.stride, own, part[first : first + size])
        found = np.concatenate(parts, axis=1).transpose(1, 2, 0, 3)
        return found.reshape(*found.shape[:2], -1)[:, :, :replications]


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
    tile_responses = LANES * prod(draws.as_sizes(batch_size, group_size))
    return LANES * max(1, BLOCK_RESPONSES // tile_responses)


@typed
def simulate_gradients(
    problem: Problem,
    theta: ArrayLike | None = None,
    estimators: str | Estimator | Sequence[str | Estimator] = (),
    *,
    batch_size: int,
    group_size: int,
    replications: int,
    rng: Rng | None = None,
    workers: int | None = None,
    behaviour: ArrayLike | None = None,
    directions: ArrayLike | None = None,
    first_block: int = 0,
    progress: bool = True,
) -> GradientSimulation:
    """Simulate gradient estimates, all estimators on the same draws.

    A replication is a batch of B prompts from f with G responses each.  Results are bit-identical for any number of workers,
    a replication is the same whatever the number of them, and memory does not grow with it.  The responses of a `TokenChain` are
    drawn token by token, from other streams than those of listed responses.

    Parameters
    ----------
    problem : Problem
    theta : array_like, shape (d,), optional
        The current policy's parameters; the problem's own if omitted.
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
    progress : bool, default True
        Show a bar on a terminal if it takes longer than some seconds.

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
    batch_size, group_size = draws.as_sizes(batch_size, group_size)
    replications = as_count("replications", replications)
    first_block = as_count("first_block", first_block, 0)
    workers = as_count("workers", workers if workers is not None else os.cpu_count() or 1)
    if group_size > draws.LARGEST_GROUP:
        raise ValueError(f"group_size must be at most {draws.LARGEST_GROUP}, got {group_size}")
    for estimator in chosen:
        estimator.check_defined(group_size, problem.bandit.values, problem.policy.lengths)
    seed = as_seed_sequence(rng)
    current = problem.at(theta)
    sampler = current if behaviour is None else problem.at(problem.policy.check_theta(behaviour, "behaviour"))
    along = np.empty((0, problem.policy.dimension)) if directions is None else as_real_array("directions", directions, 2)
    check_shape("directions", along, (len(along), problem.policy.dimension), "(J, d)")
    power, told = current.target.known_gradient_squared_norm, "simulating" if as_flag("progress", progress) else ""
    size = block_replications(batch_size, group_size)
    if isinstance(current, ChainPoint) and isinstance(sampler, ChainPoint):
        words = seed.generate_state(3, np.uint64)
        on_chain = chain_gradients(current, sampler, chosen, (batch_size, group_size), along, words)
        return on_chain.simulate(first_block, size, replications, workers, told)
    advantages.warn_of_tables(problem, chosen, group_size, stacklevel=4)
    law, truth = draws.outcome_law(sampler), truth_at(current, along)
    families = families_of((current, sampler), chosen, (batch_size, group_size), law)
    order = [[one.name for family in families for one in family.estimators].index(name) for name in names]

    def simulate(block: int) -> GradientSimulation:
        workspace = Workspace(law, truth, families, (batch_size, group_size), problem.policy.n_responses)
        streams, generators = block_streams(seed, block), [block_generator(seed, block) for _ in families]  # alone or in company
        left = min(size, replications - (block - first_block) * size)
        found = []
        for done in range(0, left, SUMMARY_TILES * LANES):
            observations = workspace.observations(streams, generators, min(SUMMARY_TILES * LANES, left - done))[order]
            found.append(GradientSimulation.of(names, observations.swapaxes(1, 2), power))
        return reduce(GradientSimulation.merge, found)

    n_blocks = -(-replications // size)
    parts = map_in_order(simulate, range(first_block, first_block + n_blocks), workers, told)
    return reduce(GradientSimulation.merge, parts)
