"""Worlds of long answers, in which some tokens decide and most are only uncertain, and runs in them whose cost has no length.

All tokens share the d parameters. Harmless tokens have two options each, whose logits all prompts share. They come in a few
sorts, so the choices that equally weighted responses make at tokens of a sort are one binomial number. It is drawn bit by bit, at
an expense of two bits per token. Tokens that decide are drawn one by one. So an update's gradient has exactly the law that it has
where each token is drawn. Answers of 256 tokens cost little more than answers of one.
"""

from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, log_expit

import grpo_theory as gt
from grpo_theory.jit import kernel, summing_kernel
from grpo_theory.simulate.draws import block_streams, next_uniform
from grpo_theory.validation import Array, Flags, Integers
from simulations.runs.binomial_draws import binomials
from simulations.runs.prompt_features import Sharing, shared_features, starting_logits, unit
from simulations.seeds import child_seed

SEED = 20261129
DIMENSION, OPTIONS, SORTS = 32, 4, 16
"""Parameters that all tokens share; options of a token that decides; sorts of harmless tokens."""
LEVELS, SURE = 8, 0.5
"""A walk has up to so many stretches, and each raises the right option's logit by so much."""
FORMATTED = 0.1
"""How often answers have the right format at the start."""
RESPONSES = 256
"""N = BG, those of an update: a group of 256 is then a batch of one prompt."""


class Prompts(NamedTuple):
    """Prompts of a world: a tree of tokens that decide, and how many harmless tokens come with each of its leaves.

    Attributes
    ----------
    features : ndarray, shape (M, E, d)
        Of the edges, each an option of a token.
    start : ndarray, shape (M, E)
        Their logits where training starts, at theta = 0.
    state : ndarray of int64, shape (E,)
        The token that an edge is an option of.
    paths : ndarray of int64, shape (O, E)
        How often an outcome takes each edge.
    right : ndarray of bool, shape (O,)
        Those that are right come first.
    level : ndarray of int64, shape (O,)
        The number of stretches less one.
    harmless : ndarray of int64, shape (L, K)
        Tokens of each sort, by level.
    sorts : ndarray, shape (K, d)
        The feature of the first option of each sort; the other has none.
    uncertain : ndarray, shape (K,)
        The first options' logits where training starts.
    lengths : ndarray, shape (L,)
        Tokens of a response, by level.
    """

    features: Array
    start: Array
    state: Integers
    paths: Integers
    right: Flags
    level: Integers
    harmless: Integers
    sorts: Array
    uncertain: Array
    lengths: Array

    def chances(self, theta: Array) -> Array:
        """Return the probability of each outcome, shape (..., M, O), for theta (..., d)."""
        return np.exp(self.log_options(theta) @ self.paths.T)

    def log_options(self, theta: Array) -> Array:
        """Return the logarithms of the options' probabilities, shape (..., M, E)."""
        logits = self.start + np.einsum("med,...d->...me", self.features, theta)
        found = np.empty_like(logits)
        for token in np.unique(self.state):
            own = self.state == token
            top = logits[..., own].max(axis=-1, keepdims=True)
            found[..., own] = logits[..., own] - top - np.log(np.exp(logits[..., own] - top).sum(axis=-1, keepdims=True))
        return found

    def success(self, theta: Array) -> Array:
        """Return the success rate of each prompt, shape (..., M)."""
        return self.chances(theta) @ self.right

    def entropy(self, theta: Array) -> Array:
        """Return the mean entropy of a token in nats: of responses to all prompts, over their mean length, shape (...,)."""
        chances, logits = self.chances(theta), self.uncertain + theta @ self.sorts.T
        deciding = -(chances * (self.log_options(theta) @ self.paths.T)).sum(axis=(-2, -1))
        harmless = -(expit(logits) * log_expit(logits) + expit(-logits) * log_expit(-logits))
        others = np.einsum("...mo,ok,...k->...", chances, self.harmless[self.level], harmless)
        return np.asarray((deciding + others) / (chances @ self.lengths[self.level]).sum(axis=-1))


class Texts(NamedTuple):
    """A kind of world of long answers.

    Attributes
    ----------
    kind : str
        In "text" two tokens decide, of which the last is an answer's end (one if tokens is 1).  In "format" a further one must be
        right, the same for all prompts, and seldom is at first. In "walk" an answer has up to `LEVELS` stretches, and goes on or
        decides after each.  It is surer of what is right the longer it is.
    tokens : int
        T, of a response; of a walk, so many in four stretches.
    prompts : int
        Those that are trained on; as many are held out.
    transfer : float
        The share of a right option's squared feature that lies in one direction, the same for all prompts.
    easiest, rarest : float
        Success rates at the start are spread evenly in their logarithm between these; of the tokens that decide, in a format.
    """

    kind: str = "text"
    tokens: int = 16
    prompts: int = 16
    transfer: float = 0.0
    easiest: float = 0.5
    rarest: float = 0.01

    def draw(self, number: int) -> tuple[Prompts, Prompts]:
        """Return the prompts of a draw that are trained on, and those held out; all else is the same."""
        rng = np.random.default_rng(child_seed(np.random.SeedSequence(SEED), number))
        shared = unit(rng.normal(size=(2, DIMENSION)))  # the features of format, or of going on, at all prompts
        sorts, uncertain = unit(rng.normal(size=(SORTS, DIMENSION))), rng.normal(size=SORTS)
        direction = unit(rng.normal(size=DIMENSION))
        trained, held_out = (self._prompts(rng, shared, sorts, uncertain, direction) for _ in range(2))
        return trained, held_out

    def _prompts(self, rng, shared, sorts, uncertain, direction):
        """Return prompts with features and starting logits of their own."""
        deciding = 2 if self.kind != "walk" and self.tokens > 1 else 1
        rights = np.broadcast_to(np.arange(OPTIONS) == 0, (self.prompts * deciding, OPTIONS))
        rates = np.geomspace(self.easiest, self.rarest, self.prompts)
        logits = starting_logits(np.repeat(rates ** (1.0 / deciding), deciding), rights, rng)
        own = shared_features(rights, Sharing(DIMENSION, transfer=self.transfer), rng)
        # Its first coordinate is what is right everywhere: a reflection turns it into the world's own direction.
        mirror = unit(direction - np.eye(DIMENSION)[0])
        own = own - 2.0 * (own @ mirror)[..., None] * mirror
        features, start = (one.reshape(self.prompts, deciding * OPTIONS, *one.shape[2:]) for one in (own, logits))
        options = np.stack(np.meshgrid(*[np.arange(OPTIONS)] * deciding, indexing="ij"), axis=-1).reshape(-1, deciding)
        paths = (options[:, :, None] == np.arange(OPTIONS)).reshape(len(options), -1).astype(np.int64)
        right, state = (options == 0).all(axis=-1), np.repeat(np.arange(deciding), OPTIONS)
        level, harmless = np.zeros(len(options), dtype=np.int64), self.tokens - deciding - (self.kind == "format")
        stretches = np.array([max(harmless, 0)])
        lead = np.broadcast_to(shared, (self.prompts, 2, DIMENSION))  # of the token before those that decide
        if self.kind == "format":
            paths = np.concatenate([np.insert(paths, 0, [[i], [1 - i]], axis=1) for i in (1, 0)])
            right, level = np.concatenate([right, np.zeros_like(right)]), np.tile(level, 2)
            opening = np.broadcast_to(np.log([FORMATTED, 1.0 - FORMATTED]), (self.prompts, 2))
        elif self.kind == "walk":
            raised = SURE * np.arange(LEVELS)
            usual = np.array([0.75**k * (0.25 if k < LEVELS - 1 else 1.0) for k in range(LEVELS)])
            others = np.log(np.exp(start[:, 1:]).sum(axis=-1))
            # The right option's logit with which success is as asked for at the usual lengths.
            start[:, 0] = [
                brentq(lambda x, other=other, rate=rate: usual @ expit(x + raised - other) - rate, -30.0, 30.0)
                for other, rate in zip(others, rates, strict=True)
            ]
            start = (start[:, None] + raised[:, None] * (np.arange(OPTIONS) == 0)).reshape(self.prompts, -1)
            features = np.tile(features, (1, LEVELS, 1))
            after = np.arange(LEVELS)
            goes = np.stack([after, (after < LEVELS - 1).astype(np.int64)], axis=-1)
            paths = np.concatenate([np.repeat(goes, OPTIONS, axis=0), np.eye(LEVELS * OPTIONS, dtype=np.int64)], axis=1)
            right, state, level = np.tile(right, LEVELS), np.repeat(after, OPTIONS), np.repeat(after, OPTIONS)
            lead = unit(lead + unit(rng.normal(size=lead.shape)))
            opening = np.broadcast_to(np.log([0.75, 0.25]), (self.prompts, 2))
            stretches = max(self.tokens // 4, 1) * np.arange(1, LEVELS + 1)
        if self.kind != "text":
            features, start = np.concatenate([lead, features], axis=1), np.concatenate([opening, start], axis=1)
            state = np.concatenate([[0, 0], state + 1])
        by_sort = (stretches[:, None] + np.arange(SORTS)) // SORTS
        lengths = (stretches + [paths[level == own].sum(axis=1).max() for own in range(len(stretches))]).astype(np.float64)
        first = np.argsort(~right, kind="stable")
        of_outcomes = paths[first], right[first], level[first]
        arrays = (np.ascontiguousarray(one) for one in (features, start, state, *of_outcomes, by_sort))
        return Prompts(*[*arrays, sorts, uncertain, lengths])


def step_size(prompts: Prompts, theta: Array) -> float:
    """Return 1 + sqrt(c3/c1): the best group size of one step of the leave-one-out gradient at theta (d,) (section 2.1)."""
    chances, options = prompts.chances(theta), np.exp(prompts.log_options(theta))
    value, q = chances @ prompts.right, expit(prompts.uncertain + prompts.sorts @ theta)
    # The score of an outcome in logits: how often it takes an edge, less the edge's probability at each visit of its token.
    visits = prompts.paths @ (prompts.state[:, None] == prompts.state)
    scores = (prompts.paths - visits * options[:, None]) @ prompts.features
    noise = prompts.harmless[prompts.level] @ (q * (1.0 - q) * (prompts.sorts**2).sum(axis=-1))
    squares = (chances * ((scores**2).sum(axis=-1) + noise)).sum(axis=-1)
    gradients = np.einsum("mo,o,mod->md", chances, prompts.right, scores)
    c1 = ((gradients - gradients.mean(axis=0)) ** 2).sum(axis=-1).mean()
    c3 = (value * (1.0 - value) * squares + (gradients**2).sum(axis=-1)).mean()
    return float(1.0 + np.sqrt(c3 / max(c1, 1e-300)))


class Update(NamedTuple):
    """What an update makes of its responses.

    Attributes
    ----------
    advantages : ndarray, shape (G + 1, 2)
        Of a wrong and of a right response, by the number of right ones in the group.
    own : ndarray, shape (L,)
        What a response's sum over its tokens is multiplied by, by level.
    counted : ndarray, shape (L,)
        What it adds to the number by which the whole batch is divided.
    bonus, penalty : float
        The strength of an entropy bonus, and of a penalty of KL(pi, start), of the tokens drawn, exact given these.
    decay : float
        Of Adam's second moment; 0 is plain ascent.
    times : int
        Updates that are made of the same responses.
    low, high : float
        A token's ratio is clipped below 1 - low and above 1 + high; from there on it adds nothing to the gradient.
    """

    advantages: Array
    own: Array
    counted: Array
    bonus: float = 0.0
    penalty: float = 0.0
    decay: float = 0.0
    times: int = 1
    low: float = np.inf
    high: float = np.inf


def update_of(prompts: Prompts, estimator: str, group_size: int, aggregation: str = "sum", **more: Any) -> Update:
    """Return the update of a registered estimator's advantages, with tokens added up by "sum", "own length" or "token mean"."""
    one, start = np.ones_like(prompts.lengths), prompts.chances(np.zeros(DIMENSION))
    mean = float((start @ prompts.lengths[prompts.level]).mean())
    own = mean / prompts.lengths if aggregation == "own length" else one
    counted = prompts.lengths / mean if aggregation == "token mean" else one
    return Update(advantages_of(estimator, group_size), own, counted, **more)


@cache
def advantages_of(estimator: str, group_size: int) -> Array:
    """Return the advantages of a wrong and of a right response, (G + 1, 2), by the number of right ones in the group."""
    rights = np.arange(group_size) < np.arange(group_size + 1)[:, None]
    found = np.array(gt.advantages(rights.astype(np.float64), estimator))
    by_reward = np.stack([found[:, -1], found[:, 0]], axis=-1)
    by_reward[0, 1] = by_reward[-1, 0] = 0.0
    return by_reward


@summing_kernel
def add_products(start, rows, theta, found):
    """Fill found (R,) with start (R,) and rows (R, d) times theta (d,)."""
    for r in range(found.size):
        total = 0.0
        for i in range(theta.size):
            total += rows[r, i] * theta[i]
        found[r] = start[r] + total


@kernel
def ascend(prompts, takes, update, rate, group_size, looks, state, thetas):
    """Fill thetas (C, d) with the parameters after each number of rollouts, from theta = 0; NaN from where they diverge.

    A rollout draws `RESPONSES`/G prompts with replacement, and a group of each. The tokens of one option at one prompt have the
    same ratio. So an update needs the sums of their weights alone, of wanted tokens and of unwanted ones, which the clip tells
    apart. Takes (O, S) are the edges of each outcome's path, one by one, and E where it has ended.
    """
    n_prompts, n_edges, dimension = prompts.features.shape
    n_outcomes, n_states, n_levels = prompts.right.size, prompts.state.max() + 1, len(update.own)
    n_sorts = prompts.uncertain.size if prompts.harmless.max() > 0 else 0
    theta, gradient, first, second = np.zeros(dimension), np.zeros(dimension), np.zeros(dimension), np.zeros(dimension)
    log_options, options, slope, cumulated = np.empty(n_edges), np.ones(n_edges + 1), np.empty(n_edges), np.empty(n_outcomes)
    totals, n_takes = np.empty(n_states), takes.shape[1]
    # Of the rollout: the weights of prompts' options, unwanted and wanted, the visits of tokens, the options' chances in
    # logarithms; and the weights of the two options of each sort of harmless tokens, their number, and the first one's logit.
    weights, visits = np.empty((n_prompts, 2, n_edges + 1)), np.empty((n_prompts, n_edges + 1))
    old = np.empty((n_prompts, n_edges))
    tokens, numbers, drawn_at = np.empty((n_sorts, 2, 2)), np.empty(n_sorts), np.empty(n_sorts)
    # Responses by their group's number of right ones, their reward and level: how many, and what is drawn of them.
    drawn, of_level = np.zeros((group_size + 1, 2, n_levels), dtype=np.int64), np.zeros(n_levels)
    worth, level_of, held = np.empty(drawn.size), np.empty(drawn.size, dtype=np.int64), np.empty(drawn.size, dtype=np.int64)
    flips, taken = np.empty(drawn.size, dtype=np.int64), np.empty(drawn.size, dtype=np.int64)
    uniforms = np.empty(group_size)
    sums, times = np.empty((2, n_outcomes)), np.empty(n_outcomes)
    sort_logits = np.empty(n_sorts)
    asked = np.empty(n_prompts, dtype=np.int64)
    floor, roof = 1.0 - update.low, 1.0 + update.high
    # Groups without advantages are only counted, unless they matter to terms or to a mean over tokens of several lengths.
    every = update.bonus != 0.0 or update.penalty != 0.0 or (update.counted != update.counted[0]).any()
    n_rights = prompts.right.sum()
    divisor, look, cells = 1.0, 0, 0
    for step in range(looks[-1] * update.times):
        rollout = step % update.times == 0
        gradient[:] = 0.0
        if rollout:
            asked[:], drawn[:], divisor = 0, 0, 0.0
            for _ in range(RESPONSES // group_size):
                asked[int(next_uniform(state) * n_prompts)] += 1
        for m in range(n_prompts):
            if asked[m] == 0:
                continue
            totals[:] = 0.0
            add_products(prompts.start[m], prompts.features[m], theta, log_options)
            for e in range(n_edges):
                options[e] = np.exp(log_options[e])
                totals[prompts.state[e]] += options[e]
            for e in range(n_edges):
                options[e] /= totals[prompts.state[e]]
            for t in range(n_states):
                totals[t] = np.log(totals[t])
            for e in range(n_edges):
                log_options[e] -= totals[prompts.state[e]]
            if rollout:
                for e in range(n_edges):
                    old[m, e] = log_options[e]
                for e in range(n_edges + 1):
                    weights[m, 0, e], weights[m, 1, e], visits[m, e] = 0.0, 0.0, 0.0
                total = 0.0
                for o in range(n_outcomes):
                    sums[0, o], sums[1, o], times[o], chance = 0.0, 0.0, 0.0, 1.0
                    for s in range(n_takes):
                        chance *= options[takes[o, s]]
                    total += chance
                    cumulated[o] = total
                weighed = False
                for _ in range(asked[m]):
                    n_right = 0
                    for i in range(group_size):
                        uniforms[i] = next_uniform(state) * total
                        n_right += int(uniforms[i] < cumulated[n_rights - 1])
                    if not every and update.advantages[n_right, 0] == 0.0 and update.advantages[n_right, 1] == 0.0:
                        divisor += group_size * update.counted[0]
                        continue
                    weighed = True
                    for i in range(group_size):
                        o = 0
                        for before in range(n_outcomes - 1):
                            o += int(uniforms[i] >= cumulated[before])
                        right, level = int(o < n_rights), prompts.level[o]
                        drawn[n_right, right, level] += 1
                        times[o] += 1.0
                        weight = update.advantages[n_right, right] * update.own[level]
                        sums[int(weight > 0.0), o] += weight
                if not weighed:
                    asked[m] = 0  # nor does any update of this rollout
                    continue
                for o in range(n_outcomes):
                    if times[o] > 0.0:
                        for s in range(n_takes):
                            e = takes[o, s]
                            weights[m, 0, e] += sums[0, o]
                            weights[m, 1, e] += sums[1, o]
                            visits[m, e] += times[o]
            # The derivative of the clipped ratio is the ratio, or nothing where min(r A, clip(r) A) is the clipped one (10.1).
            for e in range(n_edges):
                ratio = 1.0 if rollout else np.exp(log_options[e] - old[m, e])
                slope[e] = ratio * ((ratio <= roof) * weights[m, 1, e] + (ratio >= floor) * weights[m, 0, e])
            # The score of a token in logits is its option less the options' chances, at each visit.
            totals[:] = 0.0
            for e in range(n_edges):
                totals[prompts.state[e]] += slope[e]
            for e in range(n_edges):
                slope[e] -= options[e] * totals[prompts.state[e]]
            if update.bonus != 0.0 or update.penalty != 0.0:
                add_terms(prompts, update, m, log_options, visits[m], slope)
            for e in range(n_edges):
                for i in range(dimension):
                    gradient[i] += slope[e] * prompts.features[m, e, i]
        if rollout:
            # The tokens of a sort in responses of one advantage and one length are one binomial number.
            cells, of_level[:] = 0, 0.0
            for j in range(group_size + 1):
                for right in range(2):
                    for level in range(n_levels):
                        n, weight = drawn[j, right, level], update.advantages[j, right] * update.own[level]
                        of_level[level] += n
                        divisor += n * update.counted[level]
                        if n > 0 and weight != 0.0:
                            worth[cells], level_of[cells], held[cells] = weight, level, n
                            cells += 1
        add_products(prompts.uncertain, prompts.sorts, theta, sort_logits)
        for k in range(n_sorts):
            logit = sort_logits[k]
            q = 1.0 / (1.0 + np.exp(-logit))
            one, other = 1.0, 1.0
            if rollout:
                drawn_at[k], numbers[k], tokens[k] = logit, 0.0, 0.0
                for level in range(n_levels):
                    numbers[k] += of_level[level] * prompts.harmless[level, k]
                for c in range(cells):
                    flips[c] = held[c] * prompts.harmless[level_of[c], k]
                binomials(state, flips[:cells], q, taken)
                for c in range(cells):
                    tokens[k, int(worth[c] > 0.0), 0] += worth[c] * taken[c]
                    tokens[k, int(worth[c] > 0.0), 1] += worth[c] * (flips[c] - taken[c])
            else:
                one = (1.0 + np.exp(-drawn_at[k])) / (1.0 + np.exp(-logit))
                other = (1.0 + np.exp(drawn_at[k])) / (1.0 + np.exp(logit))
            of_one = one * ((one <= roof) * tokens[k, 1, 0] + (one >= floor) * tokens[k, 0, 0])
            of_other = other * ((other <= roof) * tokens[k, 1, 1] + (other >= floor) * tokens[k, 0, 1])
            # d entropy/d logit = -logit q(1 - q), and d KL/d logit = (logit - start) q(1 - q).
            slack = (logit * update.bonus + (logit - prompts.uncertain[k]) * update.penalty) * q * (1.0 - q)
            pull = of_one * (1.0 - q) - of_other * q - numbers[k] * slack
            for i in range(dimension):
                gradient[i] += pull * prompts.sorts[k, i]
        for i in range(dimension):
            move = gradient[i] / divisor
            if update.decay > 0.0:
                first[i] = 0.9 * first[i] + 0.1 * move
                second[i] = update.decay * second[i] + (1.0 - update.decay) * move * move
                scale = np.sqrt(second[i] / (1.0 - update.decay ** (step + 1.0))) + 1e-8
                move = first[i] / (1.0 - 0.9 ** (step + 1.0)) / scale
            theta[i] += rate * move
        if step + 1 == looks[look] * update.times:
            thetas[look] = theta
            look += 1


@kernel
def add_terms(prompts, update, m, log_options, visits, slope):
    """Add to the slope (E,) of a prompt's logits those of an entropy bonus and of a KL penalty, per visit of a token."""
    n_edges = log_options.size
    for t in range(prompts.state.max() + 1):
        normaliser, entropy, divergence, times = 0.0, 0.0, 0.0, 0.0
        for e in range(n_edges):
            if prompts.state[e] == t:
                times += visits[e]
                normaliser += np.exp(prompts.start[m, e])
        for e in range(n_edges):
            if prompts.state[e] == t:
                chance = np.exp(log_options[e])
                entropy -= chance * log_options[e]
                divergence += chance * (log_options[e] - prompts.start[m, e] + np.log(normaliser))
        for e in range(n_edges):
            if prompts.state[e] == t:
                chance, ratio = np.exp(log_options[e]), log_options[e] - prompts.start[m, e] + np.log(normaliser)
                slope[e] -= times * chance * (update.bonus * (log_options[e] + entropy) + update.penalty * (ratio - divergence))


drawn = lru_cache(maxsize=160)(Texts.draw)
"""Arms of the same draws follow each other."""


def trained_draw(world, number, rates, group_size, looks, seed, **update):
    """Train on a draw of a world, a run at each rate that share draws; the rest is an update's, see `update_of`.

    Returns
    -------
    tuple
        The prompts; those held out; which runs are finite, shape (rates, looks); and their parameters (rates, looks, d), or 0.
    """
    prompts, held_out = drawn(world, number)
    made = update_of(prompts, group_size=group_size, **update)
    thetas = train(prompts, made, rates, group_size, looks, 1, child_seed(seed, number))[:, 0]
    ended = np.asarray(np.isfinite(thetas).all(axis=-1))
    return prompts, held_out, ended, np.where(ended[..., None], thetas, 0.0)


def train(prompts, update, rates, group_size, looks, runs, seed):
    """Return the parameters of runs at each rate after numbers of rollouts, shape (rates, runs, looks, d); rates share draws."""
    thetas, at = np.full((len(rates), runs, len(looks), DIMENSION), np.nan), np.array(looks)
    takes = np.full((len(prompts.paths), prompts.paths.sum(axis=1).max()), prompts.paths.shape[1])
    for own, path in zip(takes, prompts.paths, strict=True):
        own[: path.sum()] = np.repeat(np.arange(len(path)), path)
    for r in range(runs):
        state = block_streams(seed, r).lone
        for k, rate in enumerate(rates):
            ascend(prompts, takes, update, float(rate), group_size, at, state.copy(), thetas[k, r])
    return thetas
