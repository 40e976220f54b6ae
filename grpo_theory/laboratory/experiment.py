"""Experiments: how the data are drawn from which intervals are computed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.estimation import Estimator
from grpo_theory.intervals.records import TrainingRecord, simulate_records
from grpo_theory.intervals.rollouts import Rollouts
from grpo_theory.problem import Point, Problem
from grpo_theory.problem.logits import HeadMap
from grpo_theory.schedule import Schedule, step_sizes
from grpo_theory.simulate import BLOCK_RUNS
from grpo_theory.simulate.draws import as_sizes
from grpo_theory.simulate.streams import Rng, as_seed_sequence
from grpo_theory.validation import Array, as_array, as_count, as_real_array, check_shape, read_only


class Experiment(Protocol):
    """How datasets are drawn, in blocks.

    Attributes
    ----------
    block_replications : int
        The number of datasets in a block: fixed by the shape of a dataset alone, so that a replication is known by its number.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> class Halves:
    ...     block_replications = 64
    ...     def sample(self, problem, rng, replications):
    ...         return gt.Pilot(batch_size=8, group_size=4).sample(problem, rng, replications)
    ...     def take(self, block, i):
    ...         return gt.Pilot(batch_size=8, group_size=4).take(block, i)
    >>> problem, experiment = gt.gallery.problem("two-arms"), Halves()
    >>> block = experiment.sample(problem, 0, 2)
    >>> experiment.take(block, 0).rewards.shape
    (8, 4)
    >>> truth = gt.objective(problem, problem.theta)
    >>> gt.coverage(gt.intervals.value_clustered, problem, truth, experiment=experiment, replications=64, rng=0).replications
    64
    """

    @property
    def block_replications(self) -> int:
        """The number of datasets in a block."""

    def sample(self, problem: Any, rng: Rng, replications: int) -> Any:
        """Return a block of independent datasets, its arrays with a leading axis of length `replications`."""

    def take(self, block: Any, i: int) -> Any:
        """Return dataset i of a block, without the leading axis."""


@dataclass(frozen=True, eq=False)
class RecordedTraining:
    """The experiment of training one run and keeping its record.

    A KL penalty of the problem is part of the reward.

    Parameters
    ----------
    estimator : str or Estimator
    schedule : Schedule or array_like, shape (steps,)
    batch_size, group_size : int
        B prompts, G responses each, a step.
    steps : int
        The length n of the run.
    theta0 : array_like, shape (d,), optional
        Where it starts; the problem's theta if omitted.
    tail : float, default 0.5
        The share of the run that is its last part.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("single")
    >>> training = gt.RecordedTraining("rloo", gt.Constant(0.1), batch_size=4, group_size=4, steps=40)
    >>> block = training.sample(problem, 0, replications=2)
    >>> block.path.shape, training.take(block, 1).path.shape
    ((2, 41, 2), (41, 2))
    """

    estimator: str | Estimator
    schedule: Schedule | ArrayLike
    batch_size: int
    group_size: int
    steps: int
    theta0: ArrayLike | None = None
    tail: float = 0.5
    block_replications = BLOCK_RUNS
    """The number of runs in a block of the simulator."""

    def __post_init__(self) -> None:
        if not callable(getattr(self.schedule, "steps", None)):
            object.__setattr__(self, "schedule", read_only(step_sizes(self.schedule, as_count("steps", self.steps))))
        if self.theta0 is not None:
            object.__setattr__(self, "theta0", read_only(as_real_array("theta0", self.theta0, None)))

    def sample(self, problem: Problem, rng: Rng, replications: int) -> TrainingRecord:
        """Train independently, at most a block of runs at a time.

        Parameters
        ----------
        problem : Problem
        rng : int, SeedSequence or Generator
        replications : int
            The number R of runs, at most `block_replications`.

        Returns
        -------
        TrainingRecord
            Path (R, n + 1, d).
        """
        replications = as_count("replications", replications)
        if replications > self.block_replications:
            raise ValueError(f"replications must be at most a block of {self.block_replications}, got {replications}")
        sizes = {"batch_size": self.batch_size, "group_size": self.group_size, "steps": self.steps, "replications": replications}
        return next(
            simulate_records(problem, self.theta0, self.estimator, self.schedule, **sizes, rng=rng, workers=1, tail=self.tail)
        )

    def take(self, block: TrainingRecord, i: int) -> TrainingRecord:
        """Return run i of a block."""
        hessian = None if block.hessian is None else block.hessian[i]
        return TrainingRecord(block.step_sizes, block.path[i], block.mean_rewards[i], hessian, tail=block.tail)


BLOCK_RESPONSES = 1 << 15
PIVOT_TOLERANCE = 1e-12


@dataclass(frozen=True, eq=False)
class Pilot:
    """The experiment of drawing B prompts from f and, for each, G responses from the policy with their rewards.

    A KL penalty of the problem is part of the reward.

    Parameters
    ----------
    batch_size, group_size : int
        B prompts, G responses each.
    directions : array_like, shape (J, d), optional
        The scores' components along these are kept; if omitted, the d components of the score vectors.

    Notes
    -----
    The score vectors of a `SoftmaxHead` are too large to keep.  Without directions each batch gets J = K B coordinates of its
    own, which keep all norms and inner products within the batch.  They are ``(e_a - pi_m) x l_m`` instead of
    ``(e_a - pi_m) x h_m``, with the l_m from a factor of the inner products of the batch's hidden states.  So intervals for
    squared norms (of the gradient, of errors) are what they would be with the full scores; single coordinates mean nothing.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("tabular"), gt.Pilot(batch_size=16, group_size=4)
    >>> block = pilot.sample(problem, 0, replications=3)
    >>> one = pilot.take(block, 0)
    >>> block.rewards.shape, one.rewards.shape, one.scores.shape
    ((3, 16, 4), (16, 4), (16, 4, 24))
    """

    batch_size: int
    group_size: int
    directions: ArrayLike | None = None

    def __post_init__(self) -> None:
        as_sizes(self.batch_size, self.group_size)
        if self.directions is not None:
            object.__setattr__(self, "directions", read_only(as_real_array("directions", self.directions, 2)))

    @property
    def block_replications(self) -> int:
        """The number of batches in a block: fixed by the shape of a batch alone."""
        return max(1, BLOCK_RESPONSES // (self.batch_size * self.group_size))

    def sample(self, problem: Problem, rng: Rng, replications: int) -> Rollouts:
        """Draw independent batches of a problem at its theta.

        Parameters
        ----------
        problem : Problem
        rng : int, SeedSequence or Generator
        replications : int
            The number R of batches.

        Returns
        -------
        Rollouts
            Rewards (R, B, G) and scores (R, B, G, J).

        Raises
        ------
        ValueError
            If directions do not have the policy's dimension.
        """
        if not isinstance(problem, Problem):
            raise TypeError(f"problem must be a Problem, got {problem!r}")
        point, table, gram = _tables(self, problem)
        replications = as_count("replications", replications)
        generator = rng if isinstance(rng, np.random.Generator) else np.random.Generator(np.random.SFC64(as_seed_sequence(rng)))
        # Prompts and outcomes are drawn one by one: a whole response is one draw.
        uniforms = generator.random((1 + self.group_size, self.batch_size, replications))
        drawn = np.searchsorted(np.cumsum(point.bandit.prompt_weights)[:-1], uniforms[0], side="right")
        probabilities = point.outcome_probabilities
        below = np.cumsum(probabilities, axis=1)
        possible = np.cumsum(probabilities[:, ::-1], axis=1)[:, ::-1] > 0.0
        below[:, :-1][~possible[:, 1:]] = 2.0  # from its last possible outcome on, a law's sums are above every uniform
        reached = np.zeros(uniforms[1:].shape, dtype=np.int64)
        for sums in np.ascontiguousarray(below[:, :-1].T):
            reached += uniforms[1:] >= sums[drawn]
        prompts, outcomes = np.ascontiguousarray(drawn.T), np.ascontiguousarray(reached.T)
        scores = table[prompts[..., None], point.outcome_responses[outcomes]]
        if gram is not None:
            # <c x l_b, c' x l_b'> = (c . c')(l_b . l_b') = (c . c')(h_b . h_b'), as L L' is A (docs/derivations.md, section 11).
            factor = semidefinite_factor(gram[prompts[:, :, None], prompts[:, None, :]])
            scores = (scores[..., None] * factor[:, :, None, None, :]).reshape(*outcomes.shape, -1)
        found = point.rewards[prompts[..., None], outcomes], scores
        return Rollouts(*(read_only(np.ascontiguousarray(array)) for array in found))

    def take(self, block: Rollouts, i: int) -> Rollouts:
        """Return batch i of a block."""
        return Rollouts(block.rewards[i], block.known_scores[i])


@lru_cache(maxsize=4)
def _tables(pilot: Pilot, problem: Problem) -> tuple[Point, Array, Array | None]:
    """Return what outcomes are drawn from, and the scores (M, K, J); of a head, logit gradients and the prompts' products.

    Such scores are logit gradients (M, K, D) times the rows of a factor of the inner products (M, M) of the hidden states.
    """
    policy, point, directions = problem.policy, problem.at(problem.theta), pilot.directions
    if directions is None and type(policy.logit_map) is HeadMap:
        return point, point.logit_gradients, policy.logit_map.hidden @ policy.logit_map.hidden.T
    if directions is None:
        return point, policy.scores(problem.theta), None
    along = as_array("directions", directions)
    check_shape("directions", along, (len(along), policy.dimension), "(J, d), d the policy's dimension")
    # v . W = v . Phi' c = c . Phi v for each direction v (docs/derivations.md, section 15).
    return point, np.einsum("mkd,jmd->mkj", point.logit_gradients, point.tangent.logits(along), optimize=True), None


def semidefinite_factor(gram: Array) -> Array:
    """Return factors L with L L' = A, shape (R, B, B), of matrices that may be singular.

    These are Cholesky's steps, with the largest remaining diagonal entry first.  No entry of what remains is larger than that
    one, so that the remainder may be dropped once it is rounding.
    """
    factor = np.zeros_like(gram)
    matrices = np.arange(len(gram))
    remaining = np.einsum("rii->ri", gram).copy()
    negligible = PIVOT_TOLERANCE * remaining.max(axis=1)
    for j in range(gram.shape[-1]):
        p = remaining.argmax(axis=1)
        pivot = remaining[matrices, p]
        usable = pivot > negligible
        # L_ij = (A_ip - sum_{k<j} L_ik L_pk)/sqrt(R_pp), with R = A - L L' so far and p its largest diagonal entry.
        column = gram[matrices, :, p] - np.einsum("rij,rj->ri", factor[:, :, :j], factor[matrices, p, :j])
        # A batch in which a prompt was drawn twice runs out of pivots early: its remaining columns are 0.
        scale = np.where(usable, 1.0 / np.sqrt(np.where(usable, pivot, 1.0)), 0.0)
        factor[:, :, j] = column * scale[:, None]
        # R is positive semidefinite, so that |R_ij| <= max_i R_ii (docs/derivations.md, section 11).
        remaining -= factor[:, :, j] ** 2
    return factor
