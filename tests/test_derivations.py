"""The derivations: a page for each, listed by an index whose numbers are what sources, claims and docstrings name."""

import re
from pathlib import Path

import pytest

from docs.making.derivations import derivations, proofs_of
from docs.making.places import DOCS, TOP
from docs.making.reference import escape
from simulations.collection import studies

PAGES = {Path(one.page).name: one for one in derivations()}
NUMBERS = {one.number for one in derivations()}
LINK = re.compile(r"\[(?:[Ss]ections?\s+)?([\d.]+)\]\(((?:\.\./)?(?:derivations/)?\w+\.md)\)")
"""A link whose text is a number of a section."""
FOLDERS = ("grpo_theory", "simulations", "paper_figures", "benchmarks", "tools", "tests", "docs", "examples")
REFERENCE = re.compile(r"derivations(?:\.md)?,\s+(?:sections?\s+)?(\d+(?:\.\d+)?)(?:(?:\s+and\s+|\s+to\s+)(\d+(?:\.\d+)?))?")


def sources():
    """Return the programs and pages of the checkout by path, each as one line; generated pages are left out."""
    paths = [path for folder in FOLDERS for pattern in ("*.py", "*.md") for path in (TOP / folder).rglob(pattern)]
    paths = [path for path in [*paths, *TOP.glob("*.md")] if not {"generated", "_build"} & set(path.parts)]
    return {path: " ".join(path.read_text(encoding="utf-8").split()) for path in paths}


SOURCES = sources()


def test_the_index_lists_every_page_once_and_in_order():
    assert sorted(PAGES) == sorted(path.name for path in (DOCS / "derivations").glob("*.md"))
    assert len(PAGES) == len(derivations()) == len(NUMBERS)
    parts = [tuple(map(int, one.number.split("."))) for one in derivations()]
    assert parts == sorted(parts)
    tree = (DOCS / "derivations.md").read_text(encoding="utf-8").partition(":hidden:\n\n")[2].partition("\n```")[0]
    assert tree.split() == [one.page.removesuffix(".md") for one in derivations()]


def test_a_reference_by_number_hits_a_section():
    named = [(path, number) for path, text in SOURCES.items() for found in REFERENCE.findall(text) for number in found if number]
    assert len(named) > 60
    assert [(path.name, number) for path, number in named if number not in NUMBERS] == []


def test_a_link_with_a_number_leads_to_the_page_of_that_number():
    links = [(path, *found) for path in SOURCES if DOCS in path.parents for found in LINK.findall(SOURCES[path])]
    assert len(links) > 80
    for path, number, target in links:
        page = (path.parent / target).resolve()
        assert page.parent == DOCS / "derivations", (path, target)
        assert PAGES[page.name].number == number, (path.name, number, target)


@pytest.mark.parametrize("derivation", derivations(), ids=lambda one: one.number)
def test_tests_and_studies_that_a_page_names_are_there(derivation):
    assert all((TOP / name).is_file() for name in derivation.tests)
    listed = re.findall(r"(?:study|studies)\s((?:`\w+`(?:,\s| and\s)?)+)", derivation.text)
    assert {name for found in listed for name in re.findall(r"`(\w+)`", found)} <= set(studies())
    assert derivation.tests or listed, "nothing checks it"


def test_a_statement_is_derived_where_a_page_lists_it_or_its_source_says():
    assert [one.number for one in proofs_of("U7", "arXiv 2603.01162, Lemma 6")] == ["7"]
    assert [one.number for one in proofs_of("U8", "docs/derivations.md, 7")] == ["7", "7.1"]
    assert [one.number for one in proofs_of("T7", "docs/derivations.md, 25 docs/derivations.md, 16")] == ["16", "25.1", "29"]
    assert [one.number for one in proofs_of("plan/loss", "docs/derivations.md, 35")] == ["35"]
    assert proofs_of("U99", "arXiv 2603.01162") == []


def test_docstrings_are_read_as_the_plain_text_that_they_are():
    assert escape("E[Z | x], a*b and sketch_, sketch_0") == r"E[Z \| x], a\*b and sketch\_, sketch_0"
    assert escape("`a*b | c_` all stays, and **bold** too") == "`a*b | c_` all stays, and **bold** too"
