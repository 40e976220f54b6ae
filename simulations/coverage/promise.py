"""What a confidence interval promises, as a statement."""

import pandas as pd

from grpo_theory.evidence import Margin, Share

LEVEL = 0.95
"""Of all intervals."""
POINT = Margin(0.01, "a reader of 95% does not notice 94%, and 90% misleads")


def nominal(measure: str) -> float:
    """Return what a measure is to be: the level if it is a coverage, else NaN, for it is to be nothing."""
    return LEVEL if measure.endswith("coverage") else float("nan")


def share(row: pd.Series, wanted: float, *, misses: bool = False, comparisons: int = 1) -> Share:
    """Return a row's share of intervals that cover, or of those that miss, as evidence."""
    covered = float(row["estimate"])
    return Share(1.0 - covered if misses else covered, wanted, replications=int(row["replications"]), comparisons=comparisons)
