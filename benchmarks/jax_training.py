"""Training in jitted JAX on the CPU.

The program is a scan over the steps. The runs are along the last axis of every array, so many at a time and on each device.
"""

from collections.abc import Callable
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.jax_contender import Lanes
from benchmarks.task import SEED
from benchmarks.timing import Contender
from benchmarks.training_task import PRECISIONS, TrainingTask

DTYPES = {"single": jnp.float32, "double": jnp.float64}
BLOCKS = (64, 256, None)  # runs that a scan takes side by side: some that stay in a cache, or all

DRAWS = {"uniforms": False, "16-bit words in lanes": True}

Step = Callable[[Any, Any, Any, Any], Any]  # of theta (d, R), the step's size, prompts (B, R) and what is drawn, to theta


def _updates(task: TrainingTask, logits: Any, drawn: Any, pick: Callable[[Any], Any]) -> Any:
    """Return the covectors (B, K, R) from the logits (B, K, R) and what is drawn: uniforms (B, G, R) or words of 32 bits.

    `pick` takes a table (M, K) to the entries (B, K, R) of the prompts.
    """
    highest = logits.max(axis=1, keepdims=True)
    weights = jnp.exp(logits - highest)
    total = weights.sum(axis=1, keepdims=True)
    pi = weights / total
    rewarded = pi * pick(jnp.asarray(task.problem.bandit.mean_reward, logits.dtype))
    penalty = jnp.zeros_like(pi)
    if (kl := task.problem.kl) is not None:
        log_reference = pick(jnp.log(jnp.asarray(kl.reference, logits.dtype)))
        penalty = kl.strength * (logits - highest - jnp.log(total) - log_reference)
    covectors = _by_counts if drawn.dtype == jnp.uint32 else _by_responses
    return covectors(pi, rewarded, penalty, drawn, task.group_size)


def _by_responses(pi: Any, rewarded: Any, penalty: Any, uniforms: Any, group_size: int) -> Any:
    """Return the covectors from uniforms, response by response."""
    below, rewards, chosen = jnp.zeros_like(pi[:, 0]), jnp.zeros_like(uniforms), []
    for k in range(pi.shape[1]):
        upper = below + pi[:, k]
        is_last = k == pi.shape[1] - 1
        chosen.append((uniforms >= below[:, None]) & (is_last | (uniforms < upper[:, None])))
        right = uniforms < (below + rewarded[:, k])[:, None]
        rewards = jnp.where(chosen[k], right - penalty[:, k][:, None], rewards)
        below = upper
    advantages = rewards - rewards.mean(axis=1, keepdims=True)  # their sum is 0, and so is the policy's part of the covector
    return jnp.stack([jnp.where(is_chosen, advantages, 0.0).sum(axis=1) for is_chosen in chosen], axis=1)


def _by_counts(pi: Any, rewarded: Any, penalty: Any, words: Any, group_size: int) -> Any:
    """Return the covectors from counts of the words' 16-bit halves below thresholds, which are rounded to 2^-16."""
    halves = [
        half for w in range(words.shape[1]) for half in (words[:, w].astype(jnp.uint16), (words[:, w] >> 16).astype(jnp.uint16))
    ]

    def count(share: Any) -> Any:
        threshold = jnp.clip(65536.0 * share + 0.5, 0.0, 65535.0).astype(jnp.int32).astype(jnp.uint16)
        return sum((half < threshold).astype(jnp.uint16) for half in halves[:group_size]).astype(pi.dtype)

    below, start = jnp.zeros_like(pi[:, 0]), jnp.zeros_like(pi[:, 0])
    sums, numbers = [], []
    for k in range(pi.shape[1]):
        right = count(below + rewarded[:, k]) - start
        below = below + pi[:, k]
        end = count(below) if k < pi.shape[1] - 1 else jnp.full_like(start, float(group_size))
        numbers.append(end - start)
        sums.append(right - penalty[:, k] * numbers[k])
        start = end
    mean = sum(sums) / group_size
    return jnp.stack([one - number * mean for one, number in zip(sums, numbers, strict=True)], axis=1)


def _by_masks(task: TrainingTask, dtype: Any) -> Step:
    """The logits of all prompts, those of the batch found by sums under masks."""
    n_prompts, n_responses = task.problem.bandit.n_prompts, task.problem.bandit.n_responses
    scale = 1.0 / (task.batch_size * (task.group_size - 1.0))

    def step(theta: Any, size: Any, prompts: Any, drawn: Any) -> Any:
        masks = (prompts[:, None] == jnp.arange(n_prompts)[:, None]).astype(dtype)
        if task.is_tabular:
            logits = theta.reshape(n_prompts, n_responses, -1)
        else:
            logits = jnp.einsum("mkd,dr->mkr", jnp.asarray(task.features, dtype), theta)
        batch = sum(masks[:, m, None] * logits[m] for m in range(n_prompts))

        def pick(table: Any) -> Any:
            return sum(masks[:, m, None] * table[m][:, None] for m in range(n_prompts))

        covectors = _updates(task, batch, drawn, pick)
        tables = jnp.stack([(masks[:, m, None] * covectors).sum(axis=0) for m in range(n_prompts)])
        if task.is_tabular:
            return theta + size * scale * tables.reshape(theta.shape)
        return theta + size * scale * jnp.einsum("mkr,mkd->dr", tables, jnp.asarray(task.features, dtype))

    return step


def _by_gather(task: TrainingTask, dtype: Any) -> Step:
    """The prompts' own features, or rows of the table, gathered."""
    n_responses = task.problem.bandit.n_responses
    scale = 1.0 / (task.batch_size * (task.group_size - 1.0))

    def step(theta: Any, size: Any, prompts: Any, drawn: Any) -> Any:

        def pick(table: Any) -> Any:
            return jnp.moveaxis(table[prompts], 1, -1)

        if task.is_tabular:
            runs = jnp.arange(theta.shape[1])
            rows = prompts[:, None] * n_responses + jnp.arange(n_responses)[:, None]
            covectors = _updates(task, theta[rows, runs], drawn, pick)
            return theta.at[rows, runs].add(size * scale * covectors)
        features = jnp.moveaxis(jnp.asarray(task.features, dtype)[prompts], 1, -1)
        covectors = _updates(task, (features * theta).sum(axis=2), drawn, pick)
        return theta + size * scale * (features * covectors[:, :, None]).sum(axis=(0, 1))

    return step


def _objective(task: TrainingTask, theta: Any) -> Any:
    """Return the exact objectives (R,) of theta (d, R)."""
    bandit, dtype = task.problem.bandit, theta.dtype
    if task.is_tabular:
        logits = theta.reshape(bandit.n_prompts, bandit.n_responses, -1)
    else:
        logits = jnp.einsum("mkd,dr->mkr", jnp.asarray(task.features, dtype), theta)
    log_pi = jax.nn.log_softmax(logits, axis=1)
    reward = jnp.asarray(bandit.mean_reward, dtype)[:, :, None]
    if (kl := task.problem.kl) is not None:
        reward = reward - kl.strength * (log_pi - jnp.log(jnp.asarray(kl.reference, dtype))[:, :, None])
    return jnp.einsum("mkr,m->r", jnp.exp(log_pi) * reward, jnp.asarray(bandit.prompt_weights, dtype))


def _contender(name: str, task: TrainingTask, step: Step, dtype: Any, block: int, in_lanes: bool) -> Contender:
    """Scan over the steps, block after block of runs; the answer is checked at every run.

    Uniforms are drawn by threefry before each step, or words by SFC32 in lanes within it.
    """
    devices = jax.local_device_count()
    blocks = task.runs // (devices * block)
    sizes = jnp.asarray(task.schedule.steps(task.steps), dtype)
    cumulative = jnp.asarray(np.cumsum(task.problem.bandit.prompt_weights)[:-1], dtype)
    start = jnp.tile(jnp.asarray(task.problem.theta, dtype)[:, None], (1, block))
    shape = task.batch_size, block

    def draw_prompts(uniforms: Any) -> Any:
        return (uniforms[..., None] >= cumulative).sum(axis=-1, dtype=jnp.int32)

    def by_threefry(theta: Any, drawn: Any) -> tuple[Any, None]:
        key, size = drawn
        keys = jax.random.split(key)
        prompts = draw_prompts(jax.random.uniform(keys[0], shape, dtype))
        uniforms = jax.random.uniform(keys[1], (task.batch_size, task.group_size, block), dtype)
        return step(theta, size, prompts, uniforms), None

    def by_lanes(carry: tuple[Any, Lanes], size: Any) -> tuple[tuple[Any, Lanes], None]:
        theta, lanes = carry
        lanes, word = lanes.next()
        words = []
        for _ in range(-(-task.group_size // 2)):
            lanes, drawn = lanes.next()
            words.append(drawn)
        prompts = draw_prompts((word >> 8).astype(dtype) * 2.0**-24)
        return (step(theta, size, prompts, jnp.stack(words, axis=1)), lanes), None

    def train(key: Any) -> Any:
        if in_lanes:
            (theta, _), _ = jax.lax.scan(by_lanes, (start, Lanes.start(key, shape)), sizes)
        else:
            theta, _ = jax.lax.scan(by_threefry, start, (jax.random.split(key, len(sizes)), sizes))
        return _objective(task, theta)

    def shard(key: Any) -> Any:
        return jax.lax.map(train, jax.random.split(key, blocks))

    compiled = jax.pmap(shard) if devices > 1 else jax.jit(jax.vmap(shard))

    def run(rounds: int) -> None:
        keys = jax.random.split(jax.random.key(SEED), (rounds, devices))
        objectives = jax.block_until_ready([compiled(each) for each in keys])
        task.check(name, np.asarray(objectives, dtype=np.float64).ravel())

    return Contender(name, run, task.responses)


def rivals(task: TrainingTask) -> list[Contender]:
    """Return the variants in both precisions; which is fastest depends on the task."""
    contenders = []
    for precision in PRECISIONS:
        dtype = DTYPES[precision]
        for how, step in (("masks", _by_masks(task, dtype)), ("gather", _by_gather(task, dtype))):
            for limit, (draws, in_lanes) in product(BLOCKS, DRAWS.items()):
                block = min(limit or task.runs, task.runs // jax.local_device_count())
                name = f"JAX, {precision}, {draws}, {how}, {block} runs"
                contenders.append(_contender(name, task, step, dtype, block, in_lanes))
    return contenders
