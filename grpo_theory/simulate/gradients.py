"""The gradient simulator."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.arrays import Array, Integers
from grpo_theory.compilation import first_class
from grpo_theory.estimation import Estimator, find
from grpo_theory.estimation.kernel import PROMPT_FIELDS, SIGNATURE
from grpo_theory.exact.seen import seen_at
from grpo_theory.exact.weights import token_weights
from grpo_theory.problem import Point, Problem
from grpo_theory.simulate.blocks import map_in_order
from grpo_theory.simulate.draws import Draws, block_draws, strip_replications, tabulate
from grpo_theory.simulate.geometry import Geometry, geometry
from grpo_theory.simulate.observation import Plan, Tables, Truth, compiled_fill_observations
from grpo_theory.simulate.streams import Rng, as_seed_sequence, block_generator
from grpo_theory.simulate.summary import GradientSimulation
from grpo_theory.validation import as_count, as_real_array, check_shape

BLOCK_RESPONSES = 1 << 17


def block_replications(batch_size: int, group_size: int) -> int:
    """Return the number of replications in a block, whole strips: fixed by the shape of a batch alone."""
    strip = strip_replications(as_count("batch_size", batch_size), as_count("group_size", group_size))
    return strip * max(1, BLOCK_RESPONSES // (strip * batch_size * group_size))


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
    a replication is the same whatever the number of them, and memory does not grow with it.

    Parameters
    ----------
    problem : Problem
    theta : array_like, shape (d,)
        The current policy's parameters.
    estimators : str, Estimator or sequence of them
        What to compare; E of them.
    batch_size, group_size : int
        B prompts, G responses each.
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
        The number of the first block: runs over disjoint ranges of blocks `merge` to the run over their union, provided
        that all but the last have whole blocks (a multiple of `block_replications`).

    Returns
    -------
    GradientSimulation

    Raises
    ------
    ValueError
        If an argument is out of range, a kernel leaves an advantage that is not finite, or an importance ratio is infinite.
    """
    chosen = _choose(estimators)
    batch_size = as_count("batch_size", batch_size)
    group_size = as_count("group_size", group_size)
    replications = as_count("replications", replications)
    first_block = as_count("first_block", first_block, 0)
    workers = as_count("workers", workers if workers is not None else os.cpu_count() or 1)
    for estimator in chosen:
        estimator.check_group_size(group_size)
    seed = as_seed_sequence(rng)
    current = problem.at(theta)
    sampler = current if behaviour is None else problem.at(problem.policy.check_theta(behaviour, "behaviour"))
    experiment = _prepare(current, sampler, chosen, batch_size, group_size, directions)

    size = block_replications(batch_size, group_size)
    n_blocks = -(-replications // size)
    jobs = ((block_generator(seed, first_block + i), min(size, replications - i * size)) for i in range(n_blocks))
    return reduce(GradientSimulation.merge, map_in_order(experiment.run, jobs, workers))


def _choose(estimators: str | Estimator | Sequence[str | Estimator]) -> list[Estimator]:
    if isinstance(estimators, str | Estimator):
        estimators = [estimators]
    if not isinstance(estimators, Iterable):
        raise TypeError(f"estimators must be a name, an Estimator or a sequence of them, got {estimators!r}")
    chosen = [find(estimator) for estimator in estimators]
    names = [estimator.name for estimator in chosen]
    if not names:
        raise ValueError("estimators must name at least one estimator, got none")
    if len(set(names)) < len(names):
        raise ValueError(f"estimators must name each estimator once, got {', '.join(names)}")
    return chosen


@dataclass(frozen=True)
class _Experiment:
    """Everything that a block needs but its generator, compiled before the first thread starts."""

    estimators: list[Estimator]
    kernels: list[Any]
    plans: list[Plan]
    tables: Tables
    truth: Truth
    geometry: Geometry
    batch_size: int
    group_size: int

    def run(self, generator: np.random.Generator, replications: int) -> GradientSimulation:
        """Simulate one block, and keep its first replications."""
        strip = strip_replications(self.batch_size, self.group_size)
        strips = -(-replications // strip)
        draws = block_draws(generator, self.tables, strips, strip, self.batch_size, self.group_size)
        observations = np.empty((len(self.estimators), replications, 1 + len(self.truth.logits)))
        for e, kernel in enumerate(self.kernels):
            found = self.observe(e, kernel, draws)[:replications]
            bad = ~np.isfinite(found[:, 0])
            if bad.any():
                rewards = self._first_rewards(draws, self.plans[e], int(np.argmax(bad)))
                raise ValueError(
                    f"the kernel of estimator {self.estimators[e].name!r} must fill finite advantages, and does not for a batch "
                    f"of {self.batch_size} x {self.group_size} responses, the first with rewards {rewards}"
                )
            observations[e] = found
        return GradientSimulation.of([estimator.name for estimator in self.estimators], observations)

    def observe(self, e: int, kernel: Any, draws: Draws) -> Array:
        """Return the observations of estimator number e on whole strips, shape (replications, 2 + J)."""
        strips, strip = draws.prompts.shape[0], draws.prompts.shape[1] // self.batch_size
        found = np.empty((strips, strip, 1 + len(self.truth.logits)))
        compiled_fill_observations()(
            kernel, *self.geometry, self.plans[e], self.truth, *draws, self.tables.responses, self.batch_size, found
        )
        return found.reshape(-1, found.shape[-1])

    def _first_rewards(self, draws: Draws, plan: Plan, replication: int) -> list[float]:
        """Return the rewards of the first group of a replication."""
        strip, r = divmod(replication, draws.prompts.shape[1] // self.batch_size)
        return plan.rewards[draws.outcomes[strip, :, r], draws.prompts[strip, r]].tolist()


def make_plan(current: Point, sampler: Point, estimator: Estimator, batch_size: int, strip: int) -> Plan:
    """Tabulate an estimator for the driver, whose strips have so many replications."""
    seen, weights = seen_at(sampler, estimator), token_weights(current, sampler, estimator)
    n_groups = batch_size * strip
    reads = estimator.advantage.reads
    oracle = bool(reads & set(PROMPT_FIELDS))
    lengths: Integers = seen.lengths if "lengths" in reads else np.empty(0, dtype=np.int64)
    return Plan(
        rewards=np.ascontiguousarray(seen.rewards.T),
        norms=np.ascontiguousarray(seen.squared_score_norms.T) if "squared_score_norms" in reads else np.empty((0, 0)),
        seen_lengths=lengths,
        fields=np.stack(seen.prompt_fields) if oracle else np.empty((0, 0)),
        parameters=estimator.advantage.parameter_array,
        at_a_time=batch_size if estimator.advantage.couples_groups else n_groups,
        gains=np.ascontiguousarray(weights.gains),
        drifts=np.ascontiguousarray(weights.drifts) if weights.drifting else np.empty((0, 0, 0)),
        pools={"": 0, "group": n_groups, "batch": strip}[estimator.aggregation.pool],
    )


def _prepare(
    current: Point,
    sampler: Point,
    estimators: list[Estimator],
    batch_size: int,
    group_size: int,
    directions: ArrayLike | None,
) -> _Experiment:
    """Tabulate the problem for the drivers."""
    policy, exact = current.policy, current.moments
    if directions is None:
        along = np.empty((0, policy.dimension))
    else:
        along = as_real_array("directions", directions, 2)
        check_shape("directions", along, (len(along), policy.dimension), "(J, d)")
    truth = Truth(
        tokens=np.ascontiguousarray(current.token_probabilities.T),
        edges=policy.paths.edges,
        lengths=policy.paths.lengths,
        vocabulary_size=policy.paths.vocabulary_size,
        covectors=np.ascontiguousarray(exact.gradient_covectors.T),
        logits=np.ascontiguousarray(policy.logits(np.concatenate([exact.gradient[None], along])), dtype=np.float64),
        gradient_power=exact.gradient_power,
    )
    compiled_fill_observations()
    strip = strip_replications(batch_size, group_size)
    return _Experiment(
        estimators=estimators,
        kernels=[first_class(estimator.advantage.kernel, SIGNATURE) for estimator in estimators],
        plans=[make_plan(current, sampler, estimator, batch_size, strip) for estimator in estimators],
        tables=tabulate(sampler),
        truth=truth,
        geometry=geometry(policy),
        batch_size=batch_size,
        group_size=group_size,
    )
