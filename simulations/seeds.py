"""Seeds of the parts of a chunk: of one run, one arm or one stage."""

import numpy as np


def seed_of(rng: np.random.Generator) -> np.random.SeedSequence:
    """Return the seed sequence that a generator was made from, whatever has been drawn from it since.

    Arms that are given this seed see the same draws.
    """
    seed = rng.bit_generator.seed_seq
    assert isinstance(seed, np.random.SeedSequence)
    return seed


def child_seed(seed: np.random.SeedSequence, *key: int) -> np.random.SeedSequence:
    """Return the child of a seed with the given key.

    Unlike ``seed.spawn``, this leaves the seed as it is: the same key gives the same child however often and wherever it is asked
    for.
    """
    return np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, *key))
