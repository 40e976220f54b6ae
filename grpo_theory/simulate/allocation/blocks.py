"""Blocks of training runs with an allocation rule."""

from dataclasses import dataclass

import numpy as np

from grpo_theory.arrays import Array, Integers
from grpo_theory.compiler.lanes import WIDTH, whole_rows, zeros
from grpo_theory.estimation import Estimator
from grpo_theory.estimation.allocation import AllocationRule, cost_message, spread_budget
from grpo_theory.exact.table import UNREAD, advantage_table
from grpo_theory.problem import Problem, TokenChain
from grpo_theory.simulate.advantage.route import TABLE
from grpo_theory.simulate.advantage.tables import Tables
from grpo_theory.simulate.allocation.advance import Plan, compiled_advance_allotted
from grpo_theory.simulate.allocation.group_sizes import Allotment, PromptFacts, allot
from grpo_theory.simulate.draw.streams import Streams
from grpo_theory.simulate.training_blocks import TrainingBlocks
from grpo_theory.simulate.update.advance import State, StepRoom, Updates
from grpo_theory.simulate.update.trace import Trace


@dataclass(frozen=True, eq=False, kw_only=True)
class AllottedBlocks(TrainingBlocks):
    """Training runs whose rollouts are shared out by a rule: made as for groups of the most responses that the rule allows."""

    rule: AllocationRule
    budget: int
    facts: PromptFacts
    starts: Integers

    @classmethod
    def by_rule(cls, blocks: TrainingBlocks, rule: AllocationRule, budget: int, start: Array) -> "AllottedBlocks":
        """Return such blocks from those with groups of rule.high, for rollouts of so many responses, and runs from a start (d,).

        Raises
        ------
        ValueError
            If the estimator needs more than a table of its advantages by the group's rewards, or pools tokens.
        """
        problem, estimator = blocks.problem, blocks.estimator
        if blocks.route.kind != TABLE or blocks.rules.tokens.weighs_anew or blocks.rules.tokens.pool:
            raise ValueError(_untabulated(estimator))
        tables, starts = tables_by_size(problem, estimator, rule)
        advantage = blocks.rules.advantage._replace(tables=tables)
        bandit = problem.bandit
        facts = PromptFacts(
            means=bandit.mean_reward.copy(),
            squares=bandit.probabilities @ bandit.values**2,
            start_values=problem.at(start).moments.value.copy(),
            gram=np.array(problem.policy.logit_map.gram(), order="C") if rule.wants_traces else np.empty((0, 0, 0)),
            paths=blocks.rules.source.paths,
        )
        compiled_advance_allotted()
        common = {name: getattr(blocks, name) for name in TrainingBlocks.__dataclass_fields__ if name not in ("rules", "_rooms")}
        rules = blocks.rules._replace(advantage=advantage)
        return cls(**common, rules=rules, rule=rule, budget=budget, facts=facts, starts=starts)

    def drive(self, updates: Updates, streams: Streams, room: StepRoom, state: State, trace: Trace) -> None:
        """Advance runs; raise if the rule leaves costs that mean nothing."""
        rule = self.rule
        allotment = Allotment(
            fill_costs=rule.fill.value,
            spread=spread_budget.value,
            facts=self.facts,
            budget=self.budget,
            low=rule.low,
            high=rule.high,
            sizes=zeros(self.sizes.batch_size, max(self.share_runs, WIDTH), dtype=np.int32),
            fault=np.zeros(8),
        )
        plan = Plan(allot.value, allotment, self.starts)
        compiled_advance_allotted()(plan, self.functions, self.rules, updates, streams, room, state)
        if allotment.fault[0]:
            raise ValueError(cost_message(rule.name, allotment.fault[1:3], allotment.fault[3:]))


def _untabulated(estimator: Estimator) -> str:
    return (
        "allocation needs an estimator whose advantages depend on the rewards of one group only, without a penalty or pooled "
        f"tokens, and {estimator.name!r} is none on this problem: rloo, dr_grpo and grpo are, without a KL term"
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
    batch_size, group_size, *more = sizes
    if isinstance(problem.policy, TokenChain):
        raise ValueError("allocation is for responses that are listed: a TokenChain's groups have one size")
    if more[0] != 1 or any(more[1:]):
        raise ValueError("allocation needs a rollout for each update, drawn from the policy that is updated: inner_steps of 1")
    return rule.check_budget(batch_size * group_size, batch_size)
