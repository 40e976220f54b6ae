"""Where the documentation's pages stand, and the pages that show a file of the checkout."""

from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
DOCS = TOP / "docs"
GENERATED = DOCS / "generated"
SOURCE = """---
orphan: true
---

# {path}

```{{literalinclude}} ../../../{path}
:language: python
```
"""


def write(name: str, text: str) -> None:
    """Write a generated page, only if it changed, so that what is up to date is not built again."""
    path = GENERATED / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def code_link(path: str) -> str:
    """Return a link to the page that shows a file, and write that page."""
    page = path.removesuffix(".py").replace("/", "-")
    write(f"code/{page}.md", SOURCE.format(path=path))
    return f"[`{Path(path).stem}`](generated/code/{page}.md)"
