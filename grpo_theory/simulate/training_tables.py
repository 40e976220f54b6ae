"""What the driver of training runs is given: problem, estimator, policy and optimiser tabulated, and room for a step."""

import numpy as np

from grpo_theory.compiler import first_class_value, value_or_null
from grpo_theory.compiler.lanes import zeros
from grpo_theory.estimation import Estimator
from grpo_theory.estimation.kernel import PROMPT_FIELDS, SIGNATURE
from grpo_theory.exact.derivatives import reward_moments
from grpo_theory.exact.score_moments import gains_on_policy
from grpo_theory.problem import Paths, Problem
from grpo_theory.simulate.advantage.affine import sum_affine
from grpo_theory.simulate.advantage.call_room import NO_CALL, KernelView, make_call_room
from grpo_theory.simulate.advantage.learned_norms import fields_function, norm_table
from grpo_theory.simulate.advantage.rewards import RewardRoom, RewardTables, fill_rewards, penalise
from grpo_theory.simulate.advantage.rollout import AdvantageFunctions, AdvantageRule, Rollout, sum_counted, sum_in_order
from grpo_theory.simulate.advantage.route import IN_ORDER, Route
from grpo_theory.simulate.advantage.tables import NO_TABLES, make_tables
from grpo_theory.simulate.covector.ratios import (
    CovectorFunctions,
    RatioFunctions,
    TokenRoom,
    TokenRule,
    pool_covectors,
    weigh_tokens_anew,
)
from grpo_theory.simulate.draw.policy_draw import CHUNK_WORDS, Groups, OutcomeSource, PolicyRoom, TokenPaths, Words, repeat_words
from grpo_theory.simulate.draw.prompt_tables import alias_rows, lookup
from grpo_theory.simulate.draw.sizes import StepSizes
from grpo_theory.simulate.draw.streams import LANES
from grpo_theory.simulate.update.advance import (
    RunFunctions,
    State,
    StepFunctions,
    Sweep,
    Updates,
    copy_iterates,
    stretch_step,
)
from grpo_theory.simulate.update.iterates import follow_alone, project
from grpo_theory.simulate.update.optimiser import Optimiser, moments_kept, settings_of
from grpo_theory.simulate.update.step_types import Ascent
from grpo_theory.simulate.update.trace import keep_iterates, keep_rollout
from grpo_theory.validation import Array

SAME_STEPS = np.empty(0)
"""No factors of steps: all runs make the same."""


def token_paths(paths: Paths) -> TokenPaths:
    """Return the paths of a policy's responses as the driver reads them."""
    return TokenPaths(paths.edges.copy(), paths.lengths.copy(), paths.vocabulary_size)


def make_source(problem: Problem, group_size: int, paths: TokenPaths) -> OutcomeSource:
    """Tabulate what rollouts on a problem are drawn from."""
    bandit = problem.bandit
    below = np.cumsum(bandit.probabilities, axis=2)[:, :, :-1]
    laws = lookup(below.reshape(bandit.n_prompts, -1))
    return OutcomeSource(lookup(alias_rows(bandit.prompt_weights)), laws, bandit.values.size, group_size, paths)


def make_words(sizes: StepSizes) -> Words:
    """Make room for the words of a chunk."""
    chunk = max(1, CHUNK_WORDS // (LANES * sizes.n_words))
    words = zeros(-(-chunk * sizes.n_words // 8) * 8 + 1, LANES, dtype=np.uint64)
    return Words(sizes.n_words, words, words.view(np.int32).reshape(-1, LANES), np.empty(chunk))


def make_policy_room(paths: Paths, n_groups: int, lanes: int, *, wants_logs: bool) -> PolicyRoom:
    """Make room for a policy at the prompts of so many groups of so many runs."""
    logits, tokens = zeros(n_groups, paths.n_logits, lanes), zeros(n_groups, paths.n_logits, lanes)
    log_tokens = zeros(n_groups, paths.n_logits if wants_logs else 0, lanes)
    return PolicyRoom(logits, tokens, log_tokens, tokens if paths.horizon == 1 else zeros(n_groups, paths.n_responses, lanes))


def make_groups(batch_size: int, n_outcomes: int, facts: Array, lanes: int, *, in_order: bool) -> Groups:
    """Make room for the groups of a rollout of so many runs."""
    return Groups(
        prompts=zeros(batch_size, lanes, dtype=np.int64),
        counts=zeros(batch_size, n_outcomes, lanes, dtype=np.int32),
        thresholds=zeros(batch_size, n_outcomes - 1 if in_order else 0, lanes, dtype=np.int32),
        facts=facts,
    )


def reads_norms(estimator: Estimator) -> bool:
    """Whether a kernel reads score norms, or what takes these to find."""
    return bool(estimator.advantage.reads & {"squared_score_norms", "optimal_baselines"})


def make_reward_tables(problem: Problem, estimator: Estimator, paths: TokenPaths) -> RewardTables:
    """Tabulate the rewards of a problem for an estimator."""
    bandit, is_penalised = problem.bandit, problem.kl is not None and estimator.kl.place == "reward"
    gram, nothing = np.empty((0, 0, 0)), np.empty((bandit.n_prompts, 0))
    means, log_reference = nothing, nothing if problem.log_reference is None else problem.log_reference
    if reads_norms(estimator):
        gram = norm_table(problem.policy.logit_map)
    if estimator.advantage.reads & set(PROMPT_FIELDS):
        means = np.concatenate([bandit.mean_reward, reward_moments(problem)[0]], axis=1)
    return RewardTables(
        values=bandit.values.copy(),
        means=lookup(means),
        log_reference=lookup(log_reference),
        strength=problem.kl.strength if problem.kl is not None and is_penalised else 0.0,
        gram=gram,
        paths=paths,
    )


def make_reward_room(problem: Problem, estimator: Estimator, batch_size: int, facts: Array, rows: Array) -> RewardRoom:
    """Make room for the rewards of a rollout of so many runs, as many as lanes of the rows (rows, N)."""
    lanes = rows.shape[1]
    bandit, paths, reads = problem.bandit, problem.policy.paths, estimator.advantage.reads
    view = KernelView(
        rewards=zeros(batch_size, bandit.n_responses * bandit.values.size, lanes),
        norms=zeros(batch_size, bandit.n_responses if reads_norms(estimator) else 0, lanes),
        fields=zeros(batch_size, 3 if reads & set(PROMPT_FIELDS) else 0, lanes),
        lengths=paths.lengths.copy() if "lengths" in reads else np.empty(0, dtype=np.int64),
        responses=np.repeat(np.arange(bandit.n_responses), bandit.values.size),
    )
    log_ratios, terms = zeros(paths.n_logits, lanes), zeros(paths.n_logits, lanes)
    return RewardRoom(view, zeros(batch_size, bandit.n_responses, lanes), log_ratios, terms, facts, rows)


def make_advantage_rule(problem: Problem, estimator: Estimator, route: Route, paths: TokenPaths, *, keeps: bool) -> AdvantageRule:
    """Tabulate how the rewards of a problem become advantages; `keeps` says whether the rewards are kept."""
    return AdvantageRule(
        rewards=make_reward_tables(problem, estimator, paths),
        wants_rewards=keeps or route.is_called,
        sees_fields=bool(estimator.advantage.reads & {*PROMPT_FIELDS, "squared_score_norms"}),
        tables=NO_TABLES if route.table is None else make_tables(route.table, 1.0),
        coefficients=route.coefficients,
        is_called=route.is_called,
        kernel=first_class_value(estimator.advantage.kernel, SIGNATURE),
    )


def make_rollout(problem: Problem, estimator: Estimator, route: Route, sizes: StepSizes, facts: Array, rows: Array) -> Rollout:
    """Make room for the advantages of a rollout of so many runs, as many as lanes of the rows (rows, N)."""
    batch_size, group_size, lanes = sizes.batch_size, sizes.group_size, rows.shape[1]
    n_outcomes, in_order = problem.bandit.n_responses * problem.bandit.values.size, route.kind == IN_ORDER
    return Rollout(
        rewards=make_reward_room(problem, estimator, batch_size, facts, rows),
        sums=zeros(batch_size, 2 if in_order else 1, n_outcomes, lanes),
        ordered=zeros(batch_size, group_size if in_order else 0, lanes, dtype=np.int64),
        call=make_call_room(estimator.advantage, batch_size, group_size, 1.0) if route.is_called else NO_CALL,
        fault=np.zeros(3, dtype=np.int64),
    )


def advantage_functions(problem: Problem, estimator: Estimator, rule: AdvantageRule, route: Route) -> AdvantageFunctions:
    """Collect what is called."""
    penalised = rule.rewards.strength > 0.0
    return AdvantageFunctions(
        penalise=value_or_null(penalise, penalised),
        fill_terms=value_or_null(estimator.kl.fill, penalised),
        fill_rewards=value_or_null(fill_rewards, rule.wants_rewards),
        see_fields=value_or_null(fields_function(problem.policy.logit_map), rule.sees_fields),
        sum_affine=value_or_null(sum_affine, rule.coefficients.size > 0),
        sum_called=value_or_null(sum_in_order if route.kind == IN_ORDER else sum_counted, rule.is_called),
    )


def make_token_rule(problem: Problem, estimator: Estimator, rewards: RewardTables, sizes: StepSizes) -> TokenRule:
    """Tabulate what the tokens of an estimator weigh."""
    paths = rewards.paths
    return TokenRule(
        paths=paths,
        shares=estimator.aggregation.shares(paths.lengths),
        widths=estimator.clip.widths,
        log_reference=rewards.log_reference,
        in_loss=problem.kl.strength if problem.kl is not None and estimator.kl.place == "loss" else 0.0,
        moves=sizes.moves,
        drifts_away=sizes.moves and not estimator.ratio.constant,
        pool={"": 0, "group": 1, "batch": sizes.n_updated}[estimator.aggregation.pool],
        group_size=sizes.group_size,
        updates=sizes.updates,
    )


def make_token_room(problem: Problem, estimator: Estimator, rule: TokenRule, sizes: StepSizes, shared: RewardRoom) -> TokenRoom:
    """Make room for the weights and covectors of an update; what rewards are found in is used again."""
    paths, lanes = problem.policy.paths, shared.terms.shape[1]
    return TokenRoom(
        gains=gains_on_policy(estimator, paths, lanes if rule.weighs_anew else 1),
        drifts=zeros(paths.n_responses, paths.horizon, lanes) if rule.in_loss > 0.0 else np.empty((0, 0, 0)),
        log_ratios=shared.log_ratios,
        terms=shared.terms,
        facts=shared.facts,
        covectors=zeros(sizes.n_updated, paths.n_logits, lanes),
    )


def covector_functions(estimator: Estimator, rule: TokenRule) -> CovectorFunctions:
    """Collect what is called."""
    own = RatioFunctions(
        fill_ratios=value_or_null(estimator.ratio.fill, rule.drifts_away),
        fill_weights=value_or_null(estimator.clip.fill, rule.drifts_away),
        fill_terms=value_or_null(estimator.kl.fill, rule.in_loss > 0.0),
    )
    return CovectorFunctions(
        value_or_null(weigh_tokens_anew, rule.weighs_anew), own, value_or_null(pool_covectors, rule.pool > 0)
    )


def make_state(starts: Array, size: int, n_moments: int, lag: int, factors: Array = SAME_STEPS) -> State:
    """Return the state of runs that are about to start, (R, d), in shares of a size; the last one's start fills its share.

    The policies that draw the first `lag` rollouts, and the one after them, are the start.  Where there are factors (S,) of
    steps, each applies to R / S successive runs.  The runs of every factor see the same words.
    """
    dimension = starts.shape[1]
    shares = -(-len(starts) // size)
    filled = np.concatenate([starts, np.repeat(starts[-1:], shares * size - len(starts), axis=0)])
    columns = zeros(shares, dimension, size)
    start = zeros(*columns.shape)
    columns[:] = start[:] = filled.reshape(shares, size, dimension).transpose(0, 2, 1)
    past = zeros(shares, lag, dimension, size)
    past[:] = columns[:, None]
    return State(
        wanted=len(starts),
        theta=columns,
        past=past,
        average=zeros(*columns.shape),
        start=start,
        farthest=zeros(shares, size),
        moments=zeros(shares, n_moments, dimension, size) if n_moments else np.empty((shares, 0, 0, 0)),
        gradient=zeros(dimension, size) if n_moments else np.empty((0, 0)),
        distances=zeros(size),
        sweep=make_sweep(factors, len(starts), columns.shape),
    )


def make_sweep(factors: Array, runs: int, shape: tuple[int, ...]) -> Sweep:
    """Return how runs differ whose steps have these factors (S,), each of as many runs, and iterates a shape (shares, d, N)."""
    shares, dimension, size = shape
    if not factors.size:
        return Sweep(0, np.empty((shares, 0)), np.empty((0, 0)))
    each = runs // factors.size
    filled = np.ones(shares * size)
    filled[:runs] = np.repeat(factors, each)
    return Sweep(each, filled.reshape(shares, size), zeros(dimension, size))


def step_functions(ascent: Ascent, optimiser: Optimiser) -> StepFunctions:
    """Collect the functions of a policy and of its optimiser."""
    return StepFunctions(
        fill_logits=ascent.fill_logits,
        take_step=ascent.take_step,
        array=ascent.array,
        move=value_or_null(optimiser.move, moments_kept(optimiser) > 0),
        settings=settings_of(optimiser),
    )


def run_functions(updates: Updates, lag: int, *, alone: bool, keeps: bool, side_by_side: bool) -> RunFunctions:
    """Collect what is called: nulls but for runs that have a ball, lag, go on alone or side by side, or leave a trace."""
    return RunFunctions(
        follow_alone=value_or_null(follow_alone, alone),
        project=value_or_null(project, updates.ball.size > 0),
        repeat_words=value_or_null(repeat_words, side_by_side),
        copy_iterates=value_or_null(copy_iterates, side_by_side or lag > 0),
        stretch_step=value_or_null(stretch_step, side_by_side),
        keep_rollout=value_or_null(keep_rollout, keeps),
        keep_iterates=value_or_null(keep_iterates, keeps),
    )
