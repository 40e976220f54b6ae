"""Every verdict follows from its row: the program on the page of the report derives it from the committed table alone."""

import pandas as pd
from pages import DOCS, blocks, run_blocks

from grpo_theory.evidence import PARTS
from simulations.collection import catalogue

PAGE = (DOCS / "report.md").read_text(encoding="utf-8")
MEASURED = {"reproduced here": "confirmed", "not reproduced here": "refuted"}
"""What a verdict on a paper's measurement is otherwise called."""


def test_the_program_of_the_page_derives_all_verdicts(tmp_path, monkeypatch):
    monkeypatch.chdir(DOCS.parent)
    names = run_blocks(PAGE, tmp_path)
    table, derived = names["table"], names["derived"]
    assert len(derived) == len(table) > 3000
    told = table["verdict"].replace(MEASURED)
    assert table.assign(derived=derived)[told != derived].empty
    assert len([line for line in blocks(PAGE)[0].splitlines() if line.strip()]) <= 34


def test_the_program_tells_every_verdict_from_others(tmp_path, monkeypatch):
    """With limits, control and sound case moved, the derived verdicts are those of the moved rows."""
    monkeypatch.chdir(DOCS.parent)
    verdict, table = run_blocks(PAGE, tmp_path)["verdict"], pd.read_csv(DOCS / "verdicts.csv", keep_default_na=False)
    row = next(one for one in table.itertuples() if one.kind == "upper bound" and one.verdict == "confirmed")
    above = dict.fromkeys(("estimate", "low", "high", "outer_low", "outer_high"), row.prediction + 1.0)
    assert verdict(row._replace(**above)) == "refuted"
    assert verdict(row._replace(**above, sound="refuted")) == "no power"
    assert verdict(row._replace(**above | {"outer_low": row.prediction - 1.0})) == "inconclusive"
    assert verdict(row._replace(control_low=row.control_prediction)) == "no power"


def test_the_statements_stand_beside_their_verdicts():
    stated = pd.read_csv(DOCS / "statements.csv", keep_default_na=False).set_index("id")
    known = {name: one for name, one in catalogue().items() if one.kind != PARTS}
    assert set(stated.index) == set(known)
    assert all(stated.loc[name, "text"] == one.text and stated.loc[name, "source"] == one.source for name, one in known.items())
    margins = {name: one.margin.value for name, one in known.items() if one.margin}
    assert {name: float(stated.loc[name, "margin"]) for name in margins} == margins
    assert set(pd.read_csv(DOCS / "verdicts.csv", keep_default_na=False)["id"]) <= set(known)
