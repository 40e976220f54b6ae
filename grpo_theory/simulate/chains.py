"""Gradient estimates and training runs on chains, whose responses are drawn token by token.

Every response has a stream of its own (SFC64), keyed by the seed, the number of its replication or run, and its own number there.
So what is drawn depends neither on who draws it nor on how long other responses are.  Estimators that are compared see the same
uniforms.
Tokens are drawn by alias tables, so that each takes one uniform and no search; their chances are exact to V 2^-53.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grpo_theory.estimation import Estimator
from grpo_theory.estimation.kernel import PROMPT_FIELDS
from grpo_theory.estimation.registry import check_penalty, gains_of_response
from grpo_theory.exact import score_moments
from grpo_theory.exact.derivatives import on_chain
from grpo_theory.exact.multisets import advantages_of
from grpo_theory.jit import compiled, kernel
from grpo_theory.problem import ChainPoint
from grpo_theory.problem.chain_point import TokenCredits
from grpo_theory.simulate.advantages import remembering
from grpo_theory.simulate.ascents import Training
from grpo_theory.simulate.draws import check_wanted, fill_aliases
from grpo_theory.simulate.optimisers import follow, make_state, sampling_iterate
from grpo_theory.validation import Array, Integers

WARM_UP = 24
"""Rounds after which streams that began one apart have nothing in common."""
_U11, _U3, _U24, _U40, _ONE = (np.uint64(number) for number in (11, 3, 24, 40, 1))
by_token = lru_cache(maxsize=64)(score_moments.by_token)
NO_ERRORS = np.empty((0, 0))


class Chances(NamedTuple):
    """What responses are drawn from.

    Prompts and rewards are drawn by the sums of their laws, see `sums_of`; tokens by the alias table of their state.

    Attributes
    ----------
    prompts : ndarray, shape (M,)
    starts : ndarray of int64, shape (M,)
        V times the state in which the response to each prompt begins.
    thresholds : ndarray, shape (D,)
        D = S V edges, the pairs of a state and a token.
    choices : ndarray of int64, shape (D, 2)
        The edge that is taken below the threshold, and the one from there on.
    leads : ndarray of int64, shape (D, 2)
        V times the state after each edge, and whether a response ends with it.
    rewards : ndarray, shape (S, L)
        By the state in which a response ends.
    values : ndarray, shape (L,)
    """

    prompts: Array
    starts: Integers
    thresholds: Array
    choices: Integers
    leads: Integers
    rewards: Array
    values: Array


class Walks(NamedTuple):
    """Groups of responses that were drawn, one after another: n groups of G are N = n G responses.

    Attributes
    ----------
    prompts : ndarray of int64, shape (n,)
    edges : ndarray of int32, shape (N, T)
        The number s V + v of each token v in a state s; of no meaning beyond the response's end.
    lengths : ndarray of int64, shape (N,)
    rewards : ndarray, shape (N,)
    """

    prompts: Integers
    edges: NDArray[np.int32]
    lengths: Integers
    rewards: Array

    def groups(self, first: int, stop: int) -> "Walks":
        """Return the groups from one on to before another, as views."""
        size = self.lengths.size // self.prompts.size
        own = slice(first * size, stop * size)
        return Walks(self.prompts[first:stop], self.edges[own], self.lengths[own], self.rewards[own])


def make_walks(n_groups: int, group_size: int, horizon: int) -> Walks:
    """Make room for so many groups."""
    n = n_groups * group_size
    edges = np.zeros((n, horizon), dtype=np.int32)
    return Walks(np.zeros(n_groups, dtype=np.int64), edges, np.ones(n, dtype=np.int64), np.zeros(n))


def sums_of(law: Array) -> Array:
    """Return the sums of laws (..., n) up to each point, infinite from the last on that has a chance."""
    below = np.cumsum(law, axis=-1)
    after = np.flip(np.cumsum(np.flip(law, -1), axis=-1), -1)
    below[..., :-1][after[..., 1:] == 0.0] = np.inf
    below[..., -1] = np.inf
    return below


def chances_of(point: ChainPoint) -> Chances:
    """Return what the responses to a problem are drawn from at a point."""
    chain, rewards = point.policy, point.bandit
    n_tokens, nexts = chain.vocabulary_size, np.where(chain.transitions < 0, 0, chain.transitions)
    thresholds, choices = np.empty(chain.n_logits), np.empty((chain.n_logits, 2), dtype=np.int64)
    fill_aliases(point.state_probabilities, thresholds, choices)
    return Chances(
        prompts=sums_of(rewards.prompt_weights),
        starts=chain.starts * n_tokens,
        thresholds=thresholds,
        choices=choices,
        leads=np.stack([nexts.ravel() * n_tokens, chain.ends.ravel()], axis=1),
        rewards=sums_of(rewards.state_probabilities),
        values=rewards.values,
    )


@kernel
def turn(a, b, c, counter):
    """Return the next word of a stream, and its state then (SFC64: Doty-Humphrey, PractRand)."""
    word = a + b + counter
    return word, b ^ (b >> _U11), c + (c << _U3), ((c << _U24) | (c >> _U40)) + word, counter + _ONE


@kernel
def first_above(sums, u):
    """Return the first place whose sum is above u; the last sum is infinite."""
    place = 0
    while sums[place] <= u:
        place += 1
    return place


@kernel
def draw_walks(words, number, first, batch, chances, walks):
    """Draw groups of responses, `batch` responses for each replication.

    Replications are numbered from `number` on, and the responses of each from `first` on.  `words` (3,) are a seed's.
    """
    n, horizon = walks.edges.shape
    group_size, n_tokens = n // walks.prompts.shape[0], chances.thresholds.shape[0] // chances.rewards.shape[0]
    unit, prompt = 1.0 / 9007199254740992.0, 0
    for i in range(n):
        a, b, c = words[0], words[1] + np.uint64(first + i % batch), words[2] + np.uint64(number + i // batch)
        counter = _ONE
        for _ in range(WARM_UP):
            word, a, b, c, counter = turn(a, b, c, counter)
        if i % group_size == 0:
            word, a, b, c, counter = turn(a, b, c, counter)
            prompt = first_above(chances.prompts, (word >> _U11) * unit)
            walks.prompts[i // group_size] = prompt
        state, length = chances.starts[prompt], 0
        while length < horizon:
            word, a, b, c, counter = turn(a, b, c, counter)
            # x = V u: the column is floor(x), and its own edge is taken if x - floor(x) is below the threshold (Walker 1977).
            x = np.int64(word >> _U11) * (n_tokens * unit)
            place = np.int64(x)
            edge = chances.choices[state + place, np.int64(x - place >= chances.thresholds[state + place])]
            walks.edges[i, length] = edge
            length += 1
            state = chances.leads[edge, 0]
            if chances.leads[edge, 1] != 0:
                break
        walks.lengths[i] = length
        word, a, b, c, counter = turn(a, b, c, counter)
        walks.rewards[i] = chances.values[first_above(chances.rewards[state // n_tokens], (word >> _U11) * unit)]


def seen(walks: Walks, sampler: ChainPoint, reads: Iterable[str]) -> list[Array]:
    """Return what kernels that read these fields may read of groups that were drawn at a point, for `Advantage.run`."""
    reads, n_groups = set(reads), walks.prompts.size
    shape = n_groups, walks.lengths.size // n_groups
    norms, fields = np.full(shape, np.nan), [np.full(n_groups, np.nan) for _ in PROMPT_FIELDS]
    if "squared_score_norms" in reads:
        for b in range(n_groups):
            own, ones = walks.groups(b, b + 1), np.ones(shape[1])
            counts = np.zeros((shape[1], sampler.policy.n_logits))
            add_tabulated(own, ones, np.ones((2, counts.shape[1])), ones > 0.0, counts)
            norms[b] = np.maximum((sampler.tangent.vectors(sampler.centred(counts)) ** 2).sum(axis=-1), 0.0)
    if reads & set(PROMPT_FIELDS):
        fields = [known[walks.prompts] for known in sampler.moments.known_to_oracles]
    logs = np.full(shape, np.nan)
    if "log_probabilities" in reads:
        taken = np.arange(walks.edges.shape[1]) < walks.lengths[:, None]
        of_edge = np.log(sampler.state_probabilities).ravel()
        logs = np.where(taken, of_edge[np.where(taken, walks.edges, 0)], 0.0).sum(axis=1).reshape(shape)
    return [walks.rewards.reshape(shape), norms, walks.lengths.reshape(shape), logs, *fields]


def advantages_in(estimator: Estimator, fields: list[Array], batch_size: int) -> Array:
    """Return the advantages of groups, shape (n, G): of all at once, unless the kernel couples those of a batch.

    Raises
    ------
    ValueError
        If the kernel leaves a value that is not finite.
    """
    if not estimator.advantage.couples_groups:
        return advantages_of(estimator.advantage, fields)
    firsts = range(0, len(fields[0]), batch_size)
    return np.concatenate([advantages_of(estimator.advantage, [one[b : b + batch_size] for one in fields]) for b in firsts])


@dataclass(frozen=True, eq=False)
class ChainWeights:
    """The weights of an estimator's tokens at one point, for responses drawn at another; made by `chain_weights`.

    Attributes
    ----------
    estimator : Estimator
    current : ChainPoint
    shares : ndarray, shape (T + 1,)
        The weight of a response's tokens, by its length.
    gains : ndarray, shape (2, D), or None
        The factor that the ratio and the clip give each edge, for positive advantages and for others.  None if a token's weight
        depends on the other tokens of its response.
    log_ratios : ndarray, shape (D,)
        Logs of the edges' ratios.
    credits : TokenCredits or None
    """

    estimator: Estimator
    current: ChainPoint
    shares: Array
    gains: Array | None
    log_ratios: Array
    credits: TokenCredits | None

    def logit_gradients(self, walks: Walks, advantages: Array, batch_size: int, errors: Array = NO_ERRORS) -> Array:
        """Return the estimates of groups as logit gradients, shape (n, D), for advantages (n, G) and batches of some groups.

        Errors (N, T) are those of the values before the tokens.
        """
        n_groups, group_size = advantages.shape
        weights = np.zeros((n_groups, self.current.policy.n_logits))
        # a(L)/G for each token; pooled, 1/(tokens of the group) or B/(tokens of the batch) (docs/derivations.md, section 16).
        scales = self.shares[walks.lengths] / group_size
        pool = {"": 0, "group": 1, "batch": batch_size}[self.estimator.aggregation.pool] * group_size
        if pool:
            scales = scales * np.repeat(pool / walks.lengths.reshape(-1, pool).sum(axis=1), pool)
        factors, positive = advantages.ravel() * scales, advantages.ravel() > 0.0
        if self.gains is not None:
            add_tabulated(walks, factors, self.gains, positive, weights)
        else:
            clip = self.estimator.clip
            add = adding_anew(compiled(self.estimator.ratio.function), compiled(clip.function))
            add(clip.widths, self.log_ratios, walks, factors, positive, weights)
        if self.credits is not None:
            steps = self.credits.steps.reshape(len(self.credits.steps), -1)
            add_credited(walks, scales, steps, self.credits.decay, errors, self.gains, weights)
        # sum_t w_t (e_(s,v) - p(.|s)) = E - P(E), with P(E) the sum of E in a state, times p (docs/derivations.md, section 15).
        return self.current.centred(weights)


def chain_weights(estimator: Estimator, current: ChainPoint, sampler: ChainPoint, log_ratios: Array) -> ChainWeights:
    """Return what the tokens of an estimator weigh at a point, for the logs of their ratios (S, V) there.

    Credits are taken at the point of the policy that samples.

    Raises
    ------
    ValueError
        If the estimator has a KL term in the loss.
    """
    check_penalty(current.kl, estimator)
    ratios = np.zeros(log_ratios.size) if estimator.ratio.constant else np.ascontiguousarray(log_ratios).ravel()
    gains = gains_of_response(estimator, ratios[None], compiled=True)[:, 0] if by_token(estimator) else None
    credits = None if estimator.credit.name == "none" else score_moments.token_credits(sampler, estimator)
    if gains is None and credits is not None:
        raise ValueError(f"estimator {estimator.name!r} must weigh each token by its own ratio to have credits on a TokenChain")
    return ChainWeights(estimator, current, score_moments.shares_by_length(estimator, current.policy), gains, ratios, credits)


@kernel
def add_tabulated(walks, factors, gains, positive, weights):
    """Add to weights of edges (n, D), each of as many responses, those of tokens: a response's factor times an edge's gain."""
    together = factors.shape[0] // weights.shape[0]
    for i in range(factors.shape[0]):
        factor, sign, row = factors[i], 0 if positive[i] else 1, i // together
        if factor == 0.0:
            continue
        for t in range(walks.lengths[i]):
            edge = walks.edges[i, t]
            weights[row, edge] += factor * gains[sign, edge]


@kernel
def add_credited(walks, scales, steps, decay, errors, gains, weights):
    """Add to weights of edges (n, D) those of tokens' credits, as `add_tabulated` adds those of responses' advantages."""
    together = scales.shape[0] // weights.shape[0]
    for i in range(scales.shape[0]):
        ahead = 0.0
        for t in range(walks.lengths[i] - 1, -1, -1):
            edge, error = walks.edges[i, t], errors[i, t] if errors.size else 0.0
            # A_t = d_t + e_{t+1} - e_t + l A_{t+1} (docs/derivations.md, section 15.1).
            credit = steps[t, edge] + ahead - error
            ahead = error + decay * credit
            weights[i // together, edge] += scales[i] * gains[0 if credit > 0.0 else 1, edge] * credit


@lru_cache
def adding_anew(fill_ratios: Callable, fill_weights: Callable) -> Callable:
    """Return what does what `add_tabulated` does where ratio and clip look at the tokens of a response together."""

    @kernel
    def add_anew(widths, log_ratios, walks, factors, positive, weights):
        horizon, together = walks.edges.shape[1], factors.shape[0] // weights.shape[0]
        along, ratios, own = np.empty((horizon, 1)), np.empty((horizon, 1)), np.empty((horizon, 1))
        for i in range(factors.shape[0]):
            factor, length, row = factors[i], walks.lengths[i], i // together
            if factor == 0.0:
                continue
            for t in range(length):
                along[t, 0] = log_ratios[walks.edges[i, t]]
            # r_t of all l_s of the response, exp(sum_s l_s) say, and what the clip makes of it (docs/derivations.md, section 16).
            fill_ratios(along, length, ratios)
            fill_weights(ratios, length, positive[i], widths, own)
            for t in range(length):
                weights[row, walks.edges[i, t]] += factor * own[t, 0]

    return add_anew


DRAW_TOKENS = 1 << 15
"""The tokens that are drawn at once, unless one replication has more."""


@dataclass(frozen=True, eq=False)
class ChainGradients:
    """Estimators on the same draws, and what they are compared with.

    Attributes
    ----------
    current, sampler : ChainPoint
        Where the gradient is estimated, and where responses are drawn.
    weights : list of ChainWeights
        What the tokens of each of E estimators weigh.
    chances : Chances
    sizes : (int, int)
        B prompts, G responses each.
    directions : ndarray, shape (J, d)
    words : ndarray of uint64, shape (3,)
        Of the seed.
    """

    current: ChainPoint
    sampler: ChainPoint
    weights: list[ChainWeights]
    chances: Chances
    sizes: tuple[int, int]
    directions: Array
    words: NDArray[np.unsignedinteger]

    def observations(self, number: int, replications: int) -> Array:
        """Return the observations of replications from a number on, shape (E, 4 + J, R); see `GradientSimulation.means`."""
        tokens = self.sizes[0] * self.sizes[1] * self.current.policy.horizon
        at_once = max(1, DRAW_TOKENS // tokens)  # fixed by their shape, as the last bits of sums depend on it
        rows = [self.observe(number + done, at_once) for done in range(0, replications, at_once)]
        return np.concatenate(rows, axis=2)[:, :, :replications]

    def observe(self, number: int, replications: int) -> Array:
        """Return the observations of replications that are drawn at once."""
        (batch_size, group_size), moments = self.sizes, self.current.target
        walks = make_walks(replications * batch_size, group_size, self.current.policy.horizon)
        draw_walks(self.words, number, 0, batch_size * group_size, self.chances, walks)
        batch = seen(walks, self.sampler, {name for one in self.weights for name in one.estimator.advantage.reads})
        rows = []
        # What is beyond double precision is found at the end, and said in the reader's words.
        with np.errstate(over="ignore", invalid="ignore"):
            for own in self.weights:
                of_values = NO_ERRORS
                if own.credits is not None and (draws := own.estimator.credit.continuations):
                    # The mean of so many rewards drawn anew from each state, less their mean; the same for all estimators.
                    states, values = walks.edges // self.current.policy.vocabulary_size, self.sampler.bandit.values
                    law = own.credits.law[np.arange(states.shape[1]), states]
                    law /= np.maximum(law.sum(axis=-1, keepdims=True), 0.5)
                    generator = np.random.Generator(np.random.SFC64([*self.words.tolist(), number]))
                    of_values = (generator.multinomial(draws, law) / draws - law) @ values
                shown = [*batch, *own.estimator.remembered(self.current.policy.n_prompts)[:, walks.prompts]]
                advantages = advantages_in(own.estimator, shown, batch_size)
                logit_gradients = own.logit_gradients(walks, advantages, batch_size, of_values)
                vectors = self.current.tangent.vectors(logit_gradients)
                apart = ((vectors - moments.prompt_gradients[walks.prompts]) ** 2).sum(axis=1)
                # ghat = (1/B) sum_b Phi' c_b, with ||ghat - g||^2, ||ghat||^2 and g . ghat (docs/derivations.md, section 37).
                estimates = vectors.reshape(-1, batch_size, vectors.shape[1]).sum(axis=1) / batch_size
                errors = ((estimates - moments.gradient) ** 2).sum(axis=1)
                power, gain = (estimates**2).sum(axis=1), (estimates * moments.gradient).sum(axis=1)
                along = [(estimates * direction).sum(axis=1) for direction in self.directions]
                rows.append(np.stack([errors, apart.reshape(-1, batch_size).sum(axis=1) / batch_size, power, gain, *along]))
                if not np.isfinite(rows[-1]).all():
                    raise ValueError(
                        "behaviour must be so near to theta that the importance ratios of estimator "
                        f"{own.estimator.name!r} have squares within double precision. Over responses of up to "
                        f"{self.current.policy.horizon} tokens they have not"
                    )
        return np.stack(rows)


def chain_gradients(
    current: ChainPoint,
    sampler: ChainPoint,
    estimators: list[Estimator],
    sizes: tuple[int, int],
    directions: Array,
    words: NDArray[np.unsignedinteger],
) -> ChainGradients:
    """Tabulate estimators at a current policy and the one that samples."""
    log_ratios = np.zeros(current.state_probabilities.shape)
    if current is not sampler and not all(one.ratio.constant for one in estimators):
        log_ratios = score_moments.token_log_ratios(current, sampler)
    weights = [chain_weights(estimator, current, sampler, log_ratios) for estimator in estimators]
    _ = current.target.prompt_gradients, sampler.moments  # tabulated before the first thread starts
    return ChainGradients(current, sampler, weights, chances_of(sampler), sizes, directions, words)


class ChainRun:
    """One run on its way, in a `State` of its own."""

    def __init__(self, training: Training, seed: np.random.SeedSequence, number: int, start: Array) -> None:
        self.training, self.words, self.number, self.count = training, seed.generate_state(3, np.uint64), number, 0
        sizes, policy = training.sizes, training.problem.policy
        self.state = make_state(start, np.empty(0), training.optimiser.n_moments, 0, lanes=0, lag=sizes.lag, keeps=False)
        self._memory = training.estimator.remembered(policy.n_prompts).T[None].copy()
        self._ball = np.empty(0) if training.ball is None else training.ball.as_array(policy)
        self._walks = make_walks(sizes.batch_size, sizes.group_size, on_chain(training.problem, start[0]).policy.horizon)

    @property
    def theta(self) -> Array:
        """The iterate, shape (1, d)."""
        return self.state.theta.copy()

    @property
    def average(self) -> Array:
        """The average of the iterates so far, shape (1, d)."""
        return self.state.average.copy() if self.count else self.theta

    @property
    def farthest(self) -> Array:
        """The largest distance of an iterate from the start, shape (1,)."""
        return np.sqrt(self.state.farthest)

    def advance(self, count: int) -> None:
        """Make updates until there have been so many, rollout by rollout."""
        # A run that leaves the finite numbers goes on as NaN, without a warning at each step.
        with np.errstate(all="ignore"):
            while self.count < count:
                if not np.isfinite(self.state.theta).all():
                    self.state.theta[:] = self.state.average[:] = np.nan
                    self.count = count
                    return
                check_wanted()
                self._roll_out()

    def _roll_out(self) -> None:
        """Draw a rollout, from the policy of so many rollouts ago as they lag, and make the updates that it serves."""
        training, sizes = self.training, self.training.sizes
        batch, rollout = sizes.batch_size * sizes.group_size, self.count // sizes.updates
        sampler = on_chain(training.problem, sampling_iterate(self.state.theta, self.state.past, rollout)[0].copy())
        first = rollout * batch
        draw_walks(self.words, self.number, first, batch, chances_of(sampler), self._walks)
        kind, prompts = training.estimator.advantage, self._walks.prompts
        shown = [*seen(self._walks, sampler, kind.reads), *self._memory[0, prompts].T]
        advantages = advantages_in(training.estimator, shown, sizes.batch_size)
        if kind.memory:
            remembering(kind.memory.function)(prompts[:, None], shown[0][None], kind.parameter_array, self._memory)
        for update in range(sizes.updates):
            own = slice(update * sizes.n_updated, (update + 1) * sizes.n_updated)
            current = on_chain(training.problem, self.theta[0]) if update or sizes.lag else sampler
            self._update(current, sampler, self._walks.groups(own.start, own.stop), advantages[own])

    def _update(self, current: ChainPoint, sampler: ChainPoint, walks: Walks, advantages: Array) -> None:
        training = self.training
        # A token that was never sampled is on no response, so that its ratio does not matter.
        away = current.state_log_probabilities - sampler.state_log_probabilities
        # w_t = share_t clip(r_t), by l_t = log(pi/pi_0) of its edge (docs/derivations.md, section 16).
        weigh = chain_weights(training.estimator, current, sampler, np.where(sampler.state_probabilities > 0.0, away, 0.0))
        logit_gradients = weigh.logit_gradients(walks, advantages, len(advantages))
        state, self.count = self.state, self.count + 1
        # ghat = (1/B') Phi' sum_b c_b, and theta_i = theta_{i-1} + eta_i ghat (Algorithms 1 and 2 of arXiv 2603.01162).
        state.gradient[0] = current.tangent.vectors(logit_gradients.sum(axis=0)[None])[0] / len(advantages)
        step, columns = training.step_sizes[self.count - 1], (state.theta.T, state.gradient.T, state.moments.swapaxes(1, 2))
        compiled(training.optimiser.move)(*columns, training.settings, float(step), self.count)
        follow(state, self._ball, True, self.count, np.empty(1))
