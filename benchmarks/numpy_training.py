"""Training in vectorised NumPy: all runs of a block take each step together.

The logits of all prompts are computed, and those of the batch are taken from them. Responses and rewards are found, or counted,
by comparison with the distribution function.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import grpo_theory as gt
from benchmarks.task import SEED
from benchmarks.timing import Contender
from benchmarks.training_task import PRECISIONS, TrainingTask

Array = NDArray[Any]

DTYPES = {"single": np.float32, "double": np.float64}
BLOCKS = (512, 2048)  # runs that take a step together
STEPS_DRAWN = 8  # so many steps' uniforms are drawn at once


def _uniforms(generator: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Array:
    """Draw uniforms."""
    return generator.random(shape, dtype=dtype)


def _words(generator: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Array:
    """Draw words of 16 bits."""
    size = int(np.prod(shape))
    return generator.integers(0, 1 << 64, size=-(-size // 4), dtype=np.uint64).view(np.uint16)[:size].reshape(shape)


def _by_responses(pi: Array, rewarded: Array, penalties: Array, uniforms: Array) -> Array:
    """Return covectors (B, K, R) from uniforms (B, G, R), one response at a time for all rollouts."""
    chosen, rewards, below = [], np.zeros_like(uniforms), np.zeros_like(uniforms[:, :1])
    left = np.ones(uniforms.shape, dtype=bool)
    for k in range(pi.shape[1]):
        upper = below + pi[:, None, k]
        is_chosen = left & (uniforms < upper) if k < pi.shape[1] - 1 else left
        left = left & ~is_chosen
        right = (uniforms < below + rewarded[:, None, k]).astype(uniforms.dtype)
        right -= penalties[:, None, k]
        rewards += right * is_chosen
        chosen.append(is_chosen)
        below = upper
    rewards -= rewards.mean(axis=1, keepdims=True)
    return np.stack([np.einsum("bgr,bgr->br", rewards, is_chosen) for is_chosen in chosen], axis=1)


def _by_counts(pi: Array, rewarded: Array, penalties: Array, words: Array) -> Array:
    """Return covectors (B, K, R) from counts of words (B, G, R) below thresholds, which are rounded to 2^-16; G below 256."""
    group_size, is_below = words.shape[1], np.empty(words.shape, dtype=bool)

    def count(share: Array) -> Array:
        threshold = np.minimum(65536.0 * share + 0.5, 65535.0).astype(np.uint16)
        np.less(words, threshold[:, None], out=is_below)
        return np.add.reduce(is_below.view(np.uint8), axis=1, dtype=np.uint8).astype(pi.dtype)

    start, below = np.zeros_like(pi[:, 0]), np.zeros_like(pi[:, 0])
    sums, numbers = np.empty_like(pi), np.empty_like(pi)
    for k in range(pi.shape[1]):
        sums[:, k] = count(below + rewarded[:, k]) - start
        below = below + pi[:, k]
        end = count(below) if k < pi.shape[1] - 1 else np.full_like(start, group_size)
        numbers[:, k] = end - start
        start = end
    sums -= penalties * numbers
    return sums - numbers * (sums.sum(axis=1, keepdims=True) / group_size)


WAYS = {"uniforms": (_uniforms, _by_responses), "16-bit words": (_words, _by_counts)}


def _train(task: TrainingTask, generator: np.random.Generator, dtype: Any, runs: int, way: str) -> Array:
    """Train so many runs, and return the last iterates (R, d); runs stand along the last axis of every array."""
    draw, sum_up = WAYS[way]
    bandit, (b, g) = task.problem.bandit, (task.batch_size, task.group_size)
    n_prompts, n_responses = bandit.n_prompts, bandit.n_responses
    success = bandit.mean_reward.astype(dtype).ravel()
    kl = task.problem.kl
    log_reference = np.zeros(1, dtype) if kl is None else np.log(np.asarray(kl.reference)).astype(dtype).ravel()
    cumulative = np.cumsum(bandit.prompt_weights)[:-1].astype(dtype)
    sizes = (task.schedule.steps(task.steps) / (b * (g - 1.0))).astype(dtype)
    features = None if task.is_tabular else task.features.reshape(-1, len(task.problem.theta)).astype(dtype)
    theta = np.tile(task.problem.theta[:, None].astype(dtype), (1, runs))
    responses, columns = np.arange(n_responses)[:, None], np.arange(runs)
    for s in range(task.steps):
        if s % STEPS_DRAWN == 0:
            prompts_drawn = generator.random((STEPS_DRAWN, b, runs), dtype=dtype)
            responses_drawn = draw(generator, (STEPS_DRAWN, b, g, runs), dtype)
        prompts = np.zeros((b, runs), dtype=np.int64)
        for weight in cumulative:
            prompts += prompts_drawn[s % STEPS_DRAWN] >= weight
        rows = n_responses * prompts[:, None] + responses
        table = theta if features is None else features @ theta
        entries = rows * runs + columns
        logits = table.ravel().take(entries)
        logits -= logits.max(axis=1, keepdims=True)
        pi = np.exp(logits)
        total = pi.sum(axis=1, keepdims=True)
        pi /= total
        rewarded = pi * success.take(rows)
        if kl is not None:
            logits -= np.log(total)
            logits -= log_reference.take(rows)
            logits *= kl.strength
        penalties = logits if kl is not None else np.zeros((1, n_responses, 1), dtype)
        covectors = sum_up(pi, rewarded, penalties, responses_drawn[s % STEPS_DRAWN])
        covectors *= sizes[s]
        if features is None and b == 1:
            theta.ravel()[entries] += covectors
        else:
            tables = np.bincount(entries.ravel(), covectors.ravel(), n_prompts * n_responses * runs).astype(dtype)
            tables = tables.reshape(-1, runs)
            theta += tables if features is None else features.T @ tables
    return theta.T


def _contender(name: str, task: TrainingTask, dtype: Any, block: int, way: str) -> Contender:
    """Train block after block; the answer is checked at every run."""
    generator = np.random.Generator(np.random.SFC64(SEED))
    problem = task.problem

    def run(rounds: int) -> None:
        theta = np.concatenate([_train(task, generator, dtype, block, way) for _ in range(rounds * task.runs // block)])
        task.check(name, gt.objective(problem, theta.astype(np.float64)))

    return Contender(name, run, task.responses)


def rivals(task: TrainingTask) -> list[Contender]:
    """Return the variants in both precisions; which is fastest depends on the task and on the machine's caches."""
    return [
        _contender(f"NumPy, {precision}, {way}, {block} runs", task, DTYPES[precision], block, way)
        for precision in PRECISIONS
        for way in WAYS
        for block in BLOCKS
    ]
