"""Training runs whose rollouts are shared out by an allocation rule: each prompt of a step gets a group of its own size."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache

import numpy as np

from grpo_theory.estimation import Estimator
from grpo_theory.estimation import allocation as rules
from grpo_theory.jit import compiled, kernel
from grpo_theory.problem import LogitMap, Problem
from grpo_theory.simulate.advantages import AdvantageTable, reward_table
from grpo_theory.simulate.ascents import Runs, Training, make_training, powers_of
from grpo_theory.simulate.draws import Streams, as_sizes
from grpo_theory.simulate.optimisers import SGD, Ball, Optimiser
from grpo_theory.simulate.rollouts import close_groups
from grpo_theory.validation import Array


@lru_cache
def allocating(fill: Callable) -> Callable:
    """Return what shares out the responses of runs by the costs that a rule fills in; one is compiled for each rule."""

    @kernel
    def allocate(known, budget, low, high, costs, sizes):
        """Fill in the sizes (B, LANES) of runs of which (R, B, 7) is known; returns the first whose costs mean nothing, or -1."""
        gains, own = np.empty(sizes.shape[0]), np.empty(sizes.shape[0], np.int64)
        for run in range(known.shape[0]):
            finite = True
            for b in range(known.shape[1]):
                costs[b, 0] = costs[b, 1] = np.nan
                for column in range(known.shape[2]):
                    finite = finite and np.isfinite(known[run, b, column])
            if not finite:
                continue
            fill(known[run], costs)
            for b in range(known.shape[1]):
                if not (costs[b, 0] >= 0.0 and costs[b, 1] >= 0.0 and costs[b, 0] < np.inf and costs[b, 1] < np.inf):
                    return run
            # Sizes n_b that make sum_b a_b/n_b + c_b/(n_b (n_b - 1)) least (docs/derivations.md, section 33.1).
            rules.spread_budget(costs, budget, low, high, gains, own)
            for b in range(own.size):
                sizes[b, run] = own[b]
        return -1

    return allocate


def fill_known(prompts, pi, rewards, variances, starts, seen, known):
    """Fill in what runs know of their prompts (B, LANES) before sampling, but for traces: known (LANES, B, 7)."""
    for b in range(prompts.shape[0]):
        for j in range(prompts.shape[1]):
            m, value, variance = prompts[b, j], 0.0, 0.0
            for k in range(pi.shape[1]):
                value += pi[b, k, j] * rewards[m, k]
            for k in range(pi.shape[1]):
                variance += pi[b, k, j] * (variances[m, k] + (rewards[m, k] - value) ** 2)
            known[j, b, rules.VALUE], known[j, b, rules.VARIANCE], known[j, b, rules.START_VALUE] = value, variance, starts[m, j]
            known[j, b, rules.SEEN_REWARD], known[j, b, rules.SEEN_COUNT] = seen[0, m, j], seen[1, m, j]


def fill_seen(prompts, counts, values, sizes, memory, seen):
    """Add the rewards of groups (B, LANES) to the sums and numbers of those seen (2, M, LANES), which are forgotten in part."""
    for b in range(prompts.shape[0]):  # one after another, because a prompt may have several groups
        for j in range(prompts.shape[1]):
            m, total = prompts[b, j], 0.0
            for c in range(counts.shape[1]):
                total += counts[b, c, j] * values[c % values.shape[0]]
            seen[0, m, j] = memory * seen[0, m, j] + total
            seen[1, m, j] = memory * seen[1, m, j] + sizes[b, j]


@dataclass(frozen=True, eq=False, kw_only=True)
class AllocatedTraining(Training):
    """What such runs have in common: made as for groups of the most responses that the rule allows.

    Attributes
    ----------
    rule : rules.AllocationRule
    budget : int
        The responses of a step.
    """

    rule: rules.AllocationRule
    budget: int

    @cached_property
    def table(self) -> AdvantageTable:
        """The kernel's table by the size of the group; advantages are over that size, so that a batch's estimate is a mean."""
        sizes = list(range(self.rule.low, self.rule.high + 1))
        if super().table is None or len(self.weighing.drifts) or self.weighing.pool or self.has_credits:
            raise ValueError(
                "allocation needs an estimator whose advantages depend on the rewards of one group only, without a penalty, "
                f"credits or pooled tokens. On this problem {self.estimator.name!r} is not one. Use rloo, dr_grpo or grpo, "
                "without a KL term"
            )
        found = reward_table(self.estimator, self.problem.bandit.values, sizes)
        # (1/B) sum_b (1/n_b) sum_i A_bi u_bi, as each draw of a prompt has the weight 1/B (docs/derivations.md, section 33.1).
        return found._replace(advantages=found.advantages / np.repeat(sizes, found.advantages.shape[1] // len(sizes))[:, None])

    @property
    def scale(self) -> float:
        """What multiplies the sums: advantages are over the sizes of their groups."""
        return 1.0 / self.sizes.batch_size

    @cached_property
    def gram(self) -> Array:
        """Phi Phi' of each prompt, shape (M, D, D), where the rule wants traces of scores."""
        logit_map = self.problem.policy.logit_map
        if not self.rule.wants_traces:
            return np.empty((0, 0, 0))
        if not isinstance(logit_map, LogitMap):
            raise ValueError(
                f"allocation by {self.rule.name!r} needs a policy whose logits are linear in theta, got {self.problem.policy!r}. "
                "It takes the traces of scores from features that stay as they are. Use 'vip' or 'uniform'"
            )
        return np.array(logit_map.gram(), order="C")


class AllocatedRuns(Runs):
    """The runs of a block on their way, which remember the rewards that they have seen of each prompt."""

    training: AllocatedTraining
    one_by_one = True  # a rule is asked before each

    def __init__(self, training: AllocatedTraining, streams: Streams, starts: Array, factors: Array, period: int) -> None:
        super().__init__(training, streams, starts, factors, period)
        bandit = training.problem.bandit
        self._seen = np.zeros((2, bandit.n_prompts, self.lanes))  # sums and numbers of rewards
        self._start_values = np.full((bandit.n_prompts, self.lanes), np.nan)
        own, places = np.unique(starts, axis=0, return_inverse=True)
        values = np.full((len(own), bandit.n_prompts), np.nan)
        for row in np.flatnonzero((np.abs(own) <= training.problem.policy.largest_parameter).all(axis=1)):
            values[row] = training.problem.at(own[row]).moments.value
        self._start_values[:, : self.n] = values[places.reshape(-1)].T
        self._variances = (bandit.probabilities * (bandit.values - bandit.mean_reward[..., None]) ** 2).sum(axis=-1)

    def share_out(self) -> None:
        """Ask the rule how many responses each prompt gets, by what is known of it before sampling."""
        training, rule, prompts, pi = self.training, self.training.rule, self.room.prompts, self.policy.pi
        known, rewards = np.zeros((self.lanes, len(prompts), len(rules.KNOWN))), training.problem.bandit.mean_reward
        compiled(fill_known)(prompts, pi, rewards, self._variances, self._start_values, self._seen, known)
        if rule.wants_traces:
            with np.errstate(all="ignore"):
                centred = rewards[prompts].swapaxes(1, 2) - known[:, :, rules.VALUE].T[:, None]
                spread = self._variances[prompts].swapaxes(1, 2) + centred**2
                norms, slope, weights = np.zeros(pi.shape), np.zeros(prompts.shape), pi * centred
                paths = training.problem.policy.paths
                for b, tokens in enumerate(self.policy.tokens):
                    gram, logit_gradients = training.gram[prompts[b]], paths.centre(paths.incidence, tokens.T[:, None])
                    norms[b] = powers_of(logit_gradients, gram).T
                    # ||g||^2 = c' Phi Phi' c, with c = sum_k pi_k (E[Z | k] - V) c_k (docs/derivations.md, section 5).
                    slope[b] = powers_of(weights[b].T[:, None] @ logit_gradients, gram)[:, 0]
                # docs/derivations.md, section 33.1: tr Cov(A W) with the oracle's advantage, and what a baseline of n - 1 adds.
                # A = E[||W||^2 (Z - V)^2] - ||g||^2 and C = Var(Z) E||W||^2 + ||g||^2.
                known[:, :, rules.ORACLE_TRACE] = np.maximum(0.0, (pi * norms * spread).sum(axis=1) - slope).T
                known[:, :, rules.SECOND_ORDER] = known[:, :, rules.VARIANCE] * (pi * norms).sum(axis=1).T + slope.T
        costs = np.empty((len(prompts), 2))
        self.looks[:] = rule.low
        bad = allocating(compiled(rule.fill))(known[: self.n], training.budget, rule.low, rule.high, costs, self.looks)
        if bad >= 0:
            group = int(np.argmax(~((costs >= 0.0) & (costs < np.inf)).all(axis=1)))
            raise ValueError(rules.cost_message(rule.name, costs[group], known[bad, group]))
        close_groups(self.looks, rule.high, self.room)

    def sum_advantages(self, sampler: Array) -> None:
        """Add up the advantages of the rollout by response, and remember its rewards, of which a share is forgotten each time."""
        super().sum_advantages(sampler)
        values, memory = self.training.problem.bandit.values, self.training.rule.memory
        compiled(fill_seen)(self.room.prompts, self.room.counts, values, self.looks, memory, self._seen)


AllocatedTraining.kind = AllocatedRuns


def make_allocated(
    allocation: str | rules.AllocationRule,
    problem: Problem,
    estimator: Estimator,
    step_sizes: Array,
    sizes: tuple[int, ...],
    optimiser: Optimiser = SGD(),
    ball: Ball | None = None,
    *,
    keeps: bool = False,
) -> AllocatedTraining:
    """Check what defines runs that are shared out by a rule, and return it; the other arguments are those of `make_training`."""
    rule, (batch_size, group_size), others = rules.find_rule(allocation), as_sizes(*sizes[:2]), sizes[2:]
    for name, given, needed in zip(("inner_steps", "lag"), others, (1, 0), strict=False):
        if given != needed:
            raise ValueError(
                "allocation needs a rollout for each update, drawn from the policy that is updated: "
                f"{name} must be {needed}, got {given}"
            )
    rule.check_rewards(problem.bandit.values)
    budget = rules.checked_budget(batch_size * group_size, batch_size, rule.low, rule.high)
    made = make_training(problem, estimator, step_sizes, (batch_size, rule.high, *others), optimiser, ball, keeps=keeps)
    own = {one.name: getattr(made, one.name) for one in fields(made)}
    allocated = AllocatedTraining(**own, rule=rule, budget=budget)
    _ = allocated.table, allocated.gram, allocated.world, allocated.weighing, allocated.settings, allocated.parts
    return allocated
