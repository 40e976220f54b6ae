"""Checks that could not have failed, because their negative control survives."""

from collections.abc import Collection
from fnmatch import fnmatchcase

import pandas as pd


def unexplained(claims: pd.DataFrame, reasons: Collection[tuple[str, str]], *, quick: bool) -> pd.DataFrame:
    """Return the rows of claims whose control has no power although nobody has said why.

    A quick run is too short for many a control, and shares of few trials are equal by chance: of its rows only those count that
    are exact and have the claim itself as control.

    Parameters
    ----------
    claims : DataFrame
        Rows of `judge`.
    reasons : collection of (str, str)
        Statements and settings of which it is known; * stands for any text in a setting.
    quick : bool
    """
    same = (claims["control_estimate"] == claims["estimate"]) & (claims["control_prediction"] == claims["prediction"])
    itself = same & (claims["replications"] == 0)
    powerless = claims[~claims["power"] & (itself if quick else True)]
    known = [
        any(name == row.id and fnmatchcase(row.problem, setting) for name, setting in reasons) for row in powerless.itertuples()
    ]
    return powerless[~pd.Series(known, index=powerless.index, dtype=bool)]
