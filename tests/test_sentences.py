"""Sentences of pages, derivations and docstrings are short enough to be read once."""

import pytest

from tests.pages import DOCS
from tests.sentences import LONGEST, as_page, docstrings, long_sentences

PAGES = {
    page.name: page for page in (*(DOCS.parent / name for name in ("README.md", "CHANGELOG.md")), *sorted(DOCS.glob("*.md")))
} | {f"{part}/{page.name}": page for part in ("findings", "derivations") for page in sorted((DOCS / part).glob("*.md"))}
FOLDERS = ("grpo_theory", "simulations", "paper_figures", "benchmarks", "tests", "tools", "examples")


@pytest.mark.parametrize("page", PAGES)
def test_sentences_are_short(page):
    assert long_sentences(PAGES[page].read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_sentences_of_docstrings_are_short(folder):
    files = sorted((DOCS.parent / folder).rglob("*.py"))
    found = {f"{path}:{line}": long_sentences(as_page(text)) for path in files for line, text in docstrings(path)}
    assert found, "no docstrings"
    assert {place: sentences for place, sentences in found.items() if sentences} == {}


def test_a_long_sentence_is_found():
    for words, found in ((LONGEST + 1, 1), (LONGEST // 2, 0)):
        for text in ("A short one. {long}! Another.", "1. [{long}](page.md), as is\n   said.", "| a |\n\n{long}: `code`"):
            assert len(long_sentences(text.format(long=" ".join(["word"] * words)))) == found
