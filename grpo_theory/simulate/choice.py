"""What belongs to the prompts of lanes: chosen from what belongs to all prompts, or looked up where these are many.

A choice compares each prompt's number with those of all lanes at once, and a look-up goes to memory for each lane.
"""

from grpo_theory.compilation import stage
from grpo_theory.lanes import add_at, lane_numbers, load, reals, store, take, where

FEW = 5
"""The most prompts among which one is chosen: a look-up takes as long as comparisons with one or two more."""


@stage
def at_prompts(table, row, prompts):
    """Return the number that a row of a table (rows, M) has at each lane's prompt."""
    n_prompts = table.shape[1]
    if n_prompts > FEW:
        return take(table, prompts + row * n_prompts)
    found = reals(table[row, 0])
    for m in range(1, n_prompts):
        found = where(prompts == m, table[row, m], found)
    return found


@stage
def read_blocks(table, prompts, b, i, logits):
    """Fill logits (B, D, N) of group b, for the lanes from i on, from a table (M D, N) with a block of D rows for each prompt."""
    size, n, own = logits.shape[1], table.shape[1], load(prompts, b, i)
    if table.shape[0] > FEW * size:
        place = own * (size * n) + (lane_numbers() + i)
        for k in range(size):
            store(take(table, place + k * n), logits, b, k, i)
        return
    for k in range(size):
        found = load(table, k, i)
        for m in range(1, table.shape[0] // size):
            found = where(own == m, load(table, m * size + k, i), found)
        store(found, logits, b, k, i)


@stage
def add_to_blocks(covectors, prompts, b, i, step, table):
    """Add step times the covectors (B, D, N) of group b to the blocks of their prompts; see `read_blocks`."""
    size, n, own = covectors.shape[1], table.shape[1], load(prompts, b, i)
    if table.shape[0] > FEW * size:
        place = own * (size * n) + (lane_numbers() + i)
        for k in range(size):
            add_at(table, place + k * n, step * load(covectors, b, k, i))
        return
    for k in range(size):
        change = step * load(covectors, b, k, i)
        for m in range(table.shape[0] // size):
            x = load(table, m * size + k, i)
            store(where(own == m, x + change, x), table, m * size + k, i)
