"""Features that prompts share, and logits that start at given success rates: what the worlds of whole runs are built from."""

from typing import NamedTuple

import numpy as np

from grpo_theory.validation import Array, Flags


class Sharing(NamedTuple):
    """How the features of answers are shared between prompts and between right answers.

    Attributes
    ----------
    dimension : int
        Of the features: two answers have about 1/sqrt(dimension) in common by chance.
    coherence : float
        The cosine of the features of a prompt's right answers.
    transfer : float
        The share of a right answer's squared feature that lies in one direction, the same for all prompts.
    misled : float
        The share of the prompts, the last ones, at which a wrong answer has that direction instead.
    """

    dimension: int
    coherence: float = 0.0
    transfer: float = 0.0
    misled: float = 0.0


def shared_features(rights: Flags, sharing: Sharing, rng: np.random.Generator) -> Array:
    """Return features of length 1, shape (M, K, d): the first number is what is right everywhere, the others are noise.

    Parameters
    ----------
    rights : ndarray of bool, shape (M, K)
        Which answers are right; the right ones come first.
    sharing : Sharing
    rng : Generator

    Returns
    -------
    ndarray, shape (M, K, d)
    """
    count, answers = rights.shape
    own = unit(rng.normal(size=(count, answers, sharing.dimension - 1)))
    common = unit(rng.normal(size=(count, 1, sharing.dimension - 1)))
    own[rights] = unit(np.sqrt(sharing.coherence) * common + np.sqrt(1.0 - sharing.coherence) * own)[rights]
    marked = rights.astype(np.float64)
    if misled := round(sharing.misled * count):
        marked[-misled:] = np.arange(answers) == int(rights[0].argmin())
    share = sharing.transfer * marked[..., None]
    return np.concatenate([np.sqrt(share), np.sqrt(1.0 - share) * own], axis=-1)


def unit(vectors: Array) -> Array:
    """Return vectors (..., d) at length 1."""
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def starting_logits(rates: Array, rights: Flags, rng: np.random.Generator) -> Array:
    """Return logits (M, K) of given success rates (M,); within right and within wrong answers they spread as normal variables."""
    weights = np.exp(rng.normal(size=rights.shape))
    shares = np.where(rights, rates[:, None], 1.0 - rates[:, None])
    alike = np.where(rights, (weights * rights).sum(-1, keepdims=True), (weights * ~rights).sum(-1, keepdims=True))
    return np.log(shares * (weights / alike))
