"""The problems of the race, each of which can come out either way: prompts share features, and their success rates differ.

Prompts that share nothing are left out. With them the longest step is the best, divided or not, because no prompt limits
another's. Each is learned from its first group with both rewards, which dividing does not bring forward.
"""

from functools import cache

import numpy as np

import grpo_theory as gt
from simulations.normalisation.heads import hidden_states
from simulations.normalisation.prompts import mixture, prompts

N_PROMPTS = 4
"""Of the made-up problems."""
RANDOM_PROMPTS, ANSWERS = 64, 4
LOGIT_DEVIATION = 2.0
"""Of the random problems at the start: success rates run from below 1% to above 80%."""
RIDGE = 0.01
"""Of whitening, as a share of the total power: small enough that questions differ, large enough that they still share features.

The mean |cosine| of two questions' features is 0.90 to 0.97 raw and 0.15 to 0.33 whitened; without a ridge it would be 0.
"""
RAW, WHITENED = "raw", "whitened"


def problem_of(settings, draw=0):
    """Return the problem of a cell, in the coordinates in which it is trained; random features have draws."""
    if settings["family"] == "made up":
        return prompts(settings["correlation"], mixture(settings["mixture"], N_PROMPTS))
    if settings["family"] == "random":
        return random_features(settings["dimension"], draw)
    problem = head_on(settings["head"], settings["questions"], settings["features"])
    # Steepest ascent is the same in all orthonormal coordinates of the span, and cheaper in few of them.  Adam's is not.
    return in_span(problem) if settings["contest"] == "SGD" else problem


def random_features(dimension, draw):
    """Return a draw of 64 prompts of 4 answers, one right, whose features and start are normal."""
    rng = np.random.default_rng([dimension, draw])
    features = rng.standard_normal((RANDOM_PROMPTS, ANSWERS, dimension)) / np.sqrt(dimension)
    right = np.eye(ANSWERS)[rng.integers(ANSWERS, size=RANDOM_PROMPTS)]
    theta = LOGIT_DEVIATION * rng.standard_normal(dimension)
    return gt.Problem(gt.Bandit(right), gt.LinearSoftmax(features), theta=theta, name=f"random, d = {dimension}")


@cache
def head_on(name, questions, features):
    """Return a head of SmolLM2 on questions spread evenly over the 500, with features of mean squared length 1.

    Parameters
    ----------
    name : str
        Of the gallery's problem.
    questions : int
    features : {"raw", "whitened"}
        Raw features are the hidden states h in the model's own 576 coordinates. Whitened features are their principal
        coordinates, each divided by the root of its power (mean square) plus a ridge.
    """
    whole = gt.gallery.problem(name)
    chosen = np.linspace(0, whole.policy.n_prompts - 1, questions).astype(int)
    hidden = hidden_states(whole)[chosen]
    theta = whole.theta.reshape(whole.policy.n_responses, -1)
    logits = hidden @ theta.T
    if features == RAW:
        scale = np.sqrt((hidden**2).sum(axis=1).mean())
        return head(whole.bandit.mean_reward[chosen], hidden / scale, scale * theta, f"{name}, raw")
    white = whitened(hidden)
    theta = np.linalg.lstsq(white, logits, rcond=None)[0].T
    return written_out(head(whole.bandit.mean_reward[chosen], white, theta, f"{name}, whitened"))


def whitened(hidden):
    """Return the whitened features (M, M) of hidden states (M, H), with a mean squared length of 1."""
    scores, roots, _ = np.linalg.svd(hidden, full_matrices=False)
    powers = roots**2 / len(hidden)
    white = scores * roots / np.sqrt(powers + RIDGE * powers.sum())
    return white / np.sqrt((white**2).sum(axis=1).mean())


def in_span(problem):
    """Return a head's problem in orthonormal coordinates of the span of its hidden states: the same policies."""
    if not isinstance(problem.policy, gt.SoftmaxHead):
        return problem
    hidden = hidden_states(problem)
    basis = np.linalg.qr(hidden.T)[0]
    theta = problem.theta.reshape(problem.policy.n_responses, -1) @ basis
    return written_out(head(problem.bandit.mean_reward, hidden @ basis, theta, problem.name))


def written_out(problem):
    """Return the same problem with its features in full, which trains sooner where they are few."""
    jacobian = problem.policy.jacobian()
    features = jacobian.reshape(problem.policy.n_prompts, problem.policy.n_responses, -1)
    return gt.Problem(problem.bandit, gt.LinearSoftmax(features), theta=problem.theta, name=problem.name)


def head(success, hidden, theta, name):
    """Return the problem of a head on these hidden states."""
    return gt.Problem(gt.Bandit(success), gt.SoftmaxHead(hidden, theta.shape[0]), theta=theta.ravel(), name=name)


def logit_reach(problem):
    """Return by how much a logit moves, on average, if each coordinate of theta moves by 1 in its direction."""
    rows = hidden_states(problem) if isinstance(problem.policy, gt.SoftmaxHead) else problem.policy.jacobian()
    return float(np.abs(rows).sum(axis=-1).mean())
