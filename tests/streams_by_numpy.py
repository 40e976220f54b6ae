"""The random numbers of training runs, drawn by numpy's own SFC64: an oracle for the simulator's streams."""

import numpy as np

from grpo_theory.simulate.draw.policy_draw import CHUNK_WORDS
from grpo_theory.simulate.draw.streams import LANES, as_seed_sequence, block_streams


def raw(state, count):
    """Return the next words of numpy's SFC64 from a state (4,)."""
    generator = np.random.SFC64(0)
    generator.state = generator.state | {"state": {"state": np.array(state, dtype=np.uint64)}}
    return generator.random_raw(count)


def uniforms_of_runs(seed, batch_size, group_size, rollouts, block=0):
    """Return the uniforms of the runs of a block, each (rollouts, 1 + G, B).

    A response's word w of 30 bits and the rollout's dither v make the uniform ``(w + 1 - v)/2^30``. The word has reached the
    whole part of ``2^30 F + v`` if and only if that uniform is above F.
    """
    streams = block_streams(as_seed_sequence(seed), block)
    rows = batch_size + -(-batch_size * group_size // 2)
    chunk = max(1, CHUNK_WORDS // (LANES * rows))
    drawn, chunks = -(-chunk * rows // 8) * 8, -(-rollouts // chunk)
    words = np.stack([raw(lane, chunks * drawn) for lane in streams.lanes.T], axis=1)
    words = words.reshape(chunks, drawn, LANES)[:, : chunk * rows].reshape(-1, rows, LANES)[:rollouts]
    dithers = (raw(streams.lone, chunks * chunk) >> np.uint64(11))[:rollouts, None, None, None] * 2.0**-53
    of_prompts = (words[:, None, :batch_size] >> np.uint64(11)) * 2.0**-53
    halves = np.ascontiguousarray(words).view(np.uint32).reshape(rollouts, 2 * rows, LANES)[:, 2 * batch_size :]
    halves = halves[:, : batch_size * group_size].reshape(rollouts, batch_size, group_size, LANES).swapaxes(1, 2)
    of_responses = ((halves & np.uint32((1 << 30) - 1)) + 1.0 - dithers) * 2.0**-30
    return list(np.moveaxis(np.concatenate([of_prompts, of_responses], axis=1), -1, 0))
