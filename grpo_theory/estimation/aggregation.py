"""Aggregation over tokens: what a token of a response weighs in the estimate."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from grpo_theory.arrays import Array, Integers
from grpo_theory.estimation.part import Part, find_part
from grpo_theory.validation import as_positive, check_shape


@dataclass(frozen=True)
class Aggregation(Part):
    """How the tokens of a group's responses are added up.

    Attributes
    ----------
    name : str
    function : callable
        ``function(lengths, constant)`` returns the weight of each token of responses of these lengths (K,), shape (K,).
    pool : {"", "group", "batch"}, default ""
        Whose tokens, besides, share the weight 1: G times the tokens' mean over the group, or B G times that over the batch.
    constant : float, optional
        A number of tokens to divide by; the horizon, which is the length of the longest response, if omitted.

    Examples
    --------
    >>> import numpy as np
    >>> from grpo_theory.estimation import AGGREGATIONS
    >>> print(AGGREGATIONS["own length"].shares(np.array([1, 2, 4])))
    [1.   0.5  0.25]
    >>> print(AGGREGATIONS["constant"].shares(np.array([1, 2, 4])))
    [0.25 0.25 0.25]
    """

    name: str
    function: Callable[[Integers, float], Array]
    pool: Literal["", "group", "batch"] = ""
    constant: float | None = None

    def __post_init__(self) -> None:
        if self.constant is not None:
            as_positive("constant", self.constant)

    def shares(self, lengths: Integers) -> Array:
        """Return the weight of each token of the responses, shape (K,), for their lengths (K,)."""
        constant = float(lengths.max()) if self.constant is None else self.constant
        shares = np.ascontiguousarray(self.function(lengths, constant), dtype=np.float64)
        check_shape("function", shares, lengths.shape, "(K,), the weights that it returns")
        return shares


def whole(lengths: Integers, constant: float) -> Array:
    """Weight 1: the sum over tokens."""
    return np.ones(lengths.shape)


def own_length(lengths: Integers, constant: float) -> Array:
    """Weight 1/length: the mean over the response's own tokens (GRPO: arXiv 2402.03300)."""
    return 1.0 / lengths


def constant_length(lengths: Integers, constant: float) -> Array:
    """Weight 1/constant (Dr. GRPO: arXiv 2503.20783)."""
    return np.full(lengths.shape, 1.0 / constant)


AGGREGATIONS = {
    "sum": Aggregation("sum", whole),
    "own length": Aggregation("own length", own_length),
    "constant": Aggregation("constant", constant_length),
    "group tokens": Aggregation("group tokens", whole, pool="group"),
    "batch tokens": Aggregation("batch tokens", whole, pool="batch"),
}


def find_aggregation(value: str | Aggregation) -> Aggregation:
    """Return the aggregation of that name; an `Aggregation` is returned as it is."""
    return find_part("aggregation", value, AGGREGATIONS, Aggregation)
