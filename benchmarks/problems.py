"""The problems that are simulated: those of the gallery, and made-up ones of any size."""

import numpy as np

import grpo_theory as gt

PROMPTS, RESPONSES = 6, 4


def find_problem(name: str) -> gt.Problem:
    """Return a problem of the gallery, or one of a size.

    The sized ones are "tabular of 16" responses, "linear of 32" parameters and "graded of 3" values of the reward. With a penalty
    in the reward besides, it is "penalised of 2" values.
    """
    kind, _, size = name.partition(" of ")
    if not size:
        return gt.gallery.problem(name)
    return {"tabular": tabular, "linear": linear, "graded": graded, "penalised": penalised}[kind](int(size))


def tabular(n_responses: int) -> gt.Problem:
    """Return a tabular problem with so many responses."""
    generator = np.random.default_rng(n_responses)
    bandit = gt.Bandit(generator.uniform(0.1, 0.9, (PROMPTS, n_responses)))
    policy = gt.TabularSoftmax(PROMPTS, n_responses)
    return gt.Problem(bandit, policy, theta=generator.normal(size=policy.dimension))


def graded(n_values: int) -> gt.Problem:
    """Return a tabular problem whose rewards have so many values, from 0 to 1."""
    generator = np.random.default_rng(n_values)
    law = generator.dirichlet(np.ones(n_values), size=(PROMPTS, RESPONSES))
    bandit, policy = gt.Bandit.from_law(np.linspace(0.0, 1.0, n_values), law), gt.TabularSoftmax(PROMPTS, RESPONSES)
    return gt.Problem(bandit, policy, theta=generator.normal(size=policy.dimension))


def penalised(n_values: int) -> gt.Problem:
    """Return the same with a penalty for what leads away from the uniform policy."""
    bare = graded(n_values)
    penalty = gt.KL(0.1, np.full((PROMPTS, RESPONSES), 1.0 / RESPONSES))
    return gt.Problem(bare.bandit, bare.policy, penalty, theta=bare.theta)


def linear(dimension: int) -> gt.Problem:
    """Return a linear problem with so many parameters, whose logits are of the same size whatever their number."""
    generator = np.random.default_rng(dimension)
    features = generator.normal(size=(PROMPTS, RESPONSES, dimension)) / np.sqrt(dimension)
    mean_rewards = generator.uniform(0.1, 0.9, (PROMPTS, RESPONSES))
    return gt.Problem(gt.Bandit(mean_rewards), gt.LinearSoftmax(features), theta=generator.normal(size=dimension))
