"""The derivations, as the report folds them in."""

import re
from pathlib import Path

DERIVATIONS = Path(__file__).parents[2] / "docs" / "derivations"


def derivations() -> dict[int, tuple[str, str]]:
    """Return the derivations' sections by number: title and text. A section is a page (7), or a page and more (7.1)."""
    pages = {}
    for path in DERIVATIONS.glob("*.md"):
        heading, _, text = path.read_text(encoding="utf-8").partition("\n")
        number, title = heading.removeprefix("# ").split(". ", 1)
        pages[tuple(map(int, number.split(".")))] = (number, title, text.strip())
    sections: dict[int, tuple[str, str]] = {}
    for (whole, *_), (number, title, text) in sorted(pages.items()):
        first, before = sections.get(whole, (title, ""))
        text = re.sub(r"\[([^\]]+)\]\([\w./]+\.md\)", r"\1", text)  # links between pages mean nothing in the report
        sections[whole] = (first, f"{before}\n\n{number}. {title}\n\n{text}" if before else text)
    return sections
