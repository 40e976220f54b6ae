"""The verdicts as tables that a reader takes in at a glance."""

from collections.abc import Iterable, Mapping

import pandas as pd

from grpo_theory.evidence import Statement, decided

COLUMNS = [
    "id",
    "problem",
    "kind",
    "verdict",
    "control",
    "sound",
    "estimate",
    "low",
    "high",
    "outer_low",
    "outer_high",
    "prediction",
    "margin",
    "replications",
    "control_low",
    "control_high",
    "control_prediction",
]
"""The columns of claims.csv that stand in the repository: each verdict can be derived from them again."""
DIGITS = 12
"""Significant digits with which numbers are kept there: identities hold to 1e-10."""


def evidence(verdicts: pd.DataFrame, names: Iterable[str], statements: Mapping[str, Statement]) -> str:
    """Return a Markdown table of some claims: statement, verdicts, and the range of what was found beside what was stated."""
    counts = _counts(verdicts)
    lines = ["| claim | statement | verdict (settings) | found | stated |", "|---|---|---|---|---|"]
    for name in names:
        rows = decided(verdicts[verdicts["id"] == name])
        found, stated = (_range(rows[column]) for column in ("estimate", "prediction"))
        lines.append(f"| {name} | {cell(statements[name].text)} | {_verdict(name, counts)} | {found} | {stated} |")
    return "\n".join(lines) + "\n"


def cell(text: str) -> str:
    """Return text that stands in a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("*", "\\*")


def number(value: float) -> str:
    """Return a number as a page prints it: three significant digits."""
    return f"{value:.3g}"


def _counts(verdicts: pd.DataFrame) -> pd.Series:
    return decided(verdicts).groupby(["id", "verdict"], sort=False).size()


def _verdict(name: str, counts: pd.Series) -> str:
    """Say how often a statement got each verdict."""
    if name not in counts.index.get_level_values("id"):
        return ""
    marked = {"refuted": "**refuted**"}
    return ", ".join(f"{marked.get(verdict, verdict)} ({count})" for verdict, count in counts[name].items())


def _range(values: pd.Series) -> str:
    low, high = number(values.min()), number(values.max())
    return low if low == high else f"{low} to {high}"
