"""Captions say how to read a figure, and of results only what the tables of the run have; so do the words of the sections."""

import re

import numpy as np
import pandas as pd
from typed import caption_in, results_in

from grpo_theory.page.captions import caption_of, listed, sides, signed, spanned
from paper_figures import time_to_level
from paper_figures.content.sections import LEAD, SECTIONS
from paper_figures.discovery import figures

TYPED_BEFORE = (
    "The upper-only clip helps, the trajectory ratio hardly does",
    "from pilots of 32 to 2,048 prompts with 2, 8 or 64 responses each",
    "With a KL penalty and free logits c1 vanishes and the best group size grows without bound.",
    "Left: per prompt, falling as 1/G.",
    "at six checkpoints of training",
)
"""Of captions as they were."""


def test_captions_and_sections_hold_no_typed_result():
    texts = {name: caption_in(module) for name, module in figures().items()}
    assert all(text.endswith(".") or text.endswith(("{}", ")")) for text in texts.values())
    texts |= {section.anchor: f"{section.title}. {section.asks}" for section in SECTIONS} | {"lead": LEAD}
    assert {name: found for name, text in texts.items() if (found := results_in(text))} == {}
    assert [text for text in TYPED_BEFORE if not results_in(text)] == []


def frame(**columns):
    """Return a table of all combinations of the columns' values."""
    made = pd.MultiIndex.from_product(columns.values(), names=columns).to_frame(index=False)
    return made.assign(estimate=0.5, standard_error=0.01)


def race(found, scale=1):
    """Return a table of arms with differences in several settings."""
    rows = [
        {"arm": arm, "inner_steps": 4 * scale * (i + 1), "estimate": difference, "standard_error": 1.0}
        for arm, differences in found.items()
        for i, difference in enumerate(differences)
    ]
    made = pd.DataFrame(rows).assign(quantity="ablation", batch_size=16 * scale, group_size=8 * scale)
    return made.assign(updates=11 * scale * made["inner_steps"])


def made_up(k):
    """Return tables for each figure whose caption reads them, with settings that differ between k = 1 and k = 2."""
    both, design = [3 * k, 5 * k], {"part": ["design"], "prompts": [3 * k, 5 * k]}
    training = {"statement": [""], "problem": ["linear"], "schedule": ["Constant(8)"]}
    laws = {"quantity": ["step"], "law": [f"law {i}" for i in range(3 * k)]}
    curves = {"part": ["curve"], "measure": ["coverage"], "level": [0.95], "target": ["value"], "batch_size": both}
    return {
        "full_gradient": ("full_gradient", frame(quantity=["prompt"], gradient=["all parameters"], n=range(40 * k))),
        "coverage_by_group_size": ("coverage", frame(**curves)),
        "group_size_budgets": ("group_size", frame(**training, budget=[100 * k, 900 * k], checkpoint=[1, 7 * k])),
        "rewards_alone": ("plan_coverage", frame(**design, **laws, size=[11 * k])),
        "questions": ("questions", frame(batch_size=[4 * k], group_size=[8 * k])),
        "estimators": ("estimators", frame(batch_size=[4 * k])),
        "ratio_moment": ("ratio_moments", frame(tree=range(7 * k))),
        "one_step_gain": ("one_step", frame(how=["point"], guarantee=["N5/gain"], answers=both)),
        "phases": ("phase_course", frame(how=["exact", "sampled"][: 3 - k])),
        "planned_group_size": ("planned_group_size", frame(**design, arm=["planned"], size=[8, 16], replications=[30 * k])),
        "time_to_level": ("time_to_level", race({"clip alone": [-5.0], "TIC": [0.0]}, scale=k)),
    }


def test_settings_are_those_of_the_tables():
    """Words stay and numbers follow; but for phases, where the sentence on sampled groups goes with their rows."""
    made = {k: {name: caption_of(figures()[name], dict([pair])) for name, pair in made_up(k).items()} for k in (1, 2)}
    assert set(made[1]) == {name for name, module in figures().items() if hasattr(module, "settings")}
    assert not [name for name, text in made[1].items() if text == made[2][name] or not text.endswith(".")]
    bare = {k: {name: re.sub(r"\d+(,\d+)*", "#", text) for name, text in texts.items()} for k, texts in made.items()}
    assert {name for name in bare[1] if bare[1][name] != bare[2][name]} == {"phases"}
    assert "sampled groups (G = 8, B = 32)" in made[1]["phases"]
    assert "sampled groups" not in made[2]["phases"]
    for name, words in (
        ("planned_group_size", "pilots of 3 and 5 prompts with 8 and 16 responses each, 30 answered pilots per point"),
        ("rewards_alone", "3 and 5 prompts with 11 responses each"),
        ("rewards_alone", "of the 3 that were tried"),
        ("group_size_budgets", "after 7 steps, with N = 100 and 900 responses per step"),
    ):
        assert words in made[1][name]


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
