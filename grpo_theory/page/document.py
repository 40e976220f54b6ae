"""A page that is written in HTML and in Markdown at once: the HTML has all in one file, and needs no network."""

import re
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from grpo_theory.evidence import Statement
from grpo_theory.harness.store import write_atomically
from grpo_theory.page.mathematics import typeset
from grpo_theory.page.picture import picture
from grpo_theory.validation import counted

VERDICTS = ("confirmed", "refuted", "inconclusive", "estimate only", "reproduced here", "not reproduced here")
ARXIV = re.compile(r"arXiv (\d{4}\.\d{5})")
_HERE = Path(__file__).parent


def anchor_of(name: str) -> str:
    """Return what a statement's id is called in links."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")


def words_of(statement: Statement) -> str:
    """Return a statement's typeset form, or its plain text as a sentence."""
    return statement.formula or statement.text[:1].upper() + statement.text[1:] + "."


def cell(text: str) -> str:
    """Return text that stands in a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("*", "\\*")


def first_sentence(text: str) -> str:
    """Return the first sentence; a full stop after a space is a product of vectors."""
    return re.split(r"(?<=\S[.!?])\s", text, maxsplit=1)[0]


TEMPLATES = Environment(
    loader=FileSystemLoader(_HERE),
    autoescape=select_autoescape(("html.jinja",), default_for_string=False),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters |= {
    "anchor": anchor_of,
    "words_of": words_of,
    "cell": cell,
    "bar": lambda text: text.replace("|", "\\|"),
    "counted": counted,
    "first_sentence": first_sentence,
    "typeset": lambda text: Markup(typeset(text)),
    "linked": lambda source: Markup(ARXIV.sub(r'<a href="https://arxiv.org/abs/\1">\g<0></a>', str(Markup.escape(source)))),
}


_WORDS = TEMPLATES.get_template("words.jinja").module


def said(sentences: str, **facts: Any) -> str:
    """Return the sentences that a macro of ``words.jinja`` says of some facts, on one line."""
    return " ".join(getattr(_WORDS, sentences)(**facts).split())


class Page:
    """A document under way: blocks of kinds that the templates ``page.html.jinja`` and ``page.md.jinja`` know."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.blocks: list[dict[str, Any]] = []

    def add(self, kind: str, **fields: Any) -> None:
        """Add a block: the macro of its kind in either template says what becomes of its fields."""
        self.blocks.append({"kind": kind, **fields})

    def section(self, title: str, anchor: str, group: str = "") -> None:
        """Begin a section, which the contents list under its group."""
        self.add("section", title=title, anchor=anchor, group=group)

    def paragraph(self, text: str, look: str = "") -> None:
        """Add words, which may hold LaTeX between dollars."""
        self.add("paragraph", text=text, look=look)

    def figure(self, folder: Path, name: str, caption: str) -> None:
        """Add a figure: embedded in the HTML, linked from the Markdown."""
        self.add("figure", name=name, caption=caption, picture=Markup(picture((folder / f"{name}.svg").read_text())))

    def table(self, table: pd.DataFrame, summary: str | None = None) -> None:
        """Add a table; with a summary it is folded away in the HTML."""
        rows = [[_cell(value) for value in row] for row in table.itertuples(index=False)]
        self.add("table", head=list(map(str, table.columns)), rows=rows, summary=summary)

    def write(self, out: Path) -> None:
        """Write both twins."""
        for kind in ("html", "md"):
            write_atomically(out / f"report.{kind}", self.rendered(kind).encode())

    def rendered(self, kind: str) -> str:
        """Return the page as "html" or "md"."""
        style, script = (Markup((_HERE / f"report.{kind}").read_text(encoding="utf-8")) for kind in ("css", "js"))
        facts = {"title": self.title, "blocks": self.blocks, "style": style, "script": script}
        return TEMPLATES.get_template(f"page.{kind}.jinja").render(facts).rstrip() + "\n"


def _cell(value: Any) -> tuple[str, str]:
    """Return the text of a cell, and how it looks: as a number, as a verdict, or as nothing of these."""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return text, "n"
    return text, text.replace(" ", "-") if value in VERDICTS else ""
