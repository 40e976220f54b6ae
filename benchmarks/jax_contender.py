"""How JAX's rivals are run."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.task import SEED, Estimate, Task
from benchmarks.timing import Contender


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
