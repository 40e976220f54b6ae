"""Training runs on their way: some side by side in lanes, rollout by rollout and update by update.

A kernel that is called sees the rollouts of a policy that moves through a `Viewer`.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.estimation import Estimator
from grpo_theory.estimation.kernel import PROMPT_FIELDS
from grpo_theory.estimation.parts import CLIPS, KL_TERMS, RATIOS
from grpo_theory.estimation.registry import check_penalty, gains_of
from grpo_theory.exact.score_moments import credited, listed_credits
from grpo_theory.jit import compiled
from grpo_theory.problem import LogitMap, Problem
from grpo_theory.simulate import rollouts
from grpo_theory.simulate.advantages import (
    LARGEST_TABLE,
    AdvantageTable,
    KernelCall,
    make_spare,
    remembering,
    reward_table,
    sum_called,
    sum_tabulated,
    table_size,
)
from grpo_theory.simulate.affine import Affine, affine_of, sum_affine
from grpo_theory.simulate.draws import LANES, Streams, as_sizes, block_streams, check_wanted
from grpo_theory.simulate.optimisers import SGD, Adam, Ball, Optimiser, check_optimiser, follow, make_state, sampling_iterate
from grpo_theory.simulate.policies import HEAD, LogitRule, logit_rule, rows_needed
from grpo_theory.simulate.rollouts import PolicyRoom, Room, World
from grpo_theory.simulate.score_hessian import Record, keep_rollout
from grpo_theory.validation import Array, Integers, as_numbers, as_real_array, check_shape


def powers_of(logit_gradients: Array, gram: Array) -> Array:
    """Return ||Phi' c||^2 = c' Phi Phi' c, (n, K), of logit gradients (n, K, D) and Gram matrices (n, D, D)."""
    return np.maximum(((logit_gradients @ gram) * logit_gradients).sum(axis=-1), 0.0)


class Viewer:
    """Calls an estimator's kernel on rollouts."""

    def __init__(self, problem: Problem, estimator: Estimator, world: World) -> None:
        check_penalty(problem.kl, estimator)
        self.problem, self.estimator, self.world = problem, estimator, world
        self.log_reference = problem.log_reference
        self._reads, self._call = estimator.advantage.reads, KernelCall(estimator.advantage)

    def advantages(self, room: Room, policy: PolicyRoom, theta: Array, memories: Array) -> Array:
        """Return the advantages of the responses (LANES, B, G), drawn from policies with parameters (R, d).

        Memories (LANES, M, S) are read, and then changed by the rewards.

        Raises
        ------
        ValueError
            If one is not finite, of a run that has not left the finite numbers.
        """
        (batch_size, _, lanes), penalties, kind = policy.pi.shape, self.penalties(room, policy), self.estimator.advantage
        rewards = np.ascontiguousarray(self.problem.bandit.values[:, None] - penalties[:, :, None]).reshape(batch_size, -1, lanes)
        reads_norms = self._reads & {"squared_score_norms", "optimal_baselines"}
        known = np.full((len(PROMPT_FIELDS) + memories.shape[2], batch_size, lanes), np.nan)
        norms = self._norms(room, policy, theta) if reads_norms else np.full(policy.pi.shape, np.nan)
        logs = np.log(policy.pi) if "log_probabilities" in self._reads else np.full(policy.pi.shape, np.nan)
        if self._reads & set(PROMPT_FIELDS):
            known[: len(PROMPT_FIELDS)] = self._known(room, policy, penalties, norms)
        if kind.memory:
            known[len(PROMPT_FIELDS) :] = np.moveaxis(memories[np.arange(lanes), room.prompts], 2, 0)
        wanted = np.zeros(lanes, dtype=bool)
        wanted[: len(theta)] = np.isfinite(theta).all(axis=1)
        lengths = self.world.logits.lengths
        found = self._call.advantages(room.ordered, rewards, np.stack([norms, logs]), lengths, known, batch_size, wanted)
        if kind.memory:
            given = np.ascontiguousarray(np.take_along_axis(rewards, room.ordered, axis=1).transpose(2, 0, 1))
            remembering(kind.memory.function)(room.prompts, given, kind.parameter_array, memories)
        return found

    def away(self, log_tokens: Array, prompts: Integers) -> Array:
        """Return log(pi/reference) of the tokens (B, D, LANES) at prompts (B, LANES)."""
        assert self.log_reference is not None  # there is a penalty
        return log_tokens - self.log_reference[prompts].swapaxes(1, 2)

    def penalties(self, room: Room, policy: PolicyRoom) -> Array:
        """Return a KL term in the reward, which is subtracted from it, shape (B, K, LANES); 0 if there is none."""
        if self.problem.kl is None or self.estimator.kl.place != "reward":
            return np.zeros(policy.pi.shape)
        away = self.away(policy.log_tokens, room.prompts)
        terms = np.empty_like(away)
        # strength sum_t k(l_t), with l = log(pi/reference) at the policy that sampled (docs/derivations.md, section 16).
        self.estimator.kl.fill(away.reshape(-1, away.shape[2]), terms.reshape(-1, away.shape[2]))
        return self.problem.kl.strength * self.problem.policy.paths.along(terms.swapaxes(1, 2)).swapaxes(1, 2)

    def _norms(self, room: Room, policy: PolicyRoom, theta: Array) -> Array:
        """Return the squared lengths of scores (B, K, LANES); those of features that are learned are each run's own."""
        of_map, n, norms = self.problem.policy.logit_map, len(theta), np.full(policy.pi.shape, np.nan)
        maps = [of_map] if isinstance(of_map, LogitMap) else [of_map.at(one) for one in theta]
        own = np.stack([np.asarray(one.gram()) for one in maps])
        paths = self.problem.policy.paths
        for prompts, tokens, found in zip(room.prompts[:, :n], policy.tokens, norms, strict=True):
            gram = own[np.arange(n) if len(own) > 1 else 0, prompts]
            found[:, :n] = powers_of(paths.centre(paths.incidence, tokens[:, :n].T[:, None]), gram).T
        return norms

    def _known(self, room: Room, policy: PolicyRoom, penalties: Array, norms: Array) -> tuple[Array, Array, Array]:
        """Return true value, standard deviation and optimal baseline E[|W|^2 Z]/E|W|^2 of the prompts, (B, LANES) each."""
        bandit = self.problem.bandit
        variances = (bandit.probabilities * (bandit.values - bandit.mean_reward[..., None]) ** 2).sum(axis=-1)
        means = bandit.mean_reward[room.prompts].swapaxes(1, 2) - penalties
        value = (policy.pi * means).sum(axis=1)
        spread = variances[room.prompts].swapaxes(1, 2) + (means - value[:, None]) ** 2
        powers = policy.pi * norms
        with np.errstate(all="ignore"):
            power = np.maximum(powers.sum(axis=1), np.finfo(float).tiny)
            # b* = V + Cov(||W||^2, Z)/E||W||^2 (docs/derivations.md, section 3).
            baseline = value + (powers * (means - value[:, None])).sum(axis=1) / power
        return value, np.sqrt((policy.pi * spread).sum(axis=1)), baseline


MOST_HELD = 1 << 29
"""The numbers of the iterates that the runs of a block may hold because of a lag: 4 GiB."""
CALL_RESPONSES = 1 << 24
"""The responses that runs draw between looks at whether anybody still waits for them: a tenth of a second, about."""
VECTOR = 8
"""Numbers side by side in the longest vectors: lanes are made in so many."""
NONE = np.empty(0)
NO_TABLE = AdvantageTable(np.empty((0, 0, 0)), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


@dataclass(frozen=True, eq=False)
class Training:
    """What training runs have in common.

    Attributes
    ----------
    problem : Problem
    estimator : Estimator
    sizes : rollouts.StepSizes
    step_sizes : ndarray, shape (n,)
    optimiser : Optimiser
    ball : Ball or None
    keeps : bool
        Whether iterates are kept.
    """

    problem: Problem
    estimator: Estimator
    sizes: rollouts.StepSizes
    step_sizes: Array
    optimiser: Optimiser = SGD()
    ball: Ball | None = None
    keeps: bool = False
    kind: ClassVar[type["Runs"]]
    """The class of the runs."""

    @cached_property
    def world(self) -> rollouts.World:
        """What rollouts are drawn from."""
        return rollouts.world_of(self.problem, logit_rule(self.problem.policy, self.sizes.batch_size))

    @cached_property
    def settings(self) -> Array:
        """The optimiser's settings, checked."""
        return check_optimiser(self.optimiser)

    @cached_property
    def viewer(self) -> Viewer:
        """Shows groups to a kernel that is called."""
        return Viewer(self.problem, self.estimator, self.world)

    @cached_property
    def table(self) -> AdvantageTable | None:
        """The kernel's table over compositions, or None where it is called, because it reads more than rewards."""
        size = table_size(self.problem, self.estimator, self.sizes.group_size)
        if size is None or size > LARGEST_TABLE or self.estimator.advantage.reads & set(PROMPT_FIELDS):
            return None
        return reward_table(self.estimator, self.problem.bandit.values, [self.sizes.group_size])

    @cached_property
    def affine(self) -> Affine | None:
        """The kernel's affine form, where it has one and needs it: without a table, where signs need not be known."""
        known = self.table is not None or self.by_sign
        return None if known else affine_of(self.problem, self.estimator, self.sizes.group_size)

    @cached_property
    def gains(self) -> Array:
        """What tokens weigh on policy, shape (F, K, T, 1): one table where both signs have the same."""
        gains = gains_of(self.estimator, self.problem.policy.paths).swapaxes(0, 1)
        return np.ascontiguousarray(gains[:1] if np.array_equal(gains[0], gains[1]) else gains)

    def credits(self, theta: Array) -> Array:
        """Return the credits of tokens (M, K, T) at a policy, not a number where it is too far off for an exact law."""
        if not (np.abs(theta) <= self.problem.policy.largest_parameter).all():
            return np.full((self.problem.bandit.n_prompts, *self.problem.policy.paths.edges.shape), np.nan)
        return listed_credits(credited(self.problem.at(theta), self.estimator), self.estimator)

    @property
    def has_credits(self) -> bool:
        """Whether tokens have credits of their own."""
        return self.estimator.credit.name != "none"

    @property
    def by_sign(self) -> bool:
        """Whether positive and negative advantages are added up apart."""
        return (self.sizes.moves and not self.estimator.ratio.constant) or len(self.gains) == 2

    @property
    def scale(self) -> float:
        """What multiplies the sums over an update's responses."""
        return 1.0 / (self.sizes.n_updated * self.sizes.group_size)

    @property
    def hidden(self) -> LogitRule | None:
        """The logits' rule of a head or a network, which have hidden units; None of others."""
        return self.world.logits if self.world.logits.kind >= HEAD else None

    @cached_property
    def parts(self) -> tuple[Array, Any, Any, Any] | None:
        """The widths of the clip, and functions of ratio, clip and KL term; what no update calls are the simplest.

        None where there is one update on policy, of tokens that weigh the same whatever is drawn.
        """
        if not (self.weighing.moved or self.weighing.pool or len(self.weighing.drifts) or self.has_credits):
            return None
        ratio, clip = (self.estimator.ratio, self.estimator.clip) if self.weighing.by_ratio else (RATIOS["none"], CLIPS["none"])
        slope = self.estimator.kl if len(self.weighing.drifts) else KL_TERMS["k1 in loss"]
        return clip.widths, ratio.pointer, clip.pointer, slope.pointer

    @cached_property
    def weighing(self) -> rollouts.Weighing:
        """How advantages become weights of tokens."""
        estimator, kl, moved, drifts, reference = self.estimator, self.problem.kl, self.sizes.moves, NONE, np.empty((0, 0))
        shares, by_ratio = estimator.aggregation.shares(self.problem.policy.lengths), moved and not estimator.ratio.constant
        if kl is not None and estimator.kl.place == "loss":
            # The gradient of -strength k(l) with l = log(pi/reference) is -strength k'(l) times the logit gradient of the token.
            drifts, reference = -kl.strength * shares, np.array(self.problem.log_reference, order="C")
        pool = {"": 0, "group": 1, "batch": self.sizes.n_updated}[estimator.aggregation.pool]
        return rollouts.Weighing(moved, by_ratio, self.gains, shares, drifts, reference, pool, self.scale)

    def start(
        self, seed: np.random.SeedSequence, block: int, starts: Array, factors: Array = NONE, period: int = LANES
    ) -> "Runs":
        """Return the runs of a block at their starts (R, d), at most LANES.

        Their steps may have factors (R,).  Runs a period apart see the same words.
        """
        return self.kind(self, block_streams(seed, block), starts, factors, period)


def starting_points(problem: Problem, theta0: ArrayLike | None, replications: int) -> Array:
    """Return one start for each run, shape (R, d), the problem's own for None."""
    starts = problem.theta if theta0 is None else as_numbers("theta0", theta0)
    if starts.ndim < 2:
        return np.tile(problem.policy.check_theta(starts, "theta0"), (replications, 1))
    starts = as_real_array("theta0", starts, 2)
    check_shape("theta0", starts, (replications, problem.policy.dimension), "(replications, d)")
    return starts


def checked_sizes(
    problem: Problem, estimator: Estimator, sizes: tuple[int, ...], optimiser: Optimiser, ball: Ball | None
) -> rollouts.StepSizes:
    """Check what defines training runs; return the sizes: B, G and, if given, updates a rollout and lag."""
    if ball is not None and not isinstance(ball, Ball):
        raise TypeError(f"ball must be a Ball(centre, radius) or None, got {ball!r}")
    found = rollouts.StepSizes(*as_sizes(*sizes[:2]), *sizes[2:])
    estimator.check_defined(found.group_size, problem.bandit.values, problem.policy.lengths)
    check_optimiser(optimiser)
    if found.batch_size % found.updates:
        raise ValueError(f"inner_steps must divide batch_size = {found.batch_size}, got {found.updates}")
    if found.lag > (most := max(0, MOST_HELD // (LANES * problem.policy.dimension) - 1)):
        raise ValueError(
            f"lag must be at most {most:,} for a policy of {problem.policy.dimension:,} parameters, because so many iterates of "
            f"each run are held in memory, got {found.lag:,}"
        )
    check_penalty(problem.kl, estimator)
    if estimator.credit.continuations:
        raise ValueError(
            f"estimator {estimator.name!r} must have credits of exact values in training runs, which draw no continuations: "
            "take credit.with_continuations(0), or gt.mean_path for its mean path"
        )
    return found


def make_training(
    problem: Problem,
    estimator: Estimator,
    step_sizes: Array,
    sizes: tuple[int, ...],
    optimiser: Optimiser = SGD(),
    ball: Ball | None = None,
    *,
    keeps: bool = False,
) -> Training:
    """Check what defines training runs, and return it; sizes are those of `StepSizes`, in its order."""
    checked = checked_sizes(problem, estimator, sizes, optimiser, ball)
    training = Training(problem, estimator, checked, step_sizes, optimiser, ball, keeps)
    _ = training.settings, training.world, training.table  # tabulated before the first thread starts
    _ = training.affine, training.weighing, training.parts
    return training


class Runs:
    """The runs of a block on their way.

    Words are drawn for a whole block, and rollout by rollout.  So no number depends on how many runs are wanted, on their length
    or on checkpoints.

    Attributes
    ----------
    count : int
        The number of updates made.
    lanes : int
        The runs side by side, those wanted and some more to fill vectors: LANES in the shapes of their arrays.
    looks : ndarray of int64, shape (B, LANES)
        How groups look to the kernel's table: 0, or the responses of each where these differ.
    record : Record or None
        What is kept of rollouts; None unless it is set before the first.
    one_by_one : bool
        Whether each rollout is looked at before the next is drawn, which compiled code does not wait for.
    """

    one_by_one = False

    def __init__(self, training: Training, streams: Streams, starts: Array, factors: Array, period: int) -> None:
        self.training, self.streams, self.n, self.count = training, streams, len(starts), 0
        self.lanes = lanes = -(-self.n // VECTOR) * VECTOR
        sizes, world, policy = training.sizes, training.world, training.problem.policy
        self._alone, n_moments, steps = world.logits.kind == HEAD, training.optimiser.n_moments, len(training.step_sizes)
        side = 0 if self._alone else lanes
        self.state = make_state(starts, factors, n_moments, steps, lanes=side, lag=sizes.lag, keeps=training.keeps)
        wants_logs = training.problem.kl is not None or training.weighing.by_ratio
        called = training.table is None and training.affine is None
        rows = rows_needed(policy, world.logits)
        self.room = rollouts.make_room(world, (sizes.batch_size, sizes.group_size), rows, lanes, in_order=called)
        self.policy = rollouts.make_policy_room((sizes.batch_size, lanes), world, policy.n_logits, wants_logs=wants_logs)
        now = self.policy
        if sizes.moves:
            shape = sizes.n_updated, lanes
            now = rollouts.make_policy_room(shape, world, policy.n_logits, wants_logs=wants_logs, samples=False)
        self.sums = np.zeros((sizes.batch_size, 1 + training.by_sign, policy.n_responses, lanes))
        logit_gradients = np.zeros((sizes.n_updated, policy.n_logits, lanes))
        own = rollouts.Lanes(self.n, period, streams, np.arange(lanes))
        spare, made = make_spare(training.problem.bandit.values.size, lanes), (self.room, self.policy, now, self.sums)
        self._work = rollouts.Work(own, *made, logit_gradients, spare)
        ball = np.empty(0) if training.ball is None else training.ball.as_array(policy)
        kind = {SGD: rollouts.PLAIN, Adam: rollouts.ADAPTIVE}.get(type(training.optimiser), rollouts.OWN)
        moves = rollouts.Moves(kind, training.settings, training.step_sizes, ball, self._alone)
        table = training.table or NO_TABLE
        self._rule = rollouts.Rule(world, sizes.group_size, table, training.by_sign, training.weighing, moves)
        self._memories = np.repeat(training.estimator.remembered(policy.n_prompts).T[None], lanes, axis=0)
        self.record: Record | None = None
        self.looks = np.zeros((sizes.batch_size, lanes), dtype=np.int64)

    def _by_run(self, array: Array) -> Array:
        return array.copy() if self._alone else np.ascontiguousarray(array[:, : self.n].T)

    @property
    def theta(self) -> Array:
        """The iterates, shape (R, d)."""
        return self._by_run(self.state.theta)

    @property
    def average(self) -> Array:
        """The averages of the iterates so far, shape (R, d)."""
        return self._by_run(self.state.average if self.count else self.state.theta)

    @property
    def farthest(self) -> Array:
        """The largest distance of an iterate from the start, shape (R,)."""
        return np.sqrt(self.state.farthest[: self.n])

    def advance(self, count: int) -> None:
        """Make updates until there have been so many."""
        training, sizes = self.training, self.training.sizes
        # Rollouts follow each other in compiled code where nothing is called.
        summed = training.table is not None or training.affine is not None
        if summed and self._rule.moves.kind != rollouts.OWN and not (self.one_by_one or training.has_credits):
            at_once = max(1, CALL_RESPONSES // (LANES * sizes.batch_size * sizes.group_size)) * sizes.updates
            given = training.hidden, training.affine, training.parts, self.record
            while self.count < count:
                check_wanted()
                span = self.count, min(count, self.count + at_once)
                self.count = rollouts.train(self._rule, *given, span, self._work, self.state)
        while self.count < count:
            check_wanted()
            self._roll_out()

    def _roll_out(self) -> None:
        """Draw a rollout, and make the updates that it serves."""
        training, sizes, world, credits = self.training, self.training.sizes, self.training.world, None
        logits, hidden, room = world.logits, training.hidden, self.room
        sampler = sampling_iterate(self.state.theta, self.state.past, self.count // sizes.updates)
        rollouts.draw_prompts(world.prompts, sizes.group_size, self.streams, self._work.lanes.period, room)
        rollouts.fill_policy(logits, hidden, sampler, room.prompts, self.n, room.scratch, self.policy)
        if self.one_by_one:
            self.share_out()
        rollouts.draw_outcomes(world, sizes.group_size, room, self.policy)
        if self.record is not None:
            keep_rollout(logits, self.record, self.count, room, self.policy)
        self.sum_advantages(sampler)
        if training.has_credits:
            credits = np.stack([training.credits(one) for one in self._by_run(sampler)])
        theta, gradient, moments = self.state.theta, self.state.gradient, self.state.moments
        if self._alone:  # a move of a user's own sees columns of runs, however they are kept
            theta, gradient, moments = theta.T, gradient.T, moments.swapaxes(1, 2)
        for first in range(0, sizes.batch_size, sizes.n_updated):
            self.count += 1
            rollouts.update(self._rule, hidden, training.parts, credits, first, self.count, self._work, self.state)
            if (moves := self._rule.moves).kind == rollouts.OWN:
                step_size, distances = moves.step_sizes[self.count - 1], room.scratch.rows[3, : len(self.state.farthest)]
                compiled(training.optimiser.move)(theta, gradient, moments, moves.settings, step_size, self.count)
                follow(self.state, moves.ball, self._alone, self.count, distances)

    def share_out(self) -> None:
        """Decide how many responses each group gets, where this is not the same for all."""

    def sum_advantages(self, sampler: Array) -> None:
        """Add up the advantages of the rollout by response."""
        training, room = self.training, self.room
        if training.affine is not None:
            sum_affine(training.world.logits, training.affine, room, self.policy, self.sums)
        elif training.table is not None:
            sum_tabulated(training.table, self.looks, room.counts, training.by_sign, self._work.spare, self.sums)
        else:
            advantages = training.viewer.advantages(room, self.policy, self._by_run(sampler), self._memories)
            sum_called(advantages, training.world.n_values, room.ordered, training.by_sign, self.sums)


Training.kind = Runs
