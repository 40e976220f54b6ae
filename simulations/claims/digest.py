"""The verdicts in a table that a reader takes in at a glance: one row for each statement of the papers."""

import pandas as pd

from simulations.claims import CATALOGUE, PARTS, parts_of

HEAD = ("claim", "as stated", "verdict (settings)")
COLUMNS = ["id", "problem", "verdict", "control"]
"""What a verdict is read from: the columns of claims.csv that the digest needs."""


def digest(verdicts: pd.DataFrame) -> str:
    """Return a Markdown table: a statement, and how often it, or each of its parts, was confirmed, refuted or left open.

    Parameters
    ----------
    verdicts : DataFrame
        With the columns `COLUMNS`; verdicts whose control was not refuted are left out.
    """
    powerful = verdicts[verdicts["control"] == "refuted"]
    counts = powerful.groupby(["id", "verdict"], sort=False).size()
    lines = [f"| {' | '.join(HEAD)} |", "|---|---|---|"]
    for statement in CATALOGUE.values():
        if "/" in statement.id or statement.id == "estimator":
            continue
        own = parts_of(statement) if statement.kind == PARTS else (statement, *parts_of(statement))
        words = [_verdict(one.id, one.id.partition("/")[2], counts) for one in own]
        found = "; ".join(word for word in words if word)
        if found:
            lines.append(f"| {statement.id} | {_cell(statement.text)} | {_cell(found)} |")
    unmet = [one.id for one in CATALOGUE.values() if one.open]
    return "\n".join(lines) + f"\n\nNot decided yet: {', '.join(unmet)} (`python -m simulations list --claims` says why).\n"


def _verdict(name: str, part: str, counts: pd.Series) -> str:
    """Say how often a statement got each verdict."""
    if name not in counts.index.get_level_values("id"):
        return ""
    marked = {"refuted": "**refuted**"}
    words = ", ".join(f"{marked.get(verdict, verdict)} ({count})" for verdict, count in counts[name].items())
    return f"{part}: {words}" if part else words


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
