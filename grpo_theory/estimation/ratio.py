"""Importance ratios: what a token's covector is weighted by when another policy sampled it.

The current policy is pi, the one that sampled (the behaviour policy) is pi_0.  A function of a ratio fills the weights of one
response's tokens, for N pairs of policies side by side, from the logs of pi/pi_0 token by token.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numba
import numpy as np
from numba import types

from grpo_theory.compiler import F2, FunctionValue
from grpo_theory.estimation.part import Part, find_part, value_of

SIGNATURE = types.void(F2, numba.int64, F2)


@dataclass(frozen=True)
class Ratio(Part):
    """An importance ratio.

    Attributes
    ----------
    name : str
    function : callable
        ``function(log_ratios, length, ratios)`` fills the first `length` rows of ratios (T, N) from those of log_ratios (T, N),
        row t for token t.
    constant : bool, default False
        Whether the weights do not depend on the policies.
    """

    name: str
    function: Callable
    constant: bool = False

    @property
    def fill(self) -> FunctionValue:
        """The function, ready to be compiled."""
        return value_of(self.function, SIGNATURE)


def no_ratio(log_ratios, length, ratios):
    """Weight 1: no importance sampling."""
    for t in range(length):
        for i in range(ratios.shape[1]):
            ratios[t, i] = 1.0


def token_ratio(log_ratios, length, ratios):
    """Each token has its own ratio pi/pi_0 (PPO, GRPO: arXiv 2402.03300)."""
    for t in range(length):
        for i in range(ratios.shape[1]):
            ratios[t, i] = np.exp(log_ratios[t, i])


def trajectory_ratio(log_ratios, length, ratios):
    """Every token has the ratio of the whole response, the product of the tokens' (TIC-GRPO: arXiv 2508.02833)."""
    for i in range(ratios.shape[1]):
        total = 0.0
        for t in range(length):
            total += log_ratios[t, i]
        whole = np.exp(total)
        for t in range(length):
            ratios[t, i] = whole


def geometric_ratio(log_ratios, length, ratios):
    """Every token has the geometric mean of the tokens' ratios (GSPO: arXiv 2507.18071)."""
    for i in range(ratios.shape[1]):
        total = 0.0
        for t in range(length):
            total += log_ratios[t, i]
        mean = np.exp(total / length)
        for t in range(length):
            ratios[t, i] = mean


RATIOS = {
    "none": Ratio("none", no_ratio, constant=True),
    "token": Ratio("token", token_ratio),
    "trajectory": Ratio("trajectory", trajectory_ratio),
    "geometric": Ratio("geometric", geometric_ratio),
}


def find_ratio(value: str | Ratio) -> Ratio:
    """Return the ratio of that name; a `Ratio` is returned as it is."""
    return find_part("ratio", value, RATIOS, Ratio)
