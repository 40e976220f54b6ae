"""KL terms: where the penalty of the objective enters the estimate, and by which estimator of the divergence.

For a token with l = log(pi/reference), the three estimators of the divergence are k1 = l, k2 = l^2/2 and k3 = exp(-l) - 1 + l
(Schulman 2020).  In the reward, their sum over the response's tokens, times the strength, is subtracted from what the kernel
sees.  In the loss, their derivatives in log pi weight the token's covector.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numba import types

from grpo_theory.compiler import F2, READONLY_F2, FunctionValue
from grpo_theory.estimation.part import Part, find_part, value_of

SIGNATURE = types.void(READONLY_F2, F2)


@dataclass(frozen=True)
class KLTerm(Part):
    """An estimator of the divergence and its place.

    Attributes
    ----------
    name : str
    place : {"reward", "loss"}
    function : callable
        ``function(log_ratios, terms)`` fills terms (rows, N) entry by entry from logs of pi/reference of tokens.  For the reward
        the entries are the estimator itself, and for the loss its derivative in log pi.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> from grpo_theory.estimation import KL_TERMS
    >>> KL_TERMS["k3 in loss"].place
    'loss'
    >>> gt.compose("rloo_k3_example", advantage="rloo", kl="k3 in loss").kl.name
    'k3 in loss'
    """

    name: str
    place: Literal["reward", "loss"]
    function: Callable

    @property
    def fill(self) -> FunctionValue:
        """The function, ready to be compiled."""
        return value_of(self.function, SIGNATURE)


def k1(log_ratios, terms):
    """Fill in l."""
    for t in range(terms.shape[0]):
        for i in range(terms.shape[1]):
            terms[t, i] = log_ratios[t, i]


def k2(log_ratios, terms):
    """Fill in l^2/2."""
    for t in range(terms.shape[0]):
        for i in range(terms.shape[1]):
            terms[t, i] = 0.5 * log_ratios[t, i] ** 2


def k3(log_ratios, terms):
    """Fill in exp(-l) - 1 + l."""
    for t in range(terms.shape[0]):
        for i in range(terms.shape[1]):
            # expm1, because exp(-l) - 1 loses all digits where the policy has hardly left the reference.
            terms[t, i] = np.expm1(-log_ratios[t, i]) + log_ratios[t, i]


def k1_slope(log_ratios, terms):
    """Fill in 1, the derivative of k1: its mean gradient under pi is 0."""
    for t in range(terms.shape[0]):
        for i in range(terms.shape[1]):
            terms[t, i] = 1.0


def k2_slope(log_ratios, terms):
    """Fill in l, the derivative of k2."""
    for t in range(terms.shape[0]):
        for i in range(terms.shape[1]):
            terms[t, i] = log_ratios[t, i]


def k3_slope(log_ratios, terms):
    """Fill in 1 - exp(-l), the derivative of k3."""
    for t in range(terms.shape[0]):
        for i in range(terms.shape[1]):
            terms[t, i] = -np.expm1(-log_ratios[t, i])


KL_TERMS = {
    "k1 in reward": KLTerm("k1 in reward", "reward", k1),
    "k2 in reward": KLTerm("k2 in reward", "reward", k2),
    "k3 in reward": KLTerm("k3 in reward", "reward", k3),
    "k1 in loss": KLTerm("k1 in loss", "loss", k1_slope),
    "k2 in loss": KLTerm("k2 in loss", "loss", k2_slope),
    "k3 in loss": KLTerm("k3 in loss", "loss", k3_slope),
}


def find_kl_term(value: str | KLTerm) -> KLTerm:
    """Return the KL term of that name; a `KLTerm` is returned as it is."""
    return find_part("kl", value, KL_TERMS, KLTerm)
