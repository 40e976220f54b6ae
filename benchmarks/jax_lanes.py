"""SFC32 in lanes, for JAX: words are drawn where they are used, in the same loop over lanes."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


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
