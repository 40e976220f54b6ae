"""Which way an estimator's kernel is worked out: from a table, from counts written out, or response by response."""

import numpy as np

from grpo_theory.arrays import Array, Integers
from grpo_theory.estimation import Estimator
from grpo_theory.estimation.advantage import Advantage
from grpo_theory.estimation.kernel import PROMPT_FIELDS, Batch
from grpo_theory.exact.exchangeability import check_alone, treats_alike
from grpo_theory.exact.multisets import NotFiniteError
from grpo_theory.exact.seen import Seen
from grpo_theory.exact.table import UNREAD, AdvantageTable, advantage_table, can_be_tabulated
from grpo_theory.problem import Point
from grpo_theory.simulate.advantage.called import Shown

CHECKED_RESPONSES = 1 << 12
"""The responses of the groups with which a kernel is tried out."""


def table_of(estimator: Estimator, seen: Seen, sampler: Point, group_size: int) -> AdvantageTable | None:
    """Return the table of the estimator's kernel; None if it has none, or one that is too large, or with gaps.

    The rewards that it is shown must be the problem's values: a penalty makes them differ from response to response.
    """
    values = sampler.bandit.values
    if not has_no_penalty(seen.rewards, values):
        return None
    if not can_be_tabulated(estimator.advantage, values.size, group_size, len(seen.rewards)):
        return None
    value, deviation, baseline = map(tuple, seen.prompt_fields)
    fields = (value, deviation, baseline) if estimator.advantage.reads & set(PROMPT_FIELDS) else UNREAD
    try:
        return advantage_table(estimator.advantage, tuple(values), group_size, fields)
    except ValueError:  # advantages that are not finite matter only where they are drawn; what else it says is found again below
        return None


def has_no_penalty(rewards: Array, values: Array) -> bool:
    """Whether the rewards (M, O) that a kernel is shown are the problem's values."""
    n_prompts, n_outcomes = rewards.shape
    return np.array_equal(rewards, np.tile(values, (n_prompts, n_outcomes // values.size)))


def is_exchangeable(advantage: Advantage, seen: Seen, sampler: Point, batch_size: int, group_size: int) -> bool:
    """Whether a kernel treats responses alike, wherever they stand in the group, on groups that are made up.

    Raises
    ------
    ValueError
        If it says that it sees each group by itself, and does not.
    """
    wanted = max(2, CHECKED_RESPONSES // group_size)
    prompts, outcomes = _made_up(sampler, batch_size if advantage.couples_groups else wanted, group_size)
    batch = _batch(advantage, seen, sampler, prompts, outcomes)
    advantages = np.full(outcomes.shape, np.nan)
    advantage.kernel(batch, advantages)
    if not np.isfinite(advantages).all():
        finite = np.isfinite(advantages).all(axis=1)
        if advantage.couples_groups or not finite.any():
            return True
        batch = Batch._make([*(np.ascontiguousarray(field[finite]) for field in batch[:-1]), batch.parameters])
        advantages = advantages[finite]
    try:
        if not advantage.couples_groups:
            check_alone(advantage, batch, advantages)
        return treats_alike(advantage, batch, advantages)
    except NotFiniteError:  # not finite for rewards that the problem does not have: nothing is known
        return True


def _made_up(sampler: Point, n_groups: int, group_size: int) -> tuple[Integers, Integers]:
    """Make up groups (n, G) of outcomes that are possible, in no order."""
    rng, possible = np.random.default_rng(0), sampler.outcome_probabilities > 0.0
    prompts = rng.integers(len(possible), size=n_groups)
    first = np.argsort(~possible, axis=1, kind="stable")  # the possible outcomes of each prompt, before the others
    places = (rng.random((n_groups, group_size)) * possible.sum(axis=1)[prompts, None]).astype(np.int64)
    return prompts, first[prompts[:, None], places]


def _batch(advantage: Advantage, seen: Seen, sampler: Point, prompts: Integers, outcomes: Integers) -> Batch:
    responses = sampler.outcome_responses[outcomes]
    read = advantage.reads
    norms = seen.squared_score_norms[prompts[:, None], responses]
    fields = (np.ascontiguousarray(field[prompts]) for field in seen.prompt_fields)
    shown = [
        seen.rewards[prompts[:, None], outcomes],
        norms if "squared_score_norms" in read else np.full(norms.shape, np.nan),
        seen.lengths[responses] if "lengths" in read else np.ones(responses.shape, dtype=np.int64),
        *(field if read & set(PROMPT_FIELDS) else np.full(len(prompts), np.nan) for field in fields),
        advantage.parameter_array,
    ]
    return Batch._make(shown)


def shown_to(estimator: Estimator, seen: Seen, sampler: Point, n_signs: int) -> Shown:
    """Tabulate what an estimator's kernel sees."""
    reads = estimator.advantage.reads
    norms = seen.squared_score_norms if "squared_score_norms" in reads else np.empty((0, 0))
    return Shown(
        rewards=np.array(seen.rewards, dtype=np.float64, order="C"),
        norms=np.array(norms, dtype=np.float64, order="C"),
        lengths=seen.lengths if "lengths" in reads else np.empty(0, dtype=np.int64),
        fields=np.stack(seen.prompt_fields) if reads & set(PROMPT_FIELDS) else np.empty((0, 0)),
        responses=np.array(sampler.outcome_responses, dtype=np.int64),
        n_responses=seen.squared_score_norms.shape[1],
        n_signs=n_signs,
    )
