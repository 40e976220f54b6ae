"""How much of the update's direction is left after ratios, clip and cap, from sketches of the responses' scores."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from grpo_theory.checks.importance import LARGEST, available, log_ratios, response_sums
from grpo_theory.checks.kept_rows import TokenLogs
from grpo_theory.validation import Array


@dataclass(frozen=True)
class Direction:
    """The update sum_i A_i w_i s_i beside sum_i A_i s_i, s the responses' sketches and w what ratios make of them.

    Attributes
    ----------
    cosine : float
        Between -1 and 1; NaN if either update is 0.
    length : float
        The length of the update over that without ratios.
    numbers : int
        How many numbers a sketch has: a cosine is right to about one over the root of them.
    """

    cosine: float
    length: float
    numbers: int


def response_weights(logprobs: Mapping[str, TokenLogs], advantages: Array, clip: tuple[float, float], cap: float) -> Array:
    """Return the mean weight of each response's tokens (N,): staleness clipped by sign, times mismatch of at most `cap`.

    A sketch is of a whole response, so that tokens cannot be weighed apart; the mean is what their weights have in common.
    """
    first = next(iter(logprobs.values()))
    signs = np.repeat(advantages, first.counts)
    weights = np.ones(first.values.size)
    for name in available(logprobs):
        ratios = np.exp(np.clip(log_ratios(logprobs, name), -LARGEST, LARGEST))
        if name == "mismatch":
            weights *= np.minimum(ratios, cap)
        else:
            kept = np.where(signs > 0.0, ratios <= 1.0 + clip[1], ratios >= 1.0 - clip[0])
            weights *= np.where(kept, ratios, 0.0)
    return response_sums(weights, first.counts) / np.maximum(first.counts, 1)


def direction_left(scores: Array, advantages: Array, weights: Array) -> Direction:
    """Compare the update with weights (N,) and without, from scores (N, J) and advantages (N,)."""
    plain, weighed = advantages @ scores, (advantages * weights) @ scores
    lengths = float(np.linalg.norm(plain)), float(np.linalg.norm(weighed))
    product = lengths[0] * lengths[1]
    return Direction(
        cosine=float(plain @ weighed) / product if product > 0.0 else np.nan,
        length=lengths[1] / lengths[0] if lengths[0] > 0.0 else np.nan,
        numbers=scores.shape[1],
    )
