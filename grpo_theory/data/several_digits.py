"""SmolLM2-135M-Instruct on questions whose answers have several digits: hidden states in front of every token."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from grpo_theory.data.questions import QuestionSet, read_questions

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
