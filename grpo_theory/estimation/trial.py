"""The first use of a kernel, and its first on a problem: as plain Python, which checks every index and says where it fails."""

import traceback
from functools import lru_cache

import numpy as np

from grpo_theory.arrays import Array, Integers
from grpo_theory.compiler import plain_python
from grpo_theory.estimation.advantage import Advantage
from grpo_theory.estimation.kernel import CONTRACT, PROMPT_FIELDS, Batch, compile_kernel

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
    batches = _batches(advantage, group_size) if group_size <= _LARGEST_GROUP else []
    try:
        compile_kernel(advantage.function)  # what does not compile is said in the contract's words
    except TypeError as error:
        raise _clearer(error, advantage) from None
    for batch in batches:
        why = failure(advantage, batch)
        if why:
            shape = f"{batch.rewards.shape[0]} x {group_size}"
            raise ValueError(f"the kernel of estimator {advantage.name!r} fails for a batch of {shape} responses: {why}")
    if batches and _fills_nothing(advantage, batches[0]):
        raise ValueError(
            f"the kernel of estimator {advantage.name!r} must fill advantages, and leaves all of them as they are. Write into "
            "the array, as in `advantages[b, g] = ...`, because `advantages = ...` makes another"
        )


def _clearer(error: TypeError, advantage: Advantage) -> TypeError:
    """Return why a kernel does not compile; that of one that writes on the batch in place, numba does not say."""
    why = "" if "readonly" in str(error) else failure(advantage, _batches(advantage, max(2, advantage.minimum_group_size))[0])
    if "read-only" not in why:
        return error
    return TypeError(f"the kernel {advantage.function.__qualname__!r} writes on the batch, which is read-only: {why}; {CONTRACT}")


def _fills_nothing(advantage: Advantage, batch: Batch) -> bool:
    """Whether a kernel leaves every advantage what it was, whatever that was."""
    for before in (2.0**-9, -3.0):
        advantages = np.full(batch.rewards.shape, before)
        try:
            with np.errstate(all="ignore"):
                plain_python(advantage.function)(batch, advantages)
        except (ArithmeticError, ValueError):  # of a value that is not finite: other failures have been told before
            return False
        if (advantages != before).any():
            return False
    return True


@lru_cache(maxsize=1024)
def try_on_rewards(advantage: Advantage, group_size: int, rewards: bytes, lengths: bytes) -> None:
    """Run a kernel once as plain Python on groups of a problem's own rewards (L,) and lengths (N,), the bytes of these arrays.

    A kernel may look something up by what it reads, and made-up rewards do not tell whether it finds it there.

    Raises
    ------
    ValueError
        If it raises anything; the message has a group's rewards, the exception's own words, and the line.
    """
    values, tokens = np.unique(np.frombuffer(rewards)), np.unique(np.frombuffer(lengths, dtype=np.int64))
    for batch in _own_batches(advantage, group_size, values, tokens) if group_size <= _LARGEST_GROUP else []:
        if failure(advantage, batch):
            for b in range(len(batch.rewards)):  # which of the groups it is
                group = Batch._make([*(field[b : b + 1] for field in batch[:-1]), batch.parameters])
                why = failure(advantage, group)
                if why:
                    seen = f"rewards {_first_few(group.rewards[0])} and lengths {_first_few(group.lengths[0])}"
                    raise ValueError(
                        f"the kernel of estimator {advantage.name!r} fails for a group of this problem, with {seen}: {why}. "
                        "It must be defined for all rewards and lengths that the problem has"
                    )


def _first_few(numbers: np.ndarray) -> str:
    """Return numbers as text, cut short."""
    text = str(numbers[:8].tolist())
    return text if numbers.size <= 8 else f"{text[:-1]}, ...]"


def _own_batches(advantage: Advantage, group_size: int, values: Array, lengths: Integers) -> list[Batch]:
    """Return groups of equal responses, those of the ends among them, and groups that go through all rewards and lengths."""
    n_groups = max(2, min(_RESPONSES // group_size, max(values.size, lengths.size)))
    places = np.linspace(0.0, 1.0, n_groups)[:, None]
    shown = []
    for others in (places, 1.0 - places):
        equal = [np.repeat(field, group_size, axis=1) for field in (_spread(values, places), _spread(lengths, others))]
        shown.append((equal[0], equal[1]))
    rows = min(n_groups, -(-max(values.size, lengths.size) // group_size))
    shown.append((np.resize(values, (rows, group_size)), np.resize(lengths, (rows, group_size))))
    rng, made = np.random.default_rng(0), []
    for rewards, tokens in shown:
        means, deviations = rewards.mean(axis=1), rewards.std(axis=1)
        fields = [np.ascontiguousarray(rewards), 1.0 + rng.random(rewards.shape), np.ascontiguousarray(tokens)]
        made.append(_read_only(advantage, [*fields, means, deviations, means.copy()]))
    return made


def _spread(numbers: np.ndarray, places: Array) -> np.ndarray:
    """Return the numbers at these places between the first, 0, and the last, 1."""
    return numbers[np.rint(places * (numbers.size - 1)).astype(np.int64)]


def _read_only(advantage: Advantage, fields: list[np.ndarray]) -> Batch:
    for field in fields:
        field.setflags(write=False)
    return Batch._make([*fields, advantage.parameter_array])


def failure(advantage: Advantage, batch: Batch) -> str:
    """Return what a kernel raises as plain Python on a batch, and at which line; nothing if it raises nothing.

    Exceptions that only plain Python raises, for a division by zero or the root of a negative number, do not count. The compiled
    kernel gives a value that is not finite there, which is a separate error.
    """
    try:
        with np.errstate(all="ignore"):
            plain_python(advantage.function)(batch, np.full(batch.rewards.shape, np.nan))
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
        made.append(_read_only(advantage, fields))
    return made
