"""Groups as outcomes in the order drawn, for kernels that do not treat responses alike: the same words as the counts'."""

from functools import cache
from typing import Any

import numba
import numpy as np

from grpo_theory.compilation import compile_function, stage
from grpo_theory.simulate.counting import COUNTING_ROOM, SHEET, draw_residual, fill_uniforms, look_up_thresholds
from grpo_theory.simulate.draw import draw_prompts
from grpo_theory.simulate.generator import STREAMS, fill_words
from grpo_theory.simulate.outcome_law import OUTCOME_LAW
from grpo_theory.simulate.strip import STRIP

ORDERED = numba.uint16[:, :, :, ::1]


@stage
def count_reached(words, thresholds, outcomes):
    """Find the outcome of each word, of G rows at least: the number of the lane's thresholds that it has reached (G, STRIP)."""
    for g in range(outcomes.shape[0]):
        for j in range(STRIP):
            outcomes[g, j] = 0
        for o in range(thresholds.shape[0]):
            for j in range(STRIP):
                outcomes[g, j] += np.uint16(words[g, j] >= thresholds[o, j])


@stage
def replace_residual(prompts, residual, lone, outcomes):
    """Draw the outcomes of the words past the last threshold from their prompts' residual laws, lane by lane."""
    past = residual.shape[1]
    for j in range(STRIP):
        for g in range(outcomes.shape[0]):
            if outcomes[g, j] == past:
                outcomes[g, j] = draw_residual(residual[prompts[j]], lone)


def fill_ordered(streams, law, sheet, room, first, prompts, outcomes):
    """Draw what `fill_counts` draws, from streams and a sheet in the same state: outcomes (S, B, G, STRIP), one by one."""
    n_strips, batch_size, _ = prompts.shape
    for i in range(n_strips * batch_size):
        s, b, place = i // batch_size, i % batch_size, (first + i) % sheet.prompts.shape[0]
        if place == 0:
            fill_words(streams.lanes, sheet.words)
        fill_uniforms(sheet.prompts[place], room.uniforms)
        draw_prompts(room.uniforms, law.prompt_threshold, law.prompt_choices, prompts[s, b])
        look_up_thresholds(law.thresholds, prompts[s, b], room.thresholds)
        count_reached(sheet.responses[place], room.thresholds, outcomes[s, b])
        replace_residual(prompts[s, b], law.residual, streams.lone, outcomes[s, b])


@cache
def compiled_fill_ordered() -> Any:
    """Compile `fill_ordered`, or read it from the cache."""
    prompts = numba.int64[:, :, ::1]
    return compile_function(fill_ordered, numba.void(STREAMS, OUTCOME_LAW, SHEET, COUNTING_ROOM, numba.int64, prompts, ORDERED))
