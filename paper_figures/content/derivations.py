"""The derivations of the documentation, as the report folds them in."""

import re
from pathlib import Path

DERIVATIONS = Path(__file__).parents[2] / "docs" / "derivations.md"


def derivations() -> dict[int, tuple[str, str]]:
    """Return the derivations by their numbers: title and text."""
    pieces = re.split(r"^## (\d+)\. (.+)$", DERIVATIONS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {int(number): (title, text.strip()) for number, title, text in zip(*(pieces[k::3] for k in (1, 2, 3)), strict=True)}
