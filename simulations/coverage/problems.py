"""The problems of the coverage study: three policies and two rewards on shared features, one prompt, a language model's head."""

from functools import cache

import numpy as np
from scipy.special import expit

import grpo_theory as gt

POLICIES = ("random", "half-trained", "near-deterministic")
NAMES = tuple(f"{policy}, {reward}" for policy in POLICIES for reward in ("balanced", "rare"))
"""The problems on shared features."""
LANGUAGE_MODEL, ONE_PROMPT = "lm-few-shot", "two-arms"
PROMPTS, RESPONSES, DIMENSION = 64, 5, 4
SURE = 0.97
"""The mean largest probability at which a policy counts as near-deterministic."""
RARE = 0.01
"""The value E[Z] where success is rare."""
STEP, STEPS = 30.0, 5000


@cache
def _training():
    """Draw features and rewards, and follow the exact gradient from parameters at random until the policy is sure.

    The half-trained policy is the first that has half of the gain made until then.
    """
    rng = np.random.default_rng(2026)
    features = rng.normal(size=(PROMPTS, RESPONSES, DIMENSION))
    skill = rng.normal(size=DIMENSION)
    difficulty, noise = rng.normal(size=(PROMPTS, 1)), rng.normal(size=(PROMPTS, RESPONSES))
    bandit = gt.Bandit(expit(difficulty + 1.5 * features @ (skill / np.linalg.norm(skill)) + noise))
    policy = gt.LinearSoftmax(features)
    path, values = [0.5 * rng.normal(size=DIMENSION)], []
    problem = gt.Problem(bandit, policy)
    for _ in range(STEPS):
        moments = gt.moments(problem, path[-1])
        values.append(moments.prompt_weights @ moments.value)
        if policy.probabilities(path[-1]).max(axis=1).mean() >= SURE:
            break
        path.append(path[-1] + STEP * moments.gradient / (1.0 + STEP * np.linalg.norm(moments.gradient)))
    half = int(np.argmax(np.array(values) >= (values[0] + values[-1]) / 2.0))
    return bandit, policy, dict(zip(POLICIES, (path[0], path[half], path[-1]), strict=True))


@cache
def problem(name):
    """Return a problem of the study by name.

    Where success is rare, it is rare for all responses alike. The probabilities of the balanced reward are multiplied by the
    factor that makes E[Z] 1% at the policy.
    """
    if name in (LANGUAGE_MODEL, ONE_PROMPT):
        return gt.gallery.problem(name)
    stage, reward = name.split(", ")
    bandit, policy, thetas = _training()
    theta = thetas[stage]
    if reward == "rare":
        moments = gt.moments(gt.Problem(bandit, policy), theta)
        bandit = gt.Bandit(bandit.mean_reward * RARE / (moments.prompt_weights @ moments.value))
    return gt.Problem(bandit, policy, theta=theta, name=name, title=name)


@cache
def directions(name):
    """Return the directions (J, d) of the gradient in question: all coordinates (None), or three of the language model's head.

    Those are the three along which the prompts' gradients are largest.
    """
    if name != LANGUAGE_MODEL:
        return None
    case = problem(name)
    gradients = gt.moments(case, case.theta).prompt_gradients
    powers, vectors = np.linalg.eigh(gradients @ gradients.T)
    return (gradients.T @ vectors[:, -3:] / np.sqrt(powers[-3:])).T
