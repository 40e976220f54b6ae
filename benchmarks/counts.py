"""What rivals in NumPy and in JAX share: thresholds of words of 16 bits, and logit gradients of responses and of counts."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.tasks import Task, Training

WORDS = 1 << 16


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
        values, laws = task.problem.bandit.values, task.point.outcome_probabilities
        joint, right = laws.reshape(len(laws), -1, values.size), None
        if not ((joint > 0.0).sum(axis=2) > 1).any():
            laws, right = joint.sum(axis=2), values[joint.argmax(axis=2)].astype(np.float32)
        below = np.rint(WORDS * np.cumsum(laws, axis=1)[:, :-1])
        return cls(laws, np.ascontiguousarray(np.minimum(below, WORDS - 1).T.astype(np.uint16)), right)


def logit_gradients_of_counts(law: CountedLaw, task: Task, counts: Any, right: Any) -> Any:
    """Return the logit gradients (K, ...) of the leave-one-out estimate from counts (C, ...), in closed form.

    With N_k responses k, whose rewards add up to S_k, and those of all to S, it is (S_k - N_k S/G)/(B (G - 1)).  `right` (K, ...)
    are the rewards of the responses where each has one.  Works on arrays of NumPy and of JAX.
    """
    if right is None:
        values = task.problem.bandit.values.tolist()
        numbers = sum(counts[i :: len(values)] for i in range(len(values)))
        rewarded = sum(value * counts[i :: len(values)] for i, value in enumerate(values) if value != 0.0)
    else:
        numbers, rewarded = counts, counts * right
    return (rewarded - numbers * (rewarded.sum(axis=0) / task.group_size)) / (task.batch_size * (task.group_size - 1.0))


def step_logit_gradients(xp: Any, task: Training, logits: Any, pick: Callable[[Any], Any], drawn: Any, count: Any = None) -> Any:
    """Return the logit gradients (B, K, R) of a step of training, but for a factor, from the logits (B, K, R).

    `xp` is NumPy or JAX's; `pick` takes a table (M, K) to the entries (B, K, R) of the prompts. Uniforms (B, G, R) are compared
    with the distribution function one response at a time. With `count`, ``count(drawn, share)`` counts words (B, G, R) below a
    share (B, R) of 2^16, to which it is rounded.
    """
    dtype, n_responses, group_size = logits.dtype, logits.shape[1], task.group_size
    centred = logits - logits.max(axis=1, keepdims=True)
    weights = xp.exp(centred)
    total = weights.sum(axis=1, keepdims=True)
    pi = weights / total
    rewarded = pi * pick(xp.asarray(task.problem.bandit.mean_reward, dtype))
    penalty = xp.zeros_like(pi)
    if (kl := task.problem.kl) is not None:
        penalty = kl.strength * (centred - xp.log(total) - pick(xp.log(xp.asarray(kl.reference, dtype))))
    below = xp.zeros_like(pi[:, 0])
    if count is not None:
        start, sums, numbers = xp.zeros_like(below), [], []
        for k in range(n_responses):
            right = count(drawn, below + rewarded[:, k]).astype(dtype) - start
            below = below + pi[:, k]
            end = count(drawn, below).astype(dtype) if k < n_responses - 1 else xp.full_like(start, group_size)
            numbers.append(end - start)
            sums.append(right - penalty[:, k] * numbers[k])
            start = end
        mean = sum(sums) / group_size
        return xp.stack([own - number * mean for own, number in zip(sums, numbers, strict=True)], axis=1)
    rewards, chosen = xp.zeros_like(drawn), []
    for k in range(n_responses):
        upper = below + pi[:, k]
        chosen.append((drawn >= below[:, None]) & ((k == n_responses - 1) | (drawn < upper[:, None])))
        right = drawn < (below + rewarded[:, k])[:, None]
        rewards = xp.where(chosen[k], right - penalty[:, k][:, None], rewards)
        below = upper
    advantages = rewards - rewards.mean(
        axis=1, keepdims=True
    )  # their sum is 0, and so is the policy's part of the logit gradient
    return xp.stack([xp.where(is_chosen, advantages, 0.0).sum(axis=1) for is_chosen in chosen], axis=1)
