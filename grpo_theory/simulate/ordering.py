"""Groups as outcomes in the order drawn, for kernels that do not treat responses alike: the same words as the counts'."""

from functools import cache
from typing import Any

import numba

from grpo_theory.compilation import NO_ARRAYS, compile_function, stage
from grpo_theory.lanes import WIDTH, as_tally, load, store, tallies
from grpo_theory.simulate.counting import COUNTING_ROOM, SHEET, draw_residual, find_thresholds
from grpo_theory.simulate.draw import choose_prompts
from grpo_theory.simulate.generator import STREAMS, fill_words
from grpo_theory.simulate.outcome_law import OUTCOME_LAW
from grpo_theory.simulate.strip import STRIP

ORDERED = numba.uint16[:, :, :, ::1]


@stage
def count_reached(words, place, j, thresholds, n_thresholds, s, b, outcomes):
    """Find the outcome of each word of a group: the number of the lane's thresholds (O, WIDTH) that it has reached."""
    for g in range(outcomes.shape[2]):
        word, found = load(words, place, g, j), tallies(0)
        for o in range(n_thresholds):
            found = found + as_tally(word >= load(thresholds, o, 0))
        store(found, outcomes, s, b, g, j)


@stage
def replace_residual(prompts, residual, lone, s, b, first, outcomes):
    """Draw the outcomes of the words past the last threshold from their prompts' residual laws, lane by lane."""
    past = residual.shape[1]
    for j in range(first, first + WIDTH):
        for g in range(outcomes.shape[2]):
            if outcomes[s, b, g, j] == past:
                outcomes[s, b, g, j] = draw_residual(residual[prompts[s, b, j]], lone)


def fill_ordered(streams, law, sheet, room, first, prompts, outcomes):
    """Draw what `fill_counts` draws, from streams and a sheet in the same state: outcomes (S, B, G, STRIP), one by one."""
    n_strips, batch_size, _ = prompts.shape
    for i in range(n_strips * batch_size):
        s, b, place = i // batch_size, i % batch_size, (first + i) % sheet.prompts.shape[0]
        if place == 0:
            fill_words(streams.lanes, sheet.words)
        for j in range(0, STRIP, WIDTH):
            chosen = choose_prompts(load(sheet.prompts, place, j), law.prompts, room.prompts)
            store(chosen, prompts, s, b, j)
            find_thresholds(law, chosen, room.thresholds)
            count_reached(sheet.responses, place, j, room.thresholds, law.residual.shape[1], s, b, outcomes)
            replace_residual(prompts, law.residual, streams.lone, s, b, j, outcomes)


@cache
def compiled_fill_ordered() -> Any:
    """Compile `fill_ordered`, or read it from the cache."""
    arguments = STREAMS, OUTCOME_LAW, SHEET, COUNTING_ROOM, numba.int64, numba.int64[:, :, ::1], ORDERED
    return compile_function(fill_ordered, numba.void(*arguments), **NO_ARRAYS)
