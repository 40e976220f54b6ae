"""What is stated of a 95% interval: that it covers as often as it says."""

from grpo_theory.evidence import Margin, Statement
from simulations.sources import OURS

POINT = Margin(0.01, "an interval that covers 94.05% in place of 95% misleads nobody")
"""Relative to the level."""


def covers(name: str, target: str, source: str, *, conservative: bool = False) -> Statement:
    """Return the statement that an interval covers a target at its level, or, if it is conservative, at least so often."""
    words = "at least 95%, within one point" if conservative else "95%"
    kind, margin = ("upper bound", None) if conservative else ("equality", POINT)
    return Statement(f"CI/{name}", source, f"a 95% interval of the {target} covers {words}", kind, whose=OURS, margin=margin)
