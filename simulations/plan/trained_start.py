"""SmolLM2 before it is trained, as a problem: what a user would log of it, with its gradients."""

from functools import cache

import numpy as np

import grpo_theory as gt
from grpo_theory.data import trained_model


@cache
def problem_at_start(trained: str = "last block") -> gt.Problem:
    """Return the linear policy with the features of the start, in balanced coordinates: its scores there are the model's own.

    `trained` is what is going to learn: the last block and the head, or adapters in all blocks.
    """
    data = trained_model(trained)
    count, answers = data.probabilities.shape
    powers, directions = np.linalg.eigh(data.kernel.reshape(count * answers, -1))
    features = directions * np.sqrt(np.maximum(powers, 0.0))
    theta = np.linalg.lstsq(features, np.log(data.probabilities).ravel(), rcond=None)[0]
    right = np.eye(answers)[gt.data.arithmetic().answers[data.questions[:count]]]
    return gt.Problem(gt.Bandit(right), gt.LinearSoftmax(features.reshape(count, answers, -1)), theta=theta)
