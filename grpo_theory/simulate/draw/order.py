"""Groups as outcomes in the order drawn, for kernels that do not treat responses alike: the same words as the counts'."""

import numba
import numpy as np

from grpo_theory.compiler import driver, stage
from grpo_theory.compiler.lanes import WIDTH, as_tally, as_those, load, store, tallies
from grpo_theory.simulate.draw.counting import COUNTING_ROOM, begin_group, draw_residual, first_reward
from grpo_theory.simulate.draw.outcome_law import OUTCOME_LAW
from grpo_theory.simulate.draw.sheet import SHEET
from grpo_theory.simulate.draw.streams import LANES, STREAMS, VECTORS

ORDERED = numba.uint16[:, :, :, ::1]


@stage
def count_reached(words, place, numbers, n_counted, j, outcomes):
    """Find how many thresholds, the first of the numbers (N, WIDTH), each word of a group has reached, in outcomes (G, LANES)."""
    for g in range(outcomes.shape[0]):
        word, found = load(words, place, g, 0), tallies(0)
        for row in range(n_counted):
            found = found + as_tally(word >= as_those(words, load(numbers, row, 0)))
        store(found, outcomes, g, j)


@stage
def find_reached(word, numbers, first, n_counted):
    """Return how many thresholds of one prompt, which are its numbers from the first on, a word has reached."""
    found = 0
    for row in range(first, first + n_counted):
        found += word >= numbers[row]
    return found


@stage
def outcomes_of_reached(law, fine, place, prompts, lone, first, outcomes):
    """Turn numbers of thresholds reached into outcomes, lane by lane; what is past the last of them is drawn again."""
    is_coarse, rewards, n_counted = law.coarse.shape[0] > 0, first_reward(law), law.n_counted
    for j in range(first, first + WIDTH):
        m, n = prompts[j], 0
        for g in range(outcomes.shape[0]):
            found, residual = np.int64(outcomes[g, j]), law.fine
            if found == n_counted and is_coarse:
                if n < fine.shape[1]:
                    found = find_reached(fine[place, n, j - first], law.numbers.rows[m], n_counted, n_counted)
                else:
                    residual = law.coarse
                n += 1
            if found == n_counted:
                outcomes[g, j] = draw_residual(residual[m], lone)
            elif law.stride > 1:
                outcomes[g, j] = found * law.stride + law.numbers.rows[m, rewards + found]
            else:
                outcomes[g, j] = found


@driver(numba.void(STREAMS, OUTCOME_LAW, SHEET, COUNTING_ROOM, numba.int64, numba.int64[:, :, ::1], ORDERED))
def fill_ordered(streams, law, sheet, room, first, prompts, outcomes):
    """Draw what `fill_counts` draws, from streams and a sheet in the same state: outcomes (S, B, G, LANES), one by one."""
    n_tiles, batch_size, _ = prompts.shape
    place, size = first * VECTORS % sheet.prompts.shape[0], sheet.prompts.shape[0]
    for s in range(n_tiles):
        for b in range(batch_size):
            own_prompts, own = prompts[s, b], outcomes[s, b]
            for j in range(0, LANES, WIDTH):
                begin_group(streams, law, sheet, place, room, j, own_prompts)
                if law.coarse.shape[0] > 0:
                    count_reached(sheet.coarse, place, room.numbers, law.n_counted, j, own)
                else:
                    count_reached(sheet.fine, place, room.numbers, law.n_counted, j, own)
                outcomes_of_reached(law, sheet.fine, place, own_prompts, streams.lone, j, own)
                place = place + 1 if place + 1 < size else 0
