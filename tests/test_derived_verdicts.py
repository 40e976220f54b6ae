"""Every verdict follows from its row: the program that the page of the report shows derives it from the committed table alone."""

import runpy

import pandas as pd
from pages import DOCS

from grpo_theory.evidence import PARTS
from simulations.collection import catalogue

PROGRAM = DOCS.parent / "examples" / "derive_verdicts.py"


def test_the_program_of_the_page_derives_all_verdicts(monkeypatch, capsys):
    monkeypatch.chdir(DOCS.parent)
    names = runpy.run_path(str(PROGRAM))
    table, derived, told = names["table"], names["derived"], names["told"]
    assert len(derived) == len(table) > 3000
    assert table.assign(derived=derived)[told != derived].empty
    assert capsys.readouterr().out == f"{len(table):,} claims, of which 0 are derived otherwise\n"
    assert len([line for line in PROGRAM.read_text(encoding="utf-8").splitlines() if line.strip()]) <= 36


def test_the_program_tells_every_verdict_from_others(monkeypatch):
    """With limits, control and sound case moved, the derived verdicts are those of the moved rows."""
    monkeypatch.chdir(DOCS.parent)
    verdict, table = runpy.run_path(str(PROGRAM))["verdict"], pd.read_csv(DOCS / "verdicts.csv", keep_default_na=False)
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
