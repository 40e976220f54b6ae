"""Checks that could not have failed, because their negative control survives."""

import sys
from collections.abc import Collection
from fnmatch import fnmatchcase

import pandas as pd

from grpo_theory.evidence import REFUTATIONS
from grpo_theory.user_text import printable
from grpo_theory.validation import counted


def unexplained(claims: pd.DataFrame, reasons: Collection[tuple[str, str]], *, quick: bool) -> pd.DataFrame:
    """Return the rows of claims whose control has no power although nobody has said why.

    A quick run is too short for many controls, and shares of few trials are equal by chance.  So of its rows only those count
    that are exact and have the claim itself as control.

    Parameters
    ----------
    claims : DataFrame
        Rows of `judge`.
    reasons : collection of (str, str)
        Statements and settings for which the reason is known; * stands for any text in a setting.
    quick : bool
    """
    same = (claims["control_estimate"] == claims["estimate"]) & (claims["control_prediction"] == claims["prediction"])
    itself = same & (claims["replications"] == 0)
    refuted = claims["verdict"].isin(REFUTATIONS)  # which needs no negative control
    powerless = claims[~claims["power"] & ~refuted & (itself if quick else True)]
    known = [
        any(name == row.id and fnmatchcase(row.problem, setting) for name, setting in reasons) for row in powerless.itertuples()
    ]
    return powerless[~pd.Series(known, index=powerless.index, dtype=bool)]


def say_unexplained(claims: pd.DataFrame, reasons: Collection[tuple[str, str]], *, quick: bool) -> int:
    """Print how many controls survive although nobody has said why, and the first; returns the exit status, 1 if one does."""
    blind = unexplained(claims, reasons, quick=quick)
    if len(blind):
        first = f"{printable(blind.iloc[0]['id'])} on {printable(blind.iloc[0]['problem'])}"
        print(
            f"{counted(len(blind), 'check')} could not have failed, first {first}: mend the control, or say in POWERLESS, in the "
            "study's file, why it survives",
            file=sys.stderr,
        )
    return 1 if len(blind) else 0
