"""Blocks of training runs with an allocation rule."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from grpo_theory.compiler.lanes import WIDTH, whole_rows, zeros
from grpo_theory.estimation import Estimator
from grpo_theory.estimation.allocation import AllocationRule, checked_budget, cost_message, spread_budget
from grpo_theory.exact.derivatives import reward_moments
from grpo_theory.exact.multisets import UNREAD, advantage_table
from grpo_theory.problem import LogitMap, Problem, TokenChain
from grpo_theory.simulate.advantage.route import TABLE
from grpo_theory.simulate.advantage.tables import Tables
from grpo_theory.simulate.allocation.advance import Plan, advance_allotted
from grpo_theory.simulate.allocation.group_sizes import Allotment, PromptFacts, allot
from grpo_theory.simulate.draw.sizes import as_sizes
from grpo_theory.simulate.draw.streams import Streams
from grpo_theory.simulate.training_blocks import Runs, TrainingBlocks, make_step_room
from grpo_theory.simulate.training_tables import SAME_STEPS
from grpo_theory.simulate.update.advance import StepRoom, Updates
from grpo_theory.simulate.update.trace import NO_TRACE, Trace
from grpo_theory.simulate.workers import borrowed
from grpo_theory.validation import Array, Integers


@dataclass(frozen=True, eq=False, kw_only=True)
class AllottedBlocks(TrainingBlocks):
    """Training runs whose rollouts are shared out by a rule: made as for groups of the most responses that the rule allows."""

    rule: AllocationRule
    budget: int
    facts: PromptFacts
    starts: Integers

    @classmethod
    def by_rule(cls, blocks: TrainingBlocks, rule: AllocationRule, budget: int) -> "AllottedBlocks":
        """Return such blocks from those with groups of rule.high, for rollouts of so many responses.

        Raises
        ------
        ValueError
            If the estimator pools tokens, or needs more than a table of its advantages by the group's rewards.  Also if the
            rule needs traces of scores whose features move.
        """
        problem, estimator = blocks.problem, blocks.estimator
        if blocks.route.kind != TABLE or blocks.rules.tokens.weighs_anew or blocks.rules.tokens.pool:
            raise ValueError(_untabulated(estimator))
        tables, starts = tables_by_size(problem, estimator, rule)
        advantage = blocks.rules.advantage._replace(tables=tables)
        bandit = problem.bandit
        facts = PromptFacts(
            means=bandit.mean_reward.copy(),
            variances=reward_moments(problem)[0],
            gram=_gram(problem, rule) if rule.wants_traces else np.empty((0, 0, 0)),
            paths=blocks.rules.source.paths,
        )
        advance_allotted.compile()
        common = {name: getattr(blocks, name) for name in TrainingBlocks.__dataclass_fields__ if name not in ("rules", "_rooms")}
        rules = blocks.rules._replace(advantage=advantage)
        return cls(**common, rules=rules, rule=rule, budget=budget, facts=facts, starts=starts)

    @contextmanager
    def start(self, streams: Streams, starts: Array, trace: Trace = NO_TRACE) -> Iterator[Runs]:
        """Give the runs of some blocks at their starts (R, d); they leave no trace."""
        with borrowed(self._rooms, lambda: make_step_room(self)) as room:
            yield AllottedRuns(self, room, streams, starts, trace)

    @contextmanager
    def start_side_by_side(self, factors: Array, streams: Streams, starts: Array, trace: Trace = NO_TRACE) -> Iterator[Runs]:
        """Give runs whose steps have factors, as `TrainingBlocks` does; they leave no trace."""
        with borrowed(self._rooms, lambda: make_step_room(self)) as room:
            yield AllottedRuns(self, room, streams, starts, trace, factors)


class AllottedRuns(Runs):
    """The runs of some blocks on their way, which remember the rewards that they have seen of each prompt."""

    blocks: AllottedBlocks

    def __init__(
        self,
        blocks: AllottedBlocks,
        room: StepRoom,
        streams: Streams,
        starts: Array,
        trace: Trace,
        factors: Array = SAME_STEPS,
    ) -> None:
        super().__init__(blocks, room, streams, starts, trace, factors)
        shares, _, lanes = self.state.theta.shape
        values = values_at(blocks.problem, starts)
        filled = np.concatenate([values, np.repeat(values[-1:], shares * lanes - len(values), axis=0)])
        self.seen = np.zeros((shares, 3, values.shape[1], lanes))
        self.seen[:, 2] = filled.reshape(shares, lanes, -1).transpose(0, 2, 1)

    def drive(self, updates: Updates) -> None:
        """Advance the runs; raise if the rule leaves costs that mean nothing."""
        blocks, rule = self.blocks, self.blocks.rule
        allotment = Allotment(
            fill_costs=rule.fill.value,
            spread=spread_budget.value,
            facts=blocks.facts,
            budget=blocks.budget,
            low=rule.low,
            high=rule.high,
            memory=float(rule.memory),
            sizes=zeros(blocks.sizes.batch_size, max(blocks.share_runs, WIDTH), dtype=np.int32),
            fault=np.zeros(10),
        )
        plan = Plan(allot.value, allotment, blocks.starts, self.seen)
        advance_allotted.run(plan, blocks.functions, blocks.rules, updates, self.streams, self.room, self.state)
        if allotment.fault[0]:
            raise ValueError(cost_message(rule.name, allotment.fault[1:3], allotment.fault[3:]))


def values_at(problem: Problem, starts: Array) -> Array:
    """Return the value of each prompt at each start (R, d), shape (R, M); NaN where a start is beyond the numbers."""
    own, places = np.unique(starts, axis=0, return_inverse=True)
    values = np.full((len(own), problem.policy.n_prompts), np.nan)
    for row in np.flatnonzero((np.abs(own) <= problem.policy.largest_parameter).all(axis=1)):
        values[row] = problem.at(own[row]).moments.value
    return np.asarray(values[places.reshape(-1)])


def _gram(problem: Problem, rule: AllocationRule) -> Array:
    logit_map = problem.policy.logit_map
    if not isinstance(logit_map, LogitMap):
        raise ValueError(
            f"allocation by {rule.name!r} needs a policy whose logits are linear in theta, got {problem.policy!r}. It takes the "
            "traces of scores from features that stay as they are. Use 'vip' or 'uniform'"
        )
    return np.array(logit_map.gram(), order="C")


def _untabulated(estimator: Estimator) -> str:
    return (
        "allocation needs an estimator whose advantages depend on the rewards of one group only, without a penalty or pooled "
        f"tokens. On this problem {estimator.name!r} is not one. Use rloo, dr_grpo or grpo, without a KL term"
    )


def tables_by_size(problem: Problem, estimator: Estimator, rule: AllocationRule) -> tuple[Tables, Integers]:
    """Return an estimator's advantages over n for all sizes n of a rule, and where each size's begin, shape (high + 1,)."""
    values = tuple(problem.bandit.values)
    sizes = range(rule.low, rule.high + 1)
    found = [table for size in sizes if (table := advantage_table(estimator.advantage, values, size, UNREAD)) is not None]
    if len(found) < len(sizes):
        raise ValueError(_untabulated(estimator))
    lines = [table.advantages[0] / size for size, table in zip(sizes, found, strict=True)]
    starts = np.zeros(rule.high + 1, dtype=np.int64)
    starts[rule.low :] = np.cumsum([0, *(len(table) for table in lines[:-1])])
    nothing = np.zeros(1, dtype=np.int64)
    return Tables(whole_rows(np.concatenate(lines)), nothing, nothing, found[-1].ranks), starts


def check_allocation(problem: Problem, sizes: tuple[int, ...], rule: AllocationRule) -> int:
    """Return the responses of a rollout, B G, that a rule is to share out; raise if that is not possible."""
    (batch_size, group_size), (inner_steps, lag) = as_sizes(*sizes[:2]), sizes[2:]
    if isinstance(problem.policy, TokenChain):
        raise ValueError("allocation is for responses that are listed: a TokenChain's groups have one size")
    for name, given, needed in (("inner_steps", inner_steps, 1), ("lag", lag, 0)):
        if given != needed:
            raise ValueError(
                "allocation needs a rollout for each update, drawn from the policy that is updated: "
                f"{name} must be {needed}, got {given}"
            )
    rule.check_rewards(problem.bandit.values)
    return checked_budget(batch_size * group_size, batch_size, rule.low, rule.high)
