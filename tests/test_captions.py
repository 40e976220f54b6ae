"""Captions say how to read a figure, and of results only what the tables of the run have; so do the words of the sections."""

import ast
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typed import captions_in, names_in, results_in

from grpo_theory.harness.store import read_table
from grpo_theory.page.captions import caption_of, listed, sides, spanned
from paper_figures import time_to_level
from paper_figures.content.report import LEAD
from paper_figures.content.sections import SECTIONS
from paper_figures.discovery import figures

ROOT = Path(__file__).resolve().parents[1]
SOURCES = {name: Path(module.__file__).read_text(encoding="utf-8") for name, module in figures().items()}
COMPUTED = [name for name, module in figures().items() if hasattr(module, "caption")]

TYPED_BEFORE = (
    "The upper-only clip helps, the trajectory ratio hardly does",
    "what drops ratio and clip altogether is the first at the level",
    "100 pilots a point",
    "from pilots of 32 to 2,048 prompts with 2, 8 or 64 responses each",
    "Widths that do not shrink are of bounds: no number of prompts tells what so few responses to each leave open.",
    "N times the loss of the learned policy after 32 steps, at the three budgets of Table 2 of arXiv 2603.01162",
    "to first order in the noise (line) one curve serves all budgets, and so does one best group size.",
    "A group size that follows the policy is as good as the best fixed one, which is known only in hindsight.",
    "Right answers have the smaller gradients, so that no baseline beats the group's mean",
    "SmolLM2-135M-Instruct, 129 questions, 32 sampled answers each",
    "With a KL penalty and free logits c1 vanishes and the best group size grows without bound.",
    "With many comparable weights the gap itself is nearly normal",
    "In the head's own coordinates (left) the hidden states nearly coincide (|cos| = 0.97)",
    "Left: per prompt, falling as 1/G.",
    "the printed 5/2 is 4.3 times the sharp constant",
    "The bound printed for division by T has a floor of order 1/G, the runs have none",
    "the first one moves it by 0.001 nats",
    "with the range over 20 random trees",
    "Simulation with 95% intervals (mostly smaller than the marker)",
    "at six checkpoints of training",
)
"""Of the captions as they were."""


@pytest.mark.parametrize("name", figures())
def test_a_caption_holds_no_typed_result(name):
    texts = captions_in(SOURCES[name])
    assert texts
    for text in texts:
        assert not results_in(text), text


@pytest.mark.parametrize("text", TYPED_BEFORE)
def test_what_captions_said_before_is_refused(text):
    assert results_in(text)


@pytest.mark.parametrize("text", [LEAD, *(text for section in SECTIONS for text in (section.title, section.asks))])
def test_sections_state_no_result(text):
    assert not results_in(text), text


@pytest.mark.parametrize("name", figures())
def test_constants_of_captions_are_those_of_the_drawing_or_of_the_study(name):
    """A number that only the caption knows would be a typed one."""
    body = ast.parse(SOURCES[name]).body
    imported = {alias.name for node in body if isinstance(node, ast.ImportFrom) for alias in node.names}
    own = [node for node in body if isinstance(node, ast.Assign) and "CAPTION" in names_in(node.targets)]
    own += [node for node in body if isinstance(node, ast.FunctionDef) and node.name == "caption"]
    drawing = [node for node in body if isinstance(node, ast.FunctionDef) and node.name != "caption"]
    drawn = {*names_in(drawing), *re.findall(r"@([A-Z_]+)", SOURCES[name]), *imported}
    defined = {target: node.value for node in body if isinstance(node, ast.Assign) for target in names_in(node.targets)}
    for constant in set(names_in(own)) & set(defined) - {"CAPTION"}:
        assert constant in drawn or imported & set(names_in([defined[constant]])), constant


COLOURS = {
    "blue": {"BLUE", "SKY", "#0072B2"},
    "orange": {"ORANGE", "VERMILION", "#D55E00"},
    "grey": {"GREY", "#7F7F7F", "#E4E4E4"},
    "green": {"GREEN"},
    "black": {"BLACK"},
    "purple": {"PURPLE"},
    "brown": {"BROWN"},
}


@pytest.mark.parametrize("name", figures())
def test_colours_of_captions_are_drawn(name):
    said = re.findall(
        r"\b(red|yellow|pink|blue|orange|gr[ea]y|green|black|purple|brown)\b", " ".join(captions_in(SOURCES[name])).lower()
    )
    for colour in said:
        assert any(drawn in SOURCES[name] for drawn in COLOURS.get(colour, ())), colour


def frame(*keys, **columns):
    """Return a table of all combinations of the columns' values, with estimates that are not told."""
    made = pd.MultiIndex.from_product(columns.values(), names=columns).to_frame(index=False)
    return made.assign(estimate=0.5, standard_error=0.01, **dict(keys))


def made_up(name, k):
    """Return tables for a figure, with settings that differ between k = 1 and k = 2."""
    both = [3 * k, 5 * k]
    return {
        "full_gradient": lambda: {
            "full_gradient": frame(quantity=["prompt"], gradient=["all parameters", "head"], n=range(40 * k))
        },
        "coverage_by_group_size": lambda: {
            "coverage": frame(part=["curve"], measure=["coverage"], level=[0.95], target=["value"], batch_size=both)
        },
        "group_size_budgets": lambda: {
            "group_size": frame(
                statement=[""], problem=["linear"], schedule=["Constant(8)"], budget=[100 * k, 900 * k], checkpoint=[1, 7 * k]
            )
        },
        "rewards_alone": lambda: {
            "plan_coverage": frame(
                part=["design"],
                quantity=["step"],
                prompts=both,
                size=[11 * k],
                law=[f"law {i}" for i in range(3 * k)],
            )
        },
        "questions": lambda: {"questions": frame(batch_size=[4 * k], group_size=[8 * k])},
        "estimators": lambda: {"estimators": frame(batch_size=[4 * k])},
        "ratio_moment": lambda: {"ratio_moments": frame(tree=range(7 * k))},
        "one_step_gain": lambda: {"one_step": frame(how=["point"], guarantee=["N5/gain"], answers=both)},
        "phases": lambda: {"phase_course": frame(how=["exact", "sampled"][: 3 - k])},
        "planned_group_size": lambda: {
            "planned_group_size": frame(
                part=["design"], arm=["planned"], size=[8, 16] if k == 1 else [4, 64], prompts=both, replications=[30 * k]
            )
        },
        "time_to_level": lambda: {"time_to_level": race({"clip alone": [-5.0], "TIC": [0.0]}, scale=k)},
    }[name]()


def race(found, scale=1):
    """Return a table of arms with differences in several settings."""
    rows = [
        {"arm": arm, "inner_steps": 4 * scale * (i + 1), "estimate": difference, "standard_error": 1.0}
        for arm, differences in found.items()
        for i, difference in enumerate(differences)
    ]
    made = pd.DataFrame(rows).assign(quantity="ablation", batch_size=16 * scale, group_size=8 * scale)
    return made.assign(updates=11 * scale * made["inner_steps"])


@pytest.mark.parametrize("name", COMPUTED)
def test_settings_are_those_of_the_tables(name):
    """Words stay and numbers follow; but for phases, where the sentence on sampled groups goes with their rows."""
    first, second = (caption_of(figures()[name], made_up(name, k)) for k in (1, 2))
    assert first != second
    assert first.endswith(".")
    if name == "phases":
        assert "sampled groups (G = 8, B = 32)" in first
        assert "sampled groups" not in second
        return
    assert re.sub(r"\d+(,\d+)*", "#", first) == re.sub(r"\d+(,\d+)*", "#", second)


@pytest.mark.parametrize("name", [name for name in COMPUTED if name != "time_to_level"])
def test_estimates_do_not_matter_where_no_result_is_said(name):
    tables = made_up(name, 1)
    turned = {key: table.assign(estimate=-7.0 * table["estimate"], standard_error=99.0) for key, table in tables.items()}
    assert caption_of(figures()[name], tables) == caption_of(figures()[name], turned)


def said(found):
    return time_to_level.caption({"time_to_level": race(found)})


def test_a_race_says_on_which_side_its_intervals_lie():
    clip, tic = "\u201ctoken ratio, upper-only clip\u201d", "\u201ctrajectory ratio, upper-only clip: TIC\u201d"
    for difference, words in ((-5.0, "lies below 0"), (5.0, "lies above 0"), (-1.9, "holds 0"), (1.9, "holds 0")):
        assert f"The interval {words} in this setting of {clip}." in said({"clip alone": [difference]})
        assert f"The interval {words} in all settings of {clip}." in said({"clip alone": [difference] * 2})
    mixed = said({"clip alone": [-5.0, 0.0], "TIC": [-5.0, -2.0], "neither": [0.0, 0.0], "broken": [9.0, 9.0]})
    assert f"in all settings of {tic}." in mixed
    assert f"depends on the setting on which side it lies of {clip}." in mixed
    assert mixed.count("The interval") == 1, "neither the arm itself nor the control is said anything of"


def test_no_figure_of_a_quick_run_says_what_it_lacks():
    """The audit's three: settings of a quick run, and none of a full one."""
    planned = caption_of(figures()["planned_group_size"], made_up("planned_group_size", 1))
    assert "pilots of 3 and 5 prompts with 8 and 16 responses each, 30 answered pilots per point" in planned
    alone = caption_of(figures()["rewards_alone"], made_up("rewards_alone", 1))
    assert "3 and 5 prompts with 11 responses each" in alone
    assert "of the 3 that were tried" in alone
    budgets = caption_of(figures()["group_size_budgets"], made_up("group_size_budgets", 1))
    assert "after 7 steps, with N = 100 and 900 responses per step" in budgets


@pytest.mark.parametrize("name", figures())
def test_captions_of_a_quick_run(name):
    """On the tables of the quick reproduction, where it was made in this checkout, as the gate does before its tests."""
    module, folder = figures()[name], ROOT / "results-quick"
    if not all((folder / f"{table}.parquet").exists() for table in module.TABLES):
        pytest.skip("make reproduce QUICK=1 makes the tables")
    tables = {table: read_table(folder, table)[0] for table in module.TABLES}
    caption = caption_of(module, tables)
    assert caption.rstrip(")").endswith(".")
    assert not re.search(r"\bnan\b|\binf\b|\[|\{|\d\.0\b(?!%)", caption)


def test_lists_and_spans():
    assert listed([32]) == "32"
    assert listed(np.array([32, 256, 2048])) == "32, 256 and 2,048"
    assert listed(["a", "b"]) == "a and b"
    assert (spanned([2048, 32]), spanned([7, 7])) == ("32 to 2,048", "7")


def test_sides_of_intervals():
    rows = pd.DataFrame({"estimate": [-2.0, -1.9, 1.9, 2.0], "standard_error": [1.0] * 4})
    assert sides(rows).tolist() == ["below", "astride", "astride", "above"]
