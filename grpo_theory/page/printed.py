"""What papers print, a row for each numbered statement: its verdict in a word, the largest gap, and what holds instead."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from os.path import commonprefix

import pandas as pd

from grpo_theory.evidence import PARTS, REFUTATIONS, Statement
from grpo_theory.harness.study_file import Collection
from grpo_theory.page.digest import number as rounded
from grpo_theory.page.document import ARXIV
from grpo_theory.page.style import AUTHORS
from grpo_theory.page.wording import setting_name, verdict

NUMBER = re.compile(r"\b(Theorem|Lemma|Proposition|Corollary|Assumption|Property|Fig\.) \d+(\.\d+)*(\([a-z]\))?")
CODE = re.compile(r"[A-Z]+\d+(?=/|$)")
"""What we call statements that the three papers print without a number."""
LIMITS = ("upper bound", "ordering")
"""The kinds of statements of which the prediction is a limit from above."""


@dataclass(frozen=True)
class Printed:
    """A statement that a paper prints, with all its parts.

    Attributes
    ----------
    id : str
        The statement that stands for all of it in the catalogue.
    paper : str
        Its number at arXiv, or the source if it has none.
    name : str
        What the paper is called, if it has a name.
    number : str
        What the statement is called in the paper, as in "Theorem 7"; empty if it has no name there.
    parts : tuple of str
        What it says, in parts; first comes one that has the row's verdict.
    verdict : str
        A word of `wording.verdict`.
    gap : str
        What was found and what is stated in the worst setting; empty if nothing disagrees.
    instead : str
        Confirmed corrections; they begin with "sharper" beside a statement that is confirmed itself.
    sources : str
        The sources of all that was judged.
    studies : tuple of str
    """

    id: str
    paper: str
    name: str
    number: str
    parts: tuple[str, ...]
    verdict: str
    gap: str
    instead: str
    sources: str
    studies: tuple[str, ...]

    @property
    def title(self) -> str:
        """How a hit of the search names it."""
        source = f"arXiv {self.paper}" if self.link else self.paper
        if NUMBER.fullmatch(self.number):
            return f"{self.number}, {source}"
        return f"{self.number} ({self.id}), {source}" if self.number else f"{self.id}, {source}"

    @property
    def text(self) -> str:
        """All parts, one after another."""
        return "; ".join(self.parts)

    @property
    def brief(self) -> str:
        """The first part, and how many there are."""
        return self.parts[0] + (f" (of {len(self.parts)})" if self.parts[1:] else "")

    @property
    def link(self) -> str:
        """Where the paper is, if it is at arXiv."""
        return f"https://arxiv.org/abs/{self.paper}" if re.fullmatch(r"\d{4}\.\d{5}", self.paper) else ""

    @property
    def words(self) -> str:
        """What the search reads."""
        return searched(self.title, self.name, self.id, self.text, self.sources)


def printed(collection: Collection, verdicts: pd.DataFrame, names: Mapping[str, str]) -> list[Printed]:
    """Return a row for each statement that a paper prints and that was judged, in the order of the catalogue.

    Parameters
    ----------
    collection : Collection
    verdicts : DataFrame
        With the columns id, problem, verdict, control, estimate and prediction.
    names : Mapping of str to str
        What papers are called, by their numbers at arXiv.
    """
    judged, deciders = set(verdicts["id"]), collection.deciders()
    groups: dict[tuple[str, str], list[Statement]] = {}
    for one in collection.statements.values():
        if one.whose == "paper":
            groups.setdefault(place_of(one), []).append(one)
    alike = {one.id: key for key, group in groups.items() for one in group}
    corrections: dict[tuple[str, str], list[Statement]] = {key: [] for key in groups}
    for one in collection.statements.values():
        if one.whose == "correction" and one.id in judged:
            # It takes the place of the printed statement whose id begins most like its own.
            near = max(alike, key=lambda name: len(commonprefix([f"{name}/", one.id])))  # noqa: RUF071
            corrections[alike[near]].append(one)
    rows = []
    for (paper, number), group in groups.items():
        own = [one for one in group if one.kind != PARTS and one.id in judged]
        if not own:
            continue
        better = corrections[paper, number]
        word = verdict(verdicts[verdicts["id"].isin([one.id for one in own])])
        holding = [one.text for one in better if verdict(verdicts[verdicts["id"] == one.id]) == "confirmed"]
        instead = ("sharper: " if word == "confirmed" else "") + "; ".join(holding) if holding else ""
        whole = [one for one in group if not any(one.id.startswith(f"{other.id}/") for other in group)]
        # The first part that has the verdict of all stands first.
        ids = {one.id: [part.id for part in own if f"{part.id}/".startswith(f"{one.id}/")] for one in whole}
        same = [one for one in whole if ids[one.id] and verdict(verdicts[verdicts["id"].isin(ids[one.id])]) == word]
        studies = dict.fromkeys(study for one in (*own, *better) for study in deciders.get(one.id, ()))
        rows.append(
            Printed(
                id=whole[0].id,
                paper=paper,
                name=names.get(paper, ""),
                number=number if NUMBER.fullmatch(number) else whole[0].source.partition(", ")[2],
                parts=tuple(one.text for one in sorted(whole, key=lambda one: one not in same[:1])),
                verdict=word,
                gap=_gap(own, verdicts),
                instead=instead,
                sources="; ".join(dict.fromkeys(one.source for one in (*own, *better))),
                studies=tuple(studies),
            )
        )
    return rows


def place_of(statement: Statement) -> tuple[str, str]:
    """Return paper and number of a statement; without one the code that its id begins with, as T6, or where it is printed."""
    paper, number, code = ARXIV.search(statement.source), NUMBER.search(statement.source), CODE.match(statement.id)
    place = number or code
    return paper[1] if paper else statement.source, place[0] if place else statement.source


def searched(*parts: str) -> str:
    """Return what the search reads of some words: themselves, and what authors call the methods that they name."""
    words = " ".join(part for part in parts if part)
    return " ".join([words, *(name for what, name in AUTHORS.items() if re.search(what, words, re.IGNORECASE))])


def _gap(own: list[Statement], verdicts: pd.DataFrame) -> str:
    """Say what was found and what is stated where they are farthest apart, relative to what is stated unless that is 0."""
    kinds = {one.id: one.kind for one in own}
    rows = verdicts[verdicts["id"].isin(kinds) & verdicts["verdict"].isin(REFUTATIONS)]
    if "refuted" in set(rows["verdict"]):
        rows = rows[rows["verdict"] == "refuted"]
    if rows.empty:
        return ""
    scale = rows["prediction"].abs().where(rows["prediction"] != 0.0, 1.0)
    worst = rows.loc[((rows["estimate"] - rows["prediction"]).abs() / scale).idxmax()]
    most = "at most " if kinds[worst["id"]] in LIMITS else ""
    part = f"{worst['id']}: " if len(own) > 1 else ""
    where = setting_name(str(worst["problem"]))
    return f"{part}found {rounded(worst['estimate'])}, stated {most}{rounded(worst['prediction'])} ({where})"
