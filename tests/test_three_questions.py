"""The front: its sentences are what its tables say, and these are what exact laws and the verdicts say."""

import re

import numpy as np
import pandas as pd
import pytest
from pages import DOCS

import grpo_theory as gt
from paper_figures.content import front
from simulations.gradient.efficiency import measures
from simulations.training.passes import PROBLEMS

PAGES = ("README.md", "docs/three_questions.md", "docs/division.md")
README, PAGE, DIVISION = ((DOCS.parent / name).read_text(encoding="utf-8") for name in PAGES)
VERDICTS = pd.read_csv(DOCS / "verdicts.csv", keep_default_na=False)
POWERFUL = VERDICTS[VERDICTS["control"] == "refuted"]
FULL = r"correlation 0\.2, easy, |correlation 0\.7, easy, Adam"
"""Where success without division is above 99%."""
HEADS = ("lm-zero-shot", "lm-few-shot", "lm-instruct")


def claims(name, pattern=""):
    """Return the verdicts of a claim in the settings that match."""
    return POWERFUL[(POWERFUL["id"] == name) & POWERFUL["problem"].str.contains(pattern)]


def rows(page, which):
    """Return the rows of a table, each as cells by the words of the head."""
    part = page.partition(f"<!-- table: {which} -->\n")[2].partition("<!-- end of table -->")[0]
    head, _, *lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in part.split("\n") if line]
    return [dict(zip(head, line, strict=True)) for line in lines]


def numbers(text):
    return [float(found.replace(",", "")) for found in re.findall(r"[-+]?\d[\d,]*\.?\d*", text)]


FRONT = rows(README, "front")
ROWS = [row for which in front.QUESTIONS for row in rows(PAGE + DIVISION, which)]


def told(text, number):
    """Return the words of one of the three questions, on one line."""
    found = re.search(rf"^{number}\. (.+?)(?=^\d\. |^<!--|\n\n|\Z)", text, flags=re.DOTALL | re.MULTILINE)
    return " ".join(found[1].split())


def only(setting, compared, table=ROWS):
    """Return the one row whose setting and comparison contain some words."""
    (row,) = [row for row in table if setting in row["setting"] and compared in row["compared"]]
    return row


def test_the_readmes_rows_are_those_of_the_page():
    assert 3 <= len(FRONT) <= 9
    page = {(row["setting"], row["compared"], row["estimate"], row["95% limits"]) for row in ROWS}
    for row in FRONT:
        assert (row["setting"], row["compared"], row["estimate"], row["95% limits"]) in page


def test_the_most_efficient_sizes_are_what_the_exact_laws_say():
    for name, shown in (("rloo", "RLOO"), ("grpo", "GRPO")):
        best = [2 + measures(gt.gallery.problem(one), name, range(2, 17))["efficiency"].argmax() for one in HEADS]
        assert set(numbers(only("SmolLM2's head", f"most efficient size, {shown}")["estimate"])) == {min(best), max(best)}


def test_what_division_gains_is_what_the_verdicts_have():
    assert np.ptp(gt.theory.finite_group_objective("grpo", 3).coefficients) < 1e-12, "in groups of 3 dividing only multiplies"
    pays = claims("division/pays")
    sizes = pays["problem"].str.extract(r"G = (\d+)$")[0].astype(int)
    heads = pays["problem"].str.startswith("lm-") & pays["problem"].str.contains("Adam")
    for words, kept in (("groups of 8", sizes == 8), ("groups of 16 to 64", sizes >= 16)):
        gains = -100.0 * pays.loc[heads & kept, "estimate"]
        row = only("SmolLM2's head, one-digit answers, Adam", words)
        assert numbers(row["estimate"]) == pytest.approx([gains.min(), gains.max()], abs=0.051)
    large = pays[sizes >= 8]
    full = large["problem"].str.contains(FULL)
    counts = large.loc[~full, "verdict"].value_counts()
    assert f"Of {len(large)} settings with groups of 8 or more {full.sum()} left no room for a gain of a point." in told(PAGE, 2)
    words = "Of the {} others it is certain in {confirmed}, excluded in {refuted} and undecided in {inconclusive}."
    assert words.format((~full).sum(), **counts) in told(PAGE, 2)
    exceeded = claims("N6/printed", "4096")["estimate"].max(), claims("N8/divided sum", "one prompt, two")["estimate"].max()
    assert "it is {:.1f} times its bound with eight prompts, and {:.0f} times with one".format(*exceeded) in told(PAGE, 2)
    assert set(claims("N6/gain")["verdict"]) == {"confirmed"}


def test_what_the_clip_does_is_what_the_verdicts_have():
    for name, words in (("T6/trained", "with the clip"), ("T8/trained", "no ratio"), ("T6/unclipped, trained", "unclipped")):
        away = claims(name)["estimate"]
        assert len(away) == 24
        shares = only("small policies", f"points away, {words}" if words != "unclipped" else "ratio unclipped")["estimate"]
        assert shares == f"{away.min():.0%} to {away.max():.0%}"
    lead = 100.0 * claims("T8/dropped, trained")["estimate"]
    assert numbers(only("small policies", "at the best rates")["estimate"]) == pytest.approx([lead.min(), lead.max()], abs=0.051)
    assert "refuted" not in set(claims("T8/dropped, trained")["verdict"]), "no lead of a point is certain"
    assert "refuted" not in set(claims("T8/clip, trained")["verdict"]), "no lag of a point is certain"
    lost = 100.0 * claims("T8/dropped, several passes at the step of the clip")["estimate"]
    assert f"ended {lost.min():.1f} and {lost.max():.1f} points behind the clip, over {PROBLEMS} problems" in told(PAGE, 3)
