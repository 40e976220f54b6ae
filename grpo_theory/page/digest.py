"""The verdicts as a reader takes them in at a glance."""

from collections.abc import Iterable

import pandas as pd

from grpo_theory.evidence import decided
from grpo_theory.page.document import cell as cell

COLUMNS = ["id", "problem", "kind", "verdict", "control", "sound", "estimate", "low", "high", "outer_low", "outer_high"]
COLUMNS += ["prediction", "margin", "replications", "control_low", "control_high", "control_prediction"]
"""The columns of claims.csv that stand in the repository: each verdict can be derived from them again."""
DIGITS = 12
"""Significant digits with which numbers are kept there: identities hold to 1e-10."""


def evidence(verdicts: pd.DataFrame, names: Iterable[str]) -> str:
    """Return a line with the verdicts of some claims, each with its number of settings."""
    said = []
    for name in names:
        often = decided(verdicts[verdicts["id"] == name])["verdict"].value_counts(sort=False).items()
        words = (f"{'**refuted**' if word == 'refuted' else word} ({count})" for word, count in often)
        said.append(f"`{name}` {', '.join(words)}")
    return f"**Verdicts.** {'; '.join(said)}."


def number(value: float) -> str:
    """Return a number as a page prints it: three significant digits."""
    return f"{value:.3g}"
