"""Random streams: one generator a block, keyed by the block's number."""

import numbers

import numpy as np

Rng = int | np.random.SeedSequence | np.random.Generator


def as_seed_sequence(rng: Rng | None) -> np.random.SeedSequence:
    """Return the seed sequence that `rng` stands for; a Generator gives 128 of its bits, None gives fresh entropy."""
    if rng is None:
        return np.random.SeedSequence()
    if isinstance(rng, np.random.SeedSequence):
        return rng
    if isinstance(rng, np.random.Generator):
        return np.random.SeedSequence(rng.integers(0, 2**32, size=4, dtype=np.uint32).tolist())
    if isinstance(rng, numbers.Integral) and not isinstance(rng, bool) and rng >= 0:
        return np.random.SeedSequence(int(rng))
    raise TypeError(f"rng must be a non-negative int, a SeedSequence or a Generator, got {rng!r}")


def block_generator(seed: np.random.SeedSequence, block: int) -> np.random.Generator:
    """Return the generator of one block: a pure function of the seed and the block's number."""
    key = np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, block), pool_size=seed.pool_size)
    return np.random.Generator(np.random.SFC64(key))
