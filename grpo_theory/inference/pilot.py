"""A pilot sample: the rewards and scores of one batch at fixed parameters."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grpo_theory.exact.outcomes import outcomes
from grpo_theory.inference.experiment import as_generator
from grpo_theory.inference.rollouts import Rollouts
from grpo_theory.policy import SoftmaxHead
from grpo_theory.simulate.driver import Draws, Tables, compiled_fill_draws, tabulate
from grpo_theory.simulate.streams import Rng
from grpo_theory.validation import as_count, as_real_array, check_shape

Array = NDArray[np.float64]
Scores = Callable[[Draws], Array]

BLOCK_RESPONSES = 1 << 15
PIVOT_TOLERANCE = 1e-12


@dataclass(frozen=True, eq=False)
class Pilot:
    """The experiment of drawing B prompts from f and, for each, G responses from the policy with their rewards.

    A KL penalty of the problem sits in the reward.

    Parameters
    ----------
    batch_size, group_size : int
        B prompts, G responses each.
    directions : array_like, shape (J, d), optional
        The scores' components along these are kept; if omitted, the d components of the score vectors.

    Notes
    -----
    The score vectors of a `SoftmaxHead` are too large to keep.  Without directions each batch gets coordinates of its own,
    J = K B of them, which keep all norms and inner products within the batch: (e_a - pi_m) x l_m instead of (e_a - pi_m) x h_m,
    the l_m from a factor of the inner products of the batch's hidden states.  So intervals for squared norms (of
    the gradient, of errors) are what they would be with the full scores; single coordinates mean nothing.
    """

    batch_size: int
    group_size: int
    directions: ArrayLike | None = None
    _memory: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        as_count("batch_size", self.batch_size)
        as_count("group_size", self.group_size)
        if self.directions is not None:
            object.__setattr__(self, "directions", as_real_array("directions", self.directions, 2))

    @property
    def block_replications(self) -> int:
        """The number of batches in a block: fixed by the shape of a batch alone."""
        return max(1, BLOCK_RESPONSES // (self.batch_size * self.group_size))

    def sample(self, problem: Any, rng: Rng, replications: int) -> Rollouts:
        """Draw independent batches of a problem.

        Parameters
        ----------
        problem : object
            With a bandit, a policy, its parameters theta and a kl (or None), as the gallery's problems.
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
        plan = self._plan(problem)
        generator = as_generator(rng)
        groups = (as_count("replications", replications), self.batch_size)
        shape = (*groups, self.group_size)
        integers = np.empty(groups, dtype=np.int64), np.empty(shape, dtype=np.int64)
        draws = Draws(*integers, np.empty(shape), np.empty(shape))
        compiled_fill_draws()(generator.random(groups), generator.random(shape), plan.tables, draws)
        return Rollouts(draws.rewards, plan.scores(draws))

    def take(self, block: Rollouts, i: int) -> Rollouts:
        """Return batch i of a block."""
        return Rollouts(block.rewards[i], block.scores[i])

    def _plan(self, problem: Any) -> "_Plan":
        """Tabulate the problem, or return the tables if it is the one last seen and its parameters are what they were."""
        kept = self._memory.get("plan")
        if kept is None or not kept.is_of(problem):
            kept = _plan(problem, self.directions)
            self._memory["plan"] = kept
        return kept


class _Plan(NamedTuple):
    """A tabulated problem."""

    parts: tuple
    theta: Array
    tables: Tables
    scores: Scores

    def is_of(self, problem: Any) -> bool:
        """Whether the tables are those of this problem."""
        same = all(mine is its for mine, its in zip(self.parts, _parts(problem), strict=True))
        return same and np.array_equal(self.theta, problem.theta)


def _parts(problem: Any) -> tuple:
    return problem.bandit, problem.policy, getattr(problem, "kl", None)


def _plan(problem: Any, directions: ArrayLike | None) -> _Plan:
    bandit, policy, kl = _parts(problem)
    table = outcomes(bandit, policy, problem.theta, kl)
    pi = table.policy_probabilities
    scores: Scores
    if directions is not None:
        along = np.asarray(directions)
        check_shape("directions", along, (len(along), policy.dimension), "(J, d), d the policy's dimension")
        logits = np.moveaxis(policy.logits(along), 0, -1)
        centred = logits - np.einsum("mk,mkj->mj", pi, logits)[:, None]
        scores = _Tabulated(np.ascontiguousarray(centred))
    elif isinstance(policy, SoftmaxHead):
        scores = _Isometric(np.eye(policy.n_responses) - pi[:, None, :], policy.hidden @ policy.hidden.T)
    else:
        scores = _Tabulated(policy.scores(problem.theta))
    return _Plan((bandit, policy, kl), np.array(problem.theta), tabulate(bandit, table), scores)


@dataclass(frozen=True, eq=False)
class _Tabulated:
    """Scores read from a table (M, K, J)."""

    table: Array

    def __call__(self, draws: Draws) -> Array:
        return self.table[draws.prompts[:, :, None], draws.responses]


@dataclass(frozen=True, eq=False)
class _Isometric:
    """Scores of a softmax head in the coordinates of their own batch.

    Attributes
    ----------
    covectors : ndarray, shape (M, K, K)
        e_a - pi_m, a row a response.
    gram : ndarray, shape (M, M)
        The inner products of the hidden states.
    """

    covectors: Array
    gram: Array

    def __call__(self, draws: Draws) -> Array:
        prompts = draws.prompts
        factor = semidefinite_factor(self.gram[prompts[:, :, None], prompts[:, None, :]])
        covectors = self.covectors[prompts[:, :, None], draws.responses]
        return (covectors[..., None] * factor[:, :, None, None, :]).reshape(*draws.responses.shape, -1)


def semidefinite_factor(gram: Array) -> Array:
    """Return factors L with L L' = A, shape (R, B, B), of matrices that may be singular.

    Cholesky's steps, the largest remaining diagonal entry first: what remains is nowhere larger than that entry, so that it may
    be dropped once it is rounding.
    """
    factor = np.zeros_like(gram)
    matrices = np.arange(len(gram))
    remaining = np.einsum("rii->ri", gram).copy()
    negligible = PIVOT_TOLERANCE * remaining.max(axis=1)
    for j in range(gram.shape[-1]):
        p = remaining.argmax(axis=1)
        pivot = remaining[matrices, p]
        usable = pivot > negligible
        column = gram[matrices, :, p] - np.einsum("rij,rj->ri", factor[:, :, :j], factor[matrices, p, :j])
        scale = np.where(usable, 1.0 / np.sqrt(np.where(usable, pivot, 1.0)), 0.0)
        factor[:, :, j] = column * scale[:, None]
        remaining -= factor[:, :, j] ** 2
    return factor
