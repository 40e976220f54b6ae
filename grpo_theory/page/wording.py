"""Verdicts in words: where a statement holds, and where not."""

import pandas as pd

from grpo_theory.evidence import ESTIMATE, INCONCLUSIVE, decided
from grpo_theory.evidence.rules import IDENTITY_TOLERANCE
from grpo_theory.page.document import said
from grpo_theory.page.style import PROBLEMS


def in_words(rows: pd.DataFrame) -> str:
    """Say of one statement in how many settings it got which verdict, and in which.

    Parameters
    ----------
    rows : DataFrame
        Its rows of claims.csv.
    """
    judged = decided(rows)
    sides = {word: judged[judged["verdict"] == word]["problem"] for word in judged["verdict"].value_counts().index}
    needed = [judged["needed"].where(judged["verdict"] == word, 0).max() for word in (INCONCLUSIVE, ESTIMATE)]
    # How much of a bound is attained, where it holds in all settings: one that is far off says little.
    # What is 0 but for rounding is judged with the slack of an exact number, and no share of it is attained.
    holds = judged["verdict"].isin(["confirmed", "reproduced here"]) & (judged["kind"] == "upper bound")
    bounded = judged[judged["prediction"] > IDENTITY_TOLERANCE]
    share = bounded["estimate"] / bounded["prediction"]
    is_bound = (holds & (judged["prediction"] > 0.0)).all() and not share.empty
    return said(
        "in_words",
        tried=len(rows),
        unjudged=list(rows["verdict"].value_counts().items()),
        verdicts=[(word, [setting_name(str(name)) for name in own]) for word, own in sides.items()],
        attained=max(0.0, float(share.max())) if is_bound else None,
        undecided=needed[0],
        unlimited=needed[1],
    )


def standing(rows: pd.DataFrame) -> str:
    """Say in a word how a statement stands: it holds, holds in part or fails, is reproduced, ..., or is inconclusive.

    One counterexample refutes what is stated of all settings. A question of ours may be answered setting by setting.
    """
    found = set(decided(rows)["verdict"])
    if {"confirmed", "refuted"} <= found and not rows["whose"].eq("ours").all():
        return "fails"
    for yes, no, words in (
        ("confirmed", "refuted", ("holds", "holds in part", "fails")),
        ("reproduced here", "not reproduced here", ("is reproduced", "is reproduced in part", "is not reproduced")),
    ):
        if found & {yes, no}:
            return words[1] if {yes, no} <= found else words[0] if yes in found else words[2]
    return "is inconclusive"


def verdict(rows: pd.DataFrame) -> str:
    """Say the verdict on a statement, or on several that are one, in a word: refuted as soon as one is in one setting.

    Parameters
    ----------
    rows : DataFrame
        Their rows of claims.csv.

    Returns
    -------
    str
        One that a row has, or "mixed": reproduced in part, or decided in part.
    """
    judged = decided(rows)
    sure = judged[~judged["verdict"].isin([INCONCLUSIVE, ESTIMATE])]
    words = set(sure["verdict"])
    if "refuted" in words:
        return "refuted"
    if not words:
        return "inconclusive"
    return words.pop() if len(words) == 1 and set(rows["id"]) == set(sure["id"]) else "mixed"


def setting_name(setting: str) -> str:
    """Return a problem's title if the setting is one of the gallery, else the setting as it is."""
    return PROBLEMS[setting].label if setting in PROBLEMS else setting
