"""What a confidence interval promises, as a statement."""

import pandas as pd

from grpo_theory.evidence import Margin, Share, Statement
from simulations.sources import OURS

LEVEL = 0.95
"""Of all intervals."""
POINT = Margin(0.01, "a reader of 95% does not notice 94%, and 90% misleads")


def covers(name: str, target: str, source: str, *, conservative: bool = False) -> Statement:
    """Return the statement that a 95% interval covers its target so often; a conservative one at least so often."""
    words = "at least 95%, within one point" if conservative else "95%"
    kind = "upper bound" if conservative else "equality"
    text = f"a 95% interval of the {target} covers {words}"
    return Statement(f"CI/{name}", source, text, kind, margin=None if conservative else POINT, whose=OURS)


def nominal(measure: str) -> float:
    """Return what a measure is to be: the level if it is a coverage, else NaN, for it is to be nothing."""
    return LEVEL if measure.endswith("coverage") else float("nan")


def share(row: pd.Series, wanted: float, *, misses: bool = False, comparisons: int = 1) -> Share:
    """Return a row's share of intervals that cover, or of those that miss, as evidence."""
    covered = float(row["estimate"])
    return Share(1.0 - covered if misses else covered, wanted, replications=int(row["replications"]), comparisons=comparisons)
