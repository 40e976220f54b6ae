"""What a policy gives to the driver of training runs: its logits and its step, with their types."""

from typing import Any, NamedTuple

import numba

from grpo_theory.compiler import F2, F3, I2
from grpo_theory.validation import Array

FILL_LOGITS = numba.void(F2, I2, F3, F2, F3)
TAKE_STEP = numba.void(F2, I2, F3, F2, F3, numba.float64)


class Ascent(NamedTuple):
    """``fill_logits(theta, prompts, array, rows, logits)``, ``take_step(theta, prompts, array, rows, covectors, step)``.

    Both functions read the array, and compute in a number `rows` of rows.  A step follows the logits of its prompts, and may use
    what their computation has left in these rows.  `alone` says that the functions work on one run at a time.
    """

    fill_logits: Any
    take_step: Any
    array: Array
    rows: int
    alone: bool
