"""What the training driver is given: the problem, the estimator and the room, tabulated."""

from dataclasses import dataclass

import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.compilation import first_class
from grpo_theory.estimation import Estimator
from grpo_theory.estimation.kernel import PROMPT_FIELDS, SIGNATURE, Batch
from grpo_theory.exact.weights import gains_of
from grpo_theory.problem import Problem
from grpo_theory.simulate.advance import Parts, Recipe, Room, World
from grpo_theory.simulate.alias import alias_table
from grpo_theory.simulate.ascent import ascent

_NOTHING = np.empty((0, 0))


@dataclass(frozen=True)
class Layout:
    """The sizes of a step: R runs with B prompts and G responses each, whose rollouts serve M updates."""

    runs: int
    batch_size: int
    group_size: int
    updates: int

    @property
    def n_groups(self) -> int:
        """The lanes of a rollout, N = B R."""
        return self.runs * self.batch_size

    @property
    def n_updated(self) -> int:
        """The lanes of an update, n = N/M."""
        return self.n_groups // self.updates


def make_world(problem: Problem, estimator: Estimator) -> World:
    """Tabulate a problem."""
    bandit, policy, paths = problem.bandit, problem.policy, problem.policy.paths
    shape = (paths.n_logits, bandit.n_prompts)
    log_reference = np.zeros(shape) if problem.log_reference is None else problem.log_reference.T
    mean_squares = bandit.probabilities @ bandit.values**2
    reads_norms = bool(estimator.advantage.reads & {"squared_score_norms", "optimal_baselines"})
    return World(
        *alias_table(bandit.prompt_weights[None]),
        responses=np.repeat(np.arange(bandit.n_responses), bandit.values.size),
        edges=paths.edges,
        lengths=paths.lengths,
        vocabulary_size=paths.vocabulary_size,
        values=bandit.values.copy(),
        laws=bandit.probabilities.copy(),
        mean_rewards=np.ascontiguousarray(bandit.mean_reward.T),
        mean_squares=np.ascontiguousarray(mean_squares.T),
        log_reference=np.ascontiguousarray(log_reference),
        strength=0.0 if problem.kl is None else problem.kl.strength,
        gram=np.array(policy.logit_map.gram(), dtype=np.float64, order="C") if reads_norms else np.empty((0, 0, 0)),
    )


def make_recipe(problem: Problem, estimator: Estimator, layout: Layout) -> Recipe:
    """Tabulate an estimator."""
    strength = 0.0 if problem.kl is None else problem.kl.strength
    pools = {"": 0, "group": layout.n_updated, "batch": layout.runs}
    return Recipe(
        at_a_time=layout.batch_size if estimator.advantage.couples_groups else layout.n_groups,
        pools=pools[estimator.aggregation.pool],
        shares=estimator.aggregation.shares(problem.policy.paths.lengths),
        widths=estimator.clip.widths,
        in_reward=strength if estimator.kl.place == "reward" else 0.0,
        in_loss=strength if estimator.kl.place == "loss" else 0.0,
        updates=layout.updates,
        drifts_away=layout.updates > 1 and not estimator.ratio.constant,
    )


def make_parts(problem: Problem, estimator: Estimator) -> Parts:
    """Collect the functions that differ from policy to policy and from estimator to estimator."""
    kernel = first_class(estimator.advantage.kernel, SIGNATURE)
    compiled = (estimator.ratio.fill.value, estimator.clip.fill.value, estimator.kl.fill.value)
    return Parts(kernel, *ascent(problem.policy), *compiled)


def make_batch(estimator: Estimator, layout: Layout) -> Batch:
    """Make room for what the kernel sees of a rollout."""
    shape = (layout.n_groups, layout.group_size)
    unread = [np.full(layout.n_groups, np.nan) for _ in PROMPT_FIELDS]
    fields = [np.empty(shape), np.full(shape, np.nan), np.ones(shape, dtype=np.int64), *unread]
    return Batch._make([*fields, estimator.advantage.parameter_array])


def make_room(problem: Problem, estimator: Estimator, world: World, recipe: Recipe, layout: Layout) -> Room:
    """Make room for a step."""
    paths, n_logits = problem.policy.paths, problem.policy.n_logits
    n, own = layout.n_updated, np.arange(layout.n_groups)
    reads = estimator.advantage.reads
    wants_logs = recipe.in_reward > 0.0 or recipe.in_loss > 0.0 or recipe.drifts_away
    norms = len(world.gram) > 0

    def lanes(rows: int, wanted: bool = True, count: int = layout.n_groups) -> Array:
        return np.zeros((rows, count)) if wanted else _NOTHING

    def now(rollout: Array) -> Array:
        return rollout if layout.updates == 1 or rollout is _NOTHING else np.zeros((len(rollout), n))

    logits, tokens, log_tokens = lanes(n_logits), lanes(n_logits), lanes(n_logits, wants_logs)
    weighed = recipe.drifts_away or recipe.in_loss > 0.0
    on_policy = np.zeros((n_logits, n if weighed else 1))
    return Room(
        prompts=np.zeros(layout.n_groups, dtype=np.int64),
        logits=logits,
        tokens=tokens,
        log_tokens=log_tokens,
        log_ratios=lanes(n_logits, recipe.in_reward > 0.0),
        terms=lanes(n_logits, recipe.in_reward > 0.0),
        pi=tokens if paths.horizon == 1 else lanes(paths.n_responses),
        penalties=lanes(paths.n_responses),
        norms=lanes(paths.n_responses, norms),
        thresholds=lanes(world.responses.size - 1),
        rewards=lanes(world.responses.size),
        fields=lanes(3, bool(reads & set(PROMPT_FIELDS))),
        outcomes=np.zeros((layout.group_size, layout.n_groups), dtype=np.int64),
        advantages=np.zeros((layout.n_groups, layout.group_size)),
        own=own,
        places=own % layout.runs * layout.batch_size + own // layout.runs,
        seen_lengths=paths.lengths if "lengths" in reads else np.empty(0, dtype=np.int64),
        logits_now=now(logits),
        tokens_now=now(tokens),
        log_tokens_now=now(log_tokens),
        drifted=lanes(n_logits, recipe.drifts_away or recipe.in_loss > 0.0, n),
        slopes=lanes(n_logits, recipe.in_loss > 0.0, n),
        covectors=lanes(n_logits, count=n),
        gains=gains_of(estimator, paths, on_policy),
        drifts=np.zeros((paths.n_responses, paths.horizon, n)) if recipe.in_loss > 0.0 else np.empty((0, 0, 0)),
        rows=np.arange(n) if weighed else np.zeros(n, dtype=np.int64),
    )
