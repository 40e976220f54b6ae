"""Studies of identities: a table of discrepancies, and the claims that some of them are zero."""

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import exact
from grpo_theory.harness.study import EXACT, Rows
from simulations.claims import claim


def gap_rows(common: Mapping[str, Any], column: str, gaps: Mapping[str, float]) -> Rows:
    """Return a row for each discrepancy, named in a column; all are predicted to be zero."""
    return [dict(common) | {column: name, "prediction": 0.0, "estimate": gap} | EXACT for name, gap in gaps.items()]


def gap_claims(
    table: pd.DataFrame, column: str, statements: Iterable[tuple[str, str, str]], setting: str = "{problem}"
) -> list[Claim]:
    """Return the claims, problem by problem, that discrepancies are zero.

    Parameters
    ----------
    table : DataFrame
        Of `gap_rows`, with a column of problems.
    column : str
        Where the discrepancies' names are.
    statements : iterable of (str, str, str)
        A statement's id, the discrepancy that it says is zero, and that of something broken.
    setting : str
        How a claim's setting is written, of the problem and the name of the discrepancy, `own`.
    """
    statements, found = tuple(statements), []
    for problem, part in table.groupby("problem", sort=False):
        gaps = part.set_index(column)["estimate"]
        for statement, own, broken in statements:
            pair = (exact(gaps[name], 0.0) for name in (own, broken))
            found.append(claim(statement, setting.format(problem=problem, own=own), *pair))
    return found
