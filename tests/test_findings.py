"""The findings: each note's program shows what it says, and its table is what the verdicts have."""

import re

import pandas as pd
import pytest
from pages import DOCS, SAID, blocks, run_blocks

from grpo_theory.page.digest import evidence
from simulations.collection import catalogue

NOTES = sorted(path for path in (DOCS / "findings").glob("*.md") if path.name != "index.md")
VERDICTS = pd.read_csv(DOCS / "verdicts.csv", keep_default_na=False)
TABLE = re.compile(r"<!-- evidence: (.+?) -->\n\n(.*?)\n<!-- end of evidence -->", flags=re.DOTALL)


@pytest.mark.parametrize("path", NOTES, ids=lambda path: path.stem)
def test_a_notes_program_shows_what_it_says_and_its_table_is_what_the_verdicts_have(path, registry, tmp_path):
    page = path.read_text(encoding="utf-8")
    (block,) = blocks(page)
    assert SAID.search(block), "a program shows a number"
    run_blocks(page, tmp_path)
    ((names, table),) = TABLE.findall(page)
    assert table == evidence(VERDICTS, names.split("; "), catalogue())


NOT_REFUTED = ("curvature", "whole_runs")
"""Constants that are loose, and two statements that hold in different worlds."""


def test_every_note_but_two_refutes_something_as_printed():
    """And no note shows a correction that was not confirmed."""
    powerful = VERDICTS[VERDICTS["control"] == "refuted"].groupby("id")["verdict"].agg(set)
    for path in NOTES:
        names = TABLE.search(path.read_text(encoding="utf-8"))[1].split("; ")
        papers = [name for name in names if catalogue()[name].whose == "paper"]
        corrections = [name for name in names if catalogue()[name].whose == "correction"]
        assert any("refuted" in powerful[name] for name in papers) == (path.stem not in NOT_REFUTED), path.stem
        assert all("refuted" not in powerful[name] for name in corrections), path.stem


def test_another_verdict_makes_another_table():
    columns = ["id", "problem", "verdict", "control", "estimate", "low", "high", "prediction"]
    rows = [("easy", "refuted", "refuted", 1.25), ("hard", "refuted", "refuted", 4.0), ("weak", "confirmed", "inconclusive", 0.1)]
    table = pd.DataFrame([("N6/printed", *words, one, one, one, 1.0) for *words, one in rows], columns=columns)
    assert evidence(table, ["N6/printed"], catalogue()).splitlines()[-1].endswith("| **refuted** (2) | 1.25 to 4 | 1 |")
