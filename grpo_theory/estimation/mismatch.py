"""Mismatch: the ratio of the trainer's policy, at the start of an update, over the policy of the engine that sampled.

Two programs compute the same network with different kernels and different precision.  The sampler's probabilities mu therefore
differ from pi_old, those of the trainer at the start of the update.  A trainer that corrects for both weights a token by
clip(pi/pi_old) times bound(pi_old/mu).  The bound, which truncates or masks, applies to the second ratio alone.  Where pi_old
sampled, the second factor is 1.
"""

from dataclasses import dataclass

import numpy as np

from grpo_theory.estimation.ratio import CLIPS, RATIOS, Clip, Ratio
from grpo_theory.validation import as_number, check_name, shown


@dataclass(frozen=True)
class Mismatch:
    """The second importance ratio of an estimator, and its bound.

    Attributes
    ----------
    name : str
    ratio : Ratio
        Of pi_old over the sampler: per token, of the whole response, or geometric.
    bound : Clip
        What becomes of it, whatever the sign of the advantage; it must leave a ratio of 1 as it is.

    Raises
    ------
    ValueError
        If the bound depends on the advantage's sign, or changes a ratio of 1.

    Examples
    --------
    >>> from grpo_theory.estimation import MISMATCHES
    >>> truncated = MISMATCHES["token truncated"]
    >>> truncated.with_bound(3.0).bound.high  # a ratio is cut at 1 + high
    2.0
    >>> truncated.is_same(truncated.with_bound(3.0))
    False
    """

    name: str
    ratio: Ratio
    bound: Clip

    def __post_init__(self) -> None:
        ratios = np.array([[0.01], [0.5], [1.0], [1.1], [2.0], [100.0]])
        weights = np.zeros((2, *ratios.shape))
        for sign in range(2):
            self.bound.function(ratios, len(ratios), sign == 0, self.bound.widths, weights[sign])
        if weights[0, 2, 0] != 1.0 or not np.array_equal(weights[0], weights[1]):
            raise ValueError(
                f"bound must leave a ratio of 1 as it is and not depend on the advantage's sign. But {self.bound.name!r} with "
                f"widths {self.bound.low:g} and {self.bound.high:g} does not. Take 'none', 'cap', 'clamp' or 'upper only'"
            )

    def with_bound(self, largest: float) -> "Mismatch":
        """Return the same mismatch with another upper bound on the ratio, at least 1."""
        if not 1.0 <= as_number("largest", largest) < np.inf:
            raise ValueError(f"largest must be finite and at least 1, got {largest}")
        return Mismatch(self.name, self.ratio, self.bound.with_widths(self.bound.low, largest - 1.0))

    def is_same(self, other: "Mismatch") -> bool:
        """Whether both are one mismatch, though perhaps of a file that has been run again."""
        return self.name == other.name and self.ratio.is_same(other.ratio) and self.bound.is_same(other.bound)


MISMATCHES = {
    "none": Mismatch("none", RATIOS["none"], CLIPS["none"]),
    "token": Mismatch("token", RATIOS["token"], CLIPS["none"]),
    "token truncated": Mismatch("token truncated", RATIOS["token"], CLIPS["cap"].with_widths(0.0, 1.0)),
    "token masked": Mismatch("token masked", RATIOS["token"], CLIPS["upper only"].with_widths(0.0, 4.0)),
    "response truncated": Mismatch("response truncated", RATIOS["trajectory"], CLIPS["cap"].with_widths(0.0, 1.0)),
    "response masked": Mismatch("response masked", RATIOS["trajectory"], CLIPS["upper only"].with_widths(0.0, 2.0)),
}
"""The mismatches by name, with the bounds that trainers use by default.  The bound is 2 where the ratio is truncated (verl), 5
where tokens are masked (AReaL), and 3 where responses are masked (TRL with vLLM).  The sources are in docs/trainers.md."""


def find_mismatch(value: str | Mismatch) -> Mismatch:
    """Return the mismatch of that name; a `Mismatch` is returned as it is."""
    if isinstance(value, Mismatch):
        return value
    if not isinstance(value, str):
        raise TypeError(f"mismatch must be a name or an instance of Mismatch, got {shown(value)}")
    check_name("mismatch", value, MISMATCHES)
    return MISMATCHES[value]
