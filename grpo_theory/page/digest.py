"""The verdicts as tables that a reader takes in at a glance."""

from collections.abc import Iterable, Mapping

import pandas as pd

from grpo_theory.evidence import Statement

COLUMNS = ["id", "problem", "verdict", "control", "estimate", "low", "high", "prediction"]
"""What the documentation says of a claim is read from these columns of claims.csv."""
DIGITS = 5
"""Significant digits with which estimates are kept in the repository: more than any page prints."""


def evidence(verdicts: pd.DataFrame, names: Iterable[str], statements: Mapping[str, Statement]) -> str:
    """Return a Markdown table of some claims: statement, verdicts, and the range of what was found beside what was stated."""
    counts = _counts(verdicts)
    lines = ["| claim | statement | verdict (settings) | found | stated |", "|---|---|---|---|---|"]
    for name in names:
        rows = verdicts[(verdicts["id"] == name) & (verdicts["control"] == "refuted")]
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
    return verdicts[verdicts["control"] == "refuted"].groupby(["id", "verdict"], sort=False).size()


def _verdict(name: str, counts: pd.Series) -> str:
    """Say how often a statement got each verdict."""
    if name not in counts.index.get_level_values("id"):
        return ""
    marked = {"refuted": "**refuted**"}
    return ", ".join(f"{marked.get(verdict, verdict)} ({count})" for verdict, count in counts[name].items())


def _range(values: pd.Series) -> str:
    low, high = number(values.min()), number(values.max())
    return low if low == high else f"{low} to {high}"
