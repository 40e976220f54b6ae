"""Figures of a quick run, whose tables have fewer cells: nothing is empty, cut off, or drawn on something else."""

from pathlib import Path

import matplotlib as mpl
import pytest
from overlaps import faults
from print_faults import print_faults

mpl.use("Agg")

from grpo_theory.harness.store import read_table
from grpo_theory.page import style
from grpo_theory.page.captions import caption_of
from paper_figures.discovery import figures
from tests.sentences import long_sentences

QUICK = Path(__file__).resolve().parents[1] / "results-quick"


@pytest.fixture(autouse=True)
def closed():
    with mpl.rc_context():
        style.apply()
        yield
        mpl.pyplot.close("all")


def quick(name):
    """Return a figure's module and its tables of the quick reproduction; skip where this was not made."""
    module = figures()[name]
    if not all((QUICK / f"{table}.parquet").exists() for table in module.TABLES):
        pytest.skip("make reproduce QUICK=1 makes the tables")
    return module, {table: read_table(QUICK, table)[0] for table in module.TABLES}


@pytest.mark.parametrize("name", figures())
def test_nothing_of_a_quick_run_is_cut_off_empty_or_on_something_else(name):
    """On the tables of the quick reproduction, where it was made in this checkout, as the gate does before its tests."""
    module, tables = quick(name)
    assert faults(module.draw(tables)) == []


def test_what_is_cut_off_or_empty_is_found():
    figure, (left, right) = mpl.pyplot.subplots(1, 2, figsize=(3.0, 3.0))
    left.plot([0, 1], [0, 1], label="a name that is much too long for a legend of so small a figure, whatever its size")
    right.axline((0.0, 0.0), slope=1.0)
    figure.legend(loc="outside lower center")
    assert faults(figure)[0] == "a legend is cut off"
    assert "the panel '' is empty" in faults(figure)


def test_guides_alone_leave_a_panel_empty():
    figure, (left, right) = mpl.pyplot.subplots(1, 2)
    left.axhspan(-1.0, 1.0, label="band")
    left.axhline(0.0)
    left.plot([], [], "o", label="named and not drawn")
    right.bar([0.0, 1.0], [1.0, 2.0])
    assert faults(figure) == ["the panel '' is empty"]


@pytest.mark.parametrize("apart", [0.02, 0.5])
def test_text_on_text_is_found(apart):
    _, axes = mpl.pyplot.subplots()
    axes.plot([0.0, 1.0], [0.0, 1.0])
    axes.text(0.2, 0.6, "one word")
    axes.text(0.2, 0.6 - apart, "another")
    assert faults(axes.figure) == (["'one word' lies on 'another'"] if apart < 0.1 else [])


DRAWN_ABOVE_LEFT = {
    "line": lambda axes: axes.plot([0.0, 0.3], [1.0, 0.9]),
    "line between points beside it": lambda axes: axes.plot([0.1, 0.1], [0.5, 1.0]),
    "points": lambda axes: axes.scatter([0.1], [0.95]),
    "bars": lambda axes: axes.bar([0.1], [1.0], 0.1),
    "error bars": lambda axes: axes.errorbar([0.15], [0.4], [0.56], fmt="o"),
}


@pytest.mark.parametrize("drawn", DRAWN_ABOVE_LEFT)
@pytest.mark.parametrize("place", ["upper left", "upper right"])
def test_a_legend_on_data_is_found(drawn, place):
    _, axes = mpl.pyplot.subplots(figsize=(4.0, 4.0))
    axes.plot([0.5], [0.5], "o", label="a name")
    DRAWN_ABOVE_LEFT[drawn](axes)
    axes.set(xlim=(0.0, 1.0), ylim=(0.0, 1.0))
    axes.legend(loc=place)
    assert faults(axes.figure) == (["the legend of '' lies on data"] if place == "upper left" else [])


@pytest.mark.parametrize("name", figures())
def test_nothing_of_a_quick_run_is_lost_in_print(name):
    """In a column or on a page, and without colours."""
    module, tables = quick(name)
    assert print_faults(module.draw(tables)) == []
    assert long_sentences(caption_of(module, tables)) == []


@pytest.mark.parametrize(("panels", "width", "points"), [(2, 11.0, 4.5), (2, 9.0, None), (1, 5.0, 4.6), (1, 4.4, None)])
def test_text_too_small_for_a_page_or_a_column_is_found(panels, width, points):
    figure, row = mpl.pyplot.subplots(1, panels, figsize=(width, 3.0), squeeze=False)
    for axes in row[0]:
        axes.plot([0.0, 1.0], [0.0, 1.0])
    axes.text(0.2, 0.6, "small", fontsize=7.0)
    assert print_faults(figure) == ([] if points is None else [f"'small' is printed with {points} points"])


SECOND_CUES = {
    "dashes": {"linestyle": "--"},
    "another marker": {"marker": "s"},
    "a hollow marker": {"markerfacecolor": "white"},
    "another width": {"linewidth": 4.0},
}


def test_lines_that_only_their_colour_tells_apart_are_found():
    _, axes = mpl.pyplot.subplots(figsize=(4.0, 3.0))
    axes.plot([0.0, 1.0], [0.0, 1.0], "o-", color=style.GREEN)
    axes.plot([0.0, 1.0], [1.0, 0.0], "o-", color=style.VERMILION)
    assert print_faults(axes.figure) == ["#009e73 and #d55e00 of '' are alike in grey"]


@pytest.mark.parametrize("cue", SECOND_CUES)
def test_a_second_cue_is_enough(cue):
    _, axes = mpl.pyplot.subplots(figsize=(4.0, 3.0))
    axes.plot([0.0, 1.0], [0.0, 1.0], marker="o", color=style.GREEN)
    axes.plot([0.0, 1.0], [1.0, 0.0], **{"marker": "o", "color": style.VERMILION, **SECOND_CUES[cue]})
    assert not print_faults(axes.figure)


@pytest.mark.parametrize(("width", "found"), [(1.6, 1), (2.2, 1), (2.3, 0), (1.0, 0)])
def test_a_width_that_nobody_sees_is_no_second_cue(width, found):
    _, axes = mpl.pyplot.subplots(figsize=(4.0, 3.0))
    axes.plot([0.0, 1.0], [0.0, 1.0], color=style.GREEN, linewidth=1.5)
    axes.plot([0.0, 1.0], [1.0, 0.0], color=style.VERMILION, linewidth=width)
    assert len(print_faults(axes.figure)) == found
