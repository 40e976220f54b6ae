"""Rivals in vectorised NumPy, of the errors of gradient estimates and of training: what see every response, and what count."""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

import grpo_theory as gt
from benchmarks.counts import CountedLaw, logit_gradients_of_counts, step_logit_gradients
from benchmarks.tasks import PRECISIONS, SEED, Task, Training
from benchmarks.timing import Contender
from grpo_theory.simulate.draws import prompt_law

Array = NDArray[Any]

TEXTBOOK_NUMBERS = 1 << 19  # numbers in a chunk's array of scores
COUNTED_CHUNK, COUNTED_GROUPS = 1 << 16, 1 << 11  # responses, or so many groups if these are more
PART = 128  # responses whose comparisons are added up in 8 bits
BLOCKS = (512, 2048)  # runs that take a step of training together
STEPS_DRAWN = 8  # so many steps' random numbers are drawn at once


def contender(name: str, task: Task, size: int, errors: Callable[[np.random.Generator], NDArray[Any]]) -> Contender:
    """Run chunks of so many replications one after the other; the answer is checked at every run."""
    generator = np.random.Generator(np.random.SFC64(SEED))
    chunks = max(1, min(64, (1 << 20) // (size * task.batch_responses)))

    def run(rounds: int) -> None:
        squared = np.concatenate([errors(generator) for _ in range(rounds * chunks)]).astype(np.float64)
        task.check(name, float(squared.mean()), float(squared.std(ddof=1) / np.sqrt(squared.size)))

    return Contender(name, run, chunks * size * task.batch_responses)


def textbook(task: Task) -> Contender:
    """Responses by comparison with the distribution function, then rewards, then dense scores contracted by `einsum`."""
    size = max(1, TEXTBOOK_NUMBERS // (task.batch_responses * task.problem.policy.dimension))
    shape = (size, task.batch_size, task.group_size)
    weights = np.cumsum(task.problem.bandit.prompt_weights)[:-1]
    policy = np.cumsum(task.point.probabilities, axis=1)[:, :-1]
    values, law = task.problem.bandit.values, task.problem.bandit.probabilities
    steps = list(zip(np.diff(values), np.moveaxis(np.cumsum(law, axis=2), 2, 0), strict=False))
    scores = task.problem.policy.scores(task.problem.theta)

    def errors(generator: np.random.Generator) -> Array:
        prompts = np.searchsorted(weights, generator.random(shape[:2]), side="right")[:, :, None]
        responses = (generator.random(shape)[..., None] >= policy[prompts]).sum(axis=-1)
        uniforms = generator.random(shape)
        rewards = values[0] + sum(step * (uniforms >= below[prompts, responses]) for step, below in steps)
        others = (rewards.sum(axis=-1, keepdims=True) - rewards) / (task.group_size - 1)
        gradients = np.einsum("rbg,rbgd->rd", rewards - others, scores[prompts, responses]) / task.batch_responses
        return ((gradients - task.point.moments.gradient) ** 2).sum(axis=1)

    return contender("NumPy, textbook", task, size, errors)


def counting(task: Task) -> Contender:
    """Count words of 16 bits, four in a number of 64, below each threshold; replications are along the last axis of arrays."""
    law, bandit = CountedLaw.of(task), task.problem.bandit
    (n_prompts, n_classes), n_responses = law.probabilities.shape, bandit.n_responses
    table = prompt_law(bandit.prompt_weights)
    threshold, other = table.kept / 2.0**32, table.alias
    choices = np.stack([np.arange(n_prompts), other.astype(np.int64)], axis=1)
    size = max(COUNTED_CHUNK // task.batch_responses, COUNTED_GROUPS // task.batch_size)
    shape, lanes, group_size = (task.batch_size, size), task.batch_size * size, task.group_size
    room = np.empty((min(PART, group_size), lanes), dtype=bool)
    below = np.zeros((n_classes + 1, lanes), dtype=np.float32)
    below[-1] = group_size
    gradient = task.point.moments.gradient.astype(np.float32)[:, None]
    inner, logits = task.inner_products.astype(np.float32), np.ascontiguousarray(task.gradient_logits.T, dtype=np.float32)
    rows, columns = size * np.arange(n_responses)[:, None, None], np.arange(size)

    def squared_errors(logit_gradients: Array, prompts: Array) -> Array:
        if task.is_tabular:
            places = prompts * (n_responses * size) + columns + rows
            sums = np.bincount(places.ravel(), logit_gradients.ravel(), n_prompts * n_responses * size)
            errors = sums.reshape(-1, size).astype(np.float32) - gradient
            errors *= errors
            return errors.sum(axis=0)
        squares = np.full(size, task.point.moments.gradient_squared_norm, dtype=np.float32)
        squares -= 2.0 * (logit_gradients * logits.take(prompts.ravel(), axis=1).reshape(logit_gradients.shape)).sum(axis=(0, 1))
        for b in range(task.batch_size):
            products = (logit_gradients[:, b : b + 1] * logit_gradients[:, b:]).sum(axis=0)
            products *= inner.take(prompts[b] * n_prompts + prompts[b:])
            squares += 2.0 * products.sum(axis=0) - products[0]
        return squares

    def errors(generator: np.random.Generator) -> Array:
        x = generator.random(shape)
        x *= n_prompts
        entries = x.astype(np.int64)
        prompts = choices.take(2 * entries + (x - entries >= threshold.take(entries)))
        words = words_of(generator, (group_size, lanes))
        below[1:-1] = 0.0
        thresholds = law.thresholds.take(prompts.ravel(), axis=1)
        for start in range(0, group_size, PART):
            part = words[start : start + PART]
            is_below = room[: len(part)]
            for count, each in zip(below[1:-1], thresholds, strict=True):
                np.less(part, each, out=is_below)
                count += np.add.reduce(is_below.view(np.uint8), axis=0, dtype=np.uint8)
        counts = np.diff(below, axis=0).reshape(n_classes, *shape)
        right = None if law.right is None else law.right[prompts].transpose(2, 0, 1)
        return squared_errors(logit_gradients_of_counts(law, task, counts, right).astype(np.float32, copy=False), prompts)

    return contender("NumPy, 16-bit words", task, size, errors)


def words_of(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draw words of 16 bits."""
    size = int(np.prod(shape))
    return generator.integers(0, 1 << 64, size=-(-size // 4), dtype=np.uint64).view(np.uint16)[:size].reshape(shape)


def count_below(words: Array, share: Array) -> Array:
    """Count the words (B, G, R) below shares (B, R) of 2^16, in 8 bits."""
    threshold = np.minimum(65536.0 * share + 0.5, 65535.0).astype(np.uint16)
    return np.add.reduce((words < threshold[:, None]).view(np.uint8), axis=1, dtype=np.uint8)


def train(task: Training, generator: np.random.Generator, dtype: Any, runs: int, by_words: bool) -> Array:
    """Train so many runs together, and return the last iterates (R, d); runs stand along the last axis of every array."""
    bandit, (b, g) = task.problem.bandit, (task.batch_size, task.group_size)
    n_prompts, n_responses = bandit.n_prompts, bandit.n_responses
    cumulative = np.cumsum(bandit.prompt_weights)[:-1].astype(dtype)
    sizes = (task.schedule.steps(task.steps) / (b * (g - 1.0))).astype(dtype)
    features = None if task.is_tabular else task.features.reshape(-1, len(task.problem.theta)).astype(dtype)
    theta = np.tile(task.problem.theta[:, None].astype(dtype), (1, runs))
    responses, columns = np.arange(n_responses)[:, None], np.arange(runs)
    for s in range(task.steps):
        if s % STEPS_DRAWN == 0:
            uniforms, shape = generator.random((STEPS_DRAWN, b, runs), dtype=dtype), (STEPS_DRAWN, b, g, runs)
            drawn = words_of(generator, shape) if by_words else generator.random(shape, dtype=dtype)
        prompts = np.zeros((b, runs), dtype=np.int64)
        for weight in cumulative:
            prompts += uniforms[s % STEPS_DRAWN] >= weight
        rows = n_responses * prompts[:, None] + responses
        table, entries = theta if features is None else features @ theta, rows * runs + columns

        def pick(one: Array, rows: Array = rows) -> Array:
            return one.ravel().take(rows)

        count = count_below if by_words else None
        logit_gradients = sizes[s] * step_logit_gradients(
            np, task, table.ravel().take(entries), pick, drawn[s % STEPS_DRAWN], count
        )
        sums = (
            np.bincount(entries.ravel(), logit_gradients.ravel(), n_prompts * n_responses * runs).astype(dtype).reshape(-1, runs)
        )
        theta += sums if features is None else features.T @ sums
    return theta.T


def rivals(task: Task) -> list[Contender]:
    """Return the variants; of training in both precisions, where the fastest depends on the task and on the machine's caches."""
    if not isinstance(task, Training):
        return [textbook(task), counting(task)]
    generator = np.random.Generator(np.random.SFC64(SEED))

    def variant(precision: str, way: str, block: int) -> Contender:
        name, dtype = f"NumPy, {precision}, {way}, {block} runs", np.float32 if precision == "single" else np.float64

        def run(rounds: int) -> None:
            blocks = [train(task, generator, dtype, block, way != "uniforms") for _ in range(rounds * task.runs // block)]
            task.check_runs(name, gt.objective(task.problem, np.concatenate(blocks).astype(np.float64)))

        return Contender(name, run, task.responses)

    return [variant(*each) for each in product(PRECISIONS, ("uniforms", "16-bit words"), BLOCKS)]
