"""A chain with its rewards at a parameter: score moments by reward, carried from token to token.

A response is a walk s_0, v_0, s_1, ... through the states.  Each token has a weight k(s, v), its probability say, and adds F
vectors x_f(s, v).  A response of length L that ends in state s counts for `shares[L] * law[s, r]` towards reward value r.

Let X_f be the sum of the vectors that are still to come.  Three sums over all continuations are carried back from the end, from
state to state.  They are the sums of the weight, of the weight times X_f, and of the weight times <X_f, X_g>
(docs/derivations.md, section 15).  So a thousand tokens cost a thousand times what one costs.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from grpo_theory.jit import inlined, kernel
from grpo_theory.problem.chain import StateRewards, TokenChain
from grpo_theory.problem.logits import SharedMap, closed, complements, less_mean
from grpo_theory.problem.point import Moments, Point
from grpo_theory.validation import Array, Flags, Integers, cached_array, check_room, read_only


class Walk(NamedTuple):
    """Where tokens lead, and what a response counts for.

    Attributes
    ----------
    nexts, ends : ndarray of int64, shape (S, V)
        The state after each token, and whether a response ends with it.
    weights : ndarray, shape (S, V)
        k.
    shares : ndarray, shape (T + 1,)
        By the response's length.
    law : ndarray, shape (S, R)
        By the state in which it ends.
    """

    nexts: Integers
    ends: Integers
    weights: Array
    shares: Array
    law: Array

    @property
    def goes_on(self) -> Array:
        """The weights of the tokens after which a response goes on, unless it has reached the horizon, (S, V); 0 of others."""
        return np.where(self.ends != 0, 0.0, self.weights)


class SuffixSums(NamedTuple):
    """Sums over the continuations of all responses.

    Attributes
    ----------
    mass : ndarray, shape (T, S, R)
        Sums of the weights, when t tokens have been drawn and the state is s.
    mean : ndarray, shape (S, R, F, W)
        Sums of the weight times X_f, from the first token on.
    product : ndarray, shape (S, R, F, F)
        Sums of the weight times <X_f, X_g>, from the first token on.
    """

    mass: Array
    mean: Array
    product: Array


@inlined
def to_come(walk, mass, t, s, v, r):
    """Return what a response counts for towards a reward after a token as its t-th, for the sums from all tokens on."""
    now = t == mass.shape[0] or walk.ends[s, v] != 0
    return walk.shares[t] * walk.law[walk.nexts[s, v], r] if now else mass[t, walk.nexts[s, v], r]


@kernel
def all_to_come(walk, mass, t):
    """Return what a response counts for after each token as its t-th, shape (S, V, R)."""
    (n_states, n_tokens), n_rewards = walk.weights.shape, walk.law.shape[1]
    found = np.empty((n_states, n_tokens, n_rewards))
    for s in range(n_states):
        for v in range(n_tokens):
            for r in range(n_rewards):
                found[s, v, r] = to_come(walk, mass, t, s, v, r)
    return found


@kernel
def carry_back(walk, mass, t, vectors, inner, offsets, mean, product):
    """Return the means (S, W, R, F) and products (S, R, F, F) from the t-th token on, from those after it."""
    (n_features, n_states, n_tokens, size), n_rewards = vectors.shape, walk.law.shape[1]
    means, products = np.zeros_like(mean), np.zeros_like(product)
    # M_t = sum_v k [x_f H' + M_f'] and Q_t = sum_v k [<x_f, x_g> H' + <x_f, M_g'> + <x_g, M_f'> + Q'], with H', M' and Q' what
    # is to come after the token (docs/derivations.md, section 15.1).
    for s in range(n_states):
        own_mean, own_product = means[s].reshape(-1), products[s].reshape(-1)
        for v in range(n_tokens):
            after, goes_on = walk.nexts[s, v], 0.0 if walk.ends[s, v] != 0 else walk.weights[s, v]
            if goes_on != 0.0:
                later_mean, later_product = mean[after].reshape(-1), product[after].reshape(-1)
                for i in range(own_mean.size):
                    own_mean[i] += goes_on * later_mean[i]
                for i in range(own_product.size):
                    own_product[i] += goes_on * later_product[i]
            for r in range(n_rewards):
                weight = walk.weights[s, v] * to_come(walk, mass, t, s, v, r)
                for f in range(n_features):
                    for i in range(size):
                        means[s, offsets[s] + i, r, f] += weight * vectors[f, s, v, i]
                    for g in range(n_features):
                        crossed = 0.0
                        for i in range(size):
                            crossed += vectors[f, s, v, i] * mean[after, offsets[s] + i, r, g]
                        products[s, r, f, g] += weight * inner[s, v, f, g] + goes_on * crossed
                        products[s, r, g, f] += goes_on * crossed
    return means, products


def suffix_sums_back(
    walk: Walk, mass: Array, vectors: Array, offsets: Integers, width: int
) -> Iterator[tuple[int, Array, Array]]:
    """Yield each token's number, from the last on, with the means (S, W, R, F) and products (S, R, F, F) from there on."""
    (n_states, n_rewards), n_features, offsets = walk.law.shape, len(vectors), np.ascontiguousarray(offsets)
    vectors = np.ascontiguousarray(vectors)
    inner = np.ascontiguousarray(np.einsum("fsvi,gsvi->svfg", vectors, vectors))
    mean = np.zeros((n_states, width, n_rewards, n_features))
    product = np.zeros((n_states, n_rewards, n_features, n_features))
    for t in range(len(mass), 0, -1):
        mean, product = carry_back(walk, mass, t, vectors, inner, offsets, mean, product)
        yield t, mean, product


@kernel
def chances_to_come(walk):
    """Return the sums of the weights alone, shape (T, S, R): see `SuffixSums.mass`."""
    (n_states, n_tokens), n_rewards, horizon = walk.weights.shape, walk.law.shape[1], walk.shares.size - 1
    mass = np.zeros((horizon, n_states, n_rewards))
    for t in range(horizon, 0, -1):
        # H_{t-1}(s, z) = sum_v k(s, v) H', with H' = a(t) P(Z = z | s') where the response ends with v, else H_t(s', z)
        # (docs/derivations.md, section 15.1).
        for s in range(n_states):
            for v in range(n_tokens):
                for r in range(n_rewards):
                    mass[t - 1, s, r] += walk.weights[s, v] * to_come(walk, mass, t, s, v, r)
    return mass


@kernel
def edge_mass(walk, mass, starts):
    """Return the sum of the weights of the responses that take each token in each state, by start and reward, (M, R, S, V).

    A response that takes a token in a state twice is counted twice.
    """
    (horizon, n_states, n_rewards), n_tokens, here = mass.shape, walk.weights.shape[1], visits(walk, starts)
    counts = np.zeros((starts.size, n_rewards, n_states, n_tokens))
    for t in range(horizon):
        # E[1(token t is v in s) share 1(Z = z)] = P(s_t = s) k(s, v) times what is still to come after it.
        for s in range(n_states):
            for v in range(n_tokens):
                for r in range(n_rewards):
                    share = walk.weights[s, v] * to_come(walk, mass, t + 1, s, v, r)
                    for m in range(starts.size):
                        counts[m, r, s, v] += here[m, t, s] * share
    return counts


@kernel
def visits(walk, starts):
    """Return the sums of the weights of the ways from each start to each state with t tokens drawn, shape (M, T, S)."""
    horizon, (n_states, n_tokens) = walk.shares.size - 1, walk.weights.shape
    here = np.zeros((starts.size, horizon, n_states))
    for m in range(starts.size):
        here[m, 0, starts[m]] = 1.0
        # A_t(s') = sum of A_{t-1}(s) k(s, v) over (s, v) that lead to s' and end no response (docs/derivations.md, section 15.1).
        for t in range(1, horizon):
            for s in range(n_states):
                for v in range(n_tokens):
                    if walk.ends[s, v] == 0:
                        here[m, t, walk.nexts[s, v]] += here[m, t - 1, s] * walk.weights[s, v]
    return here


class PairCounts(NamedTuple):
    """Sums over responses, weighted by their probabilities, by start and reward.

    Attributes
    ----------
    mass : ndarray, shape (M, R)
        P(Z = z).
    edges : ndarray, shape (M, R, S, V)
        How often a token is taken in a state.
    pairs : ndarray, shape (M, R, S, V, V)
        How often a token is taken in a state and, later, another one in the same state.
    """

    mass: Array
    edges: Array
    pairs: Array


def pair_counts(walk: Walk, starts: Integers) -> PairCounts:
    """Count tokens and pairs of tokens in one state, of the responses from each start."""
    mass, here = chances_to_come(walk), visits(walk, starts)
    n_states, n_tokens = walk.weights.shape
    own, later = np.arange(n_states * n_tokens).reshape(n_states, n_tokens), np.zeros((n_states, n_tokens, n_tokens, 1))
    pairs = np.zeros((starts.size, walk.law.shape[1], n_states, n_tokens, n_tokens))
    # SuffixSums are the tokens still to come, by edge: each of a token's own state makes a pair with it.
    edges = np.broadcast_to(np.eye(n_tokens), (1, n_states, n_tokens, n_tokens))
    for t, mean, _ in suffix_sums_back(walk, mass, edges, own[:, 0], own.size):
        # sum_t A_t(s) k(s, v) M', with M' how often w is taken in s later (docs/derivations.md, section 15.1, Matrices).
        pairs += np.einsum("msv,svwr->mrsvw", here[:, t - 1, :, None] * walk.goes_on, later)
        later = mean[walk.nexts[:, :, None], own[:, None, :], :, 0]
    return PairCounts(mass[0, starts], edge_mass(walk, mass, starts), pairs)


class TokenCredits(NamedTuple):
    """The credits A_t = d_t + l A_{t+1} of a chain's tokens, of responses that one policy draws.

    Attributes
    ----------
    steps : ndarray, shape (T, S, V)
        d, of the token that is drawn when t others have been.
    decay : float
        l.
    law : ndarray, shape (T, S, R)
        The probability of each reward value when t tokens have been drawn, which continuations are drawn from.
    variances : ndarray, shape (T, S)
        Of the error of the value there; 0 where values are exact.
    """

    steps: Array
    decay: float
    law: Array
    variances: Array


@dataclass(frozen=True, eq=False)
class ScoreSums:
    """Sums over responses, weighted by their probabilities, of what their tokens add up to: F vectors of scores a response.

    Attributes
    ----------
    mass : ndarray, shape (M, R)
        P(Z = z) times the mean share.
    means : ndarray, shape (M, R, F, D)
        E[share sum_t gain_f c_t 1(Z = z)] as logit gradients.
    products : ndarray, shape (M, R, F, F)
        E[share^2 <sum_t gain_f w_t, sum_t gain_g w_t> 1(Z = z)], w_t the scores of the tokens.
    edges : ndarray, shape (M, R, S, V)
        E[share sum_t 1(t takes the edge) 1(Z = z)].
    """

    mass: Array
    means: Array
    products: Array
    edges: Array


@dataclass(frozen=True, eq=False)
class ChainPoint(Point):
    """A problem of a `TokenChain` at theta; made by `Problem.at`.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> chain = gt.TokenChain([[0, 1], [1, 0]], horizon=8)
    >>> problem = gt.Problem(gt.StateRewards([0.0, 1.0]), chain, theta=[0.0, -2.0, 0.0, -2.0])
    >>> point = problem.at(problem.theta)
    >>> point.value.round(3).tolist(), point.fisher_matrices(point.state_probabilities).shape, point.hessian_matrices().shape
    ([0.443], (1, 4, 4), (1, 4, 4))
    >>> tokens, gains = point.state_probabilities, np.ones((1, 2, 2))
    >>> sums = point.score_sums(tokens, tokens, gains, point.unit_shares)
    >>> point.pair_counts.pairs.shape, point.sums_of_drawn(point, gains).products.shape
    ((1, 2, 2, 2, 2), (1, 2, 1, 1))
    >>> point.suffix_sums(point.walk(tokens, point.unit_shares), gains).mass.shape
    (8, 2, 2)
    >>> point.score_matrices(tokens, gains, point.unit_shares, np.ones((1, 2, 1, 1))).shape
    (1, 4, 4)
    >>> point.centred(np.ones(4)).round(3).tolist()
    [-0.762, 0.762, -0.762, 0.762]
    """

    bandit: StateRewards
    policy: TokenChain
    _kept: dict[tuple[bytes, ...], ScoreSums] = field(default_factory=dict, init=False, repr=False)

    @cached_array
    def tangent(self) -> SharedMap:
        """Phi: the derivatives of the logits here, which all prompts share."""
        return self.policy.logit_map.at(self.theta)  # type: ignore[return-value]

    @cached_array
    def state_log_probabilities(self) -> Array:
        """Log probability of each token in each state, shape (S, V)."""
        return self.policy.token_log_probabilities(self.theta)

    @cached_array
    def state_probabilities(self) -> Array:
        """Probability of each token in each state, shape (S, V)."""
        return np.exp(self.state_log_probabilities)

    @cached_property
    def _blocks(self) -> tuple[Array, Integers]:
        """The scores of tokens, (S, V, w), and where their entries begin in a vector of parameters, (S,)."""
        probabilities, features = self.state_probabilities, self.tangent.features
        n_states, n_tokens = probabilities.shape
        if features is None:
            # The scores of tokens in a state of its own logits are 0 elsewhere.
            return less_mean(np.eye(n_tokens), probabilities[:, :, None], axis=1), np.arange(n_states) * n_tokens
        # w = Phi' (e_(s,v) - p(.|s)): the token's features less their mean in the state (docs/derivations.md, section 15.1).
        own = features.reshape(n_states, n_tokens, -1)
        return less_mean(own, probabilities[:, :, None], axis=1), np.zeros(n_states, dtype=np.int64)

    def walk(self, weights: Array, shares: Array) -> Walk:
        """Return the walk with these weights of tokens (S, V) and shares of responses by length (T + 1,)."""
        # No token is drawn in states in which responses end; arrays are as compiled code wants them.
        final = self.policy.final[:, None]
        nexts = np.where(final, 0, self.policy.transitions)
        law = np.ascontiguousarray(self.bandit.state_probabilities)
        weights, ends = np.where(final, 0.0, weights), self.policy.ends.astype(np.int64)
        return Walk(nexts, ends, weights, np.ascontiguousarray(shares), law)

    def suffix_sums(self, walk: Walk, gains: Array) -> SuffixSums:
        """Return what is carried back, from the last token to the first, of scores times gains of tokens, (F, S, V)."""
        (scores, offsets), width, (n_states, n_rewards) = self._blocks, self.policy.dimension, walk.law.shape
        for what, shape in (
            ("the chances of rewards from each state and token on", (self.policy.horizon, n_states, n_rewards)),
            ("the mean scores from each state on", (2, n_states, n_rewards, len(gains), width)),
        ):
            check_room(what, shape, "take a shorter horizon, fewer states, or features in place of free logits")
        mass = chances_to_come(walk)
        with np.errstate(over="ignore", invalid="ignore"):
            back = suffix_sums_back(walk, mass, gains[..., None] * scores, offsets, width)
            ((_, mean, product),) = deque(back, maxlen=1)
        return SuffixSums(mass, np.moveaxis(mean, 1, 3), product)

    def score_sums(self, weights: Array, squares: Array, gains: Array, shares: Array) -> ScoreSums:
        """Return the sums over responses of what their tokens' scores add up to, on any policy's draws.

        Parameters
        ----------
        weights, squares : ndarray, shape (S, V)
            What each token multiplies the response's weight by, in first and in second moments.  It is the token's probability
            if responses have no further weights.
        gains : ndarray, shape (F, S, V)
            What multiplies the score of a token.
        shares : ndarray, shape (T + 1,)
            What multiplies the sum over a response's tokens, by its length.
        """
        # Laws at many group sizes ask for the same sums, which are kept.
        asked = tuple(table.tobytes() for table in (weights, squares, gains, shares))
        if asked in self._kept:
            return self._kept[asked]
        share = shares[self.policy.lengths[0]]
        if share != 1.0 and (shares[self.policy.lengths] == share).all():
            # If all a(L) are one number a, it is a factor a of first moments and a^2 of second ones (docs/derivations.md,
            # section 15.1).
            plain = self.score_sums(weights, squares, gains, self.unit_shares)
            found = ScoreSums(share * plain.mass, share * plain.means, share**2 * plain.products, share * plain.edges)
            return self._kept.setdefault(asked, read_only(found))
        # For the ratio of whole responses k is p_0 p/p_0 = p in first moments and p^2/p_0 in second ones (docs/derivations.md,
        # section 15.1).
        first, second = self.walk(weights, shares), self.walk(squares, shares**2)
        starts, suffix_sums = self.policy.starts, self.suffix_sums(second, gains)
        alike = np.array_equal(weights, squares) and (shares[self.policy.lengths] == 1.0).all()
        mass = suffix_sums.mass if alike else chances_to_come(first)
        edges = edge_mass(first, mass, starts)
        # Logit gradients with gains g add up to g E less p times the state's sum of g E (docs/derivations.md, section 15.1).
        means = self.centred((edges[:, :, None] * gains).reshape(*edges.shape[:2], len(gains), -1))
        found = ScoreSums(mass[0, starts], means, suffix_sums.product[starts], edges)
        return self._kept.setdefault(asked, read_only(found))

    @property
    def n_pairs(self) -> int:
        """How many numbers `pair_counts` has."""
        n_states, n_tokens = self.state_probabilities.shape
        return self.policy.starts.size * self.bandit.values.size * n_states * n_tokens**2

    @cached_property
    def pair_counts(self) -> PairCounts:
        """How often responses take two tokens in one state, as the policy draws them."""
        return pair_counts(self.walk(self.state_probabilities, self.unit_shares), self.policy.starts)

    def sums_of_drawn(self, sampler: "ChainPoint", gains: Array) -> ScoreSums:
        """Return `score_sums` of responses that another point draws, with shares of 1, where logits are free in each state."""
        scores, counts = self._blocks[0], sampler.pair_counts
        grams = scores @ scores.swapaxes(1, 2)
        # sum_t <w_t, w_t> + sum_{t<u} (<w_t, w_u> + <w_u, w_t>): scores in different states are orthogonal where logits are free.
        alone = np.einsum("mrsv,fsv,gsv,svv->mrfg", counts.edges, gains, gains, grams, optimize=True)
        crossed = np.einsum("mrsvw,svw,fsv,gsw->mrfg", counts.pairs, grams, gains, gains, optimize=True)
        products = alone + crossed + crossed.swapaxes(2, 3)
        means = self.centred((counts.edges[:, :, None] * gains).reshape(*counts.mass.shape, len(gains), -1))
        return ScoreSums(counts.mass, means, products, counts.edges)

    def centred(self, weights: Array) -> Array:
        """Return the logit gradients of weights of edges (..., D): at each state less what the policy expects of them there."""
        by_state = weights.reshape(*weights.shape[:-1], *self.state_probabilities.shape)
        logit_gradients = by_state - by_state.sum(axis=-1, keepdims=True) * self.state_probabilities
        return closed(logit_gradients, self.state_probabilities).reshape(weights.shape)

    @cached_array
    def reached(self) -> Flags:
        """Whether a token may be drawn in each state, shape (S,)."""
        walk = self.walk(self.state_probabilities, self.unit_shares)
        return visits(walk, self.policy.starts).any(axis=(0, 1)) & ~self.policy.final

    @cached_array
    def reward_law(self) -> Array:
        """The probability of each reward value, shape (M, R): of all that is carried the least."""
        # H_0(s_1, z) = P(Z = z) (docs/derivations.md, section 15.1).
        return chances_to_come(self.walk(self.state_probabilities, self.unit_shares))[0, self.policy.starts]

    @property
    def value(self) -> Array:
        """E[Z | x], shape (M,)."""
        return self.reward_law @ self.bandit.values

    @property
    def climbed(self) -> Array:
        """What is climbed at each prompt, shape (M,)."""
        return self.value if self.objective is None else self.objective.value(self.bandit.values, self.reward_law)

    def generalised_advantages(self, decay: float, draws: float = np.inf) -> TokenCredits:
        """Return the credits that are differences of values, exact or each the mean of so many rewards drawn anew."""
        walk, values = self.walk(self.state_probabilities, self.unit_shares), self.bandit.values
        check_room("the credits of all tokens", (len(walk.shares), *walk.nexts.shape), "take a shorter horizon, or fewer states")
        law = chances_to_come(walk)
        # d_t = V_{t+1} - V_t, with V_t(s) = sum_z z H_t(s, z) (docs/derivations.md, sections 15.1 and 39).
        steps = np.stack([all_to_come(walk, law, t) @ values for t in range(1, len(law) + 1)]) - (law @ values)[..., None]
        return TokenCredits(steps, decay, law, (law * less_mean(values, law) ** 2).sum(axis=-1) / draws)

    @cached_array
    def own_sums(self) -> ScoreSums:
        """The sums of the responses' scores, as the policy draws them."""
        probabilities = self.state_probabilities
        return self.score_sums(probabilities, probabilities, np.ones((1, *probabilities.shape)), self.unit_shares)

    @property
    def unit_shares(self) -> Array:
        """Shares of 1, whatever the length, shape (T + 1,)."""
        return np.ones(self.policy.horizon + 1)

    @cached_array
    def moments(self) -> Moments:
        """Exact moments of reward and score, by recursion over the tokens."""
        return self.moments_of(np.broadcast_to(self.bandit.values, self.reward_law.shape))

    @cached_array
    def slopes(self) -> Array:
        """What the gradient of what is climbed has in place of each reward value, shape (M, R): the objective's slopes."""
        values, law = self.bandit.values, self.reward_law
        return np.broadcast_to(values, law.shape) if self.objective is None else self.objective.slope(values, law)

    @cached_array
    def target(self) -> Moments:
        """The moments whose gradient is that of what is climbed: the rewards are the objective's slopes."""
        # grad F(q) = sum_l F_l grad q_l = E[F_Z W] (docs/derivations.md, section 39).
        return self.moments if self.objective is None else self.moments_of(self.slopes)

    def moments_of(self, rewards: Array) -> Moments:
        """Return the moments with other numbers (M, R) in place of the reward values, by recursion over the tokens."""
        sums, logit_map = self.own_sums, self.tangent
        weights, powers, scores = self.bandit.prompt_weights, sums.products[..., 0, 0], self._blocks[0]
        value, centred = (sums.mass * rewards).sum(axis=1), less_mean(rewards, sums.mass)
        # c(x) = sum_z (z - V) E[c 1(Z = z)], because E[c | x] = 0 (docs/derivations.md, section 15.1).
        logit_gradients = np.einsum("mr,mrd->md", centred, sums.means[:, :, 0])
        return Moments(
            prompt_weights=weights,
            value=value,
            reward_variance=(sums.mass * centred**2).sum(axis=1),
            gradient=logit_map.adjoint(weights[:, None] * logit_gradients),
            gradient_in_logits=logit_gradients,
            prompt_gradient_squared_norm=logit_map.squared_norms(logit_gradients[:, None])[:, 0],
            score_squared_norm=powers.sum(axis=1),
            score_reward_squared_norm=(powers * rewards).sum(axis=1),
            oracle_squared_norm=(powers * centred**2).sum(axis=1),
            # ||W|| <= sum_t ||w_t||, so that E[||W|| |Z - V|] is at most sum_z |z - V| E[sum_t ||w_t|| 1(Z = z)].
            magnitude=lambda: (np.abs(centred) * (sums.edges * np.sqrt((scores**2).sum(axis=-1))).sum(axis=(2, 3))).sum(axis=1),
            score_norm_variance=self._norm_variance,
            logit_map=logit_map,
            terms=self.policy.horizon,
        )

    def _norm_variance(self) -> Array:
        """Return Var(||W||^2 | x), shape (M,): the matrix E[W W'] is carried along, whose size says what can be done."""
        scores, offsets = self._blocks
        width, (n_states, n_tokens) = self.policy.dimension, self.state_probabilities.shape
        check_room(
            "the tokens' scores, with products of all parameters",
            (n_states, n_tokens, width, width),
            "score_squared_norm needs none",
        )
        x = np.zeros((n_states, n_tokens, width))
        for state, first in enumerate(offsets):
            x[state, :, first : first + scores.shape[2]] = scores[state]
        walk = self.walk(self.state_probabilities, self.unit_shares)
        squares, outer = (x**2).sum(axis=-1), x[..., :, None] * x[..., None, :]
        # Of W, the scores still to come: E||W||^2, E[W W'], E[||W||^2 W] and E||W||^4, from each state; E W is 0.
        power, form = np.zeros(n_states), np.zeros((n_states, width, width))
        third, fourth = np.zeros((n_states, width)), np.zeros(n_states)
        for t in range(self.policy.horizon, 0, -1):
            goes_on = np.where((walk.ends != 0) | (t == self.policy.horizon), 0.0, 1.0)
            q, e = (goes_on * one[walk.nexts] for one in (power, fourth))
            a, c = goes_on[..., None, None] * form[walk.nexts], goes_on[..., None] * third[walk.nexts]
            turned = np.einsum("svij,svj->svi", a, x)
            # With w the score of a token and R the sum of later ones, of mean 0, A = E[R R'], q = E||R||^2, c = E[||R||^2 R] and
            # e = E||R||^4: E||w + R||^4 = |w|^4 + 4 w'A w + 2 |w|^2 q + 4 w'c + e, and
            # E[||w + R||^2 (w + R)] = w (|w|^2 + q) + 2 A w + c.
            # This is "The fourth moment" of docs/derivations.md, section 15.1, where c is b.
            ahead = squares**2 + 4.0 * (turned * x).sum(axis=-1) + 2.0 * squares * q + 4.0 * (x * c).sum(axis=-1) + e
            lean = x * (squares + q)[..., None] + 2.0 * turned + c
            p = walk.weights
            fourth = (p * ahead).sum(axis=1)
            third = (p[..., None] * lean).sum(axis=1)
            form = (p[..., None, None] * (outer + a)).sum(axis=1)
            power = (p * (squares + q)).sum(axis=1)
        starts = self.policy.starts
        return np.maximum(fourth[starts] - power[starts] ** 2, 0.0)

    def score_matrices(self, weights: Array, gains: Array, shares: Array, coefficients: Array) -> Array:
        """Return the sum over rewards r and pairs f, g of coefficient times E[share X_f X_g' 1(Z = z_r)], shape (M, D, D).

        X_f is the sum over the response's tokens of their logit gradients times gain f.

        Parameters
        ----------
        weights, gains, shares
            As for `score_sums`: those of second moments.
        coefficients : ndarray, shape (M, R, F, F)
        """
        size, (n_prompts, n_rewards, n_features, _) = self.policy.n_logits, coefficients.shape
        check_room("the second moments of each prompt", (n_prompts, size, size), "gradient_mse does without")
        n_states, n_tokens = self.state_probabilities.shape
        states, x = np.arange(n_states), np.zeros((n_states, n_tokens, n_states, n_tokens))
        x[states, :, states] = less_mean(np.eye(n_tokens), self.state_probabilities[:, :, None], axis=1)
        x = gains.reshape(n_features, size, 1) * x.reshape(size, size)
        walk = self.walk(weights, shares)
        here, mass = visits(walk, self.policy.starts), chances_to_come(walk)
        matrices = np.zeros((n_prompts, size, size))
        mean = np.zeros((n_states, n_rewards, n_features, size))
        for t in range(self.policy.horizon, 0, -1):
            ended = (walk.ends != 0) | (t == self.policy.horizon)
            ahead = all_to_come(walk, mass, t)
            later = np.where(ended[..., None, None, None], 0.0, mean[walk.nexts])
            taken = (here[:, t - 1, :, None] * walk.weights).reshape(n_prompts, size)
            edges, after = ahead.reshape(size, n_rewards), later.reshape(size, n_rewards, n_features, size)
            for m, r, f, g in np.ndindex(coefficients.shape):
                weight = coefficients[m, r, f, g] * taken[m][:, None]
                # (x_f + X_f)(x_g + X_g)' - X_f X_g' = x_f x_g' + x_f X_g' + X_f x_g': later tokens count X_f X_g'.
                first = x[f].T @ (weight * (edges[:, r, None] * x[g] + after[:, r, g]))
                matrices[m] += first + (weight * after[:, r, f]).T @ x[g]
            own = ahead[..., None, None] * np.moveaxis(x.reshape(n_features, n_states, n_tokens, 1, size), 0, 3)
            # M_t(s) = sum_v k(s, v) [x_f H' + M_f'] (docs/derivations.md, section 15.1).
            mean = (walk.weights[..., None, None, None] * (own + later)).sum(axis=1)
        return matrices

    def fisher_matrices(self, probabilities: Array) -> Array:
        """Return E[c c'] of a policy's probabilities of tokens (S, V), shape (M, D, D): visits times diag(p) - p p'."""
        shape = self.policy.n_prompts, probabilities.size, probabilities.size
        check_room("the second moments of each prompt", shape, "gradient_mse does without")
        walk = self.walk(probabilities, self.unit_shares)
        # E[c_t | the tokens before] = 0, so that E[c c'] = sum_t E[c_t c_t'] = sum_s visits(s) (diag p - p p')
        # (docs/derivations.md, section 15.1).
        return state_matrices(visits(walk, self.policy.starts).sum(axis=1), probabilities)

    def hessian_matrices(self) -> Array:
        """Return the second derivatives of what is climbed in the logits of each state, shape (M, D, D)."""
        sums, probabilities = self.own_sums, self.state_probabilities
        walk, ones = self.walk(probabilities, self.unit_shares), np.ones((1, *probabilities.shape))
        lead = less_mean(self.slopes, sums.mass)
        # H = sum_z (z - V) E[c c' 1(Z = z)] - sum_s (sum_zv (z - V) E_z(s, v)) (diag p - p p').
        # The masses E_z(s, v) are edges (docs/derivations.md, sections 5 and 15.1).
        matrices = self.score_matrices(probabilities, ones, self.unit_shares, lead[:, :, None, None])
        edges = edge_mass(walk, chances_to_come(walk), self.policy.starts)
        matrices -= state_matrices(np.einsum("mr,mrsv->ms", lead, edges), probabilities)
        if self.objective is not None:
            matrices += self.objective.bend(self.bandit.values, sums.mass, sums.means[:, :, 0])
        return matrices


def state_matrices(weights: Array, probabilities: Array) -> Array:
    """Return the matrices with weight (M, S) times diag(p) - p p' in the block of each state, shape (M, D, D), for p (S, V)."""
    n_states, n_tokens = probabilities.shape
    matrices = np.zeros((len(weights), n_states, n_tokens, n_states, n_tokens))
    diagonal = np.arange(n_tokens)
    for s, p in enumerate(probabilities):
        # E[(e_v - p)(e_v - p)'] = diag(p) - p p': the Fisher information of a softmax (Amari 1998); 1 - p as a sum of the others.
        own = -np.outer(p, p)
        own[diagonal, diagonal] = p * complements(p)
        matrices[:, s, :, s, :] = weights[:, s, None, None] * own
    return matrices.reshape(len(weights), n_states * n_tokens, -1)


TokenChain.point_kind = ChainPoint
