"""How JAX's rivals are run."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from benchmarks.task import SEED, Estimate, Task
from benchmarks.timing import Contender

BLOCK_RESPONSES = 1 << 15
BLOCKS, ROUND_RESPONSES = 64, 1 << 22  # in a scan, at the most

Block = Callable[[Any, Any], tuple[Any, Any]]  # of a state and a key, to the next state and squared errors (R,)


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
        count = rounds * devices * blocks * size
        task.check(name, Estimate(float(mean), float(np.sqrt((square - mean**2) / count))))

    return Contender(name, run, devices * blocks * size * task.batch_responses)
