"""Plain dense arithmetic over tokens: what a batch of responses says of the gradient, for every composition of an estimator.

Only the kernels, which run as plain Python, the tokens of the responses, and the numbers of a problem and an estimator are the
library's. Ratios, clips, aggregation and KL terms are written here anew.
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np
from enumeration import DIVERGENCES, RATIOS, SHARES, SLOPES, Case, case, clipped, prefixes

import grpo_theory as gt
from grpo_theory.problem.logits import HeadMap

TREES = ("tree", "linear tree", "head tree")


def token_case(policy="tree", penalty="plain") -> Case:
    """Make a small problem: a bandit's (`enumeration.case`, graded), or one whose responses have one, two or three tokens.

    Features are of edges, (M, D, d).  A reward is certain, and the last outcome of a prompt cannot happen.
    """
    if policy not in TREES:
        return case(policy, "graded", penalty)
    rng = np.random.default_rng([TREES.index(policy), penalty == "kl"])
    tree = gt.TokenTree(2, vocabulary_size=2, horizon=3, end_token=0)
    if policy == "tree":
        made, features = tree, np.eye(12).reshape(2, 6, 12)
    elif policy == "linear tree":
        features = rng.normal(size=(2, 6, 3))
        made = gt.TokenTree(2, vocabulary_size=2, horizon=3, end_token=0, features=features)
    else:
        hidden = rng.normal(size=(2, 2))
        made = gt.Policy(HeadMap(hidden, 6), tree.paths)
        features = np.stack([np.kron(np.eye(6), h[None]) for h in hidden])
    law = rng.dirichlet(np.ones(3), size=(2, 4))
    law[0, 1], law[1, 3] = [0.0, 1.0, 0.0], [0.4, 0.6, 0.0]
    bandit = gt.Bandit.from_law([-0.5, 1.0, 2.0], law, [0.7, 0.3])
    kl = gt.KL(0.3, rng.dirichlet(np.full(4, 3.0), size=2)) if penalty == "kl" else None
    return Case(gt.Problem(bandit, made, kl, rng.normal(size=made.dimension)), features)


class At(NamedTuple):
    """A problem at a theta.

    It has probabilities of tokens given their prefixes (M, D), of responses (M, K) and of outcomes (M, O). It has scores of
    tokens, one for each edge (M, D, d), and of responses (M, K, d).
    """

    tokens: np.ndarray
    responses: np.ndarray
    outcomes: np.ndarray
    token_scores: np.ndarray
    scores: np.ndarray


class Seen(NamedTuple):
    """What a kernel may see: rewards (M, O), norms (M, K), lengths (K,), and values, deviations and baselines (M,)."""

    rewards: np.ndarray
    norms: np.ndarray
    lengths: np.ndarray
    values: np.ndarray
    standard_deviations: np.ndarray
    optimal_baselines: np.ndarray


class Dense:
    """A problem written out."""

    def __init__(self, c: Case) -> None:
        self.problem, self.features = c.problem, c.features
        self.bandit, self.kl = c.bandit, c.kl
        self.vocabulary_size = c.policy.paths.vocabulary_size
        responses = c.policy.paths.tokens
        self.edges = [
            [prefixes(c).index(tokens[:t]) * self.vocabulary_size + tokens[t] for t in range(len(tokens))] for tokens in responses
        ]
        self.lengths = np.array([len(tokens) for tokens in responses])
        self.n_prompts, self.n_logits, self.dimension = c.features.shape

    def by_prefix(self, array):
        """Split the axis of edges into prefixes and tokens."""
        return array.reshape(self.n_prompts, -1, self.vocabulary_size, *array.shape[2:])

    def features_at(self, theta):
        """Return the logits and their derivatives in theta, shapes (M, D) and (M, D, d)."""
        return self.features @ theta, self.features

    def at(self, theta) -> At:
        """Write out the policy and its scores."""
        logits, features = self.features_at(theta)
        logits = self.by_prefix(logits)
        weights = np.exp(logits - logits.max(axis=2, keepdims=True))
        tokens = (weights / weights.sum(axis=2, keepdims=True)).reshape(self.n_prompts, -1)
        responses = np.stack([tokens[:, edges].prod(axis=1) for edges in self.edges], axis=1)
        outcomes = (responses[:, :, None] * self.bandit.probabilities).reshape(self.n_prompts, -1)
        mean = np.einsum("mpv,mpvd->mpd", self.by_prefix(tokens), self.by_prefix(features))
        token_scores = (self.by_prefix(features) - mean[:, :, None]).reshape(features.shape)
        scores = np.stack([token_scores[:, edges].sum(axis=1) for edges in self.edges], axis=1)
        return At(tokens, responses, outcomes, token_scores, scores)

    @cached_property
    def log_reference(self):
        """The reference's log probabilities of tokens given their prefixes, (M, D)."""
        mass = np.zeros((self.n_prompts, self.n_logits))
        for k, edges in enumerate(self.edges):
            mass[:, edges] += self.kl.reference[:, [k]]
        mass = self.by_prefix(mass)
        return np.log(mass / mass.sum(axis=2, keepdims=True)).reshape(self.n_prompts, -1)

    def seen(self, at: At, estimator) -> Seen:
        """Return what the kernel may see of responses that are drawn there."""
        penalties = np.zeros(at.responses.shape)
        kind, _, place = estimator.kl.name.partition(" in ")
        if self.kl is not None and place == "reward":
            terms = DIVERGENCES[kind](np.log(at.tokens) - self.log_reference)
            penalties = self.kl.strength * np.stack([terms[:, edges].sum(axis=1) for edges in self.edges], axis=1)
        z, p = (self.bandit.values - penalties[:, :, None]).reshape(at.outcomes.shape), at.outcomes
        norms = (at.scores**2).sum(axis=2)
        repeated = np.repeat(norms, self.bandit.values.size, axis=1)
        value = (p * z).sum(axis=1)
        deviation = np.sqrt((p * (z - value[:, None]) ** 2).sum(axis=1))
        return Seen(z, norms, self.lengths, value, deviation, (p * repeated * z).sum(axis=1) / (p * repeated).sum(axis=1))

    def gradients(self, at: At):
        """Return the prompts' logit gradients (M, D) and gradients (M, d) of the objective."""
        z = self.seen(at, gt.estimators()["reinforce"]).rewards
        by_response = (at.outcomes * z).reshape(*at.responses.shape, -1).sum(axis=2)
        weights = np.zeros((self.n_prompts, self.n_logits))
        for k, edges in enumerate(self.edges):
            weights[:, edges] += by_response[:, [k]]
        expected = self.by_prefix(at.tokens) * self.by_prefix(weights).sum(axis=2, keepdims=True)
        return weights - expected.reshape(weights.shape), np.einsum("mk,mkd->md", by_response, at.scores)

    def draw(self, at: At, table, uniforms):
        """Draw prompts (B,) and outcomes (B, G) from uniforms (1 + G, B): by an alias table (M, 2), and by inversion."""
        x = uniforms[0] * self.n_prompts
        place = x.astype(int)
        prompts = np.where(x - place >= table[place, 0], table[place, 1].astype(int), place)
        below = np.cumsum(at.outcomes, axis=1)[prompts, :-1]
        return prompts, (uniforms[1:].T[:, :, None] >= below[:, None, :]).sum(axis=2)

    def advantages(self, at: At, estimator, prompts, outcomes):
        """Run the kernel as plain Python on a batch."""
        seen, responses = self.seen(at, estimator), outcomes // self.bandit.values.size
        batch = gt.Batch(
            seen.rewards[prompts[:, None], outcomes],
            seen.norms[prompts[:, None], responses],
            seen.lengths[responses],
            np.log(at.responses[prompts[:, None], responses]),
            seen.values[prompts],
            seen.standard_deviations[prompts],
            seen.optimal_baselines[prompts],
            np.array(list(estimator.advantage.parameters.values()), dtype=np.float64),
        )
        found = np.full(outcomes.shape, np.nan)
        estimator.advantage.function(batch, found)
        return found

    def weights(self, now: At, then: At, estimator, prompt, response, advantage):
        """Return what the tokens of a response weigh, before pooling: ratio, clip, share, and the slope of a KL term."""
        edges, aggregation, clip = self.edges[response], estimator.aggregation, estimator.clip
        share = SHARES[aggregation.name](len(edges), self.lengths.max())
        ratios = RATIOS[estimator.ratio.name](now.tokens[prompt, edges] / then.tokens[prompt, edges])
        weights = advantage * np.array([clipped(clip.name, r, advantage > 0.0, clip.low, clip.high) for r in ratios])
        kind, _, place = estimator.kl.name.partition(" in ")
        if place == "loss":
            log_ratios = np.log(now.tokens[prompt, edges]) - self.log_reference[prompt, edges]
            weights = weights - self.kl.strength * SLOPES[kind](log_ratios)
        return share * weights

    def clipped(self, now: At, then: At, estimator, prompts, outcomes, advantages):
        """Count the tokens whose ratio a clip has changed, of responses with positive and with negative advantages."""
        counts, clip = np.zeros(2, dtype=int), estimator.clip
        for b, m in enumerate(prompts):
            for g, k in enumerate(outcomes[b] // self.bandit.values.size):
                edges, advantage = self.edges[k], advantages[b, g]
                ratios = RATIOS[estimator.ratio.name](now.tokens[m, edges] / then.tokens[m, edges])
                changed = [clipped(clip.name, r, advantage > 0.0, clip.low, clip.high) for r in ratios] != ratios
                counts += changed.sum() * np.array([advantage > 0.0, advantage < 0.0])
        return counts

    def estimates(self, now: At, then: At, estimator, prompts, outcomes, advantages):
        """Return the estimate of each group of a batch, (B, d), whose responses were drawn at another point."""
        batch_size, group_size = outcomes.shape
        found, tokens = np.zeros((batch_size, self.dimension)), np.zeros(batch_size)
        for b, m in enumerate(prompts):
            for g, k in enumerate(outcomes[b] // self.bandit.values.size):
                weights = self.weights(now, then, estimator, m, k, advantages[b, g])
                found[b] += weights @ now.token_scores[m, self.edges[k]] / group_size
                tokens[b] += len(self.edges[k])
        if estimator.aggregation.name == "group tokens":
            found *= group_size / tokens[:, None]
        if estimator.aggregation.name == "batch tokens":
            found *= batch_size * group_size / tokens.sum()
        return found
