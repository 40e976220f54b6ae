"""The random numbers of training runs, drawn by numpy's own SFC64: an oracle for the simulator's streams."""

import numpy as np

from grpo_theory.simulate.draws import LANES, as_seed_sequence, block_streams, prompt_law


def raw(state, count):
    """Return the next words of numpy's SFC64 from a state (4,)."""
    generator = np.random.SFC64(0)
    generator.state = generator.state | {"state": {"state": np.array(state, dtype=np.uint64)}}
    return generator.random_raw(count)


def alias_rows(weights):
    """Return the alias table of prompts with these weights, shape (M, 2): what each keeps of itself, and who has the rest."""
    law = prompt_law(weights)
    return np.stack([law.kept / 2.0**32, law.alias], axis=1)


def uniforms_of_runs(seed, n_prompts, batch_size, group_size, rollouts, block=0):
    """Return the uniforms of the runs of a block, each (rollouts, 1 + G, B).

    A rollout has a word for each prompt, of which the upper half chooses the column and the lower half who has it. Then come
    halves of words for its responses, rounded up to fours; each is an even number of 32 bits.
    """
    streams, quarters = block_streams(as_seed_sequence(seed), block), -(-group_size // 4)
    rows = -(-batch_size * (1 + 2 * quarters) // 4) * 4
    words = np.stack([raw(lane, rollouts * rows) for lane in streams.lanes.T], axis=1).reshape(rollouts, rows, LANES)
    high, low = words[:, :batch_size] >> np.uint64(32), words[:, :batch_size] & np.uint64(0xFFFFFFFF)
    of_prompts = ((high * np.uint64(n_prompts) >> np.uint64(32)) + (low + 0.5) / 2.0**32) / n_prompts
    halves = np.ascontiguousarray(words).view(np.int32).reshape(rollouts, 2 * rows, LANES)[:, 2 * batch_size :]
    halves = halves[:, : 4 * batch_size * quarters].reshape(rollouts, batch_size, -1, LANES)[:, :, :group_size].swapaxes(1, 2)
    of_responses = ((halves & -2) + 2.0**31 + 1.0) / 2.0**32
    return list(np.moveaxis(np.concatenate([of_prompts[:, None], of_responses], axis=1), -1, 0))
