"""The tests' oracle: all responses token by token, and all ordered groups of outcomes, sharing no code with exact sums.

From the library it takes the advantage kernels, which it runs as plain Python, and the names and widths of an estimator's parts.
It also takes the tokens of the responses, and the numbers that make up a problem. What is written for real parameters also
takes complex ones, so that a step along the imaginary axis gives derivatives to machine precision. A bandit is a tree of one
token.
"""

import dataclasses
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

import grpo_theory as gt
from grpo_theory.problem.logits import FeatureMap, HeadMap, TabularMap


@dataclass(frozen=True, eq=False)
class Case:
    """A problem with the features of its edges written out, shape (M, D, d), and a policy that may have sampled."""

    problem: gt.Problem
    features: np.ndarray
    behaviour: np.ndarray | None = None

    @property
    def bandit(self) -> gt.Bandit:
        return self.problem.bandit

    @property
    def policy(self) -> gt.Policy:
        return self.problem.policy

    @property
    def theta(self) -> np.ndarray:
        return self.problem.theta

    @property
    def kl(self) -> gt.KL | None:
        return self.problem.kl

    def features_at(self, theta):
        """Return the logits and their derivatives in theta, shapes (M, D) and (M, D, d)."""
        return self.features @ theta, self.features

    def replace(self, **parts) -> "Case":
        """Return the case with other parts of its problem; the features stay."""
        return dataclasses.replace(self, problem=dataclasses.replace(self.problem, **parts))


class Prompt(NamedTuple):
    """One prompt's outcomes: probabilities, rewards, scores (O, d), what oracles know of it, responses, lengths."""

    probabilities: np.ndarray
    rewards: np.ndarray
    scores: np.ndarray
    value: float
    standard_deviation: float
    optimal_baseline: float
    gradient: np.ndarray
    responses: np.ndarray
    lengths: np.ndarray


class Law(NamedTuple):
    """Moments of the estimate of a batch, its error and efficiency; and errors and traces of a group of each prompt."""

    mean: np.ndarray
    covariance: np.ndarray
    mse: float
    efficiency: float
    prompt_mses: np.ndarray
    prompt_traces: np.ndarray


POLICIES = ("tabular", "linear", "head")
REWARDS = ("binary", "graded")
PENALTIES = ("plain", "kl")
CASES = list(product(POLICIES, REWARDS, PENALTIES))
TREES = list(product(("tabular tree", "shared tree"), REWARDS, PENALTIES))
NAMED = tuple(
    name
    for name, found in gt.estimators().items()
    if found.advantage.name == name and found.advantage.function.__module__ == "grpo_theory.estimation.named"
)
"""The library's kernels, each by itself: no ratio, no clip, no aggregation."""


def policy_of(kind, like, rng):
    """Return a policy with another's responses, and the features of its edges, shape (M, D, d)."""
    paths, m, d = like.paths, like.n_prompts, like.n_logits
    if kind == "tabular":
        return gt.Policy(TabularMap(m, d), paths), np.eye(m * d).reshape(m, d, -1)
    if kind == "linear":
        features = rng.normal(size=(m, d, 3))
        return gt.Policy(FeatureMap(features), paths), features
    hidden = rng.normal(size=(m, 2))
    return gt.Policy(HeadMap(hidden, d), paths), np.stack([np.kron(np.eye(d), h[None]) for h in hidden])


def case(policy="tabular", rewards="binary", penalty="plain") -> Case:
    """Make a small problem of single responses, or of sequences; a reward of certain value is among its outcomes."""
    if policy.endswith("tree"):
        return tree_case(policy.split()[0], rewards, penalty, vocabulary_size=3)
    rng = np.random.default_rng([POLICIES.index(policy), REWARDS.index(rewards), PENALTIES.index(penalty)])
    weights = np.array([0.7, 0.3])
    if rewards == "binary":
        responses = 3
        bandit = gt.Bandit([[0.0, 0.3, 0.8], [0.6, 1.0, 0.1]], weights)
    else:
        responses = 2
        bandit = gt.Bandit.from_law([-0.5, 1.0, 2.0], rng.dirichlet(np.ones(3), size=(2, 2)), weights)
    made, features = policy_of(policy, gt.TabularSoftmax(2, responses), rng)
    theta = rng.normal(size=made.dimension)
    kl = gt.KL(0.3, rng.dirichlet(np.full(responses, 3.0), size=2)) if penalty == "kl" else None
    return Case(gt.Problem(bandit, made, kl, theta), features)


SEED = 2
"""Of the trees: with it none is next to deterministic."""


def tree_case(
    features="shared", rewards="binary", penalty="plain", vocabulary_size=2, horizon=3, end_token=1, n_prompts=2, distance=0.8
) -> Case:
    """Make a small problem on a tree, and a policy far from its own; some rewards are certain, and prompts not equally likely."""
    key = ("tabular", "shared").index(features), ("binary", "graded").index(rewards), ("plain", "kl").index(penalty)
    rng = np.random.default_rng([SEED, *key, vocabulary_size, horizon, n_prompts])
    paths = gt.TokenTree(n_prompts, vocabulary_size, horizon, end_token).paths
    n_responses, n_edges = paths.n_responses, paths.n_logits
    if features == "tabular":
        given, table = None, np.eye(n_prompts * n_edges).reshape(n_prompts, n_edges, -1)
    else:
        given = table = rng.normal(size=(n_prompts, n_edges, 3)) / np.sqrt(3.0)
    weights = rng.dirichlet(np.full(n_prompts, 5.0))
    if rewards == "binary":
        success = rng.uniform(0.05, 0.95, (n_prompts, n_responses))
        success[0, 0], success[-1, 1] = 0.0, 1.0
        bandit = gt.Bandit(success, weights)
    else:
        bandit = gt.Bandit.from_law([-0.5, 1.0, 2.0], rng.dirichlet(np.ones(3), size=(n_prompts, n_responses)), weights)
    kl = gt.KL(0.3, rng.dirichlet(np.full(n_responses, 2.0), size=n_prompts)) if penalty == "kl" else None
    policy = gt.TokenTree(n_prompts, vocabulary_size, horizon, end_token, given)
    theta, away = 0.8 * rng.normal(size=(2, policy.dimension))
    if features == "shared":
        theta, away = (np.sqrt(3.0) * vector / np.linalg.norm(vector) for vector in (theta, away))
    return Case(gt.Problem(bandit, policy, kl, theta), table, theta + distance * away)


def responses(c: Case):
    """Return the responses of a case."""
    return c.policy.paths.tokens


@lru_cache(maxsize=256)
def prefixes(c: Case):
    """List the beginnings of responses, shortest first."""
    return sorted({word[:t] for word in responses(c) for t in range(len(word))}, key=lambda prefix: (len(prefix), prefix))


def token_logs(c: Case, theta, m, response):
    """Return the log probability of each token of a response given those before it, shape (T,)."""
    dense = Dense.of(c)
    return dense.at(theta).logs[m, dense.edges[responses(c).index(response)]]


def token_scores(c: Case, theta, m, response):
    """Return the gradient of each of those log probabilities by the chain rule, shape (T, d)."""
    dense = Dense.of(c)
    return dense.at(theta).token_scores[m, dense.edges[responses(c).index(response)]]


def reference_logs(c: Case, m, response):
    """Return the log probability of each token under the reference, from its probabilities of whole responses."""
    dense = Dense.of(c)
    return dense.log_reference[m, dense.edges[responses(c).index(response)]]


def differentiate(function, theta):
    """Return the derivatives of a function of theta in each coordinate, along the last axis, by a complex step."""
    step = 1e-40
    return np.stack([np.imag(function(theta + 1j * step * e)) / step for e in np.eye(len(theta))], axis=-1)


def objective(c: Case, theta):
    """Return the objective."""
    return sum(f * prompt.value for f, prompt in zip(c.bandit.prompt_weights, prompts(c, behaviour=theta), strict=True))


def prompt_gradients(c: Case, theta):
    """Return the gradient of each prompt's objective: E[(Z - strength log(pi / reference)) W], shape (M, d)."""
    return np.array([prompt.gradient for prompt in prompts(c, behaviour=theta)])


def gradient(c: Case, theta):
    """Return the gradient of the objective, shape (d,)."""
    return c.bandit.prompt_weights @ prompt_gradients(c, theta)


def hessian(c: Case, theta):
    """Return the derivative of that gradient by a complex step, shape (d, d)."""
    return differentiate(lambda complex_theta: gradient(c, complex_theta), theta)


DIVERGENCES = {"k1": lambda logs: logs, "k2": lambda logs: logs**2 / 2.0, "k3": lambda logs: np.exp(-logs) - 1.0 + logs}
"""Estimators of KL(pi || reference), of log(pi/reference) of a token."""

SLOPES = {"k1": lambda logs: np.ones_like(logs), "k2": lambda logs: logs, "k3": lambda logs: 1.0 - np.exp(-logs)}
"""Their derivatives."""

RATIOS = {
    "none": lambda r: np.ones_like(r),
    "token": lambda r: r,
    "trajectory": lambda r: np.full_like(r, prod(r)),
    "geometric": lambda r: np.full_like(r, prod(r) ** (1.0 / len(r))),
}
"""What the ratio of a response's tokens is, given pi/pi_0 of each."""

SHARES = {
    "sum": lambda length, constant: 1.0,
    "own length": lambda length, constant: 1.0 / length,
    "constant": lambda length, constant: 1.0 / constant,
    "group tokens": lambda length, constant: 1.0,
    "batch tokens": lambda length, constant: 1.0,
}
"""What a token weighs in its response; the last two are divided by the tokens of the group or the batch besides."""


def clipped(name, ratio, positive, low, high):
    """Return what a ratio weighs after the clip."""
    if name in ("cap", "cap at high", "clamp"):
        cut = min(ratio, high if name == "cap at high" else 1.0 + high)
        return max(cut, 1.0 - low) if name == "clamp" else cut
    too_high, too_low = ratio > 1.0 + high, ratio < 1.0 - low
    dropped = {
        "none": False,
        "two-sided": too_high or too_low,
        "upper only": too_high,
        "by sign": too_high if positive else too_low,
        "dual": too_high if positive else too_low or ratio > 3.0,
    }[name]
    return 0.0 if dropped else ratio


class At(NamedTuple):
    """A problem at a theta.

    It has logs of the probabilities of tokens given their prefixes (M, D), and scores of tokens, one for each edge (M, D, d).
    It has probabilities of responses (M, K) and of outcomes (M, O), and scores of responses (M, K, d).
    """

    theta: np.ndarray
    logs: np.ndarray
    token_scores: np.ndarray
    responses: np.ndarray
    outcomes: np.ndarray
    scores: np.ndarray

    @property
    def tokens(self):
        return np.exp(self.logs)


class Dense:
    """A problem written out in plain dense arithmetic: what a batch says of the gradient, for every composition."""

    def __init__(self, c: Case) -> None:
        self.case, self.bandit, self.kl = c, c.bandit, c.kl
        self.vocabulary_size = size = c.policy.paths.vocabulary_size
        self.edges = [[prefixes(c).index(word[:t]) * size + word[t] for t in range(len(word))] for word in responses(c)]
        self.lengths = np.array([len(edges) for edges in self.edges])
        self.n_prompts, self.n_logits, self.dimension = c.features.shape

    @staticmethod
    @lru_cache(maxsize=256)
    def of(c: Case) -> "Dense":
        """Return a case written out; remembered, because many estimators are tried on one problem."""
        return Dense(c)

    def by_prefix(self, array):
        """Split the axis of edges into prefixes and tokens."""
        return array.reshape(self.n_prompts, -1, self.vocabulary_size, *array.shape[2:])

    def at(self, theta) -> At:
        """Write out the policy and its scores."""
        return self._at(theta.dtype.str, theta.tobytes())

    @lru_cache(maxsize=4096)  # noqa: B019
    def _at(self, kind, theta):
        theta = np.frombuffer(theta, kind)
        logits, features = self.case.features_at(theta)
        logits, by_prefix = self.by_prefix(logits), self.by_prefix(features)
        logits = logits - logits.real.max(axis=2, keepdims=True)
        logs = logits - np.log(np.exp(logits).sum(axis=2, keepdims=True))
        token_scores = (by_prefix - np.einsum("mpv,mpvd->mpd", np.exp(logs), by_prefix)[:, :, None]).reshape(features.shape)
        logs = logs.reshape(self.n_prompts, -1)
        responses = np.exp(np.stack([logs[:, edges].sum(axis=1) for edges in self.edges], axis=1))
        outcomes = (responses[:, :, None] * self.bandit.probabilities).reshape(self.n_prompts, -1)
        scores = np.stack([token_scores[:, edges].sum(axis=1) for edges in self.edges], axis=1)
        return At(theta, logs, token_scores, responses, outcomes, scores)

    @cached_property
    def log_reference(self):
        """The reference's log probabilities of tokens given their prefixes, (M, D)."""
        mass = np.zeros((self.n_prompts, self.n_logits))
        for k, edges in enumerate(self.edges):
            mass[:, edges] += self.kl.reference[:, [k]]
        mass = self.by_prefix(mass)
        return np.log(mass / mass.sum(axis=2, keepdims=True)).reshape(self.n_prompts, -1)

    def seen(self, at: At, estimator) -> Prompt:
        """Return what is known of all prompts, the penalty as an estimator's KL term has it, if responses are drawn there."""
        return self.known(at, estimator.kl.name)

    def known(self, at: At, kl) -> Prompt:
        """Return the same for the name of a KL term."""
        penalties, size = np.zeros(at.responses.shape), self.bandit.values.size
        if self.kl is not None and kl.endswith("in reward"):
            terms = DIVERGENCES[kl[:2]](at.logs - self.log_reference)
            penalties = self.kl.strength * np.stack([terms[:, edges].sum(axis=1) for edges in self.edges], axis=1)
        p, z = at.outcomes, (self.bandit.values - penalties[:, :, None]).reshape(at.outcomes.shape)
        w, places = np.repeat(at.scores, size, axis=1), np.tile(np.arange(len(self.lengths)).repeat(size), (len(p), 1))
        value, norms = (p * z).sum(axis=1), (w**2).sum(axis=2)
        deviation = np.sqrt((p * (z - value[:, None]) ** 2).sum(axis=1))
        baseline = (p * norms * z).sum(axis=1) / (p * norms).sum(axis=1)
        gradient = np.einsum("mo,mod->md", p * z, w)
        return Prompt(p, z, w, value, deviation, baseline, gradient, places, self.lengths[places])

    def draw(self, at: At, table, uniforms):
        """Draw prompts (B,) and outcomes (B, G) from uniforms (1 + G, B): by an alias table (M, 2), and by inversion."""
        x = uniforms[0] * self.n_prompts
        place = x.astype(int)
        prompts = np.where(x - place >= table[place, 0], table[place, 1].astype(int), place)
        below = np.cumsum(at.outcomes, axis=1)[prompts, :-1]
        return prompts, (uniforms[1:].T[:, :, None] >= below[:, None, :]).sum(axis=2)

    def advantages(self, at: At, estimator, prompts, outcomes):
        """Run the kernel as plain Python on a batch."""
        tables = [Prompt(*row) for row in zip(*self.seen(at, estimator), strict=True)]
        return advantages(estimator, [tables[m] for m in prompts], outcomes)

    def ratios(self, now: At, then: At, estimator, m, k):
        """Return the ratios of the tokens of a response."""
        return RATIOS[estimator.ratio.name](np.exp(now.logs[m, self.edges[k]]) / np.exp(then.logs[m, self.edges[k]]))

    def weights(self, now: At, then: At, estimator, m, k, advantage):
        """Return what the tokens of a response weigh, before pooling: ratio, clip, share, and the slope of a KL term."""
        edges, aggregation, clip, kl = self.edges[k], estimator.aggregation, estimator.clip, estimator.kl.name
        ratios = self.ratios(now, then, estimator, m, k)
        weights = advantage * np.array([clipped(clip.name, r, advantage > 0.0, clip.low, clip.high) for r in ratios])
        if kl.endswith("in loss"):
            weights = weights - self.kl.strength * SLOPES[kl[:2]](now.logs[m, edges] - self.log_reference[m, edges])
        return SHARES[aggregation.name](len(edges), aggregation.constant or self.lengths.max()) * weights

    def clipped(self, now: At, then: At, estimator, prompts, outcomes, advantages):
        """Count the tokens whose ratio a clip has changed, of responses with positive and with negative advantages."""
        counts, clip = np.zeros(2, dtype=int), estimator.clip
        for b, m in enumerate(prompts):
            for k, advantage in zip(outcomes[b] // self.bandit.values.size, advantages[b], strict=True):
                ratios = self.ratios(now, then, estimator, m, k)
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


def response_terms(c: Case, m, estimator: gt.Estimator, theta, behaviour):
    """Return what a response adds to the estimate: for positive, for other advantages of 1, and besides, shape (3, K, d)."""
    dense, terms = Dense.of(c), np.zeros((3, len(responses(c)), len(theta)))
    now, then = dense.at(theta), dense.at(behaviour)
    for k in np.flatnonzero(then.responses[m]):  # others are never drawn
        weights = np.array([dense.weights(now, then, estimator, m, k, a) for a in (1.0, -1.0, 0.0)])
        up, down, besides = weights @ now.token_scores[m, dense.edges[k]]
        terms[:, k] = up - besides, besides - down, besides
    return terms


def prompts(c: Case, kl="k1 in reward", behaviour=None) -> list[Prompt]:
    """Write out the outcomes of every prompt, with the penalty as a KL term has it, of the policy that sampled."""
    dense = Dense.of(c)
    return [Prompt(*row) for row in zip(*dense.known(dense.at(c.theta if behaviour is None else behaviour), kl), strict=True)]


def groups(prompt: Prompt, group_size: int):
    """Return all ordered groups of outcomes, shape (n, G), and their probabilities, shape (n,)."""
    rows = np.array(list(product(np.flatnonzero(prompt.probabilities > 0.0), repeat=group_size)))
    return rows, prompt.probabilities[rows].prod(axis=1)


def advantages(estimator: gt.Estimator, tables: list[Prompt], rows) -> np.ndarray:
    """Run a kernel as plain Python on groups of outcomes (B, G), the b-th drawn from tables[b]."""
    pairs = list(zip(tables, np.asarray(rows), strict=True))
    batch = gt.Batch(
        rewards=np.array([t.rewards[row] for t, row in pairs]),
        squared_score_norms=np.array([(t.scores[row] ** 2).sum(axis=1) for t, row in pairs]),
        lengths=np.array([t.lengths[row] for t, row in pairs]),
        log_probabilities=np.log(np.array([(t.probabilities @ (t.responses[:, None] == t.responses))[row] for t, row in pairs])),
        values=np.array([t.value for t in tables]),
        standard_deviations=np.array([t.standard_deviation for t in tables]),
        optimal_baselines=np.array([t.optimal_baseline for t in tables]),
        parameters=np.array(list(estimator.advantage.parameters.values()), dtype=np.float64),
    )
    out = np.full(batch.rewards.shape, np.nan)
    estimator.advantage.function(batch, out)
    return out


def sums_of(terms, responses, a):
    """Return the sums over the responses of groups, shape (..., d), given what a response adds, and advantages (..., G)."""
    positive, other, besides = terms
    a = a[..., None]
    return (a * np.where(a > 0.0, positive[responses], other[responses]) + besides[responses]).sum(axis=-2)


def batch_law(c: Case, estimator: gt.Estimator, batch_size, group_size, theta=None, behaviour=None, looks=None) -> Law:
    """Sum over all groups of all prompts; B groups are independent. Kernels see other prompts if `looks` are given."""
    theta = c.theta if theta is None else theta
    behaviour = theta if behaviour is None else behaviour
    truths, f, laws = prompt_gradients(c, theta), c.bandit.prompt_weights, []
    drawn = prompts(c, estimator.kl.name, behaviour)
    for m, (prompt, seen) in enumerate(zip(drawn, looks or drawn, strict=True)):
        rows, p = groups(prompt, group_size)
        a = advantages(estimator, [seen] * len(rows), rows)
        sums = sums_of(response_terms(c, m, estimator, theta, behaviour), prompt.responses[rows], a)
        pooled = estimator.aggregation.name == "group tokens"
        estimates = sums / (prompt.lengths[rows].sum(axis=1)[:, None] if pooled else group_size)
        mean, second = p @ estimates, estimates.T @ (p[:, None] * estimates)
        error = p @ ((estimates - truths[m]) ** 2).sum(axis=1)
        laws.append((mean, second, error, np.trace(second) - mean @ mean))
    means, seconds, errors, traces = (np.array(column) for column in zip(*laws, strict=True))
    mean, truth = f @ means, f @ truths
    covariance = (np.tensordot(f, seconds, axes=1) - np.outer(mean, mean)) / batch_size
    power = np.trace(covariance) + mean @ mean
    mse = np.trace(covariance) + ((mean - truth) ** 2).sum()
    return Law(mean, covariance, float(mse), (truth @ mean) ** 2 / (truth @ truth * power), errors, traces)


def assert_close(found, expected, tolerance=1e-12):
    """Assert agreement to a tolerance relative to the largest entry, or to 1/20 if all are smaller."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape, (found.shape, expected.shape)
    assert np.isfinite(expected).all()
    gap = np.abs(found - expected).max()
    assert gap <= tolerance * max(0.05, np.abs(expected).max()), gap


def assert_law(law: gt.GradientLaw, expected: Law, tolerance=1e-12):
    """Assert that an exact law agrees with the enumeration."""
    for name in ("mean", "mse", "prompt_mses", "prompt_traces", "efficiency"):
        assert_close(getattr(law, name), getattr(expected, name), tolerance)
    assert_close(law.covariance(), expected.covariance, tolerance)
