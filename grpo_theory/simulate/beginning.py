"""The streams of a block before their first rounds, which the first driver that draws from them makes."""

import numpy as np

from grpo_theory.compilation import stage
from grpo_theory.simulate.generator import LANES, WARM_UP, Streams, fill_words, next_uniform


def unmixed_streams(seed: np.random.SeedSequence, block: int) -> Streams:
    """Return the streams of `block_streams` as they are before they are mixed."""
    first, second, third = (int(word) for word in seed.generate_state(3, np.uint64))
    lanes = np.empty((4, LANES), dtype=np.uint64)
    lanes[0], lanes[1], lanes[3] = first, second, 1
    lanes[2] = np.uint64(third) + (block * LANES + np.arange(LANES, dtype=np.uint64))
    return Streams(lanes, np.array([~np.uint64(first), second, (third + block) % (1 << 64), 1], dtype=np.uint64))


@stage
def mix(streams, words):
    """Make the first rounds of all streams, and let their words go; `words`, at least 24 rows, are room."""
    fill_words(streams.lanes, words[:WARM_UP])
    for _ in range(WARM_UP):
        next_uniform(streams.lone)
