"""Training in vectorised NumPy: all runs of a block take each step together.

The logits of all prompts are computed and those of the batch taken from them; responses and rewards are found by comparison
with the distribution function, one response at a time for all rollouts.
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


def _train(task: TrainingTask, generator: np.random.Generator, dtype: Any, runs: int) -> Array:
    """Train so many runs, and return the last iterates (R, d); runs stand along the last axis of every array."""
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
            drawn = generator.random((STEPS_DRAWN, b, 1 + g, runs), dtype=dtype)
        prompts, uniforms = np.zeros((b, runs), dtype=np.int64), drawn[s % STEPS_DRAWN, :, 1:]
        for weight in cumulative:
            prompts += drawn[s % STEPS_DRAWN, :, 0] >= weight
        rows = n_responses * prompts[:, None] + responses
        table = theta if features is None else features @ theta
        places = rows * runs + columns
        logits = table.ravel().take(places)
        logits -= logits.max(axis=1, keepdims=True)
        pi = np.exp(logits)
        total = pi.sum(axis=1, keepdims=True)
        pi /= total
        rewarded = pi * success.take(rows)
        if kl is not None:
            logits -= np.log(total)
            logits -= log_reference.take(rows)
            logits *= kl.strength
        chosen, rewards, below = [], np.zeros(uniforms.shape, dtype), np.zeros((b, 1, runs), dtype)
        left = np.ones(uniforms.shape, dtype=bool)
        for k in range(n_responses):
            upper = below + pi[:, None, k]
            found = left & (uniforms < upper) if k < n_responses - 1 else left
            left = left & ~found
            right = (uniforms < below + rewarded[:, None, k]).astype(dtype)
            if kl is not None:
                right -= logits[:, None, k]
            rewards += right * found
            chosen.append(found)
            below = upper
        rewards -= rewards.mean(axis=1, keepdims=True)
        covectors = np.stack([np.einsum("bgr,bgr->br", rewards, found) for found in chosen], axis=1)
        covectors *= sizes[s]
        if features is None and b == 1:
            theta.ravel()[places] += covectors
        else:
            tables = np.bincount(places.ravel(), covectors.ravel(), n_prompts * n_responses * runs).astype(dtype)
            tables = tables.reshape(-1, runs)
            theta += tables if features is None else features.T @ tables
    return theta.T


def _contender(name: str, task: TrainingTask, dtype: Any, block: int) -> Contender:
    """Train block after block; the answer is checked at every run."""
    generator = np.random.Generator(np.random.SFC64(SEED))
    problem = task.problem

    def run(rounds: int) -> None:
        theta = np.concatenate([_train(task, generator, dtype, block) for _ in range(rounds * task.runs // block)])
        task.check(name, gt.objective(problem, theta.astype(np.float64)))

    return Contender(name, run, task.responses)


def rivals(task: TrainingTask) -> list[Contender]:
    """Return the variants in both precisions; which is fastest depends on the task and on the machine's caches."""
    return [
        _contender(f"NumPy, {precision}, {block} runs", task, DTYPES[precision], block)
        for precision in PRECISIONS
        for block in BLOCKS
    ]
