"""Importance ratios and clips: what a token's covector is weighted by when another policy sampled it.

The current policy is pi; the behaviour policy, which sampled, is pi_0.  A function of a ratio fills the weights of one response's
tokens from the logs of pi/pi_0 of its tokens.  It does so for N pairs of policies side by side.  A clip says what becomes of a
ratio that has gone too far from 1.  Clipping the surrogate makes its gradient vanish beyond the clip, so a clip turns a ratio
into a weight of the token's covector.
"""

import numbers
from collections.abc import Callable
from dataclasses import dataclass, replace

import numba
import numpy as np
from numba import types

from grpo_theory.compiler import F1, F2, FunctionValue
from grpo_theory.estimation.part import Part, find_part, value_of

RATIO_SIGNATURE = types.void(F2, numba.int64, F2)
CLIP_SIGNATURE = types.void(F2, numba.int64, numba.boolean, F1, F2)
DUAL_BOUND = 3.0
"""The largest ratio of a token with a negative advantage that a dual clip lets through: verl's clip_ratio_c."""


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

    Examples
    --------
    >>> import grpo_theory as gt
    >>> from grpo_theory.estimation import RATIOS
    >>> list(RATIOS), RATIOS["none"].constant
    (['none', 'token', 'trajectory', 'geometric'], True)
    >>> gt.compose("sequence_ratio_example", advantage="rloo", ratio="trajectory").ratio.name
    'trajectory'
    """

    name: str
    function: Callable
    constant: bool = False

    @property
    def fill(self) -> FunctionValue:
        """The function, ready to be compiled."""
        return value_of(self.function, RATIO_SIGNATURE)


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


@dataclass(frozen=True)
class Clip(Part):
    """A clip of the importance ratio r to between 1 - low and 1 + high.

    Attributes
    ----------
    name : str
    function : callable
        ``function(ratios, length, positive, widths, weights)`` fills the first `length` rows of weights (T, N) from those of
        ratios (T, N).  `positive` says whether the advantages of these responses are positive.  The array widths (2,) contains
        low and high.
    low, high : float, default 0.2
        Not negative.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> from grpo_theory.estimation import CLIPS
    >>> higher = CLIPS["by sign"].with_widths(0.2, 0.28)
    >>> higher.low, higher.high
    (0.2, 0.28)
    >>> gt.compose("clip_higher_example", advantage="rloo", ratio="token", clip=higher).clip.high
    0.28
    """

    name: str
    function: Callable
    low: float = 0.2
    high: float = 0.2

    def __post_init__(self) -> None:
        for side in ("low", "high"):
            width = getattr(self, side)
            if isinstance(width, bool) or not isinstance(width, numbers.Real) or not 0.0 <= float(width) < np.inf:
                raise ValueError(f"{side} must be a finite width of the clip, at least 0, got {width!r}")

    @property
    def fill(self) -> FunctionValue:
        """The function, ready to be compiled."""
        return value_of(self.function, CLIP_SIGNATURE)

    @property
    def widths(self) -> np.ndarray:
        """Low and high, shape (2,)."""
        return np.array([self.low, self.high], dtype=np.float64)

    def with_widths(self, low: float, high: float) -> "Clip":
        """Return the same clip with other widths."""
        return replace(self, low=low, high=high)


def no_clip(ratios, length, positive, widths, weights):
    """Weight r."""
    for t in range(length):
        for i in range(ratios.shape[1]):
            weights[t, i] = ratios[t, i]


def two_sided_clip(ratios, length, positive, widths, weights):
    """Weight r within [1 - low, 1 + high], else 0: the gradient of clip(r, 1 - low, 1 + high) A."""
    for t in range(length):
        for i in range(ratios.shape[1]):
            inside = 1.0 - widths[0] <= ratios[t, i] <= 1.0 + widths[1]
            weights[t, i] = ratios[t, i] if inside else 0.0


def upper_clip(ratios, length, positive, widths, weights):
    """Weight r up to 1 + high, else 0: the gradient of min(r, 1 + high) A (TIC-GRPO: arXiv 2508.02833)."""
    for t in range(length):
        for i in range(ratios.shape[1]):
            weights[t, i] = ratios[t, i] if ratios[t, i] <= 1.0 + widths[1] else 0.0


def clip_by_sign(ratios, length, positive, widths, weights):
    """Weight r unless r > 1 + high with A > 0, or r < 1 - low with A < 0.

    It is the gradient of min(r A, clip(r, 1 - low, 1 + high) A) (PPO: arXiv 1707.06347).
    """
    for t in range(length):
        for i in range(ratios.shape[1]):
            kept = ratios[t, i] <= 1.0 + widths[1] if positive else ratios[t, i] >= 1.0 - widths[0]
            weights[t, i] = ratios[t, i] if kept else 0.0


def cap(ratios, length, positive, widths, weights):
    """Weight min(r, 1 + high): a ratio that is too large is cut, and the token keeps its gradient (CISPO: arXiv 2506.13585)."""
    for t in range(length):
        for i in range(ratios.shape[1]):
            weights[t, i] = min(ratios[t, i], 1.0 + widths[1])


def cap_at_high(ratios, length, positive, widths, weights):
    """Weight min(r, high): the width itself is the cap, so below 1 it scales the gradient on policy too (CISPO in TRL)."""
    for t in range(length):
        for i in range(ratios.shape[1]):
            weights[t, i] = min(ratios[t, i], widths[1])


def clamp(ratios, length, positive, widths, weights):
    """Weight max(1 - low, min(r, 1 + high)): a ratio is cut on both sides, and the token keeps its gradient (CISPO in verl)."""
    for t in range(length):
        for i in range(ratios.shape[1]):
            weights[t, i] = max(1.0 - widths[0], min(ratios[t, i], 1.0 + widths[1]))


def dual_clip(ratios, length, positive, widths, weights):
    """As by sign, and 0 above `DUAL_BOUND` where A < 0, as in verl.

    It is the gradient of max(min(r A, clip(r, 1 - low, 1 + high) A), 3 A) there (dual-clip PPO: arXiv 1912.09729).
    """
    for t in range(length):
        for i in range(ratios.shape[1]):
            kept = ratios[t, i] <= 1.0 + widths[1] if positive else 1.0 - widths[0] <= ratios[t, i] <= DUAL_BOUND
            weights[t, i] = ratios[t, i] if kept else 0.0


CLIPS = {
    "none": Clip("none", no_clip),
    "two-sided": Clip("two-sided", two_sided_clip),
    "upper only": Clip("upper only", upper_clip),
    "by sign": Clip("by sign", clip_by_sign),
    "cap": Clip("cap", cap),
    "cap at high": Clip("cap at high", cap_at_high),
    "clamp": Clip("clamp", clamp),
    "dual": Clip("dual", dual_clip),
}


def find_clip(value: str | Clip) -> Clip:
    """Return the clip of that name, with widths of 0.2; a `Clip` is returned as it is."""
    return find_part("clip", value, CLIPS, Clip)
