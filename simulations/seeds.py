"""Seeds of the parts of a chunk: of one run, one arm or one stage."""

import numpy as np


def child_seed(seed: np.random.SeedSequence, *key: int) -> np.random.SeedSequence:
    """Return the child of a seed with the given key.

    Unlike ``seed.spawn``, this leaves the seed as it is: the same key gives the same child however often and wherever it is asked
    for.
    """
    return np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, *key))
