"""Captions say how to read a figure, and of results only what the tables of the run have."""

import numpy as np
import pandas as pd
import pytest

from grpo_theory.page.captions import caption_of, listed, sides, signed, spanned
from paper_figures import time_to_level
from paper_figures.discovery import figures


def frame(**columns):
    """Return a table of all combinations of the columns' values."""
    made = pd.MultiIndex.from_product(columns.values(), names=columns).to_frame(index=False)
    return made.assign(estimate=0.5, standard_error=0.01)


def race(found):
    """Return a table of arms with differences in several settings."""
    rows = [
        {"arm": arm, "inner_steps": 4 * (i + 1), "estimate": difference, "standard_error": 1.0}
        for arm, differences in found.items()
        for i, difference in enumerate(differences)
    ]
    made = pd.DataFrame(rows).assign(quantity="ablation", batch_size=16, group_size=8)
    return made.assign(updates=11 * made["inner_steps"])


DESIGN = {"part": ["design"], "prompts": [3, 5]}


@pytest.mark.parametrize(
    ("name", "columns", "words"),
    [
        ("full_gradient", {"quantity": ["prompt"], "gradient": ["all parameters"], "n": range(40)}, "40"),
        ("questions", {"batch_size": [4], "group_size": [8]}, "8"),
        ("phases", {"how": ["exact", "sampled"]}, "sampled groups (G = 8, B = 32)"),
        (
            "planned_group_size",
            DESIGN | {"arm": ["planned"], "size": [8, 16], "replications": [30]},
            "pilots of 3 and 5 prompts with 8 and 16 responses each, 30 answered pilots per point",
        ),
    ],
)
def test_settings_are_those_of_the_tables(name, columns, words):
    (table,) = figures()[name].TABLES
    assert words in caption_of(figures()[name], {table: frame(**columns)})


def test_a_race_says_on_which_side_its_intervals_lie():
    def said(found):
        return caption_of(time_to_level, {"time_to_level": race(found)})

    clip, tic = "\u201ctoken ratio, upper-only clip\u201d", "\u201ctrajectory ratio, upper-only clip: TIC\u201d"
    for difference, words in ((-5.0, "lies below 0"), (5.0, "lies above 0"), (-1.9, "holds 0"), (1.9, "holds 0")):
        assert f"The interval {words} in this setting of {clip}." in said({"clip alone": [difference]})
        assert f"The interval {words} in all settings of {clip}." in said({"clip alone": [difference] * 2})
    mixed = said({"clip alone": [-5.0, 0.0], "TIC": [-5.0, -2.0], "neither": [0.0, 0.0], "broken": [9.0, 9.0]})
    assert f"in all settings of {tic}." in mixed
    assert f"depends on the setting on which side it lies of {clip}." in mixed
    assert mixed.count("The interval") == 1, "neither the arm itself nor the control is said anything of"


def test_words_of_numbers():
    assert (listed([32]), listed(np.array([32, 256, 2048])), listed("ab")) == ("32", "32, 256 and 2,048", "a and b")
    assert (spanned([2048, 32]), spanned([7, 7])) == ("32 to 2,048", "7")
    rows = pd.DataFrame({"estimate": [-2.0, -1.9, 1.9, 2.0], "standard_error": [1.0] * 4})
    assert sides(rows).tolist() == ["below", "astride", "astride", "above"]


def test_minus_is_no_hyphen_and_nought_has_no_sign():
    for number, form, text in (
        (-0.03, ".2f", "\u22120.03"),
        (-0.001, ".2f", "0.00"),
        (0.04, "+.1f", "0.0"),
        (1.25, "+.1f", "+1.2"),
    ):
        assert signed(number, form) == text
