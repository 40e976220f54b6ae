"""The evidence in the documentation: every planned quantity has its function, and the reference says what was measured of it."""

import pytest

import grpo_theory as gt
from docs.making.evidence import COVERAGE, TEXTS, VERDICTS, measured
from docs.making.places import DOCS
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


def test_a_function_of_which_nothing_was_measured_has_no_lines():
    assert measured("group_size_law") == []


FAR = r"drift (?:0\.4|1)$"
SAID = {
    "T6/most": {"T = 2": ("derivations/drift", "findings/token_ratios"), "T = 4": ("derivations/drift",)}
    | {"T = 6": ("derivations/drift",), "T = 8": ("derivations/drift", "findings/token_ratios")},
    "T6/clipped": {rf"T = [2468], learning, {FAR}": ("derivations/drift", "findings/token_ratios")}
    | {rf"T = [2468], random, {FAR}": ("findings/token_ratios",)},
    "T6/trained": {"": ("derivations/drift", "sequences", "findings/token_ratios")},
    "T8/trained": {"": ("sequences", "findings/token_ratios")},
    "T7/direction": {rf"T = [468], \w+, {FAR}": ("derivations/drift",)},
    "T8/gradient": {rf"drift {drift}$": ("derivations/drift",) for drift in (r"0\.1", r"0\.4", "1")},
    "T8/token": {"drift 1$": ("derivations/drift",)},
}
"""On which pages the range of the shares stands in which claims fail, by the settings meant."""


@pytest.mark.parametrize(
    ("name", "settings", "page"),
    [(name, settings, page) for name, said in SAID.items() for settings, pages in said.items() for page in pages],
)
def test_ranges_of_shares_are_those_of_the_verdicts(name, settings, page):
    rows = VERDICTS[(VERDICTS["id"] == name) & VERDICTS["problem"].str.contains(settings)]
    text = " ".join((DOCS / f"{page}.md").read_text(encoding="utf-8").split())
    assert f"{rows['estimate'].min():.0%} to {rows['estimate'].max():.0%}" in text


@pytest.mark.parametrize("page", ["sequences", "findings/token_ratios"])
@pytest.mark.parametrize("ending", ["trained", "four times the step"])
def test_leads_of_the_clip_at_the_end_of_training_are_those_of_the_verdicts(page, ending):
    leads = 100.0 * VERDICTS.loc[VERDICTS["id"] == f"T8/dropped, {ending}", "estimate"]
    text = " ".join((DOCS / f"{page}.md").read_text(encoding="utf-8").split())
    assert f"from {-leads.min():.1f} points behind to {leads.max():.1f} points ahead" in text


@pytest.mark.parametrize("page", ["sequences", "findings/token_ratios"])
def test_what_dropping_the_ratio_costs_at_the_clips_step_is_in_the_verdicts(page):
    lost = 100.0 * VERDICTS.loc[VERDICTS["id"] == "T8/dropped, several passes at the step of the clip", "estimate"]
    text = " ".join((DOCS / f"{page}.md").read_text(encoding="utf-8").split())
    assert f"At the clip's best step it lost {lost.min():.1f} to {lost.max():.1f} points" in text


def test_who_is_certainly_behind_is_counted_by_verdict():
    text = " ".join((DOCS / "findings" / "token_ratios.md").read_text(encoding="utf-8").split())
    lags = [
        (VERDICTS.loc[VERDICTS["id"] == f"T8/clip, {ending}", "verdict"] == "refuted").sum()
        for ending in ("trained", "four times the step")
    ]
    assert f"in {lags[0]} of 28 settings at the best step. At four times that step it does so in {lags[1]}." in text
    dropped = VERDICTS["id"].isin([f"T8/dropped, {ending}" for ending in ("trained", "twice the step", "four times the step")])
    assert "refuted" not in set(VERDICTS.loc[dropped, "verdict"])


@pytest.mark.parametrize("page", ["derivations/drift", "findings/token_ratios"])
def test_ratios_without_a_clip_point_away_as_seldom_as_is_said(page):
    most = VERDICTS.loc[VERDICTS["id"] == "T6/unclipped, trained", "estimate"].max()
    text = " ".join((DOCS / f"{page}.md").read_text(encoding="utf-8").split())
    assert f"at most {most:.0%} " in text


def test_what_many_parameters_change_is_in_the_verdicts():
    rows = VERDICTS[VERDICTS["id"] == "T6/clipped"].set_index("problem")["estimate"]
    near, far = (f"{rows[f'T = 8, 200 parameters, learning, drift {drift}']:.0%}" for drift in ("0.4", "1"))
    text = " ".join((DOCS / "findings" / "token_ratios.md").read_text(encoding="utf-8").split())
    assert f"With 200 parameters and eight tokens it does in {near} at a drift of 0.4, and in {far} at 1" in text


@pytest.mark.parametrize("page", ["findings/token_ratios"])
def test_no_ratio_is_nearer_to_the_gradient_in_as_many_settings_as_is_said(page):
    rows = VERDICTS[VERDICTS["id"] == "T8/nearer, trained"]
    assert (rows["estimate"] < 0.0).all()
    text = " ".join((DOCS / f"{page}.md").read_text(encoding="utf-8").split())
    assert f"in all {len(rows)} settings" in text


def test_the_gains_of_steps_are_those_of_the_verdicts():
    text = (DOCS / "derivations" / "efficiency.md").read_text(encoding="utf-8")
    lines = text.partition("<!-- gains -->\n")[2].partition("<!-- end of gains -->")[0].splitlines()[2:]
    rows = VERDICTS[VERDICTS["id"] == "efficiency/gain"]
    said = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]
    found = zip(rows["problem"], rows["prediction"], rows["estimate"], strict=True)
    assert said == [(problem, f"{own:.3f}", f"{gain:.3f}") for problem, own, gain in found]
