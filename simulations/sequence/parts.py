"""Estimators composed for a study, without a place in the registry; and random problems of sequences."""

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.estimation import find
from grpo_theory.estimation.aggregation import Aggregation, find_aggregation
from grpo_theory.estimation.clip import Clip, find_clip
from grpo_theory.estimation.ratio import find_ratio
from grpo_theory.exact import token_weights


def composed(advantage: str, ratio: str, clip: str | Clip = "none", aggregation: str | Aggregation = "sum") -> gt.Estimator:
    """Return an estimator of an advantage kernel, a ratio, a clip and a way of adding up tokens, by name or as they are."""
    parts = find_ratio(ratio), find_clip(clip), find_aggregation(aggregation)
    return gt.Estimator(f"{advantage}, {ratio} ratio", find(advantage).advantage, *parts)


def mean_update(problem: gt.Problem, theta: Array, estimator: gt.Estimator, baseline: bool = True) -> Array:
    """Return the mean update on policy of leave-one-out advantages, E[u (Z - V)], or E[u Z] without a baseline, shape (d,).

    It is `gt.gradient_mean` at any group size, without the enumeration of groups; u is the estimator's weighted score.
    """
    point = problem.at(theta)
    tables = token_weights(point, point, estimator).covectors(np.arange(problem.bandit.n_prompts))[:, 0]
    centred = point.rewards - (point.moments.value[:, None] if baseline else 0.0)
    by_response = (point.outcome_probabilities * centred).reshape(*point.probabilities.shape, -1).sum(axis=-1)
    covectors = np.einsum("mk,mkd->md", by_response, tables)
    return problem.policy.logit_map.adjoint(problem.bandit.prompt_weights[:, None] * covectors)


def features_of(rng: np.random.Generator, n_prompts: int, paths: gt.Paths, dimension: int) -> Array:
    """Return random features (M, D, d), scaled at every prefix so that its tokens' scores are 1-Lipschitz and no less: L = 1.

    L is a quarter of the squared distance of the features that are farthest apart.
    """
    at = rng.normal(size=(n_prompts, paths.n_logits // paths.vocabulary_size, paths.vocabulary_size, dimension))
    farthest = ((at[:, :, :, None] - at[:, :, None]) ** 2).sum(axis=-1).max(axis=(2, 3))
    return (2.0 * at / np.sqrt(farthest)[:, :, None, None]).reshape(n_prompts, paths.n_logits, dimension)


def random_problem(
    rng: np.random.Generator, vocabulary_size: int, horizon: int, end_token: int | None, *, n_prompts: int, dimension: int
) -> gt.Problem:
    """Return a problem on a tree with random features shared by all prefixes, a random policy, and rewards 0 and 1.

    Half the responses to a prompt, drawn at random, succeed with probability 0.9 and the others with 0.1.
    """
    paths = gt.TokenTree(1, vocabulary_size, horizon, end_token).paths
    features = features_of(rng, n_prompts, paths, dimension)
    tree = gt.TokenTree(n_prompts, vocabulary_size, horizon, end_token, features)
    ranks = rng.permuted(np.tile(np.arange(paths.n_responses), (n_prompts, 1)), axis=1)
    success = np.where(2 * ranks < paths.n_responses, 0.9, 0.1)
    return gt.Problem(gt.Bandit(success), tree, theta=rng.normal(size=dimension))
