"""Where the documentation's pages stand."""

from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
DOCS = TOP / "docs"
GENERATED = DOCS / "generated"


def write(name: str, text: str) -> None:
    """Write a generated page, only if it changed, so that what is up to date is not built again."""
    path = GENERATED / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
