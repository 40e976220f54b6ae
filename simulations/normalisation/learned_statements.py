"""What the studies of learned features state of orthogonality, and what is printed of it."""

from grpo_theory.evidence import Statement
from simulations.sources import NORMALIZATION, OURS

DRIFT = Statement(
    "N11/learned features",
    f"question beside {NORMALIZATION}",
    "where features are learned, the share of |cos| < 0.1 falls by at least 10 points from start to end",
    "upper bound",
    whose=OURS,
)
LOST = Statement(
    "N12/III, learned features",
    f"question beside {NORMALIZATION}",
    "where features are learned, at the end the share of |cos| < 0.1 is at most 2/3",
    "upper bound",
    whose=OURS,
)
FALL = 0.1
"""A tenth of the pairs is a quarter of the printed drift."""
