"""The sections of the report: statements of a paper that belong together, under a heading that says what they are about."""

import tomllib
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from grpo_theory.evidence import Statement
from simulations.collection import catalogue, collection

PRACTICE = "Practice"
"""The group of what no paper states."""


@dataclass(frozen=True)
class Section:
    """A section of the report.

    Attributes
    ----------
    anchor : str
        What links name it by.
    title : str
    group : str
        The paper, or what else it is filed under.
    about : tuple of str
        Ids of the statements; one that ends in / stands for all whose ids begin so.
    asks : str
        Why a reader should care, in a sentence or two, if anything is to be said; what was found is read off the verdicts.
    """

    anchor: str
    title: str
    group: str
    about: tuple[str, ...]
    asks: str = ""

    def statements(self) -> tuple[tuple[Statement, tuple[Statement, ...]], ...]:
        """Return the statements that are no part of another one, each with its parts."""
        return tuple(
            (one, collection().parts_of(one)) for one in catalogue().values() if self.holds(one.id) and not _is_part(one.id)
        )

    def holds(self, name: str) -> bool:
        """Whether a statement, by its id, is treated here."""
        return any(name == own or name.startswith(own if own.endswith("/") else f"{own}/") for own in self.about)


def _is_part(name: str) -> bool:
    """Whether a statement is a part of another one of the catalogue: U9/best of U9."""
    pieces = name.split("/")
    return any("/".join(pieces[:end]) in catalogue() for end in range(1, len(pieces)))


def _read(asks: str = "", **facts: str) -> Section:
    return Section(facts["anchor"], facts["title"], facts["group"], tuple(facts["about"]), " ".join(asks.split()))


_WRITTEN = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
LEAD, TABLE, SYMBOLS = (" ".join(_WRITTEN[name].split()) for name in ("lead", "table", "symbols"))
"""What the report says at its beginning, above the table of what papers print, and of its symbols."""
SECTIONS = tuple(_read(**one) for one in _WRITTEN["section"])
"""In the order of the report; statements that none of them names have sections of their own."""


def sections() -> tuple[Section, ...]:
    """Return the sections in the order of the report: those written down, and one for each subject of studies that has more."""
    ours, deciders = collection(), collection().deciders()
    rest: dict[str, list[str]] = {}
    for name in ours.statements:
        if not any(section.holds(name) for section in SECTIONS):
            package = next((ours.studies[one].module.rpartition(".")[0] for one in deciders.get(name, ())), "simulations")
            rest.setdefault(package, []).append(name)
    titles = {package: str(import_module(package).__doc__).strip().partition("\n")[0].rstrip(".") for package in rest}
    beside = (Section(f"beside-{one.rpartition('.')[2]}", titles[one], PRACTICE, tuple(names)) for one, names in rest.items())
    return (*SECTIONS, *beside)


def section_of(name: str) -> Section:
    """Return the section that treats a statement, by its id."""
    return next(section for section in sections() if section.holds(name))
