"""Prompts whose features are correlated as much as one dial says, with one right answer each."""

import numpy as np
from numpy.typing import ArrayLike

import grpo_theory as gt

ANSWERS = 4
MIXTURES = {"easy": (0.5,), "hard": (0.02,), "easy and hard": (0.5, 0.02)}
"""Success rates at the start, which the prompts have in turn."""


def prompts(correlation: float, success: ArrayLike, answers: int = ANSWERS) -> gt.Problem:
    """Return a problem of n prompts with X_i X_j' = correlation I, and its point with the success rates.

    The features are X_i = I (x) h_i' with ||h_i|| = 1 and h_i . h_j = correlation, so that X = max ||X_i|| = 1. Prompts `i` and
    `i + 1` have one right answer, the next two prompts the next answer. So a neighbour helps where another prompt stands in the
    way. At the start all wrong answers of a prompt are equally likely.

    Parameters
    ----------
    correlation : float
        In [0, 1); 0 is the paper's setting, in which prompts do not interact.
    success : array_like, shape (n,)
        The prompts' success rates at the start, in (0, 1).
    answers : int, default 4
        K responses to each prompt.
    """
    rates = np.asarray(success, dtype=np.float64)
    n = len(rates)
    hidden = np.hstack([np.sqrt(1.0 - correlation) * np.eye(n), np.full((n, 1), np.sqrt(correlation))])
    right = np.eye(answers)[np.arange(n) // 2 % answers]
    logits = right * np.log(rates * (answers - 1) / (1.0 - rates))[:, None]
    theta = np.linalg.lstsq(hidden, logits, rcond=None)[0].T
    features = np.einsum("ab,mh->mabh", np.eye(answers), hidden).reshape(n, answers, -1)
    return gt.Problem(gt.Bandit(right), gt.LinearSoftmax(features), theta=theta.ravel(), name=f"correlation {correlation:g}")


def mixture(name: str, n: int) -> list[float]:
    """Return the success rates at the start of n prompts of a mixture."""
    rates = MIXTURES[name]
    return [rates[i % len(rates)] for i in range(n)]


def label(setting: str, correlation: float) -> str:
    """Return what a setting is called in claims: with its correlation, unless that is NaN because it has none."""
    return setting if np.isnan(correlation) else f"{setting} (correlation {correlation:g})"
