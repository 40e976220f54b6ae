"""What studies of sequences share: estimators without a place in the registry, their mean updates, and random problems."""

import numpy as np

import grpo_theory as gt
from grpo_theory.estimation import find
from grpo_theory.estimation.parts import find_part
from grpo_theory.exact import token_weights
from grpo_theory.validation import Array

TURN = np.pi / 4.0
"""The controls' updates are broken: they are turned by so much, away from themselves and from the gradient."""
NOTICEABLE = 0.05
"""A user would notice if updates lost a twentieth of the gain that they make per unit of length."""


def composed(advantage, ratio, clip="none", aggregation="sum", kl="k1 in reward"):
    """Return an estimator of an advantage kernel, a ratio, a clip, a way of adding up tokens and a KL term.

    Each is given by name or as it is; of an estimator that is given for its kernel nothing else is taken.
    """
    given = {"ratio": ratio, "clip": clip, "aggregation": aggregation, "kl": kl}
    kernel, parts = find(advantage), [find_part(argument, value) for argument, value in given.items()]
    return gt.Estimator(f"{kernel.name}, {parts[0].name} ratio, {parts[-1].name}", kernel.advantage, *parts)


def mean_update(problem: gt.Problem, theta: Array, estimator: gt.Estimator, baseline: bool = True) -> Array:
    """Return the mean update on policy of leave-one-out advantages, E[u (Z - V)], or E[u Z] without a baseline, shape (d,).

    It is `gt.gradient_mean` at any group size, without the enumeration of groups; u is the estimator's weighted score.
    """
    point, paths = problem.at(theta), problem.policy.paths
    weights = token_weights(point, point, estimator).by_token(np.arange(problem.bandit.n_prompts))[:, 0]
    centred = point.rewards - (point.moments.value[:, None] if baseline else 0.0)
    by_response = (point.outcome_probabilities * centred).reshape(*point.probabilities.shape, -1).sum(axis=-1)
    logit_gradients = paths.centre(paths.add_up(by_response[:, :, None] * weights), point.token_probabilities)
    return point.tangent.adjoint(problem.bandit.prompt_weights[:, None] * logit_gradients)


def cosine(one: Array, other: Array) -> float:
    """Return the cosine of the angle between two vectors (d,)."""
    return float(one @ other / (np.linalg.norm(one) * np.linalg.norm(other)))


def of_length(length: float, direction: Array) -> Array:
    """Return the vector of a length in a direction (d,)."""
    return np.asarray(length * direction / np.linalg.norm(direction))


def turned(vector: Array, other: Array) -> Array:
    """Return a vector turned by `TURN`, in a direction that is orthogonal to it and to another one, (d,)."""
    basis, _ = np.linalg.qr(np.column_stack([vector, other, np.ones(vector.size)]))
    return np.cos(TURN) * vector + np.sin(TURN) * np.linalg.norm(vector) * basis[:, 2]


def generator_of(number: int, seed: np.random.SeedSequence) -> np.random.Generator:
    """Return the generator of a problem with a number, which is the same problem however the problems are split into chunks."""
    return np.random.default_rng([*seed.generate_state(4), number])


def features_of(rng: np.random.Generator, n_prompts: int, paths: gt.Paths, dimension: int) -> Array:
    """Return random features (M, D, d), scaled at every prefix so that its tokens' scores are 1-Lipschitz and no less: L = 1.

    L is a quarter of the squared distance of the features that are farthest apart.
    """
    at = rng.normal(size=(n_prompts, paths.n_logits // paths.vocabulary_size, paths.vocabulary_size, dimension))
    farthest = ((at[:, :, :, None] - at[:, :, None]) ** 2).sum(axis=-1).max(axis=(2, 3))
    return (2.0 * at / np.sqrt(farthest)[:, :, None, None]).reshape(n_prompts, paths.n_logits, dimension)


def random_problem(rng, vocabulary_size, horizon, end_token, *, n_prompts, dimension):
    """Return a problem on a tree with random features shared by all prefixes, a random policy, and rewards 0 and 1.

    Half the responses to a prompt, drawn at random, succeed with probability 0.9 and the others with 0.1.
    """
    paths = gt.TokenTree(1, vocabulary_size, horizon, end_token).paths
    features = features_of(rng, n_prompts, paths, dimension)
    tree = gt.TokenTree(n_prompts, vocabulary_size, horizon, end_token, features)
    bandit = random_bandit(rng, n_prompts, paths.n_responses, one_in=2)
    return gt.Problem(bandit, tree, theta=rng.normal(size=dimension))


def random_bandit(rng: np.random.Generator, n_prompts: int, n_responses: int, one_in: int) -> gt.Bandit:
    """Return rewards 0 and 1 where one in so many responses to a prompt, drawn at random, succeeds as a rule."""
    ranks = rng.permuted(np.tile(np.arange(n_responses), (n_prompts, 1)), axis=1)
    return gt.Bandit(np.where(one_in * ranks < n_responses, 0.9, 0.1))
