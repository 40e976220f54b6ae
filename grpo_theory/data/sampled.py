"""SmolLM2-135M-Instruct's sampled answers, short and of about 80 tokens: their rewards, and sketches of their gradients."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from grpo_theory.data.questions import read_arrays
from grpo_theory.validation import Array, Integers, outline


@dataclass(frozen=True, eq=False)
class SampledAnswers:
    """B questions of three kinds, each answered G times at temperature 1; D different answers, of which some came often.

    The rollouts are ``gt.Rollouts(data.rewards[data.index], data.sketches[data.index])``, or with `head`.

    Attributes
    ----------
    prompts : tuple of str
        B texts: four solved examples of the same kind, and the question.
    answers : tuple of str
        B right answers.
    kinds : ndarray of int, shape (B,)
        Index into `kind_names`.
    kind_names : tuple of str
    index : ndarray of int, shape (B, G)
        Which of the different answers each response is.
    texts : tuple of str
        D answers of the model, with the newline that ends them.
    rewards : ndarray, shape (D,)
        1 where the answer is right to the letter, else 0.
    lengths : ndarray of int, shape (D,)
        In tokens, the newline included.
    likelihoods : ndarray, shape (D,)
        log pi(answer | prompt).
    sketches : ndarray, shape (D, 1024)
        Sketches of the gradients of log pi with respect to all 134,515,008 parameters, made by `gt.sketch`. There are four blocks
        side by side; each block times 2 is a sketch by itself. Inner products are unbiased for those of the gradients.
    head : ndarray, shape (D, J)
        The gradients with respect to the output head alone, as if it were not tied to the embedding. The coordinates keep inner
        products (to a few parts in a thousand).
    provenance : dict
        How the file was made, from what, with which versions.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> data = gt.data.sampled_answers()
    >>> gt.Rollouts(data.rewards[data.index], data.sketches[data.index]).scores.shape
    (129, 32, 1024)
    """

    prompts: tuple[str, ...]
    answers: tuple[str, ...]
    kinds: Integers
    kind_names: tuple[str, ...]
    index: Integers
    texts: tuple[str, ...]
    rewards: Array
    lengths: Integers
    likelihoods: Array
    sketches: Array
    head: Array
    provenance: dict
    __repr__ = outline


@cache
def sampled_answers() -> SampledAnswers:
    """Load the sampled answers; the file's checksum is verified.

    Raises
    ------
    ValueError
        If the file is not the one whose checksum the package states.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> data = gt.data.sampled_answers()
    >>> data.kind_names, data.index.shape
    (('small sum', 'sum', 'larger'), (129, 32))
    """
    provenance, read = _read("rollouts", "likelihoods", "head")
    return SampledAnswers(**read, kind_names=tuple(provenance["kinds"]), provenance=provenance)


@dataclass(frozen=True, eq=False)
class LongRollouts:
    """B prompts to count from one number to another, each answered G times at temperature 0.6; D different answers.

    The rollouts are ``gt.Rollouts(data.rewards[data.index], data.sketches[data.index])``.

    Attributes
    ----------
    prompts : tuple of str
        B texts: two solved examples that end at the same number, and the question.
    answers : tuple of str
        B right answers, without the newline that ends them.
    kinds : ndarray of int, shape (B,)
        Index into ``provenance["kinds"]``: up by ones, down by ones, up by twos.
    index : ndarray of int, shape (B, G)
        Which of the different answers each response is.
    texts : tuple of str
        D answers of the model, with the newline that ends them.
    rewards : ndarray, shape (D,)
        1 where the answer is right to the letter, else 0.
    lengths : ndarray of int, shape (D,)
        In tokens, the newline included.
    squared_norms : ndarray, shape (D,)
        Squared lengths of the gradients of log pi(answer | prompt) with respect to all 134,515,008 parameters, not from sketches.
    sketches : ndarray, shape (D, 1024)
        Sketches of these gradients, made by the projection of `gt.sketch`. There are four blocks side by side; each block times
        2 is a sketch by itself. Inner products are unbiased for those of the gradients.
    provenance : dict
        How the file was made, from what, with which versions.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> data = gt.data.long_rollouts()
    >>> rollouts = gt.Rollouts(data.rewards[data.index], data.sketches[data.index])
    >>> rollouts.rewards.shape, data.lengths.min().item(), data.lengths.max().item()
    ((64, 16), 5, 128)
    """

    prompts: tuple[str, ...]
    answers: tuple[str, ...]
    kinds: Integers
    index: Integers
    texts: tuple[str, ...]
    rewards: Array
    lengths: Integers
    squared_norms: Array
    sketches: Array
    provenance: dict
    __repr__ = outline


@cache
def long_rollouts() -> LongRollouts:
    """Load the long answers; the file's checksum is verified.

    Raises
    ------
    ValueError
        If the file is not the one whose checksum the package states.

    Examples
    --------
    >>> data = long_rollouts()
    >>> bool(data.lengths[data.index].mean() > 64)
    True
    """
    provenance, read = _read("long_rollouts", "squared_norms")
    return LongRollouts(**read, provenance=provenance)


def _read(name: str, *further: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the provenance of a set, and what every set of answers has besides, with further arrays of floats."""
    provenance, data = read_arrays(name)
    read: dict[str, Any] = {key: tuple(data[key].tolist()) for key in ("prompts", "answers", "texts")}
    read |= {key: data[key].astype(np.int64) for key in ("kinds", "index", "lengths")}
    read |= {key: data[key].astype(np.float64) for key in ("rewards", "sketches", *further)}
    return provenance, read
