"""Rivals in jitted JAX on the CPU, which see every response or count; in a process of its own: python -m benchmarks.jax_rivals.

Replications and runs are along the last axis of every array, but for rivals of gradients that see every response.
"""

import json
import os
import sys
from collections.abc import Callable
from itertools import pairwise, product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.counts import CountedLaw, logit_gradients_of_counts, step_logit_gradients
from benchmarks.tasks import PRECISIONS, SEED, TASKS, TRAINED, Task, Training
from benchmarks.timing import Contender, timed

BLOCKS, ROUND_RESPONSES = 64, 1 << 22  # in a scan, at the most
BLOCK_RESPONSES, BLOCK_GROUPS = 1 << 15, 1 << 14
FEW_PROMPTS = 32
UNROLLED = 8  # words of 32 bits in a loop over lanes
RUN_BLOCKS = (64, 256, None)  # runs that a scan takes side by side: some that stay in a cache, or all
DRAWS = ("uniforms", "16-bit words in lanes")

Block = Callable[[Any, Any], tuple[Any, Any]]  # of a state and a key, to the next state and squared errors (R,)


class Lanes(NamedTuple):
    """SFC32 (Doty-Humphrey, PractRand), one generator for each lane: three words of state and a counter."""

    a: Any
    b: Any
    c: Any
    counter: Any

    @classmethod
    def start(cls, key: Any, shape: tuple[int, ...]) -> "Lanes":
        """Return generators in states that are random."""
        a, b, c = jax.random.bits(key, (3, *shape), jnp.uint32)
        return cls(a, b, c, jnp.ones(shape, jnp.uint32))

    def next(self) -> tuple["Lanes", Any]:
        """Return the generators one word on, and the words."""
        word = self.a + self.b + self.counter
        turned = (self.c << 21) | (self.c >> 11)
        return Lanes(self.b ^ (self.b >> 9), self.c + (self.c << 3), turned + word, self.counter + 1), word


def contender(name: str, task: Task, size: int, block: Block, start: Callable[[Any], Any] = lambda key: None) -> Contender:
    """Scan over blocks of so many replications, one shard a device; the answer is checked at every run."""
    devices = jax.local_device_count()
    blocks = max(1, min(BLOCKS, ROUND_RESPONSES // (size * task.batch_responses)))

    def shard(key: Any) -> tuple[Any, Any]:
        first, second = jax.random.split(key)
        errors = jax.lax.scan(block, start(first), jax.random.split(second, blocks))[1]
        return errors.mean(), (errors**2).mean()

    compiled = jax.pmap(shard) if devices > 1 else jax.jit(lambda keys: [errors[None] for errors in shard(keys[0])])

    def run(rounds: int) -> None:
        keys = jax.random.split(jax.random.key(SEED), (rounds, devices))
        moments = np.array(jax.block_until_ready([compiled(each) for each in keys]), dtype=np.float64)
        mean, square = moments.mean(axis=(0, 2))
        task.check(name, float(mean), float(np.sqrt((square - mean**2) / (rounds * devices * blocks * size))))

    return Contender(name, run, devices * blocks * size * task.batch_responses)


def errors_by_pairs(task: Task, logit_gradients: Any, prompts: Any) -> Any:
    """Return squared errors (R,) from the inner products of all pairs of groups: logit gradients (R, B, K) and prompts (R, B)."""
    weights = jnp.float32(task.inner_products)[prompts[:, :, None], prompts[:, None, :]]
    products = jnp.einsum("rbk,rck->rbc", logit_gradients, logit_gradients)
    along = (logit_gradients * jnp.float32(task.gradient_logits)[prompts]).sum(axis=(1, 2))
    return float(task.point.moments.gradient_squared_norm) + (products * weights).sum(axis=(1, 2)) - 2.0 * along


def seeing(task: Task, way: str) -> Contender:
    """Draw by comparison with the distribution function; scatter advantages, or add them up under a mask for each response."""
    law, scale = task.point, 1.0 / (task.batch_size * (task.group_size - 1.0))
    n_prompts, n_responses = law.probabilities.shape
    size = BLOCK_RESPONSES // task.batch_responses
    cumulative = jnp.float32(np.cumsum(law.outcome_probabilities, axis=1)[:, :-1])
    prompt_cumulative = jnp.float32(np.cumsum(task.problem.bandit.prompt_weights)[:-1])
    rewards, responses = jnp.float32(law.rewards[0]), jnp.int32(law.outcome_responses)
    gradient = jnp.float32(task.point.moments.gradient)

    def block(state: Any, key: Any) -> tuple[Any, Any]:
        keys = jax.random.split(key)
        prompts = jnp.searchsorted(prompt_cumulative, jax.random.uniform(keys[0], (size, task.batch_size)), side="right")
        uniforms = jax.random.uniform(keys[1], (size, task.batch_size, task.group_size))
        outcomes = (uniforms[..., None] >= cumulative[prompts][:, :, None, :]).sum(axis=-1)
        z, chosen = rewards[outcomes], responses[outcomes]
        advantages = scale * (z - z.mean(axis=-1, keepdims=True))
        if way == "masks":
            sums = [jnp.where(chosen == k, advantages, 0.0).sum(axis=-1) for k in range(n_responses)]
            return state, errors_by_pairs(task, jnp.stack(sums, axis=-1), prompts)
        # A tabular policy's sums by prompt are the gradient itself, and a head's go by group.
        n_rows = n_prompts if task.is_tabular else task.batch_size
        rows = prompts if task.is_tabular else jnp.broadcast_to(jnp.arange(n_rows), prompts.shape)
        places = ((jnp.arange(size)[:, None] * n_rows + rows) * n_responses)[:, :, None] + chosen
        sums = jnp.zeros(size * n_rows * n_responses).at[places].add(advantages)
        if task.is_tabular:
            return state, ((sums.reshape(size, -1) - gradient) ** 2).sum(axis=1)
        return state, errors_by_pairs(task, sums.reshape(size, n_rows, n_responses), prompts)

    return contender(f"JAX, {way}", task, size, block)


def counting(task: Task) -> Contender:
    """Count the halves of words of 32 bits below each threshold, compared as they are drawn; group sizes are even."""
    law, size = CountedLaw.of(task), BLOCK_GROUPS // task.batch_size
    shape = task.batch_size, size
    prompt_cumulative = jnp.float32(np.cumsum(task.problem.bandit.prompt_weights)[:-1])
    table, rights = jnp.asarray(law.thresholds.T), None if law.right is None else jnp.asarray(law.right)
    gradient = jnp.float32(task.point.moments.gradient.reshape(-1, task.problem.bandit.n_responses)) if task.is_tabular else None

    def block(lanes: Lanes, key: Any) -> tuple[Lanes, Any]:
        lanes, word = lanes.next()
        uniforms = (word >> 8).astype(jnp.float32) * 2.0**-24
        if len(prompt_cumulative) < FEW_PROMPTS:
            prompts = sum((uniforms >= weight).astype(jnp.int32) for weight in prompt_cumulative)
        else:
            prompts = jnp.searchsorted(prompt_cumulative, uniforms, side="right")
        thresholds = jnp.moveaxis(table[prompts], -1, 0)

        def step(carry: Any, _: Any) -> tuple[Any, None]:
            lanes, below = carry
            lanes, word = lanes.next()
            halves = [word.astype(jnp.uint16), (word >> 16).astype(jnp.uint16)]
            return (
                lanes,
                [n + sum((h < t).astype(n.dtype) for h in halves) for n, t in zip(below, thresholds, strict=True)],
            ), None

        zeros = [jnp.zeros(shape, jnp.uint16) for _ in thresholds]
        (lanes, below), _ = jax.lax.scan(step, (lanes, zeros), length=task.group_size // 2, unroll=UNROLLED)
        edges = [jnp.zeros(shape), *(count.astype(jnp.float32) for count in below), jnp.full(shape, float(task.group_size))]
        counts = jnp.stack([high - low for low, high in pairwise(edges)])
        logit_gradients = logit_gradients_of_counts(
            law, task, counts, None if rights is None else jnp.moveaxis(rights[prompts], -1, 0)
        )
        if gradient is None:
            return lanes, errors_by_pairs(task, jnp.moveaxis(logit_gradients, 0, -1).swapaxes(0, 1), prompts.T)
        sums = [jnp.where(prompts == m, logit_gradients, 0.0).sum(axis=1) for m in range(len(gradient))]
        return lanes, sum(((each - own[:, None]) ** 2).sum(axis=0) for each, own in zip(sums, gradient, strict=True))

    return contender("JAX, 16-bit words", task, size, block, lambda key: Lanes.start(key, shape))


def count_below(words: Any, share: Any) -> Any:
    """Count the words (B, G, R) below shares (B, R) of 2^16."""
    threshold = jnp.clip(65536.0 * share + 0.5, 0.0, 65535.0).astype(jnp.int32).astype(jnp.uint16)
    return sum((words[:, g] < threshold).astype(jnp.uint16) for g in range(words.shape[1]))


def training(task: Training, precision: str, draws: str, limit: int | None) -> Contender:
    """Scan over the steps, block after block of runs; the answer is checked at every run.

    Uniforms are drawn by threefry, or words by SFC32 in lanes. The logits of all prompts are computed, and those of the batch are
    sums under masks.
    """
    dtype, bandit = jnp.float32 if precision == "single" else jnp.float64, task.problem.bandit
    devices, (n_prompts, group_size) = jax.local_device_count(), (bandit.n_prompts, task.group_size)
    block = min(limit or task.runs, task.runs // devices)
    name, shape = f"JAX, {precision}, {draws}, masks, {block} runs", (task.batch_size, block)
    sizes = jnp.asarray(task.schedule.steps(task.steps) / (task.batch_size * (group_size - 1.0)), dtype)
    cumulative = jnp.asarray(np.cumsum(bandit.prompt_weights)[:-1], dtype)
    initial = jnp.tile(jnp.asarray(task.problem.theta, dtype)[:, None], (1, block))
    features = None if task.is_tabular else jnp.asarray(task.features, dtype)

    def logits_of(theta: Any) -> Any:
        return theta.reshape(n_prompts, -1, block) if features is None else jnp.einsum("mkd,dr->mkr", features, theta)

    def step(carry: tuple[Any, Any], given: Any) -> tuple[tuple[Any, Any], None]:
        (theta, lanes), (key, size) = carry, given
        if draws == "uniforms":
            keys = jax.random.split(key)
            uniforms = jax.random.uniform(keys[0], shape, dtype)
            drawn = jax.random.uniform(keys[1], (task.batch_size, group_size, block), dtype)
        else:
            lanes, word = lanes.next()
            uniforms, words = (word >> 8).astype(dtype) * 2.0**-24, []
            for _ in range(-(-group_size // 2)):
                lanes, word = lanes.next()
                words += [word.astype(jnp.uint16), (word >> 16).astype(jnp.uint16)]
            drawn = jnp.stack(words[:group_size], axis=1)
        prompts = (uniforms[..., None] >= cumulative).sum(axis=-1, dtype=jnp.int32)
        masks, logits = (prompts[:, None] == jnp.arange(n_prompts)[:, None]).astype(dtype), logits_of(theta)

        def pick(table: Any) -> Any:
            return sum(masks[:, m, None] * table[m].reshape(len(table[m]), -1) for m in range(n_prompts))

        logit_gradients = step_logit_gradients(jnp, task, pick(logits), pick, drawn, None if draws == "uniforms" else count_below)
        sums = jnp.stack([(masks[:, m, None] * logit_gradients).sum(axis=0) for m in range(n_prompts)])
        moved = sums.reshape(theta.shape) if features is None else jnp.einsum("mkr,mkd->dr", sums, features)
        return (theta + size * moved, lanes), None

    def train(key: Any) -> Any:
        """Return the exact objectives (R,) at the end."""
        start = initial, Lanes.start(key, shape)
        (theta, _), _ = jax.lax.scan(step, start, (jax.random.split(key, len(sizes)), sizes))
        log_pi = jax.nn.log_softmax(logits_of(theta), axis=1)
        reward = jnp.asarray(bandit.mean_reward, dtype)[:, :, None]
        if (kl := task.problem.kl) is not None:
            reward = reward - kl.strength * (log_pi - jnp.log(jnp.asarray(kl.reference, dtype))[:, :, None])
        return jnp.einsum("mkr,m->r", jnp.exp(log_pi) * reward, jnp.asarray(bandit.prompt_weights, dtype))

    def shard(key: Any) -> Any:
        return jax.lax.map(train, jax.random.split(key, task.runs // (devices * block)))

    compiled = jax.pmap(shard) if devices > 1 else jax.jit(jax.vmap(shard))

    def run(rounds: int) -> None:
        keys = jax.random.split(jax.random.key(SEED), (rounds, devices))
        objectives = jax.block_until_ready([compiled(each) for each in keys])
        task.check_runs(name, np.asarray(objectives, dtype=np.float64).ravel())

    return Contender(name, run, task.responses)


def rivals(task: Task) -> list[Contender]:
    """Return the variants; which is fastest depends on the task."""
    if isinstance(task, Training):
        return [training(task, *each) for each in product(PRECISIONS, DRAWS, RUN_BLOCKS)]
    return [seeing(task, "scatter"), seeing(task, "masks"), counting(task)]


def main(what: str, processors: int) -> None:
    """Print, as JSON, what the simulator and each rival take for each task."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:processors])
    jax.config.update("jax_enable_x64", what == "training")
    jax.config.update("jax_threefry_partitionable", False)  # the faster of the two
    tasks: tuple[Task, ...] = TRAINED if what == "training" else TASKS
    print(json.dumps([timed([task.simulator(processors), *rivals(task)]) for task in tasks]))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
