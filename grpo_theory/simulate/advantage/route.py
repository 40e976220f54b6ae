"""By which route the rewards of a group become advantages: the first of those that are open, the fastest first.

- `TABLE`: the kernel's table, for one that reads only rewards (and what oracles know of a fixed policy), which have few values;
- `AFFINE`: its coefficients, for one that is affine in the rewards and in what oracles know;
- `CALLED`: the kernel itself on counted groups, those with the lowest reward value first, for one that treats responses alike;
- `IN_ORDER`: the kernel itself on the responses in the order in which they were drawn.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from grpo_theory.estimation import Estimator
from grpo_theory.estimation.advantage import Advantage, affine_coefficients
from grpo_theory.estimation.kernel import PROMPT_FIELDS, Batch
from grpo_theory.exact.multisets import (
    UNREAD,
    AdvantageTable,
    NotFiniteError,
    Seen,
    advantage_table,
    advantages_of,
    check_alone,
    treats_alike,
)
from grpo_theory.problem import Point, Problem
from grpo_theory.simulate.advantage.call_room import KernelView
from grpo_theory.validation import Array

TABLE, AFFINE, CALLED, IN_ORDER = "table", "affine", "called", "in order"
TRIED_GROUPS, TRIED_RESPONSES = 256, 1 << 16
"""The most made-up groups, and responses of two or more, on which a kernel is tried."""


class Route(NamedTuple):
    """One of the four, with the kernel's table or the `affine_coefficients` that it takes."""

    kind: str
    table: AdvantageTable | None = None
    coefficients: Array = np.empty(0)

    @property
    def is_called(self) -> bool:
        """Whether the kernel is called."""
        return self.kind in (CALLED, IN_ORDER)


def route_at(estimator: Estimator, seen: Seen, sampler: Point, batch_size: int, group_size: int) -> Route:
    """Return the route for an estimator whose responses are drawn at a point; raise if its kernel couples groups unannounced."""
    advantage = estimator.advantage
    table = _table_at(estimator, seen, sampler, group_size)
    if table is not None:
        return Route(TABLE, table)
    try:
        alike = _treats_alike(advantage, tuple(sampler.bandit.values), group_size, batch_size)
    except NotFiniteError:  # it may be finite wherever it is asked
        alike = False
    if not alike:
        return Route(IN_ORDER)
    found = affine_coefficients(advantage, group_size)
    if found is None or not np.isfinite(seen.rewards).all():  # infinity, of what is hardly ever drawn, times 0 is no number
        return Route(CALLED)
    return Route(AFFINE, coefficients=found)


def route_in_training(problem: Problem, estimator: Estimator, group_size: int) -> Route:
    """Return the route for an estimator while the policy moves; raise if its kernel couples groups unannounced."""
    advantage, values = estimator.advantage, problem.bandit.values
    try:
        if not moves(problem, estimator):
            table = advantage_table(advantage, tuple(values), group_size, UNREAD)
            if table is not None:
                return Route(TABLE, table)
        alike = not advantage.couples_groups and _treats_alike(advantage, tuple(values), group_size, 1)
    except NotFiniteError:  # it is called every time, so that only runs that meet such a value fail
        return Route(IN_ORDER)
    coefficients = affine_coefficients(advantage, group_size)
    if coefficients is not None:
        return Route(AFFINE, coefficients=coefficients)
    return Route(CALLED if alike else IN_ORDER)


def moves(problem: Problem, estimator: Estimator) -> bool:
    """Whether what a kernel sees of rewards and prompts changes with the policy."""
    penalised = problem.kl is not None and estimator.kl.place == "reward"
    return penalised or bool(estimator.advantage.reads & set(PROMPT_FIELDS))


def has_no_penalty(rewards: Array, values: Array) -> bool:
    """Whether the rewards (M, O) that a kernel is shown are the problem's values."""
    n_prompts, n_outcomes = rewards.shape
    return np.array_equal(rewards, np.tile(values, (n_prompts, n_outcomes // values.size)))


def view_at(estimator: Estimator, seen: Seen, sampler: Point) -> KernelView:
    """Tabulate what an estimator's kernel sees of responses that are drawn at a point."""
    reads, n_prompts = estimator.advantage.reads, len(seen.rewards)
    norms = seen.squared_score_norms if "squared_score_norms" in reads else np.empty((n_prompts, 0))
    fields = np.stack(seen.prompt_fields, axis=1) if reads & set(PROMPT_FIELDS) else np.empty((n_prompts, 0))
    rewards, norms, fields = (np.array(table[:, :, None], dtype=np.float64, order="C") for table in (seen.rewards, norms, fields))
    return KernelView(
        rewards=rewards,
        norms=norms,
        fields=fields,
        lengths=seen.lengths if "lengths" in reads else np.empty(0, dtype=np.int64),
        responses=np.array(sampler.outcome_responses, dtype=np.int64),
    )


def _table_at(estimator: Estimator, seen: Seen, sampler: Point, group_size: int) -> AdvantageTable | None:
    """Return the table of the estimator's kernel; None if it has none, or one that is too large, or with gaps.

    The rewards that it is shown must be the problem's values: a penalty makes them differ from response to response.
    """
    values = sampler.bandit.values
    if not has_no_penalty(seen.rewards, values):
        return None
    value, deviation, baseline = map(tuple, seen.prompt_fields)
    fields = (value, deviation, baseline) if estimator.advantage.reads & set(PROMPT_FIELDS) else UNREAD
    try:
        return advantage_table(estimator.advantage, tuple(values), group_size, fields)
    except ValueError:  # advantages that are not finite matter only where they are drawn; what else it says is found again below
        return None


@lru_cache(maxsize=64)
def _treats_alike(advantage: Advantage, values: tuple[float, ...], group_size: int, batch_size: int) -> bool:
    """Try the kernel on made-up groups, once; raise if it does not see each group by itself, though it says so."""
    n_groups = batch_size if advantage.couples_groups else max(2, min(TRIED_GROUPS, TRIED_RESPONSES // group_size))
    generator, shape = np.random.default_rng(0), (n_groups, group_size)
    rewards, norms = generator.choice(values, shape), 1.0 + generator.random(shape)
    fields = [generator.random(n_groups) for _ in PROMPT_FIELDS]
    batch = Batch._make([rewards, norms, generator.integers(1, 9, shape), *fields, advantage.parameter_array])
    advantages = advantages_of(advantage, batch)
    if not advantage.couples_groups:
        check_alone(advantage, batch, advantages)
    return treats_alike(advantage, batch, advantages)
