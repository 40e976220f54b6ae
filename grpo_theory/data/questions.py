"""SmolLM2-135M-Instruct on arithmetic questions: hidden states and head rows of a real language model."""

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grpo_theory.validation import Integers, outline

PROMPTS = ("zero-shot", "few-shot", "instruct")
"""How the questions were put to the model."""


@dataclass(frozen=True, eq=False)
class QuestionSet:
    """Questions that were put to the model, and the head that its answers come from.

    Attributes
    ----------
    questions : tuple of str
    answers : ndarray of int, shape (Q,)
    categories : ndarray of int, shape (Q,)
        Index into `category_names`.
    category_names : tuple of str
    head : ndarray of float32, shape (V, 576)
        The head rows of the tokens that answers are made of.
    provenance : dict
        How the file was made, from what, with which versions.
    """

    questions: tuple[str, ...]
    answers: Integers
    categories: Integers
    category_names: tuple[str, ...]
    head: NDArray[np.float32]
    provenance: dict


@dataclass(frozen=True, eq=False)
class Arithmetic(QuestionSet):
    """500 questions whose answers are single digits, put to the model in three ways.

    The responses are the ten digit tokens. Given that the answer is a digit, the model is exactly a linear-softmax bandit. Its
    logits are W h. W contains the head rows of the digits, and h is the last hidden state.

    Attributes
    ----------
    hidden : ndarray of float32, shape (3, 500, 576)
        The last hidden state in front of the answer, one for each way of putting the questions, in the order of `PROMPTS`.
    digit_mass : ndarray of float32, shape (3, 500)
        The probability that the unrestricted model gives to the ten digits together.

    And those of `QuestionSet`, with Q = 500 and V = 10, the digits.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> data = gt.data.arithmetic()
    >>> data.questions[0], int(data.answers[0]), data.hidden.shape
    ('2+1+5', 8, (3, 500, 576))
    """

    hidden: NDArray[np.float32]
    digit_mass: NDArray[np.float32]
    __repr__ = outline


@cache
def arithmetic() -> Arithmetic:
    """Load the arithmetic set; its checksum is verified.

    Raises
    ------
    ValueError
        If the file is not the one whose checksum the package states.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> len(gt.data.arithmetic().questions)
    500
    """
    common, data = read_questions("arithmetic")
    return Arithmetic(**common, hidden=data["hidden"], digit_mass=data["digit_mass"])


def read_arrays(name: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the provenance of a set and all arrays of its file; raise unless the file's checksum is the one stated."""
    folder = files("grpo_theory.data")
    provenance = json.loads((folder / f"{name}.json").read_text())
    content = (folder / f"{name}.npz").read_bytes()
    checksum = hashlib.sha256(content).hexdigest()
    if checksum != provenance["sha256"]:
        raise ValueError(f"{name}.npz must have sha256 {provenance['sha256']}, got {checksum}: reinstall the package")
    with np.load(BytesIO(content), allow_pickle=False) as file:
        return provenance, dict(file)


def read_questions(name: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return what every `QuestionSet` has, and all arrays of its file."""
    provenance, data = read_arrays(name)
    common = {
        "questions": tuple(data["questions"].tolist()),
        "answers": data["answers"].astype(np.int64),
        "categories": data["categories"].astype(np.int64),
        "category_names": tuple(provenance["categories"]),
        "head": data["head"],
        "provenance": provenance,
    }
    return common, data


LONGEST = 3
"""The most tokens of an answer: digits, or digits and the newline, which is token 10."""


@dataclass(frozen=True, eq=False)
class LongAnswers(QuestionSet):
    """32 questions whose answers have one to three digits, put to the model after 16 solved examples.

    A response is a sequence of at most three tokens out of eleven, the ten digits and the newline, which ends it.  Given that
    each token is one of the eleven, the model is exactly a tree of softmax policies.  The logits at a prefix are W h.  W contains
    the head rows of the eleven tokens, and h is the last hidden state behind the prefix.

    Attributes
    ----------
    hidden : ndarray of float32, shape (32, 111, 576)
        The last hidden state behind each prefix of no, one or two digits, in order of their length and then of their digits.
    mass : ndarray of float32, shape (32, 111)
        The probability that the unrestricted model gives to the eleven tokens together.

    And those of `QuestionSet`, with Q = 32 and V = 11, the ten digits and the newline.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> data = gt.data.long_answers()
    >>> len(data.questions), data.hidden.shape
    (32, (32, 111, 576))
    """

    hidden: NDArray[np.float32]
    mass: NDArray[np.float32]
    __repr__ = outline


@cache
def long_answers() -> LongAnswers:
    """Load the set of longer answers; its checksum is verified.

    Raises
    ------
    ValueError
        If the file is not the one whose checksum the package states.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> gt.data.long_answers().mass.shape
    (32, 111)
    """
    common, data = read_questions("long_answers")
    return LongAnswers(**common, hidden=data["centre"] + data["hidden"].astype(np.float32), mass=data["mass"])
