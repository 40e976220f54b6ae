"""The verdicts as tables that a reader takes in at a glance."""

from collections.abc import Iterable, Mapping

import pandas as pd

from grpo_theory.evidence import Statement, decided
from grpo_theory.page.document import cell as cell

COLUMNS = ["id", "problem", "kind", "verdict", "control", "sound", "estimate", "low", "high", "outer_low", "outer_high"]
COLUMNS += ["prediction", "margin", "replications", "control_low", "control_high", "control_prediction"]
"""The columns of claims.csv that stand in the repository: each verdict can be derived from them again."""
DIGITS = 12
"""Significant digits with which numbers are kept there: identities hold to 1e-10."""


def evidence(verdicts: pd.DataFrame, names: Iterable[str], statements: Mapping[str, Statement]) -> str:
    """Return a Markdown table of some claims: statement, verdicts, and the range of what was found beside what was stated."""
    lines = ["| claim | statement | verdict (settings) | found | stated |", "|---|---|---|---|---|"]
    for name in names:
        rows = decided(verdicts[verdicts["id"] == name])
        found, stated = (_range(rows[column]) for column in ("estimate", "prediction"))
        often = rows["verdict"].value_counts(sort=False).items()
        verdict = ", ".join(f"{'**refuted**' if word == 'refuted' else word} ({count})" for word, count in often)
        lines.append(f"| {name} | {cell(statements[name].text)} | {verdict} | {found} | {stated} |")
    return "\n".join(lines) + "\n"


def number(value: float) -> str:
    """Return a number as a page prints it: three significant digits."""
    return f"{value:.3g}"


def _range(values: pd.Series) -> str:
    low, high = number(values.min()), number(values.max())
    return low if low == high else f"{low} to {high}"
