"""What belongs to the prompts of lanes: chosen from what belongs to all prompts, or looked up where these are many.

A choice compares each prompt's number with those of all lanes at once, and a look-up goes to memory for each lane.
"""

from grpo_theory.compilation import stage
from grpo_theory.lanes import add_at, lane_numbers, load, reals, spread, store, take, where

FEW = 5
"""The most prompts among which one is chosen: a look-up takes as long as comparisons with one or two more."""


@stage
def read_rows(table, prompts, found):
    """Read the row of a table (M, n) at each lane's prompt, down the lane's column of found (at least n, WIDTH).

    Nothing is read where the prompts are few, see `at_prompts`.  Rows of the table are those of `whole_rows`.
    """
    if table.shape[0] > FEW and table.shape[1] > 0:
        spread(table, prompts, found)


@stage
def at_prompts(table, column, prompts, found):
    """Return the number that a column of a table (M, n) has at each lane's prompt; `found` is what `read_rows` has left."""
    if table.shape[0] > FEW:
        return load(found, column, 0)
    chosen = reals(table[0, column])
    for m in range(1, table.shape[0]):
        chosen = where(prompts == m, table[m, column], chosen)
    return chosen


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
