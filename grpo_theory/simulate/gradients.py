"""The gradient simulator."""

import os
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grpo_theory.estimator.kernel import SIGNATURE, first_class
from grpo_theory.estimator.registry import Estimator, find
from grpo_theory.exact.moments import moments
from grpo_theory.exact.outcomes import outcomes
from grpo_theory.kl import KL
from grpo_theory.policy import Policy
from grpo_theory.problem import Bandit
from grpo_theory.simulate.blocks import map_in_order
from grpo_theory.simulate.driver import Draws, Tables, Truth, compiled_fill_draws, compiled_fill_observations, tabulate
from grpo_theory.simulate.geometry import Geometry, geometry
from grpo_theory.simulate.streams import Rng, as_seed_sequence, block_generator
from grpo_theory.simulate.summary import GradientSimulation
from grpo_theory.validation import as_count, as_real_array, check_shape

Array = NDArray[np.float64]

BLOCK_RESPONSES = 1 << 17


def block_replications(batch_size: int, group_size: int) -> int:
    """Return the number of replications in a block: fixed by the shape of a batch alone."""
    return max(1, BLOCK_RESPONSES // (as_count("batch_size", batch_size) * as_count("group_size", group_size)))


def simulate_gradients(
    bandit: Bandit,
    policy: Policy,
    theta: ArrayLike,
    estimators: str | Estimator | Sequence[str | Estimator],
    *,
    batch_size: int,
    group_size: int,
    replications: int,
    rng: Rng | None = None,
    workers: int | None = None,
    directions: ArrayLike | None = None,
    kl: KL | None = None,
    first_block: int = 0,
) -> GradientSimulation:
    """Simulate gradient estimates, all estimators on the same draws.

    A replication is a batch of B prompts from f with G responses each.  Results are bit-identical for any number of workers,
    and memory does not grow with replications.

    Parameters
    ----------
    bandit, policy, theta
        The problem, the policy and its parameters (d,).
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
    directions : array_like, shape (J, d), optional
        Along which the mean and covariance of the estimate are kept; none if omitted.
    kl : KL, optional
        A penalty, placed in the reward.
    first_block : int, default 0
        The number of the first block: runs over disjoint ranges of blocks `merge` to the run over their union, provided
        that all but the last have whole blocks (a multiple of `block_replications`).

    Returns
    -------
    GradientSimulation

    Raises
    ------
    ValueError
        If an argument is out of range, or a kernel leaves an advantage that is not finite.
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
    experiment = _prepare(bandit, policy, theta, chosen, batch_size, group_size, directions, kl)

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
    fill_draws: Any
    fill_observations: Any
    batch_size: int
    group_size: int
    tables: Tables
    truth: Truth
    geometry: Geometry
    buffers: threading.local = field(default_factory=threading.local)

    def run(self, generator: np.random.Generator, replications: int) -> GradientSimulation:
        """Simulate one block."""
        draws = self.draw(generator, replications)
        observations = np.empty((len(self.estimators), replications, 1 + len(self.truth.logits)))
        for estimator, kernel, out in zip(self.estimators, self.kernels, observations, strict=True):
            self.fill_observations(kernel, *self.geometry, estimator.parameter_array, draws, self.truth, out)
            bad = ~np.isfinite(out[:, 0])
            if bad.any():
                rewards = draws.rewards[int(np.argmax(bad))].tolist()
                raise ValueError(
                    f"the kernel of estimator {estimator.name!r} must fill finite advantages, and does not for a batch of "
                    f"{self.batch_size} x {self.group_size} responses, the first with rewards {rewards[0]}"
                )
        return GradientSimulation.of([estimator.name for estimator in self.estimators], observations)

    def draw(self, generator: np.random.Generator, replications: int) -> Draws:
        """Draw one block into the thread's own buffers: first all the prompts, then all the responses."""
        if not hasattr(self.buffers, "draws"):
            size = block_replications(self.batch_size, self.group_size)
            groups = (size, self.batch_size)
            shape = (*groups, self.group_size)
            self.buffers.uniforms = np.empty(groups), np.empty(shape)
            integers = np.empty(groups, dtype=np.int64), np.empty(shape, dtype=np.int64)
            self.buffers.draws = Draws(*integers, np.empty(shape), np.empty(shape))
        draws = Draws(*(array[:replications] for array in self.buffers.draws))
        uniforms = [array[:replications] for array in self.buffers.uniforms]
        for array in uniforms:
            generator.random(out=array)
        self.fill_draws(*uniforms, self.tables, draws)
        return draws


def _prepare(
    bandit: Bandit,
    policy: Policy,
    theta: ArrayLike,
    estimators: list[Estimator],
    batch_size: int,
    group_size: int,
    directions: ArrayLike | None,
    kl: KL | None,
) -> _Experiment:
    """Tabulate the problem for the drivers."""
    exact = moments(bandit, policy, theta, kl)
    table = outcomes(bandit, policy, theta, kl)
    if directions is None:
        along = np.empty((0, policy.dimension))
    else:
        along = as_real_array("directions", directions, 2)
        check_shape("directions", along, (len(along), policy.dimension), "(J, d)")
    truth = Truth(
        table.policy_probabilities,
        exact.value,
        exact.standard_deviation,
        exact.optimal_baseline,
        exact.gradient_covectors,
        np.ascontiguousarray(policy.logits(np.concatenate([exact.gradient[None], along]))),
        np.array([exact.gradient_power]),
    )
    return _Experiment(
        estimators=estimators,
        kernels=[first_class(estimator.kernel, SIGNATURE) for estimator in estimators],
        fill_draws=compiled_fill_draws(),
        fill_observations=compiled_fill_observations(),
        batch_size=batch_size,
        group_size=group_size,
        tables=tabulate(bandit, table),
        truth=truth,
        geometry=geometry(policy),
    )
