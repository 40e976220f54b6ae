"""What a kernel that is called sees of outcomes, and room to show it batches."""

from typing import NamedTuple

import numba
import numpy as np
from numba import types

from grpo_theory.compiler import F1, F2, F3, I1, I2, record_type
from grpo_theory.compiler.lanes import RUN, WIDTH, zeros
from grpo_theory.estimation.advantage import Advantage, failure
from grpo_theory.estimation.kernel import PROMPT_FIELDS, Batch
from grpo_theory.validation import Array, Integers

SHOWN_RESPONSES = 1 << 12
"""The responses that a kernel is shown at once, unless one batch has more, or the kernel couples its groups."""


class KernelView(NamedTuple):
    """What a kernel sees of the outcomes, by prompt or by group and lane.

    By prompt, P is M and Q is 1.  By group and lane, P is B and Q is N.

    Attributes
    ----------
    rewards : ndarray, shape (P, O, Q)
        Less the penalty if it is in the reward.
    norms : ndarray, shape (P, K, Q)
        Squared score norms; shape (P, 0, Q) if the kernel does not read them.
    fields : ndarray, shape (P, 3, Q)
        What oracles know of the prompts; shape (P, 0, Q) if the kernel reads none of it.
    lengths : ndarray of int64, shape (K,)
        The responses' lengths; empty if the kernel does not read them.
    responses : ndarray of int64, shape (O,)
        The outcomes' responses, in order.
    """

    rewards: Array
    norms: Array
    fields: Array
    lengths: Integers
    responses: Integers


class CallRoom(NamedTuple):
    """Room for the batches that a kernel is shown at once, and rows to spare.

    Attributes
    ----------
    lanes : int
        The number of batches.  Of n batches, the b-th group of the j-th has row b n + j.  Counts that are read one after another
        then lie close together in memory.
    divisor : float
        What advantages are divided by when they are read off.
    batch : Batch
        What the kernel sees.
    advantages : ndarray, shape (at least n, G)
        What it gives.
    """

    lanes: int
    divisor: float
    batch: Batch
    advantages: Array


BATCH = types.NamedTuple((F2, F2, I2, F1, F1, F1, F1), Batch)
KERNEL_VIEW = record_type(KernelView, F3, F3, F3, I1, I1)
CALL_ROOM = record_type(CallRoom, numba.int64, numba.float64, BATCH, F2)


def spare_rows(group_size: int) -> int:
    """Return how many rows of G numbers the end of the last run may write into."""
    return -(-RUN // group_size)


def make_batch(n_groups: int, group_size: int, parameters: Array) -> Batch:
    """Make room for what a kernel sees of so many groups at once."""
    shape = n_groups, group_size
    unread = [np.full(n_groups, np.nan) for _ in PROMPT_FIELDS]
    return Batch._make([np.empty(shape), np.full(shape, np.nan), np.ones(shape, dtype=np.int64), *unread, parameters])


NO_CALL = CallRoom(1, 1.0, make_batch(0, 1, np.empty(0)), np.empty((0, 1)))
"""Where no kernel is called."""


def make_call_room(advantage: Advantage, batch_size: int, group_size: int, divisor: float) -> CallRoom:
    """Make room to show batches to a kernel, one at a time if it couples its groups."""
    most = 1 if advantage.couples_groups else min(WIDTH, SHOWN_RESPONSES // (batch_size * group_size))
    lanes = 1 << max(0, most.bit_length() - 1)
    n = lanes * batch_size + spare_rows(group_size)
    return CallRoom(lanes, divisor, make_batch(n, group_size, advantage.parameter_array), zeros(n, group_size))


def fault_message(advantage: Advantage, rewards: Array) -> str:
    """Say that a kernel leaves an advantage that is not finite to a group with these rewards, or raises something there."""
    batch = make_batch(1, rewards.size, advantage.parameter_array)._replace(rewards=rewards[None].copy())
    why = failure(advantage, batch)
    means = f"; as plain Python it raises {why}" if why else ""
    where = f"and does not for a group with rewards {rewards.tolist()}{means}"
    return f"the kernel of estimator {advantage.name!r} must fill finite advantages, {where}"
