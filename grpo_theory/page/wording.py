"""Verdicts in words: where a statement holds, and where not."""

from collections.abc import Sequence

import pandas as pd

from grpo_theory.evidence import ESTIMATE, INCONCLUSIVE, decided
from grpo_theory.evidence.rules import IDENTITY_TOLERANCE
from grpo_theory.page.style import PROBLEMS
from grpo_theory.validation import counted

VERDICTS = {
    "confirmed": "Confirmed",
    "refuted": "Refuted",
    "inconclusive": "Inconclusive",
    "estimate only": "Estimate only",
    "reproduced here": "Reproduced here",
    "not reproduced here": "Not reproduced here",
}
NAMED = 6
"""The largest number of settings that are named in a sentence."""
SEE = "see the table of those"
STANDINGS = {
    "holds": "hold",
    "holds in part": "hold in part",
    "fails": "fail",
    "is reproduced": "are reproduced",
    "is reproduced in part": "are reproduced in part",
    "is not reproduced": "are not reproduced",
    "is inconclusive": "are inconclusive",
}
"""How a statement stands, and several of them; the middle three of what papers measured on their own models."""


def in_words(rows: pd.DataFrame) -> str:
    """Say of one statement in how many settings it got which verdict, and in which.

    Parameters
    ----------
    rows : DataFrame
        Its rows of claims.csv.
    """
    judged = decided(rows)
    weak = counted(len(rows) - len(judged), "setting")
    if rows.empty:
        return "Not judged in this run."
    if judged.empty:  # what the rows of claims.csv say all the same
        found = [
            f"{VERDICTS.get(verdict, 'Confirmed').lower()} in {counted(count, 'setting')}"
            for verdict, count in rows["verdict"].value_counts().items()
        ]
        return (
            f"Not judged: the negative control was not refuted in {weak}, so the check has no power there. "
            f"Without its control the statement would be {', '.join(found)}."
        )
    without = f" In {weak} the check had no power: {SEE}." if len(judged) < len(rows) else ""
    those = f"{len(judged)} settings" + (f" that could tell (of {len(rows)})" if len(judged) < len(rows) else "")
    counts = judged["verdict"].value_counts()
    if len(counts) == 1:
        text = f"{VERDICTS[counts.index[0]]} in {_everywhere(judged, len(rows), those)}."
    else:
        usual = counts.index[0]
        others = [
            f"{VERDICTS[verdict].lower()} in {counted(count, 'setting')}: {_named(judged[judged['verdict'] == verdict])}"
            for verdict, count in counts.iloc[1:].items()
        ]
        text = f"{VERDICTS[usual]} in {counts[usual]} of {those}; {'; '.join(others)}."
    more = ""
    for word, what in ((INCONCLUSIVE, "would decide it"), (ESTIMATE, "are needed before limits can decide anything")):
        needed = int(judged["needed"].where(judged["verdict"] == word, 0).max())
        more += f" As many as {needed:,} replications {what}." if 0 < needed < 10**9 else ""
    return f"{text}{_attained(judged)}{more}{without}"


def _attained(judged: pd.DataFrame) -> str:
    """Say how much of a bound is attained at most, where it holds in all settings: one that is far off says little."""
    holds = judged["verdict"].isin(["confirmed", "reproduced here"]) & (judged["kind"] == "upper bound")
    if not (holds & (judged["prediction"] > 0.0)).all():
        return ""
    # What is 0 but for rounding is judged with the slack of an exact number, and no share of it is attained.
    share = (judged["estimate"] / judged["prediction"])[judged["prediction"] > IDENTITY_TOLERANCE]
    return "" if share.empty else f" At most {max(0.0, float(share.max())):.0%} of the bound is attained."


def standing(rows: pd.DataFrame) -> str:
    """Say in a word how a statement stands: one of `STANDINGS`.

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
        One of `VERDICTS`, or "mixed": reproduced in part, or decided in part.
    """
    judged = decided(rows)
    sure = judged[~judged["verdict"].isin([INCONCLUSIVE, ESTIMATE])]
    words = set(sure["verdict"])
    if "refuted" in words:
        return "refuted"
    if not words:
        return "inconclusive"
    return words.pop() if len(words) == 1 and set(rows["id"]) == set(sure["id"]) else "mixed"


def tally(standings: Sequence[str], noun: str) -> str:
    """Say of several statements, questions, ... how many hold, hold in part, fail and are inconclusive."""
    counts = [(word, list(standings).count(word)) for word in STANDINGS]
    parts = [f"{count} {word if count == 1 else STANDINGS[word]}" for word, count in counts if count]
    if len(standings) == 1:
        return f"one {noun}, which {standings[0]}"
    if len(parts) == 1:
        return f"{len(standings)} {noun}s, which all {STANDINGS[standings[0]]}"
    return f"{len(standings)} {noun}s, of which {', '.join(parts[:-1])} and {parts[-1]}"


def setting_name(setting: str) -> str:
    """Return a problem's title if the setting is one of the gallery, else the setting as it is."""
    return PROBLEMS[setting].label if setting in PROBLEMS else setting


def _everywhere(judged: pd.DataFrame, tried: int, those: str) -> str:
    """Say that it is so in all settings that were judged, and if others were tried, in which that could tell."""
    could_tell = f" of {tried} that could tell" if len(judged) < tried else ""
    if len(judged) == 1:
        return f"the one setting{could_tell or ' tried'} ({_named(judged)})"
    return f"both settings{could_tell} ({_named(judged)})" if len(judged) == 2 else f"all {those}"


def _named(rows: pd.DataFrame) -> str:
    names = [setting_name(str(name)) for name in rows["problem"]]
    if len(names) <= NAMED:
        return "; ".join(names)
    return f"{'; '.join(names[: NAMED - 1])} and {len(names) - NAMED + 1} others"
