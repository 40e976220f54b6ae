"""The tests' oracle for sequences: all sequences of a tree and all ordered groups of them, by brute force.

It shares no code with the library's exact sums. From the library it takes the advantage kernels, which it runs as plain Python,
and the names and widths of an estimator's parts. It also takes the numbers that make up a problem: features, parameters, reward
probabilities, and the penalty's strength and reference. What is written for real parameters here also takes complex ones, so that
a step along the imaginary axis gives derivatives to machine precision.
"""

from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

import grpo_theory as gt

SEED = 2
"""Of the problems: with it none is next to deterministic."""


@dataclass(frozen=True, eq=False)
class Case:
    """A problem on a tree with its features written out, shape (M, D, d), and two parameters, far from each other."""

    problem: gt.Problem
    vocabulary_size: int
    horizon: int
    end_token: int | None
    features: np.ndarray
    theta: np.ndarray
    behaviour: np.ndarray


class Prompt(NamedTuple):
    """One prompt's outcomes (O,), and what a kernel sees of them: all of the policy that sampled."""

    probabilities: np.ndarray
    responses: np.ndarray
    rewards: np.ndarray
    norms: np.ndarray
    lengths: np.ndarray
    value: float
    standard_deviation: float
    optimal_baseline: float


class Groups(NamedTuple):
    """All ordered groups of one prompt: outcomes (n, G), probabilities (n,), sums over the responses (n, d), tokens (n,)."""

    rows: np.ndarray
    probabilities: np.ndarray
    sums: np.ndarray
    tokens: np.ndarray


class Law(NamedTuple):
    """Mean (d,), covariance (d, d) and squared error about the gradient at theta, of a batch, and of a group of each prompt."""

    mean: np.ndarray
    covariance: np.ndarray
    mse: float
    prompt_mses: np.ndarray


def case(
    features="shared", rewards="binary", penalty="plain", vocabulary_size=2, horizon=3, end_token=1, n_prompts=2, distance=0.8
) -> Case:
    """Make a small problem on a tree; some rewards are certain, and the prompts are not equally likely."""
    key = ("tabular", "shared").index(features), ("binary", "graded").index(rewards), ("plain", "kl").index(penalty)
    rng = np.random.default_rng([SEED, *key, vocabulary_size, horizon, n_prompts])
    n_responses = len(list_responses(vocabulary_size, horizon, end_token))
    n_edges = vocabulary_size * len(list_prefixes(vocabulary_size, horizon, end_token))
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
    behaviour = theta + distance * away
    problem = gt.Problem(bandit, policy, kl, theta)
    return Case(problem, vocabulary_size, horizon, end_token, table, theta, behaviour)


@cache
def list_responses(vocabulary_size, horizon, end_token=None):
    """Cut every word of full length at its first end token, and sort what is left."""
    found = set()
    for word in product(range(vocabulary_size), repeat=horizon):
        end = word.index(end_token) + 1 if end_token in word else horizon
        found.add(word[:end])
    return sorted(found)


@cache
def list_prefixes(vocabulary_size, horizon, end_token=None):
    """List the beginnings of responses, shortest first."""
    beginnings = {word[:t] for word in list_responses(vocabulary_size, horizon, end_token) for t in range(len(word))}
    return sorted(beginnings, key=lambda prefix: (len(prefix), prefix))


def responses(c: Case):
    """Return the responses of a case."""
    return list_responses(c.vocabulary_size, c.horizon, c.end_token)


def next_token(c: Case, theta, m, prefix):
    """Return the features of the tokens after a prefix, shape (V, d), and the log probabilities of the tokens, shape (V,)."""
    place = list_prefixes(c.vocabulary_size, c.horizon, c.end_token).index(prefix) * c.vocabulary_size
    features = c.features[m, place : place + c.vocabulary_size]
    logits = features @ theta
    logits = logits - logits.real.max()
    return features, logits - np.log(np.exp(logits).sum())


def token_logs(c: Case, theta, m, response):
    """Return the log probability of each token of a response given those before it, shape (T,)."""
    return _tokens(c, theta.dtype.str, theta.tobytes(), m, response)[0]


def token_scores(c: Case, theta, m, response):
    """Return the gradient of each of those log probabilities by the chain rule, shape (T, d)."""
    return _tokens(c, theta.dtype.str, theta.tobytes(), m, response)[1]


@lru_cache(maxsize=4096)
def _tokens(c: Case, kind, theta, m, response):
    """Return both; remembered, because many estimators are tried on one problem."""
    logs, scores = [], []
    for t, token in enumerate(response):
        features, next_logs = next_token(c, np.frombuffer(theta, kind), m, response[:t])
        logs.append(next_logs[token])
        scores.append(features[token] - np.exp(next_logs) @ features)
    return np.array(logs), np.array(scores)


@lru_cache(maxsize=256)
def reference_logs(c: Case, m, response):
    """Return the log probability of each token under the reference, from its probabilities of whole responses."""
    reference = dict(zip(responses(c), c.problem.kl.reference[m], strict=True))

    def mass(prefix):
        return sum(p for word, p in reference.items() if word[: len(prefix)] == prefix)

    return np.array([np.log(mass(response[: t + 1]) / mass(response[:t])) for t in range(len(response))])


def log_probabilities(c: Case, theta):
    """Return the log probability of every response, shape (M, K)."""
    return np.array([[token_logs(c, theta, m, r).sum() for r in responses(c)] for m in range(len(c.features))])


def probabilities(c: Case, theta):
    """Return the probability of every response, shape (M, K)."""
    return np.exp(log_probabilities(c, theta))


def scores(c: Case, theta):
    """Return the score of every response, shape (M, K, d)."""
    return np.array([[token_scores(c, theta, m, r).sum(axis=0) for r in responses(c)] for m in range(len(c.features))])


def differentiate(function, theta):
    """Return the derivatives of a function of theta in each coordinate, along the last axis, by a complex step."""
    step = 1e-40
    return np.stack([np.imag(function(theta + 1j * step * e)) / step for e in np.eye(len(theta))], axis=-1)


def objective(c: Case, theta):
    """Return E[Z] - strength E[log(pi / reference)], the sum over prompts and responses."""
    total = 0.0
    pi, mean = probabilities(c, theta), c.problem.bandit.probabilities @ c.problem.bandit.values
    for m, weight in enumerate(c.problem.bandit.prompt_weights):
        for k in range(len(responses(c))):
            penalty = c.problem.kl.strength * np.log(pi[m, k] / c.problem.kl.reference[m, k]) if c.problem.kl else 0.0
            total = total + weight * pi[m, k] * (mean[m, k] - penalty)
    return total


def prompt_gradients(c: Case, theta):
    """Return the gradient of each prompt's objective: E[(Z - strength log(pi / reference)) W], shape (M, d)."""
    return _prompt_gradients(c, theta.dtype.str, theta.tobytes())


@lru_cache(maxsize=256)
def _prompt_gradients(c: Case, kind, theta):
    """Return them; remembered as the tokens are."""
    theta = np.frombuffer(theta, kind)
    pi, mean, w = probabilities(c, theta), c.problem.bandit.probabilities @ c.problem.bandit.values, scores(c, theta)
    logs = log_probabilities(c, theta)
    penalty = c.problem.kl.strength * (logs - np.log(c.problem.kl.reference)) if c.problem.kl else 0.0
    return np.einsum("mk,mk,mkd->md", pi, mean - penalty, w)


def gradient(c: Case, theta):
    """Return the gradient of the objective, shape (d,)."""
    return c.problem.bandit.prompt_weights @ prompt_gradients(c, theta)


def hessian(c: Case, theta):
    """Return the derivative of that gradient by a complex step, shape (d, d)."""
    return differentiate(lambda complex_theta: gradient(c, complex_theta), theta)


DIVERGENCES = {
    "k1": lambda logs: logs,
    "k2": lambda logs: logs**2 / 2.0,
    "k3": lambda logs: np.exp(-logs) - 1.0 + logs,
}
"""Estimators of KL(pi || reference), of log(pi/reference) of a token."""

SLOPES = {
    "k1": lambda logs: np.ones_like(logs),
    "k2": lambda logs: logs,
    "k3": lambda logs: 1.0 - np.exp(-logs),
}
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


def response_terms(c: Case, m, estimator: gt.Estimator, theta, behaviour):
    """Return what a response adds to the estimate: for positive, for other advantages of 1, and besides, shape (3, K, d)."""
    ratio, clip, aggregation, kl = estimator.ratio, estimator.clip, estimator.aggregation, estimator.kl
    constant = c.horizon if aggregation.constant is None else aggregation.constant
    terms = np.zeros((3, len(responses(c)), len(theta)))
    for k, response in enumerate(responses(c)):
        now, then = token_logs(c, theta, m, response), token_logs(c, behaviour, m, response)
        if np.exp(then.sum()) == 0.0:
            continue  # it is never drawn
        w = token_scores(c, theta, m, response)
        share = SHARES[aggregation.name](len(response), constant)
        for t, r in enumerate(RATIOS[ratio.name](np.exp(now) / np.exp(then))):
            for place, positive in enumerate((True, False)):
                terms[place, k] += share * clipped(clip.name, r, positive, clip.low, clip.high) * w[t]
        if c.problem.kl is not None and kl.name.endswith("in loss"):
            slopes = SLOPES[kl.name[:2]](now - reference_logs(c, m, response))
            terms[2, k] = -c.problem.kl.strength * share * (slopes @ w)
    return terms


def look(c: Case, m, estimator: gt.Estimator, behaviour) -> Prompt:
    """Write out the outcomes of a prompt as a kernel sees them."""
    return _look(c, m, estimator.kl.name, behaviour.dtype.str, behaviour.tobytes())


@lru_cache(maxsize=256)
def _look(c: Case, m, kl, kind, behaviour) -> Prompt:
    """Return it; remembered, because the mixtures of one kernel and penalty see the same."""
    behaviour = np.frombuffer(behaviour, kind)
    values, law = c.problem.bandit.values, c.problem.bandit.probabilities
    found = []
    for k, response in enumerate(responses(c)):
        logs = token_logs(c, behaviour, m, response)
        penalty = 0.0
        if c.problem.kl is not None and kl.endswith("in reward") and np.exp(logs.sum()) > 0.0:
            terms = DIVERGENCES[kl[:2]](logs - reference_logs(c, m, response))
            penalty = c.problem.kl.strength * terms.sum()
        norm = (token_scores(c, behaviour, m, response).sum(axis=0) ** 2).sum()
        for value, p in zip(values, law[m, k], strict=True):
            found.append((np.exp(logs.sum()) * p, k, value - penalty, norm, len(response)))
    p, k, z, norms, lengths = (np.array(column) for column in zip(*found, strict=True))
    mean = (p * z).sum()
    deviation, baseline = np.sqrt((p * (z - mean) ** 2).sum()), (p * norms * z).sum() / (p * norms).sum()
    return Prompt(p, k, z, norms, lengths, mean, deviation, baseline)


def advantages(advantage, prompt: Prompt, rows):
    """Run the kernel as plain Python on groups of outcomes of one prompt, shape (n, G)."""
    batch = gt.Batch(
        rewards=prompt.rewards[rows],
        squared_score_norms=prompt.norms[rows],
        lengths=prompt.lengths[rows],
        values=np.full(len(rows), prompt.value),
        standard_deviations=np.full(len(rows), prompt.standard_deviation),
        optimal_baselines=np.full(len(rows), prompt.optimal_baseline),
        parameters=np.array(list(advantage.parameters.values()), dtype=np.float64),
    )
    filled = np.full(rows.shape, np.nan)
    advantage.function(batch, filled)
    return filled


@lru_cache(maxsize=64)
def _drawn(c: Case, m, advantage, kl, group_size, kind, behaviour):
    """Return all ordered groups of outcomes and their advantages, (n, G) each; remembered as what they are shown is."""
    drawn = _look(c, m, kl, kind, behaviour)
    possible = [o for o, p in enumerate(drawn.probabilities) if p > 0.0]
    rows = np.array(list(product(possible, repeat=group_size)))
    return rows, advantages(advantage, drawn, rows)


def groups(c: Case, m, estimator: gt.Estimator, group_size, theta, behaviour, prompt=None) -> Groups:
    """Write out all ordered groups of outcomes; the kernel sees another `prompt` if one is given."""
    drawn = look(c, m, estimator, behaviour)
    rows, a = _drawn(c, m, estimator.advantage, estimator.kl.name, group_size, behaviour.dtype.str, behaviour.tobytes())
    if prompt is not None:
        a = advantages(estimator.advantage, prompt, rows)
    positive, other, besides = response_terms(c, m, estimator, theta, behaviour)
    k = drawn.responses[rows]
    sums = np.zeros((len(rows), len(theta)))
    for g in range(group_size):
        up = a[:, g, None] > 0.0
        sums += a[:, g, None] * np.where(up, positive[k[:, g]], other[k[:, g]]) + besides[k[:, g]]
    return Groups(rows, drawn.probabilities[rows].prod(axis=1), sums, drawn.lengths[rows].sum(axis=1))


def group_estimates(c: Case, m, estimator: gt.Estimator, group_size, theta, behaviour, prompt=None):
    """Return the estimates of all ordered groups, shape (n, d), and their probabilities, shape (n,)."""
    found = groups(c, m, estimator, group_size, theta, behaviour, prompt)
    pooled = estimator.aggregation.name == "group tokens"
    return found.sums / (found.tokens[:, None] if pooled else group_size), found.probabilities


def batch_law(c: Case, estimator: gt.Estimator, batch_size, group_size, theta=None, behaviour=None, looks=None) -> Law:
    """Sum over all groups of all prompts; B groups of a batch are independent."""
    theta = c.theta if theta is None else theta
    behaviour = theta if behaviour is None else behaviour
    truths = prompt_gradients(c, theta)
    mean, second, errors = 0.0, 0.0, []
    for m, weight in enumerate(c.problem.bandit.prompt_weights):
        estimates, p = group_estimates(c, m, estimator, group_size, theta, behaviour, looks and looks[m])
        mean = mean + weight * (p @ estimates)
        second = second + weight * (estimates.T @ (p[:, None] * estimates))
        errors.append(p @ ((estimates - truths[m]) ** 2).sum(axis=1))
    covariance = (second - np.outer(mean, mean)) / batch_size
    bias = mean - c.problem.bandit.prompt_weights @ truths
    return Law(mean, covariance, float(np.trace(covariance) + bias @ bias), np.array(errors))


def two_group_batches(c: Case, estimator: gt.Estimator, group_size, theta, behaviour):
    """Return the estimates of all batches of two groups, shape (n, d), and their probabilities, shape (n,).

    Every pair of prompts and of ordered groups is there; a batch that shares out its tokens is divided by the number of them.
    """
    sums, tokens, p = [], [], []
    for m, weight in enumerate(c.problem.bandit.prompt_weights):
        found = groups(c, m, estimator, group_size, theta, behaviour)
        sums.append(found.sums)
        tokens.append(found.tokens)
        p.append(weight * found.probabilities)
    s, n, p = np.concatenate(sums), np.concatenate(tokens), np.concatenate(p)
    pooled = estimator.aggregation.name
    if pooled == "batch tokens":
        estimates = (s[:, None] + s[None]) / (n[:, None] + n[None])[:, :, None]
    elif pooled == "group tokens":
        estimates = (s[:, None] / n[:, None, None] + s[None] / n[None, :, None]) / 2.0
    else:
        estimates = (s[:, None] + s[None]) / (2.0 * group_size)
    return estimates.reshape(-1, len(theta)), np.outer(p, p).reshape(-1)


def assert_close(found, expected, tolerance=1e-12):
    """Assert agreement to a tolerance relative to the largest entry, or to 1/20 if all are smaller."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape, (found.shape, expected.shape)
    assert np.isfinite(expected).all()
    gap = np.abs(found - expected).max()
    assert gap <= tolerance * max(0.05, np.abs(expected).max()), gap


def assert_law(law: gt.GradientLaw, expected: Law, tolerance=1e-12):
    """Assert that mean, covariance and squared errors of an exact law agree with the enumeration."""
    assert_close(law.mean, expected.mean, tolerance)
    assert_close(law.covariance(), expected.covariance, tolerance)
    assert_close(law.mse, expected.mse, tolerance)
    assert_close(law.prompt_mses, expected.prompt_mses, tolerance)
