"""What the training driver is given: the problem, the estimator and the room, tabulated."""

from dataclasses import dataclass

import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.compiler.first_class import first_class, wanted
from grpo_theory.compiler.lanes import WIDTH, zeros
from grpo_theory.estimation import Estimator
from grpo_theory.estimation.kernel import PROMPT_FIELDS, SIGNATURE
from grpo_theory.exact.weights import gains_on_policy
from grpo_theory.problem import Problem
from grpo_theory.simulate.advantage.kernel_call import spare_rows
from grpo_theory.simulate.advantage.penalty import penalise, see_fields
from grpo_theory.simulate.advantage.route import Path
from grpo_theory.simulate.advantage.sums import Rollout, Rule, sum_affine, sum_in_order, sum_shown
from grpo_theory.simulate.covector.edge_weights import fill_rewards, pool_covectors
from grpo_theory.simulate.covector.ratios import weigh_anew
from grpo_theory.simulate.draw.alias import alias_rows
from grpo_theory.simulate.draw.generator import LANES
from grpo_theory.simulate.draw.prompt_tables import lookup
from grpo_theory.simulate.draw.setting import Recipe, Room, State, Words, World
from grpo_theory.simulate.update.advance import Parts
from grpo_theory.simulate.update.ascent import Ascent, follow_alone, project
from grpo_theory.simulate.update.optimiser import Optimiser
from grpo_theory.simulate.update.trace import keep_iterates, keep_rollout

CHUNK_WORDS = 1 << 17
"""The words that are drawn at a time: they stay in a second-level cache."""


@dataclass(frozen=True)
class Layout:
    """The sizes of a step: B prompts and G responses each, in rollouts that serve M updates."""

    batch_size: int
    group_size: int
    updates: int

    @property
    def n_updated(self) -> int:
        """The prompts of an update, B/M."""
        return self.batch_size // self.updates


def make_world(problem: Problem, estimator: Estimator) -> World:
    """Tabulate a problem."""
    bandit, policy, paths = problem.bandit, problem.policy, problem.policy.paths
    none = np.zeros((bandit.n_prompts, paths.n_logits))
    below = np.cumsum(bandit.probabilities, axis=2)[:, :, :-1]
    rewards = np.concatenate([bandit.mean_reward, bandit.probabilities @ bandit.values**2], axis=1)
    reads_norms = bool(estimator.advantage.reads & {"squared_score_norms", "optimal_baselines"})
    return World(
        prompts=lookup(alias_rows(bandit.prompt_weights)),
        responses=np.repeat(np.arange(bandit.n_responses), bandit.values.size),
        edges=paths.edges.copy(),
        lengths=paths.lengths.copy(),
        vocabulary_size=paths.vocabulary_size,
        values=bandit.values.copy(),
        laws=lookup(below.reshape(bandit.n_prompts, -1)),
        rewards=lookup(rewards),
        log_reference=lookup(none if problem.log_reference is None else problem.log_reference),
        strength=0.0 if problem.kl is None else problem.kl.strength,
        gram=np.array(policy.logit_map.gram(), dtype=np.float64, order="C") if reads_norms else np.empty((0, 0, 0)),
    )


def make_recipe(problem: Problem, estimator: Estimator, layout: Layout, wants_rewards: bool) -> Recipe:
    """Tabulate an estimator."""
    strength = 0.0 if problem.kl is None else problem.kl.strength
    in_loss = strength if estimator.kl.place == "loss" else 0.0
    drifts_away = layout.updates > 1 and not estimator.ratio.constant
    lengths = problem.policy.paths.lengths.copy()
    return Recipe(
        group_size=layout.group_size,
        pool={"": 0, "group": 1, "batch": layout.n_updated}[estimator.aggregation.pool],
        shares=estimator.aggregation.shares(lengths),
        seen_lengths=lengths if "lengths" in estimator.advantage.reads else np.empty(0, dtype=np.int64),
        widths=estimator.clip.widths,
        in_reward=strength if estimator.kl.place == "reward" else 0.0,
        in_loss=in_loss,
        updates=layout.updates,
        drifts_away=drifts_away,
        wants_rewards=wants_rewards,
        sees_fields=bool(estimator.advantage.reads & {*PROMPT_FIELDS, "squared_score_norms"}),
        weighs_anew=in_loss > 0.0 or drifts_away,
    )


def make_rule(estimator: Estimator, layout: Layout, path: Path) -> Rule:
    """Tabulate how advantages are found."""
    return Rule(
        is_called=path.is_called,
        kernel=first_class(estimator.advantage.kernel, SIGNATURE),
        at_a_time=layout.batch_size if estimator.advantage.couples_groups else 0,
        advantages=lookup(path.table.advantages[0]),
        ranks=path.table.ranks,
        coefficients=path.coefficients,
    )


def make_parts(
    estimator: Estimator, recipe: Recipe, path: Path, ascent: Ascent, optimiser: Optimiser, *, projects: bool, keeps: bool
) -> Parts:
    """Collect the functions that differ from policy to policy, from estimator to estimator and between optimisers."""
    penalised = recipe.in_reward > 0.0
    return Parts(
        ascent.fill_logits,
        ascent.take_step,
        ascent.array,
        wanted(optimiser.move, optimiser.n_moments > 0),
        optimiser.settings,
        wanted(penalise, penalised),
        wanted(fill_rewards, recipe.wants_rewards),
        wanted(see_fields, recipe.sees_fields),
        wanted(sum_affine, path.coefficients.size > 0),
        wanted(path.fill_sums or sum_shown, path.is_called),
        wanted(weigh_anew, recipe.weighs_anew),
        wanted(estimator.ratio.fill, recipe.drifts_away),
        wanted(estimator.clip.fill, recipe.drifts_away),
        wanted(estimator.kl.fill, penalised or recipe.in_loss > 0.0),
        wanted(pool_covectors, recipe.pool > 0),
        wanted(project, projects),
        wanted(follow_alone, ascent.alone),
        wanted(keep_rollout, keeps),
        wanted(keep_iterates, keeps),
    )


def make_rollout(problem: Problem, estimator: Estimator, layout: Layout, path: Path, lanes: int) -> Rollout:
    """Make room for a rollout of so many lanes."""
    n_responses, n_values, n_prompts = problem.bandit.n_responses, problem.bandit.values.size, layout.batch_size
    n_outcomes, reads, in_order = n_responses * n_values, estimator.advantage.reads, path.fill_sums is sum_in_order
    norms = n_responses if reads & {"squared_score_norms", "optimal_baselines"} else 0
    rows = lanes * n_prompts + spare_rows(layout.group_size) if path.is_called else 0
    return Rollout(
        prompts=zeros(n_prompts, lanes, dtype=np.int64),
        counts=zeros(n_prompts, n_outcomes, lanes, dtype=np.int32),
        thresholds=zeros(n_prompts, n_outcomes - 1 if in_order else 0, lanes, dtype=np.int32),
        rewards=zeros(n_prompts, n_outcomes, lanes),
        norms=zeros(n_prompts, norms, lanes),
        fields=zeros(n_prompts, 3 if reads & set(PROMPT_FIELDS) else 0, lanes),
        sums=zeros(n_prompts, 2 if in_order else 1, n_outcomes, lanes),
        listed=zeros(n_prompts, layout.group_size if in_order else 0, lanes, dtype=np.int64),
        advantages=zeros(rows, layout.group_size),
        fault=np.zeros(1 + layout.group_size),
    )


def make_room(problem: Problem, estimator: Estimator, recipe: Recipe, layout: Layout, rows: int, facts: int, lanes: int) -> Room:
    """Make room for a step of so many lanes; the policy computes in so many rows, and tables have as many facts in a row."""
    paths = problem.policy.paths
    wants_logs = recipe.in_reward > 0.0 or recipe.in_loss > 0.0 or recipe.drifts_away
    several, weighed = layout.updates > 1, recipe.drifts_away or recipe.in_loss > 0.0

    def groups(rows: int, whether: bool = True, count: int = layout.batch_size) -> Array:
        return zeros(count, rows if whether else 0, lanes)

    def updated(whether: bool) -> Array:
        return groups(paths.n_logits, whether, layout.n_updated)

    tokens = groups(paths.n_logits)
    return Room(
        logits=groups(paths.n_logits),
        tokens=tokens,
        log_tokens=groups(paths.n_logits, wants_logs),
        pi=tokens if paths.horizon == 1 else groups(paths.n_responses),
        penalties=groups(paths.n_responses),
        log_ratios=groups(paths.n_logits, wants_logs)[0],
        terms=groups(paths.n_logits, wants_logs)[0],
        covectors=updated(True),
        logits_now=updated(several),
        tokens_now=updated(several),
        log_tokens_now=updated(several and wants_logs),
        gains=gains_on_policy(estimator, paths, lanes if weighed else 1),
        drifts=zeros(paths.n_responses, paths.horizon, lanes) if recipe.in_loss > 0.0 else np.empty((0, 0, 0)),
        rows=zeros(rows, lanes),
        choice=zeros(2, WIDTH),
        facts=zeros(facts, WIDTH),
    )


def words_rows(layout: Layout) -> int:
    """Return the words that a rollout of a run takes: one for each prompt, and half of one for each response."""
    return layout.batch_size + -(-layout.batch_size * layout.group_size // 2)


def make_words(layout: Layout) -> Words:
    """Make room for the words of a chunk."""
    rows = words_rows(layout)
    chunk = max(1, CHUNK_WORDS // (LANES * rows))
    words = zeros(-(-chunk * rows // 8) * 8 + 1, LANES, dtype=np.uint64)
    return Words(rows, words, words.view(np.int32).reshape(-1, LANES), np.empty(chunk))


def make_state(starts: Array, size: int, n_moments: int) -> State:
    """Return the state of runs that are about to start, (R, d), in shares of a size; the last one's start fills its share."""
    dimension = starts.shape[1]
    shares = -(-len(starts) // size)
    filled = np.concatenate([starts, np.repeat(starts[-1:], shares * size - len(starts), axis=0)])
    columns = zeros(shares, dimension, size)
    start = zeros(*columns.shape)
    columns[:] = start[:] = filled.reshape(shares, size, dimension).transpose(0, 2, 1)
    return State(
        wanted=len(starts),
        theta=columns,
        average=zeros(*columns.shape),
        start=start,
        farthest=zeros(shares, size),
        moments=zeros(shares, n_moments, dimension, size) if n_moments else np.empty((shares, 0, 0, 0)),
        gradient=zeros(dimension, size) if n_moments else np.empty((0, 0)),
        distances=zeros(size),
    )
