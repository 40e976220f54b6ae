"""The tests' oracle: all (K L)^G ordered groups with dense scores, sharing no code with the library's exact sums.

It takes nothing from the library but the kernels, which it runs as plain Python, and the numbers that make up a problem.
"""

import dataclasses
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

import grpo_theory as gt


class Case(NamedTuple):
    """A problem with its features written out, shape (M, K, d)."""

    problem: gt.Problem
    features: np.ndarray

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
        return self._replace(problem=dataclasses.replace(self.problem, **parts))


class Prompt(NamedTuple):
    """One prompt's outcomes: probabilities (O,), rewards (O,), scores (O, d), and what oracles know of it."""

    probabilities: np.ndarray
    rewards: np.ndarray
    scores: np.ndarray
    value: float
    standard_deviation: float
    optimal_baseline: float
    gradient: np.ndarray


class GroupLaw(NamedTuple):
    """First two moments of one group's estimate, given its prompt."""

    mean: np.ndarray
    second: np.ndarray
    squared_error: float


POLICIES = ("tabular", "linear", "head")
REWARDS = ("binary", "graded")
PENALTIES = ("plain", "kl")
NAMED = tuple(
    name
    for name, found in gt.estimators().items()
    if found.advantage.name == name and found.advantage.function.__module__ == "grpo_theory.estimation.named"
)
"""The library's kernels, each by itself: no ratio, no clip, no aggregation."""


def case(policy="tabular", rewards="binary", penalty="plain") -> Case:
    """Make a small problem; a reward of certain value is among its outcomes."""
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


def softmax(logits):
    """Return the softmax of one prompt's logits."""
    weights = np.exp(logits - max(logits))
    return weights / weights.sum()


def prompts(c: Case) -> list[Prompt]:
    """Write out the outcomes of every prompt."""
    found = []
    for m, features in enumerate(c.features):
        pi = softmax(features @ c.theta)
        probabilities, rewards, scores = [], [], []
        for k, value in product(range(len(pi)), range(len(c.bandit.values))):
            penalty = c.kl.strength * np.log(pi[k] / c.kl.reference[m][k]) if c.kl else 0.0
            probabilities.append(pi[k] * c.bandit.probabilities[m, k, value])
            rewards.append(c.bandit.values[value] - penalty)
            scores.append(features[k] - pi @ features)
        p, z, w = np.array(probabilities), np.array(rewards), np.array(scores)
        norms = (w**2).sum(axis=1)
        mean = sum(p * z)
        found.append(Prompt(p, z, w, mean, np.sqrt(sum(p * (z - mean) ** 2)), sum(p * norms * z) / sum(p * norms), (p * z) @ w))
    return found


def groups(prompt: Prompt, group_size: int):
    """Return all ordered groups of outcomes, shape (n, G), and their probabilities, shape (n,)."""
    possible = [o for o, p in enumerate(prompt.probabilities) if p > 0.0]
    tuples = list(product(possible, repeat=group_size))
    return np.array(tuples), np.array([prod(prompt.probabilities[list(t)]) for t in tuples])


def advantages(estimator: gt.Estimator, tables: list[Prompt], rows) -> np.ndarray:
    """Run a kernel as plain Python on groups of outcomes (B, G), the b-th drawn from tables[b]."""
    rows = np.asarray(rows)
    batch = gt.Batch(
        rewards=np.array([t.rewards[row] for t, row in zip(tables, rows, strict=True)]),
        squared_score_norms=np.array([(t.scores[row] ** 2).sum(axis=1) for t, row in zip(tables, rows, strict=True)]),
        lengths=np.ones(rows.shape, dtype=np.int64),
        values=np.array([t.value for t in tables]),
        standard_deviations=np.array([t.standard_deviation for t in tables]),
        optimal_baselines=np.array([t.optimal_baseline for t in tables]),
        parameters=np.array(list(estimator.advantage.parameters.values()), dtype=np.float64),
    )
    out = np.full(rows.shape, np.nan)
    estimator.advantage.function(batch, out)
    return out


def group_law(prompt: Prompt, estimator: gt.Estimator, group_size: int) -> GroupLaw:
    """Sum over all ordered groups of one prompt."""
    rows, weights = groups(prompt, group_size)
    a = advantages(estimator, [prompt] * len(rows), rows)
    estimates = np.einsum("ng,ngd->nd", a, prompt.scores[rows]) / group_size
    errors = ((estimates - prompt.gradient) ** 2).sum(axis=1)
    return GroupLaw(weights @ estimates, np.einsum("n,nd,ne->de", weights, estimates, estimates), float(weights @ errors))


def batch_law(c: Case, estimator: gt.Estimator, batch_size: int, group_size: int):
    """Return mean (d,), covariance (d, d), and mse about the true gradient of a batch of independent groups."""
    tables = prompts(c)
    laws = [group_law(table, estimator, group_size) for table in tables]
    f = c.bandit.prompt_weights
    mean = sum(weight * law.mean for weight, law in zip(f, laws, strict=True))
    second = sum(weight * law.second for weight, law in zip(f, laws, strict=True))
    truth = sum(weight * table.gradient for weight, table in zip(f, tables, strict=True))
    covariance = (second - np.outer(mean, mean)) / batch_size
    return mean, covariance, float(np.trace(covariance) + ((mean - truth) ** 2).sum())


def coupled_mse(c: Case, estimator: gt.Estimator, batch_size: int, group_size: int) -> float:
    """Return the mse of a kernel that may couple groups: a sum over all batches of prompts and groups."""
    tables = prompts(c)
    truth = sum(weight * table.gradient for weight, table in zip(c.bandit.prompt_weights, tables, strict=True))
    choices = [
        (m, row, c.bandit.prompt_weights[m] * weight)
        for m, table in enumerate(tables)
        for row, weight in zip(*groups(table, group_size), strict=True)
    ]
    total = 0.0
    for batch in product(choices, repeat=batch_size):
        drawn = [tables[m] for m, _, _ in batch]
        a = advantages(estimator, drawn, [row for _, row, _ in batch])
        pieces = [a[b] @ drawn[b].scores[row] for b, (_, row, _) in enumerate(batch)]
        error = sum(pieces) / (batch_size * group_size) - truth
        total += prod(weight for _, _, weight in batch) * float(error @ error)
    return total
