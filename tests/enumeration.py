"""The tests' oracle: all responses token by token, and all ordered groups of outcomes, sharing no code with exact sums.

From the library it takes the advantage kernels, which it runs as plain Python, and the names and widths of an estimator's parts.
It also takes the tokens of the responses, and the numbers that make up a problem. What is written for real parameters also
takes complex ones, so that a step along the imaginary axis gives derivatives to machine precision. A bandit is a tree of one
token.
"""

import dataclasses
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

import grpo_theory as gt


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
    if policy == "tabular":
        made = gt.TabularSoftmax(2, responses)
        features = np.eye(2 * responses).reshape(2, responses, 2 * responses)
    elif policy == "linear":
        features = rng.normal(size=(2, responses, 3))
        made = gt.LinearSoftmax(features)
    else:
        hidden = rng.normal(size=(2, 2))
        made = gt.SoftmaxHead(hidden, responses)
        features = np.stack([np.kron(np.eye(responses), h[None]) for h in hidden])
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
    return _tokens(c, theta.dtype.str, theta.tobytes(), m, response)[0]


def token_scores(c: Case, theta, m, response):
    """Return the gradient of each of those log probabilities by the chain rule, shape (T, d)."""
    return _tokens(c, theta.dtype.str, theta.tobytes(), m, response)[1]


@lru_cache(maxsize=4096)
def _tokens(c: Case, kind, theta, m, response):
    """Return both; remembered, because many estimators are tried on one problem."""
    logs, scores, size = [], [], c.policy.paths.vocabulary_size
    for t, token in enumerate(response):
        place = prefixes(c).index(response[:t]) * size
        features = c.features[m, place : place + size]
        logits = features @ np.frombuffer(theta, kind)
        logits = logits - logits.real.max()
        next_logs = logits - np.log(np.exp(logits).sum())
        logs.append(next_logs[token])
        scores.append(features[token] - np.exp(next_logs) @ features)
    return np.array(logs), np.array(scores)


@lru_cache(maxsize=256)
def reference_logs(c: Case, m, response):
    """Return the log probability of each token under the reference, from its probabilities of whole responses."""
    reference = dict(zip(responses(c), c.kl.reference[m], strict=True))

    def mass(prefix):
        return sum(p for word, p in reference.items() if word[: len(prefix)] == prefix)

    return np.array([np.log(mass(response[: t + 1]) / mass(response[:t])) for t in range(len(response))])


def differentiate(function, theta):
    """Return the derivatives of a function of theta in each coordinate, along the last axis, by a complex step."""
    step = 1e-40
    return np.stack([np.imag(function(theta + 1j * step * e)) / step for e in np.eye(len(theta))], axis=-1)


def terms_of_objective(c: Case, theta):
    """Return what each response adds to the objectives of the prompts, pi (E[Z] - strength log(pi / reference)), shape (M, K)."""
    logs = np.array([[token_logs(c, theta, m, r).sum() for r in responses(c)] for m in range(len(c.features))])
    penalty = c.kl.strength * (logs - np.log(c.kl.reference)) if c.kl else 0.0
    return np.exp(logs) * (c.bandit.probabilities @ c.bandit.values - penalty)


def objective(c: Case, theta):
    """Return the objective."""
    return c.bandit.prompt_weights @ terms_of_objective(c, theta).sum(axis=1)


def prompt_gradients(c: Case, theta):
    """Return the gradient of each prompt's objective: E[(Z - strength log(pi / reference)) W], shape (M, d)."""
    scores = np.array([[token_scores(c, theta, m, r).sum(axis=0) for r in responses(c)] for m in range(len(c.features))])
    return np.einsum("mk,mkd->md", terms_of_objective(c, theta), scores)


def gradient(c: Case, theta):
    """Return the gradient of the objective, shape (d,)."""
    return c.bandit.prompt_weights @ prompt_gradients(c, theta)


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
    constant = max(map(len, responses(c))) if aggregation.constant is None else aggregation.constant
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


def prompts(c: Case, kl="k1 in reward", behaviour=None) -> list[Prompt]:
    """Write out the outcomes of every prompt, with the penalty as a KL term has it, of the policy that sampled."""
    behaviour = c.theta if behaviour is None else behaviour
    return [_look(c, m, kl, behaviour.dtype.str, behaviour.tobytes()) for m in range(len(c.features))]


@lru_cache(maxsize=256)
def _look(c: Case, m, kl, kind, behaviour) -> Prompt:
    """Return one prompt's; remembered, because the mixtures of one kernel and penalty see the same."""
    behaviour, found = np.frombuffer(behaviour, kind), []
    for k, response in enumerate(responses(c)):
        logs = token_logs(c, behaviour, m, response)
        penalty = 0.0
        if c.kl is not None and kl.endswith("in reward") and np.exp(logs.sum()) > 0.0:
            penalty = c.kl.strength * DIVERGENCES[kl[:2]](logs - reference_logs(c, m, response)).sum()
        score = token_scores(c, behaviour, m, response).sum(axis=0)
        for value, p in zip(c.bandit.values, c.bandit.probabilities[m, k], strict=True):
            found.append((np.exp(logs.sum()) * p, value - penalty, score, k, len(response)))
    p, z, w, k, lengths = (np.array(column) for column in zip(*found, strict=True))
    mean, norms = (p * z).sum(), (w**2).sum(axis=1)
    deviation, baseline = np.sqrt((p * (z - mean) ** 2).sum()), (p * norms * z).sum() / (p * norms).sum()
    return Prompt(p, z, w, mean, deviation, baseline, (p * z) @ w, k, lengths)


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


def two_group_batches(c: Case, estimator: gt.Estimator, group_size, behaviour=None):
    """Return the estimates of all batches of two groups, shape (n, d), and their probabilities, shape (n,).

    Every pair of prompts and of ordered groups is there, so kernels and aggregations may couple groups.
    """
    behaviour = c.theta if behaviour is None else behaviour
    drawn, pooled = prompts(c, estimator.kl.name, behaviour), estimator.aggregation.name
    terms = [response_terms(c, m, estimator, c.theta, behaviour) for m in range(len(drawn))]
    choices = [
        (m, row, c.bandit.prompt_weights[m] * p)
        for m, prompt in enumerate(drawn)
        for row, p in zip(*groups(prompt, group_size), strict=True)
    ]
    estimates, chances = [], []
    for batch in product(choices, repeat=2):
        a = advantages(estimator, [drawn[m] for m, _, _ in batch], [row for _, row, _ in batch])
        sums = np.array([sums_of(terms[m], drawn[m].responses[row], a[b]) for b, (m, row, _) in enumerate(batch)])
        tokens = np.array([[drawn[m].lengths[row].sum()] for m, row, _ in batch])
        if pooled == "batch tokens":
            estimates.append(sums.sum(axis=0) / tokens.sum())
        else:
            estimates.append((sums / (tokens if pooled == "group tokens" else group_size)).mean(axis=0))
        chances.append(prod(p for _, _, p in batch))
    return np.array(estimates), np.array(chances)


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
