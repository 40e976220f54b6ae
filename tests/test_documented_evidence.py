"""The evidence in the documentation: every planned quantity has its function, and the reference says what was measured of it."""

import pytest

import grpo_theory as gt
from docs.making.evidence import COVERAGE, SHOWN, TEXTS, VERDICTS, coverage_table, measured
from docs.making.places import DOCS
from tools.write_evidence import COVERAGE as COVERAGES
from tools.write_evidence import PLANNED


def test_every_quantity_of_a_plan_has_its_function():
    assert set(PLANNED) == set(TEXTS)
    assert set(PLANNED.values()) <= set(dir(gt.plan))


def test_the_reference_says_how_often_plans_hold():
    for quantity, function in PLANNED.items():
        lines = [line for line in measured(function) if TEXTS[quantity] in line]
        points = VERDICTS[VERDICTS["id"] == f"plan/{quantity}"]
        designs = COVERAGE[(COVERAGE["interval"] == function) & (COVERAGE["target"] == quantity)]
        assert len(lines) == len(points) + len(designs) > 0
        for row in points.itertuples():
            assert any(f"{1.0 - row.estimate:.1%} ({row.problem})" in line for line in lines)


def test_the_table_of_coverages_is_that_of_the_file():
    table = COVERAGES.search((DOCS / "coverage.md").read_text(encoding="utf-8"))
    assert table[0] == f"<!-- coverages -->\n{coverage_table(COVERAGE)}\n<!-- end of coverages -->"
    assert set(SHOWN) <= set(COVERAGE["interval"]) & set(dir(gt.intervals))


FAR = r"drift (?:0\.4|1)$"
SAID = [
    ("T6/most", "T = 2", "derivations/drift"),
    ("T6/most", "T = 8", "findings/token_ratios"),
    ("T6/clipped", rf"T = [2468], learning, {FAR}", "derivations/drift"),
    ("T6/clipped", rf"T = [2468], random, {FAR}", "findings/token_ratios"),
    ("T6/trained", "", "three_questions"),
    ("T8/trained", "", "three_questions"),
    ("T7/direction", rf"T = [468], \w+, {FAR}", "derivations/drift"),
    ("T8/gradient", r"drift 0\.4$", "derivations/drift"),
    ("T8/token", "drift 1$", "derivations/drift"),
]
"""Statement, settings and page on which the range of the shares stands in which its claims fail."""


@pytest.mark.parametrize(("name", "settings", "page"), SAID)
def test_ranges_of_shares_are_those_of_the_verdicts(name, settings, page):
    rows = VERDICTS[(VERDICTS["id"] == name) & VERDICTS["problem"].str.contains(settings)]
    text = " ".join((DOCS / f"{page}.md").read_text(encoding="utf-8").split())
    assert f"{rows['estimate'].min():.0%} to {rows['estimate'].max():.0%}" in text


def test_the_gains_of_steps_are_those_of_the_verdicts():
    text = (DOCS / "derivations" / "efficiency.md").read_text(encoding="utf-8")
    lines = text.partition("<!-- gains -->\n")[2].partition("<!-- end of gains -->")[0].splitlines()[2:]
    rows = VERDICTS[VERDICTS["id"] == "efficiency/gain"]
    said = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]
    found = zip(rows["problem"], rows["prediction"], rows["estimate"], strict=True)
    assert said == [(problem, f"{own:.3f}", f"{gain:.3f}") for problem, own, gain in found]
