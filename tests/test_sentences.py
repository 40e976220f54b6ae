"""Sentences of the README and of the documentation's pages are short enough to be read once."""

import re

import pytest

from tests.pages import DOCS

LONGEST = 25
"""Words of the longest sentence."""
PAGES = {
    page.name: page for page in (*(DOCS.parent / name for name in ("README.md", "CHANGELOG.md")), *sorted(DOCS.glob("*.md")))
} | {f"findings/{page.name}": page for page in sorted((DOCS / "findings").glob("*.md"))}
FENCED = re.compile(r"^(`{3,}|\$\$).*?^\1$|<!--.*?-->", flags=re.DOTALL | re.MULTILINE)
ONE_WORD = re.compile(r"!\[[^\]]*\]\([^)]*\)|`[^`]+`|\$[^$]+\$")
"""A picture, code or a formula: each counts as one word."""
ITEM = re.compile(r"\n(?= *(?:[-*+]|\d+\.) |[|#<:])")
"""Where an item of a list, a row of a table, a heading or a directive begins."""
END = re.compile(r"(?<=[.!?])[\"')*_]*\s+(?=[\"'(*_\[]*[A-Z0-9])")
"""An end of a sentence: what follows begins with a capital, so that "e.g. this" is no end."""


def paragraphs(page):
    """Return the paragraphs and the items of lists of a page, without programs, tables and headings."""
    blocks = (block for block in re.split(r"\n\s*\n", FENCED.sub("", page)) if not block.startswith("    "))
    parts = (part.strip() for block in blocks for part in ITEM.split(block))
    return [re.sub(r"^(?:[-*+]|\d+\.) +", "", part) for part in parts if not part.startswith(("|", "#", "<", ":::"))]


def long_sentences(page):
    """Return the sentences of a page that have more words than are allowed."""
    found = []
    for paragraph in paragraphs(page):
        text = re.sub(r"\]\([^)]*\)", "]", ONE_WORD.sub("Code", paragraph))
        found += [sentence for sentence in END.split(text) if len(re.findall(r"\S*\w\S*", sentence)) > LONGEST]
    return found


@pytest.mark.parametrize("page", PAGES)
def test_sentences_are_short(page):
    assert long_sentences(PAGES[page].read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "text",
    [
        "{long}.",
        "A short one. {long}! Another.",
        "- an item\n- {long}\n",
        "1. [{long}](page.md), as is\n   said.",
        "**In bold.** *{long}.*",
        "| a | b |\n\n{long}: `code`",
    ],
)
def test_a_long_sentence_is_found(text):
    for words, found in ((LONGEST + 1, 1), (LONGEST // 2, 0)):
        assert len(long_sentences(text.format(long=" ".join(["word"] * words)))) == found


@pytest.mark.parametrize(
    "text",
    [
        "`{long}`",
        "$ {long} $",
        "```python\n{long}\n```",
        "    {long}",
        "| {long} |",
        "# {long}",
        "![{long}](a.png)",
        "$$\n{long}\n$$",
    ],
)
def test_code_and_formulas_count_as_a_word(text):
    assert long_sentences(f"Before.\n\n{text.format(long=' '.join(['word'] * (2 * LONGEST)))}\n\nAfter.") == []
