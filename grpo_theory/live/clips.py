"""Which share of tokens a clip of the importance ratio leaves without a gradient."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.validation import as_array, as_not_negative, as_numbers, as_real_array


@dataclass(frozen=True)
class ClippedShares:
    """Shares of a batch's tokens that a clip leaves without a gradient.

    Attributes
    ----------
    low : float
        The share of tokens with a ratio below 1 - low and an advantage below 0.
    high : float
        The share of tokens with a ratio above 1 + high and an advantage above 0.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> shares = gt.live.clipped_shares([[0.5, 1.0], [1.5, 1.0]], [-1.0, 1.0])
    >>> shares.low, shares.high
    (0.25, 0.25)
    """

    low: float
    high: float


def clipped_shares(
    ratios: ArrayLike, advantages: ArrayLike, *, low: float = 0.2, high: float = 0.2, mask: ArrayLike | None = None
) -> ClippedShares:
    """Return the shares of tokens that the clip of GRPO and PPO leaves without a gradient.

    The loss ``min(r A, clip(r, 1 - low, 1 + high) A)`` does not change with the ratio r where ``r > 1 + high`` and A > 0, and
    where ``r < 1 - low`` and A < 0.

    Parameters
    ----------
    ratios : array_like, shape (N, T)
        Probability of each token under the policy that is updated, over that under the policy that sampled.
    advantages : array_like, shape (N, T), (N, 1) or (N,)
        The advantages of the responses or of their tokens.
    low, high : float, default 0.2
        How far a ratio may go below and above 1.
    mask : array_like of bool or of 0 and 1, shape (N, T), optional
        The tokens that count; all unless given.

    Returns
    -------
    ClippedShares

    Raises
    ------
    ValueError
        If shapes do not fit, a ratio that counts is not a number, or no token counts.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> gt.live.clipped_shares([[1.5, 1.0], [0.5, 0.7]], [1.0, -1.0])
    ClippedShares(low=0.5, high=0.25)
    """
    ratio, advantage = as_numbers("ratios", ratios), as_real_array("advantages", advantages, None)
    low, high = as_not_negative("low", low), as_not_negative("high", high)
    if ratio.ndim != 2:
        raise ValueError(f"ratios must have shape (N, T), a row for each response, got {ratio.shape}")
    if advantage.shape not in {ratio.shape, (len(ratio), 1), (len(ratio),)}:
        raise ValueError(f"advantages must have shape (N,), (N, 1) or (N, T) with (N, T) = {ratio.shape}, got {advantage.shape}")
    advantage = advantage.reshape(len(ratio), -1)
    counts = np.ones(ratio.shape, dtype=np.bool_) if mask is None else as_array("mask", mask) != 0
    if counts.shape != ratio.shape or not counts.any():
        raise ValueError(f"mask must have the ratios' shape {ratio.shape} and let a token count, got shape {counts.shape}")
    if np.isnan(ratio[counts]).any():
        raise ValueError(
            "ratios must be numbers where the mask lets a token count, and one is not: leave its token out by the mask"
        )
    above, below = (ratio > 1.0 + high) & (advantage > 0.0), (ratio < 1.0 - low) & (advantage < 0.0)
    return ClippedShares(float(below[counts].mean()), float(above[counts].mean()))
