"""The table of what papers print: whose verdict a row has, its worst setting, and what it is found by."""

import pandas as pd
import pytest

from docs.making.evidence import VERDICTS
from docs.making.places import DOCS
from grpo_theory.page.printed import printed
from grpo_theory.page.wording import verdict
from simulations.collection import collection
from simulations.sources import PAPERS
from tools.write_evidence import THEOREMS, with_theorems

COLUMNS = ["id", "problem", "verdict", "control", "estimate", "low", "high", "prediction"]
ROWS = {row.title: row for row in printed(collection(), VERDICTS, PAPERS)}
PAGE = (DOCS / "theory.md").read_text(encoding="utf-8")
ERROR, NORMALISATION = "arXiv 2603.01162", "arXiv 2601.23135"


def made(*rows):
    """Return rows of claims.csv: id, problem, verdict, control, estimate and prediction."""
    return pd.DataFrame([(*row[:4], row[4], row[4], row[4], row[5]) for row in rows], columns=COLUMNS)


def only(*rows):
    """Return the one row of a table that is made up."""
    (row,) = printed(collection(), made(*rows), PAPERS)
    return row


def test_the_committed_table_is_what_the_verdicts_have():
    assert len(THEOREMS.findall(PAGE)) == 1
    assert with_theorems(PAGE, VERDICTS) == PAGE
    other = VERDICTS.assign(verdict=VERDICTS["verdict"].replace("refuted", "confirmed"))
    assert with_theorems(PAGE, other) != PAGE


@pytest.mark.parametrize(
    ("title", "name", "word", "instead"),
    [
        (f"Theorem 7, {ERROR}", "U9", "refuted", "1 + sqrt(c_3/c_1)"),
        (f"Lemma 14, {ERROR}", "U8/lemma/printed", "refuted", "n_0 that is at least A"),
        (f"Theorem 2, {ERROR}", "U3", "confirmed", "sharper: "),
        (f"Theorem 3.2, {NORMALISATION}", "N6", "refuted", "(8/(3T)) (1/T) sum_t"),
        (f"Theorem 3.4, {NORMALISATION}", "N8/divided gain", "refuted", "(8/(3T)) (1/T) sum_t"),
        (f"N10, {NORMALISATION}", "N10", "not reproduced here", ""),
    ],
)
def test_a_row_is_of_the_statements_of_its_number(title, name, word, instead):
    row = ROWS[title]
    assert (row.id, row.verdict) == (name, word)
    assert instead in row.instead
    assert bool(row.instead) == bool(instead)
    assert bool(row.gap) == (word in ("refuted", "not reproduced here"))


def test_of_several_parts_the_one_with_the_verdict_is_shown():
    (row,) = [row for row in ROWS.values() if row.id == "pkpo/variance"]
    assert row.parts[0].startswith("with the baseline of equation 33 the covariance has a trace")
    assert row.brief == f"{row.parts[0]} (of 3)"


def test_what_is_printed_elsewhere_in_a_paper_has_a_row_and_a_verdict_of_its_own():
    """A verdict is of what its place says: Appendix A of Dr. GRPO holds, what section 3.2 draws from it does not."""
    found = {row.number: row for row in ROWS.values() if row.paper == "2503.20783"}
    assert found["Appendix A"].verdict == "confirmed"
    refuted = found["Section 3.2 and Appendix A"]
    assert refuted.verdict == "refuted"
    assert refuted.parts == ("with the group's mean as baseline, own reward included, the mean update is the gradient grad J",)


def test_one_refuted_setting_of_one_printed_part_refutes():
    good = [("U9/best/printed", f"p{i}", "confirmed", "refuted", 2.0, 2.0) for i in range(5)]
    assert only(*good).verdict == "confirmed"
    assert only(*good, ("U9/bound/printed", "bad", "refuted", "refuted", 3.0, 2.0)).verdict == "refuted"
    assert only(*good, ("U9/bound/printed", "bad", "refuted", "inconclusive", 3.0, 2.0)).verdict == "refuted"
    assert only(*good, ("U9/bound/printed", "bad", "no power", "inconclusive", 1.0, 2.0)).verdict == "mixed"
    assert only(*good, ("U9/bound/corrected", "bad", "refuted", "refuted", 3.0, 2.0)).verdict == "confirmed"
    assert only(*good, ("U9/printed", "bad", "refuted", "refuted", 3.0, 2.0)).verdict == "confirmed", "a question of ours"


def test_the_gap_is_that_of_the_worst_setting_with_power():
    row = only(
        ("N6/printed", "near", "refuted", "refuted", 2.0, 1.0),
        ("N6/printed", "far", "refuted", "refuted", -5.0, 1.0),
        ("N6/printed", "weak", "no power", "inconclusive", 90.0, 1.0),
        ("N6/printed", "held", "confirmed", "refuted", -50.0, 1.0),
        ("N6/gain", "other", "refuted", "refuted", 40.0, 10.0),
    )
    assert row.gap == "N6/printed: found -5, stated at most 1 (far)"
    row = only(("U16/printed", "small", "refuted", "refuted", 0.2, 0.0), ("U16/printed", "large", "refuted", "refuted", 0.3, 0.0))
    assert row.gap == "found 0.3, stated 0 (large)"


WORDS = {
    ("inconclusive",): "inconclusive",
    ("confirmed", "inconclusive"): "confirmed",
    ("reproduced here", "not reproduced here"): "mixed",
    ("not reproduced here", "inconclusive"): "not reproduced here",
    ("reproduced here", "refuted"): "refuted",
}


def test_a_verdict_in_a_word():
    rows = [made(*(("U1", f"p{i}", one, "refuted", 0.0, 0.0) for i, one in enumerate(verdicts))) for verdicts in WORDS]
    assert [verdict(one) for one in rows] == list(WORDS.values())
