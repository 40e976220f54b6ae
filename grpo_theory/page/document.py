"""A page that is written in HTML and in Markdown at once: the HTML has all in one file, and needs no network."""

import html
import re
from pathlib import Path
from typing import Any

import pandas as pd

from grpo_theory.harness.store import write_atomically
from grpo_theory.page.mathematics import typeset
from grpo_theory.page.picture import picture

VERDICTS = ("confirmed", "refuted", "inconclusive", "estimate only", "reproduced here", "not reproduced here")
LOOKED_FOR = "Theorem 7, arXiv number, method, word"
_HERE = Path(__file__).parent


class Page:
    """A document under way."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.html: list[str] = [f"<h1>{html.escape(title)}</h1>"]
        self.markdown: list[str] = [f"# {title}"]
        self.contents: list[tuple[str, str, str]] = []

    def section(self, title: str, anchor: str, group: str = "") -> None:
        """Begin a section, which the contents list under its group."""
        self.contents.append((group, anchor, title))
        self.html.append(f'<h2 id="{anchor}">{html.escape(title)}</h2>')
        self.markdown.append(f"## {title}")

    def heading(self, text: str) -> None:
        """Add a heading within a section."""
        self.html.append(f"<h3>{html.escape(text)}</h3>")
        self.markdown.append(f"### {text}")

    def paragraph(self, text: str, look: str = "") -> None:
        """Add words, which may hold LaTeX between dollars."""
        self.html.append(f'<p class="{look}">{typeset(text)}</p>' if look else f"<p>{typeset(text)}</p>")
        self.markdown.append(text)

    def fold(self, summary: str, text: str) -> None:
        """Add words, which may hold LaTeX between dollars, folded away in the HTML."""
        self.html.append(f"<details><summary>{html.escape(summary)}</summary><p>{typeset(text)}</p></details>")
        self.markdown.append(f"**{summary}.** {text}")

    def block(self, code: str, markdown: str = "") -> None:
        """Add HTML as it is, and its twin."""
        self.html.append(code)
        if markdown:
            self.markdown.append(markdown)

    def figure(self, folder: Path, name: str, caption: str) -> None:
        """Add a figure: embedded in the HTML, linked from the Markdown."""
        image = f'<img alt="{html.escape(name)}" loading="lazy" src="{picture((folder / f"{name}.svg").read_text())}">'
        caption_html = f"<figcaption>{html.escape(caption)}</figcaption>"
        self.html.append(f'<figure id="figure-{name}"><div class="scroll">{image}</div>{caption_html}</figure>')
        self.markdown.append(f"![{name}](figures/{name}.png)\n\n*{caption}*")

    def table(self, table: pd.DataFrame, summary: str | None = None) -> None:
        """Add a table; with a summary it is folded away in the HTML."""
        head = "".join(f"<th>{html.escape(str(column))}</th>" for column in table.columns)
        body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in table.itertuples(index=False))
        block = f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        if summary is not None:
            block = f"<details><summary>{html.escape(summary)}</summary>{block}</details>"
            self.markdown.append(f"**{summary}**")
        self.html.append(block)
        lines = [[str(column) for column in table.columns], ["---"] * len(table.columns)]
        lines += [[_text(value) for value in row] for row in table.itertuples(index=False)]
        self.markdown.append("\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines))

    def write(self, out: Path) -> None:
        """Write both twins."""
        style, script = ((_HERE / f"report.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
        page = (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{html.escape(self.title)}</title>\n<style>\n{style}</style></head>\n<body>{self._navigation()}\n<main>\n"
            + "\n".join(self.html)
            + f"\n</main>\n<script>\n{script}</script></body></html>\n"
        )
        write_atomically(out / "report.html", page.encode())
        write_atomically(out / "report.md", ("\n\n".join(self.markdown) + "\n").encode())

    def _navigation(self) -> str:
        lines, last = [], ""
        for group, anchor, title in self.contents:
            if group != last:
                lines.append(f"</ul><p>{html.escape(group)}</p><ul>" if group else "</ul><ul>")
                last = group
            lines.append(f'<li><a href="#{anchor}">{html.escape(title)}</a></li>')
        search = f'<input id="search" type="search" placeholder="{LOOKED_FOR}" aria-label="Find: {LOOKED_FOR}">'
        return (
            f'<nav>{search}<ul id="hits"></ul><details id="contents" open><summary>Contents</summary><ul>{"".join(lines)}</ul>'
            "</details></nav>"
        )


def anchor_of(name: str) -> str:
    """Return what a statement's id is called in links."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _cell(value: Any) -> str:
    text = html.escape(_text(value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f'<td class="number">{text}</td>'
    return f'<td class="{value.replace(" ", "-")}">{text}</td>' if value in VERDICTS else f"<td>{text}</td>"
