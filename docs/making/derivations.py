"""The derivations, a page for each, as their index lists them."""

import re
from dataclasses import dataclass
from functools import cache

from docs.making.places import DOCS

LINE = re.compile(
    r'^- <a id="section-[\d-]+"></a>(?P<number>[\d.]+) \[(?P<title>.+)\]\((?P<page>derivations/\w+\.md)\)$', re.MULTILINE
)
"""A line of the index: number, title and page."""
IDS = re.compile(r"# .+ \(([A-Z]\d.*)\)")
"""The heading of a page on which statements are derived."""


@dataclass(frozen=True)
class Derivation:
    """A page of the derivations: its number ("7", or "7.1" if it continues section 7), title, page, statements and text."""

    number: str
    title: str
    page: str
    ids: str
    text: str

    @property
    def section(self) -> int:
        """The number by which sources and claims name it, as in "docs/derivations.md, section 7"."""
        return int(self.number.partition(".")[0])

    @property
    def statements(self) -> set[str]:
        """The statements that are derived here: "U7, U10 to U12" names four."""
        names = set(re.findall(r"[UTNR]\d+", self.ids))
        for letter, first, last in re.findall(r"([UTNR])(\d+) to [UTNR](\d+)", self.ids):
            names |= {f"{letter}{number}" for number in range(int(first), int(last) + 1)}
        return names

    @property
    def tests(self) -> set[str]:
        """The test files that the page names."""
        return set(re.findall(r"`(tests/\w+\.py)`", self.text))


@cache
def derivations() -> tuple[Derivation, ...]:
    """Return all pages in the order of the index."""
    index = (DOCS / "derivations.md").read_text(encoding="utf-8")
    found = []
    for number, title, page in LINE.findall(index):
        text = (DOCS / page).read_text(encoding="utf-8")
        ids = IDS.match(text)
        found.append(Derivation(number, title, page, ids[1] if ids else "", text))
    return tuple(found)


def add_notation(_app: object, page: str, source: list[str]) -> None:
    """Put a link to the notation below the title of a derivation."""
    if page.startswith("derivations/"):
        source[0] = source[0].replace("\n", "\n\n[Notation](../derivations.md)\n", 1)


def proofs_of(name: str, sources: str) -> list[Derivation]:
    """Return where a statement is derived: the pages that list it, and those sections that its sources name.

    Of a section that a source names and that has several pages, those that list the statement are meant, or the first one.
    """
    listing = [one for one in derivations() if name in one.statements]
    named = {int(number) for number in re.findall(r"derivations\.md, (\d+)", sources)} - {one.section for one in listing}
    first = [one for one in derivations() if one.number.isdecimal() and one.section in named]
    return sorted(listing + first, key=derivations().index)
