"""SmolLM2-135M-Instruct on questions whose answers have several digits: hidden states in front of every token."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from grpo_theory.arrays import Integers
from grpo_theory.data.questions import read_data

LONGEST = 3
"""The most tokens of an answer: digits, or digits and the newline, which is token 10."""


@dataclass(frozen=True)
class LongAnswers:
    """32 questions whose answers have one to three digits, put to the model after 16 solved examples.

    A response is a sequence of at most three tokens out of eleven, the ten digits and the newline, which ends it.  Given that
    each token is one of the eleven, the model is exactly a tree of softmax policies: the logits at a prefix are W h with the
    head rows W of the eleven tokens and the last hidden state h behind the prefix.

    Attributes
    ----------
    questions : tuple of str
    answers : ndarray of int, shape (32,)
    categories : ndarray of int, shape (32,)
        Index into `category_names`.
    category_names : tuple of str
    hidden : ndarray of float32, shape (32, 111, 576)
        The last hidden state behind each prefix of no, one or two digits, in order of their length and then of their digits.
    head : ndarray of float32, shape (11, 576)
        The head rows of the ten digits and the newline.
    mass : ndarray of float32, shape (32, 111)
        The probability that the unrestricted model gives to the eleven tokens together.
    provenance : dict
        How the file was made, from what, with which versions.
    """

    questions: tuple[str, ...]
    answers: Integers
    categories: Integers
    category_names: tuple[str, ...]
    hidden: NDArray[np.float32]
    head: NDArray[np.float32]
    mass: NDArray[np.float32]
    provenance: dict


@cache
def long_answers() -> LongAnswers:
    """Load the set of longer answers; its checksum is verified.

    Raises
    ------
    ValueError
        If the file is not the one whose checksum the package states.
    """
    provenance, data = read_data("long_answers")
    return LongAnswers(
        questions=tuple(data["questions"].tolist()),
        answers=data["answers"].astype(np.int64),
        categories=data["categories"].astype(np.int64),
        category_names=tuple(provenance["categories"]),
        hidden=data["centre"] + data["hidden"].astype(np.float32),
        head=data["head"],
        mass=data["mass"],
        provenance=provenance,
    )
