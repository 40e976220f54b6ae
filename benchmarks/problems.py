"""The problems that are simulated: those of the gallery, and made-up ones of any size."""

import numpy as np

import grpo_theory as gt

PROMPTS, RESPONSES = 6, 4


def find_problem(name: str) -> gt.Problem:
    """Return a problem of the gallery, or one of a size: "tabular of 16" responses, "linear of 32" parameters."""
    kind, _, size = name.partition(" of ")
    if not size:
        return gt.gallery.problem(name)
    return {"tabular": tabular, "linear": linear}[kind](int(size))


def tabular(n_responses: int) -> gt.Problem:
    """Return a tabular problem with so many responses."""
    generator = np.random.default_rng(n_responses)
    bandit = gt.Bandit(generator.uniform(0.1, 0.9, (PROMPTS, n_responses)))
    policy = gt.TabularSoftmax(PROMPTS, n_responses)
    return gt.Problem(bandit, policy, theta=generator.normal(size=policy.dimension))


def linear(dimension: int) -> gt.Problem:
    """Return a linear problem with so many parameters, whose logits are of the same size whatever their number."""
    generator = np.random.default_rng(dimension)
    features = generator.normal(size=(PROMPTS, RESPONSES, dimension)) / np.sqrt(dimension)
    mean_rewards = generator.uniform(0.1, 0.9, (PROMPTS, RESPONSES))
    return gt.Problem(gt.Bandit(mean_rewards), gt.LinearSoftmax(features), theta=generator.normal(size=dimension))
