"""What rivals need to count groups by words of 8 and 16 bits: integer thresholds, in the end rounded to multiples of 2^-16."""

from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from benchmarks.task import Task
from grpo_theory.simulate.draw.outcome_law import COARSE_BITS, split

WORDS = 1 << 16
BYTES = 1 << COARSE_BITS
NEGLECTED = 1e-9
"""The share of groups that may leave more to be drawn again than there are words for."""


class CountedLaw(NamedTuple):
    """The law of the classes whose members are counted: outcomes, or responses where each has one possible reward.

    Attributes
    ----------
    probabilities : ndarray, shape (M, C)
    thresholds : ndarray of uint16, shape (C - 1, M)
        A word is in the first class whose threshold is above it, and in the last if there is none.
    right : ndarray, shape (M, K), or None
        The responses' rewards where each has one; then the classes are the responses, and else (response, reward).
    """

    probabilities: NDArray[np.float64]
    thresholds: NDArray[np.uint16]
    right: NDArray[np.float32] | None

    @classmethod
    def of(cls, task: Task) -> "CountedLaw":
        """Tabulate the law of a task."""
        values, n_prompts = task.problem.bandit.values, task.point.bandit.n_prompts
        joint = task.point.outcome_probabilities.reshape(n_prompts, -1, values.size)
        if ((joint > 0.0).sum(axis=2) > 1).any():
            return cls(joint.reshape(n_prompts, -1), _thresholds(joint.reshape(n_prompts, -1)), None)
        return cls(joint.sum(axis=2), _thresholds(joint.sum(axis=2)), values[joint.argmax(axis=2)].astype(np.float32))


class ByteLaw(NamedTuple):
    """The same law by words of 8 bits, and by words of 16 bits of those that leave a response open.

    Attributes
    ----------
    coarse : ndarray of uint8, shape (C, M)
        A word past the last threshold leaves its response open.
    fine : ndarray of uint16, shape (C - 1, M)
    again : int
        The words of 16 bits for each group, an even number.
    """

    coarse: NDArray[np.uint8]
    fine: NDArray[np.uint16]
    again: int

    @classmethod
    def of(cls, law: CountedLaw, group_size: int) -> "ByteLaw":
        """Tabulate what the law of the classes leaves of 8 bits."""
        thresholds, left = split(law.probabilities, COARSE_BITS)
        share = left.sum(axis=1, keepdims=True)
        again = int(binom.isf(NEGLECTED, group_size, share.max() / BYTES))
        coarse = np.ascontiguousarray((thresholds.T + BYTES // 2).astype(np.uint8))
        return cls(coarse, _thresholds(left / share), again + again % 2)


def _thresholds(probabilities: NDArray[np.float64]) -> NDArray[np.uint16]:
    below = np.rint(WORDS * np.cumsum(probabilities, axis=1)[:, :-1])
    return np.ascontiguousarray(np.minimum(below, WORDS - 1).T.astype(np.uint16))


def covectors_of_counts(law: CountedLaw, task: Task, counts: Any, right: Any) -> Any:
    """Return the covectors (K, ...) of the leave-one-out estimate from counts (C, ...), in closed form.

    With N_k responses k, whose rewards add up to S_k, and those of all to S, it is (S_k - N_k S/G)/(B (G - 1)).  `right` (K, ...)
    are the rewards of the responses where each has one.  Works on arrays of NumPy and of JAX.
    """
    scale = 1.0 / (task.batch_size * (task.group_size - 1.0))
    if law.right is None:
        values = task.problem.bandit.values.tolist()
        of_values = [counts[i :: len(values)] for i in range(len(values))]
        rewards = [own if value == 1.0 else own * value for value, own in zip(values, of_values, strict=True) if value != 0.0]
        rewarded, all_of_them = reduce(add, rewards), reduce(add, of_values)
    else:
        rewarded, all_of_them = counts * right, counts
    return (rewarded - all_of_them * (rewarded.sum(axis=0) * (1.0 / task.group_size))) * scale
