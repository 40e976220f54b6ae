"""The lengths and success rates at which kinds of task are examined."""

from grpo_theory.harness.study import Cell
from grpo_theory.problem.chains import KINDS

LENGTHS, QUICK_LENGTHS = (16, 64, 256, 1024, 4096), (16, 64, 1024)
RATES = (0.55, 0.7)
"""Success rates that every kind of task can have."""


def kinds_and_rates(quick: bool) -> list[Cell]:
    """One cell for each kind of task and success rate; all is exact, and a quick run has fewer lengths and one rate."""
    lengths = list(QUICK_LENGTHS if quick else LENGTHS)
    return [Cell({"kind": kind, "success": rate, "lengths": lengths}) for kind in KINDS for rate in RATES[: 1 if quick else None]]
