"""What a policy gives to the driver of training runs: its logits and its step, with their types."""

from typing import Any, NamedTuple

import numba

from grpo_theory.arrays import Array
from grpo_theory.compiler import F2, F3, I2

FILL_LOGITS = numba.void(F2, I2, F3, F2, F3)
TAKE_STEP = numba.void(F2, I2, F3, F2, F3, numba.float64)


class Ascent(NamedTuple):
    """``fill_logits(theta, prompts, array, rows, logits)``, ``take_step(theta, prompts, array, rows, covectors, step)``.

    The array is what both understand, `rows` the number of rows that they compute in: a step follows the logits of its prompts,
    and may find there what these have left.  `alone` says that they work on one run at a time.
    """

    fill_logits: Any
    take_step: Any
    array: Array
    rows: int
    alone: bool
