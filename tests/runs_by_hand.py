"""Training runs written out in plain Python with dense scores: on given uniforms, and all that a small problem can have."""

from dataclasses import dataclass
from itertools import combinations_with_replacement, product
from math import factorial, prod
from typing import Any

import numpy as np
from enumeration import Case, Dense, policy_of, prompt_gradients
from scipy.spatial import cKDTree
from scipy.stats import chi2
from streams_by_numpy import alias_rows

import grpo_theory as gt

COMPOSITIONS = [
    {"ratio": "token", "clip": "by sign", "aggregation": "own length"},
    {"ratio": "trajectory", "clip": "by sign", "aggregation": "batch tokens", "kl": "k3 in loss"},
    {"ratio": "geometric", "clip": "by sign", "aggregation": "own length", "kl": "k2 in reward"},
    {"ratio": "token", "clip": "by sign", "aggregation": "batch tokens", "kl": "k2 in reward", "advantage": "optimal_loo"},
    {"ratio": "token", "clip": "cap", "aggregation": "group tokens", "kl": "k2 in loss", "advantage": "grpo"},
    {"ratio": "trajectory", "clip": "upper only", "aggregation": "constant", "advantage": "oracle"},
    {"ratio": "geometric", "clip": "two-sided", "aggregation": "own length", "kl": "k3 in reward", "advantage": "optimal"},
    {"ratio": "none", "aggregation": "batch tokens", "kl": "k3 in loss"},
    {"ratio": "none", "aggregation": "group tokens", "kl": "k1 in loss"},
]


def composed(parts, name="composed_for_one_test", widths=(0.02, 0.03)):
    """Compose an estimator; its clip is narrow, so that both sides of it are met."""
    parts = {"advantage": "rloo", "clip": "none"} | parts
    clip = gt.estimation.CLIPS[parts.pop("clip")].with_widths(*widths)
    return gt.compose(name, clip=clip, **parts)


def placed(batch, advantages):
    """Look at places: each reward less a multiple of the one before."""
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.rewards[b, g] - batch.rewards[b, g - 1] * (g + 1.0)


def over_the_batch(batch, advantages):
    """Couple groups, and read lengths, score norms and probabilities."""
    mean = batch.rewards.mean()
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            own = 0.1 * batch.squared_score_norms[b, g] * (1.0 - np.exp(batch.log_probabilities[b, g]))
            advantages[b, g] = (batch.rewards[b, g] - mean) / batch.lengths[b, g] + own


def cubed(batch, advantages):
    """Neither affine nor of mean 0."""
    for b in range(batch.rewards.shape[0]):
        advantages[b] = batch.rewards[b] ** 3 * batch.rewards[b].mean()


def of_a_user(kernel, **how):
    """Register a kernel of a user's own."""
    return gt.estimator(f"{kernel.__name__}_for_one_test", **how)(kernel)


def small_case(kind="linear", rewards="binary", penalty="plain", n_prompts=2) -> Case:
    """Make a problem of so few outcomes that all its runs can be enumerated: at each prompt one response has a random reward.

    None has if the rewards are "decided".  Responses are single tokens, or of one or two tokens ("tree" in the kind).
    """
    rng = np.random.default_rng([len(kind), len(rewards), len(penalty)])
    like = gt.TokenTree(n_prompts, 2, 2, end_token=0) if "tree" in kind else gt.TabularSoftmax(n_prompts, 2)
    made, k = {one: policy_of(one, like, rng) for one in ("head", "linear", "tabular")}, like.n_responses
    policy, features = made[kind.split()[0]]
    values = [0.0, 1.0] if rewards == "binary" else [-0.5, 1.0, 2.0]
    law = np.eye(len(values))[rng.integers(len(values), size=(n_prompts, k))]
    if rewards != "decided":
        law[:, 0, :2] = [[0.4, 0.6], [0.7, 0.3]][:n_prompts]
        law[:, 0, 2:] = 0.0
    kl = gt.KL(0.3, rng.dirichlet(np.full(k, 3.0), size=n_prompts)) if penalty == "kl" else None
    bandit = gt.Bandit.from_law(values, law, [0.7, 0.3] if n_prompts == 2 else [1.0])
    return Case(gt.Problem(bandit, policy, kl, 0.5 * rng.normal(size=policy.dimension)), features)


def ascend(theta, step, estimate, memory, count):
    """Move as SGD does."""
    return theta + step * estimate, memory


def adam_by_numpy(betas, eps):
    """Return Adam's move: Algorithm 1 of arXiv 1412.6980, upwards."""

    def move(theta, step, estimate, memory, count):
        mean, square = memory or (0.0, 0.0)
        mean = betas[0] * mean + (1.0 - betas[0]) * estimate
        square = betas[1] * square + (1.0 - betas[1]) * estimate**2
        # mhat = m/(1 - beta_1^t), vhat = v/(1 - beta_2^t), theta + eta mhat/(sqrt(vhat) + eps)
        own = mean / (1.0 - betas[0] ** count) / (np.sqrt(square / (1.0 - betas[1] ** count)) + eps)
        return theta + step * own, (mean, square)

    return move


@dataclass(frozen=True)
class Algorithm:
    """Algorithms 1 and 2 of arXiv 2603.01162: rollouts of B prompts, and the updates that each serves.

    Rollout i is drawn from the iterate before rollout i - lag, or from the start.
    """

    dense: Dense
    estimator: gt.Estimator
    steps: np.ndarray
    inner_steps: int = 1
    lag: int = 0
    move: Any = ascend
    ball: gt.Ball | None = None

    def sampler(self, path):
        """Return the policy that draws the rollout which a path has come to."""
        rollout = (len(path) - 1) // self.inner_steps
        return self.dense.at(path[max(0, rollout - self.lag) * self.inner_steps])

    def serve(self, path, memory, prompts, outcomes, advantages=None):
        """Return the path and the optimiser's memory after the updates of a rollout, and how many tokens were clipped."""
        then, size, clipped = self.sampler(path), len(prompts) // self.inner_steps, 0
        if advantages is None:
            advantages = self.dense.advantages(then, self.estimator, prompts, outcomes)
        for j in range(self.inner_steps):
            own, now, count = slice(j * size, (j + 1) * size), self.dense.at(path[-1]), len(path)
            sample = now, then, self.estimator, prompts[own], outcomes[own], advantages[own]
            clipped = clipped + self.dense.clipped(*sample)
            estimate = self.dense.estimates(*sample).mean(axis=0)
            theta, memory = self.move(path[-1], self.steps[count - 1], estimate, memory, count)
            if self.ball is not None:
                gap = theta - self.ball.centre
                theta = self.ball.centre + gap * min(1.0, self.ball.radius / (np.linalg.norm(gap) or 1.0))
            path = [*path, theta]
        return path, memory, clipped

    def run(self, theta, uniforms):
        """Return the run on given uniforms, (n + 1, d), and how often a clip changed a token's weight, by advantages' signs."""
        table, path, memory, total = alias_rows(self.dense.bandit.prompt_weights), [theta], None, 0
        for rows in uniforms:
            path, memory, clipped = self.serve(path, memory, *self.dense.draw(self.sampler(path), table, rows))
            total = total + clipped
        return np.array(path), total

    def runs(self, theta, batch_size, group_size, *, in_order=False):
        """Return all runs that there can be: their chances (n,) and paths (n, steps + 1, d)."""
        grown = [(1.0, [theta], None)]
        for _ in range(0, len(self.steps), self.inner_steps):
            before, grown = grown, []
            for chance, path, memory in before:
                for share, prompts, outcomes in batches(self.dense, self.sampler(path), batch_size, group_size, in_order):
                    grown.append((chance * share, *self.serve(path, memory, prompts, outcomes)[:2]))
        chances, paths, _ = zip(*grown, strict=True)
        return np.array(chances), np.array(paths)


def groups_of(dense, at, m, group_size, in_order=False):
    """Return the groups that are drawn at prompt m: pairs of a chance and outcomes, up to their order or in order."""
    chances, found = at.outcomes[m], []
    possible = np.flatnonzero(chances)
    rows = product(possible, repeat=group_size) if in_order else combinations_with_replacement(possible, group_size)
    for row in rows:
        orders = 1 if in_order else factorial(group_size) // prod(factorial(row.count(o)) for o in set(row))
        found.append((orders * np.prod(chances[list(row)]), row))
    return found


def batches(dense, at, batch_size, group_size, in_order=False):
    """Yield all batches that are drawn at a point: chance, prompts (B,), outcomes (B, G)."""
    groups = [
        (weight * chance, m, row)
        for m, weight in enumerate(dense.bandit.prompt_weights)
        for chance, row in groups_of(dense, at, m, group_size, in_order)
    ]
    for batch in product(groups, repeat=batch_size):
        chances, prompts, rows = zip(*batch, strict=True)
        yield prod(chances), np.array(prompts), np.array(rows)


def match(runs, problem, law):
    """Compare `TrainingRuns` with all that there can be: the largest distance to the nearest, and a p-value of the counts.

    Compared are last iterates, averages, distances from the start, and objectives at the last checkpoint.
    """
    chances, paths = law
    averages, away = paths[:, 1:].mean(axis=1), np.linalg.norm(paths - paths[:, :1], axis=2).max(axis=1)
    values = [gt.objective(problem, points)[:, None] for points in (paths[:, -1], averages)]
    keys = np.hstack([paths[:, -1], averages, away[:, None], *values])
    ends = runs.objectives[:, -1:], runs.average_objectives[:, -1:]
    found = np.hstack([runs.theta, runs.average, runs.farthest[:, None], *ends])
    _, first, number = np.unique(keys.round(7), axis=0, return_index=True, return_inverse=True)
    (distance, _), (_, place) = cKDTree(keys).query(found), cKDTree(keys[first]).query(found)
    expected = len(found) * np.bincount(number.ravel(), weights=chances)
    rare, counts = expected < 10.0, np.bincount(place, minlength=len(first))
    # Pearson's statistic, in which runs that hardly ever come count as one.
    expected, counts = (np.append(part[~rare], part[rare].sum()) for part in (expected, counts))
    statistic = ((counts - expected)[expected > 0.0] ** 2 / expected[expected > 0.0]).sum()
    return distance.max(), chi2.sf(statistic, (expected > 0.0).sum() - 1)


def assert_match(runs, problem, law, factor=1.25):
    """Assert that runs are those that there can be, and come as often; with other chances of half of them they would not."""
    distance, p_value = match(runs, problem, law)
    assert distance < 1e-9
    assert p_value > 1e-6
    chances, paths = law
    ends = paths[:, -1] @ np.arange(paths.shape[2])
    wrong = chances * np.where(ends > chances @ ends, factor, 1.0)
    assert match(runs, problem, (wrong / wrong.sum(), paths))[1] < 1e-6


def all_observations(c, estimators, behaviour, directions, sizes):
    """Return the chances (n,) of all batches, and what is observed of each: errors, power, gain, directions, (E, 4 + J, n)."""
    dense = Dense(c)
    now, then = dense.at(c.theta), dense.at(behaviour)
    gradients, chances, rows = prompt_gradients(c, c.theta), [], []
    gradient = dense.bandit.prompt_weights @ gradients
    in_order = any(one.advantage.function is placed for one in estimators)
    for chance, prompts, outcomes in batches(dense, then, **sizes, in_order=in_order):
        chances.append(chance)
        rows.append([])
        for estimator in estimators:
            advantages = dense.advantages(then, estimator, prompts, outcomes)
            groups = dense.estimates(now, then, estimator, prompts, outcomes, advantages)
            estimate = groups.mean(axis=0)
            errors = ((estimate - gradient) ** 2).sum(), ((groups - gradients[prompts]) ** 2).sum(axis=1).mean()
            rows[-1].append([*errors, estimate @ estimate, estimate @ gradient, *(directions @ estimate)])
    return np.array(chances), np.moveaxis(np.array(rows), 0, -1)


def z_of_moments(run, chances, rows):
    """Return the largest |z| of a simulation's moments about the exact ones, and the largest relative error of a mean error.

    Standard errors are exact, from second and fourth moments: of means, of covariances across estimators and of directions.
    """
    n, means = run.replications, rows @ chances
    errors = np.sqrt(np.maximum(rows**2 @ chances - means**2, 1e-24) / n)
    z, both = [np.abs((run.means - means) / errors).max()], np.concatenate([rows[:, 2], rows[:, 3]])
    across = (run.mse_scatter, rows[:, 0]), (run.prompt_mse_scatter, rows[:, 1]), (run.efficiency_scatter, both)
    for scatter, own in (*across, *zip(run.along_scatter, rows[:, 4:], strict=True)):
        away = own - (own @ chances)[:, None]
        exact = (away * chances) @ away.T
        # Var of a sample covariance: (E[x^2 y^2] - E[xy]^2)/n
        error = np.sqrt(np.maximum((away**2 * chances) @ (away**2).T - exact**2, 1e-24) / n)
        z.append(np.abs((scatter / (n - 1) - exact) / error).max())
    return max(z), (errors[:, :3] / means[:, :3]).max()
