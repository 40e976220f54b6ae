"""Rivals in vectorised NumPy that see groups as counts, by words of 16 or 8 bits.

Replications lie along the last axis of every array, and what a chunk touches fits the second level of cache.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from benchmarks.numpy_rivals import alias_tables, contender
from benchmarks.task import Task
from benchmarks.timing import Contender
from benchmarks.words import WORDS, ByteLaw, CountedLaw, covectors_of_counts

Single = NDArray[np.float32]
Integers = NDArray[np.int64]

CHUNK = 1 << 16  # responses, or at the least
CHUNK_GROUPS = 1 << 11  # so many groups
PART = 128  # responses whose comparisons are added up in 8 bits

Draw = Callable[[np.random.Generator, Integers], Single]  # of prompts (B, R), to counts (C, B, R)


def _count_below(words: NDArray, thresholds: NDArray, room: NDArray[np.bool_], below: NDArray) -> None:
    """Add to `below` (C, lanes) how many words (n, lanes) of each lane are below each threshold, added up in 8 bits."""
    for start in range(0, len(words), PART):
        part = words[start : start + PART]
        is_below = room[: len(part)]
        for count, threshold in zip(below, thresholds, strict=True):
            np.less(part, threshold, out=is_below)
            count += np.add.reduce(is_below.view(np.uint8), axis=0, dtype=np.uint8)


def _by_words(task: Task, law: CountedLaw, size: int) -> Draw:
    """Count the words below each threshold: four words of a 64-bit number."""
    lanes, group_size = task.batch_size * size, task.group_size
    n_classes = law.probabilities.shape[1]
    room = np.empty((min(PART, group_size), lanes), dtype=bool)
    n_words = group_size * lanes
    below = np.zeros((n_classes + 1, lanes), dtype=np.float32)
    below[-1] = group_size

    def draw(generator: np.random.Generator, prompts: Integers) -> Single:
        drawn = generator.integers(0, 1 << 64, size=-(-n_words // 4), dtype=np.uint64)
        words = drawn.view(np.uint16)[:n_words].reshape(group_size, lanes)
        below[1:-1] = 0.0
        _count_below(words, law.thresholds.take(prompts.ravel(), axis=1), room, below[1:-1])
        return np.diff(below, axis=0).reshape(n_classes, *prompts.shape)

    return draw


def _by_bytes(task: Task, law: CountedLaw, size: int) -> Draw:
    """Count eight words of a 64-bit number, and draw what these leave open again by 16 bits."""
    lanes, group_size, bytes_law = task.batch_size * size, task.group_size, ByteLaw.of(law, task.group_size)
    n_classes = law.probabilities.shape[1]
    room = np.empty((min(PART, max(group_size, bytes_law.again)), lanes), dtype=bool)
    n_coarse = -(-group_size * lanes // 8)
    positions = np.arange(bytes_law.again)[:, None]
    below = np.zeros((n_classes + 1, lanes), dtype=np.float32)

    def draw(generator: np.random.Generator, prompts: Integers) -> Single:
        drawn = generator.integers(0, 1 << 64, size=n_coarse - (-bytes_law.again * lanes // 4), dtype=np.uint64)
        words = drawn[:n_coarse].view(np.uint8)[: group_size * lanes].reshape(group_size, lanes)
        again = drawn[n_coarse:].view(np.uint16)[: positions.size * lanes].reshape(positions.size, lanes)
        below[:] = 0.0
        _count_below(words, bytes_law.coarse.take(prompts.ravel(), axis=1), room, below[1:])
        again[positions >= group_size - below[-1]] = WORDS - 1
        _count_below(again, bytes_law.fine.take(prompts.ravel(), axis=1), room, below[1:-1])
        below[-1] = group_size
        return np.diff(below, axis=0).reshape(n_classes, *prompts.shape)

    return draw


def _squared_errors(task: Task, size: int) -> Callable[[Single, Integers], Single]:
    """Return the function of covectors (K, B, R) and prompts (B, R) that returns squared errors (R,)."""
    n_prompts, n_responses = task.point.probabilities.shape
    gradient = task.exact.gradient.astype(np.float32)[:, None]
    inner, logits = task.inner_products.astype(np.float32), np.ascontiguousarray(task.gradient_logits.T, dtype=np.float32)
    rows, columns = size * np.arange(n_responses)[:, None, None], np.arange(size)

    def of_a_table(covectors: Single, prompts: Integers) -> Single:
        places = prompts * (n_responses * size) + columns + rows
        sums = np.bincount(places.ravel(), covectors.ravel(), n_prompts * n_responses * size)
        errors = sums.reshape(-1, size).astype(np.float32) - gradient
        errors *= errors
        return errors.sum(axis=0)

    def of_a_head(covectors: Single, prompts: Integers) -> Single:
        squares = np.full(size, task.exact.gradient_power, dtype=np.float32)
        squares -= 2.0 * (covectors * logits.take(prompts.ravel(), axis=1).reshape(covectors.shape)).sum(axis=(0, 1))
        for b in range(task.batch_size):
            products = (covectors[:, b : b + 1] * covectors[:, b:]).sum(axis=0)
            products *= inner.take(prompts[b] * n_prompts + prompts[b:])
            squares += 2.0 * products.sum(axis=0) - products[0]
        return squares

    return of_a_table if task.is_tabular else of_a_head


def rivals(task: Task) -> list[Contender]:
    """Return the variants; which is fastest depends on the task."""
    contenders = []
    law = CountedLaw.of(task)
    (threshold,), (choices,) = alias_tables(task.problem.bandit.prompt_weights[None])
    n_prompts = task.problem.bandit.n_prompts
    size = max(CHUNK // task.batch_responses, CHUNK_GROUPS // task.batch_size)
    squared_errors = _squared_errors(task, size)

    def errors_by(draw: Draw) -> Callable[[np.random.Generator], Single]:
        def errors(generator: np.random.Generator) -> Single:
            x = generator.random((task.batch_size, size))
            x *= n_prompts
            columns = x.astype(np.int64)
            prompts = choices.take(2 * columns + (x >= threshold.take(columns)))
            counts = draw(generator, prompts)
            right = None if law.right is None else law.right[prompts].transpose(2, 0, 1)
            return squared_errors(covectors_of_counts(law, task, counts, right).astype(np.float32, copy=False), prompts)

        return errors

    ways = {"16-bit words": _by_words, "8-bit words": _by_bytes}
    for name, make in ways.items():
        contenders.append(contender(f"NumPy, {name}", task, size, errors_by(make(task, law, size))))
    return contenders
