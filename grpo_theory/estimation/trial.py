"""The first use of a kernel: as plain Python, which checks every index and says where it fails."""

import traceback
from functools import lru_cache

import numpy as np

from grpo_theory.compilation import plain
from grpo_theory.estimation.advantage import Advantage
from grpo_theory.estimation.kernel import PROMPT_FIELDS, Batch, compile_kernel

_RESPONSES = 2048
"""The most responses of a batch of several groups: plain Python takes some milliseconds for them."""
_LARGEST_GROUP = 8192
"""Larger groups are not tried: an index that is right for so many is right for more."""


@lru_cache(maxsize=256)
def try_kernel(advantage: Advantage, group_size: int) -> None:
    """Run a kernel once as plain Python on made-up groups of this size, before compiled code, which checks no index, runs it.

    Raises
    ------
    ValueError
        If it raises anything; the message has the exception's own words, and the line.
    """
    compile_kernel(advantage.function)  # what does not compile is said in the contract's words
    for batch in _batches(advantage, group_size) if group_size <= _LARGEST_GROUP else []:
        why = failure(advantage, batch)
        if why:
            shape = f"{batch.rewards.shape[0]} x {group_size}"
            raise ValueError(f"the kernel of estimator {advantage.name!r} fails for a batch of {shape} responses: {why}")


def failure(advantage: Advantage, batch: Batch) -> str:
    """Return what a kernel raises as plain Python on a batch, and at which line; nothing if it raises nothing.

    What only plain Python raises, for a division by zero or the root of a negative number, does not count: compiled, it gives a
    value that is not finite, which is an error of its own.
    """
    try:
        with np.errstate(all="ignore"):
            plain(advantage.function)(batch, np.full(batch.rewards.shape, np.nan))
    except Exception as error:
        if isinstance(error, ArithmeticError) or str(error) == "math domain error":
            return ""
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} (line {frame.lineno} of {frame.filename}: {frame.line})"
    return ""


def _batches(advantage: Advantage, group_size: int) -> list[Batch]:
    """Make up a group with both rewards and, if they are small, groups that are all wrong, all right and of many values."""
    rng = np.random.default_rng(0)
    rewards = [(np.arange(group_size) % 2.0)[None]]
    if 3 * group_size <= _RESPONSES:
        rewards.append(np.stack([np.zeros(group_size), np.ones(group_size), rng.random(group_size)]))
    made = []
    for own in rewards:
        fields = [own, 1.0 + rng.random(own.shape), rng.integers(1, 9, own.shape), *rng.random((len(PROMPT_FIELDS), len(own)))]
        for field in fields:
            field.setflags(write=False)
        made.append(Batch._make([*fields, advantage.parameter_array]))
    return made
