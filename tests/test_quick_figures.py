"""Figures of a quick run, whose tables have fewer cells: nothing is empty, cut off, or drawn on something else."""

from pathlib import Path

import matplotlib as mpl
import pytest
from overlaps import faults
from print_faults import grey, print_faults

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


def test_a_label_that_stands_at_two_ticks_is_found():
    _, axes = mpl.pyplot.subplots()
    axes.plot([0.0, 1.0], [0.001, 0.004])
    axes.yaxis.set_major_formatter("{x:.2f}")
    assert faults(axes.figure) == ["the y axis of '' repeats 0.00"]


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


def test_marks_on_lines_tell_the_lines_apart():
    """Exact lines have no marks of their own; those of the simulation lie on them."""
    _, axes = mpl.pyplot.subplots(figsize=(4.0, 3.0))
    for colour, marker in ((style.GREEN, "o"), (style.VERMILION, "s")):
        axes.plot([0.0, 1.0], [0.0, 1.0], color=colour)
        axes.errorbar([0.5], [0.5], [0.1], fmt=marker, color=colour)
    assert not print_faults(axes.figure)


@pytest.mark.parametrize("hatch", ["", "////"])
def test_bars_and_bands_alike_in_grey_are_found(hatch):
    _, axes = mpl.pyplot.subplots(figsize=(4.0, 3.0))
    axes.bar([0.0], [1.0], color=style.GREEN)
    axes.bar([1.0], [1.0], color=style.VERMILION, hatch=hatch)
    axes.axvspan(2.0, 3.0, facecolor="#CFE3F1")
    axes.axvspan(3.0, 4.0, facecolor="#F6DCC8", hatch=hatch)
    assert len(print_faults(axes.figure)) == (0 if hatch else 2)


def _scatters(axes, look):
    axes.scatter([0.0, 1.0], [0.0, 1.0], color=style.GREEN)
    axes.scatter([0.0, 1.0], [1.0, 0.0], **{"color": style.VERMILION, **look})


def _scatter_of_two_colours(axes, look):
    axes.scatter([0.0, 1.0], [0.0, 1.0], **{"c": [style.GREEN, style.VERMILION], **look})


def _marks_of_a_line(axes, look):
    axes.plot([0.0, 1.0], [0.0, 1.0], "o", color=style.GREEN)
    axes.scatter([0.0, 1.0], [1.0, 0.0], **{"color": style.VERMILION, **look})


def _bands_around_lines(axes, look):
    axes.fill_between([0.0, 1.0], [0.0, 0.0], [1.0, 1.0], facecolor=style.GREEN, alpha=0.2)
    axes.fill_between([0.0, 1.0], [2.0, 2.0], [3.0, 3.0], **{"facecolor": style.VERMILION, "alpha": 0.2, **look})


def _strokes(axes, look):
    axes.hlines([0.0, 1.0], 0.0, 1.0, color=style.GREEN)
    axes.hlines([2.0, 3.0], 0.0, 1.0, **{"color": style.VERMILION, **look})


def _strokes_of_two_colours(axes, look):
    axes.hlines([0.0, 1.0], 0.0, 1.0, colors=[style.GREEN, style.VERMILION], **look)


def _bars_of_one_call(axes, look):
    axes.bar([0.0, 1.0], [1.0, 2.0], color=[style.GREEN, style.VERMILION], **look)


def _error_bars(axes, look):
    axes.errorbar([0.0], [0.0], [0.1], fmt="none", ecolor=style.GREEN)
    axes.errorbar([1.0], [0.0], [0.1], **{"fmt": "none", "ecolor": style.VERMILION, **look})


def _histograms(axes, look):
    axes.hist([0.0, 1.0], histtype="stepfilled", facecolor=style.GREEN)
    axes.hist([2.0, 3.0], histtype="stepfilled", facecolor=style.VERMILION, **look)


ALIKE = {
    "scatters, another marker": (_scatters, {"marker": "s"}),
    "scatters, hollow": (_scatters, {"color": None, "facecolors": "white", "edgecolors": style.VERMILION}),
    "a scatter, a colour map": (_scatter_of_two_colours, {"c": [0.0, 1.0]}),
    "a line's marks, another marker": (_marks_of_a_line, {"marker": "s"}),
    "bands, a hatch": (_bands_around_lines, {"hatch": "////"}),
    "bands, an edge": (_bands_around_lines, {"edgecolor": "black", "alpha": None, "facecolor": "#D55E0033", "linewidth": 1.0}),
    "strokes, dashes": (_strokes, {"linestyle": "--"}),
    "strokes, a width": (_strokes, {"linewidth": 4.0}),
    "strokes of one call, dashes": (_strokes_of_two_colours, {"linestyles": ["-", "--"]}),
    "bars of one call, a hatch": (_bars_of_one_call, {"hatch": ["", "////"]}),
    "error bars, marks": (_error_bars, {"fmt": "s", "color": style.VERMILION}),
    "histograms, a hatch": (_histograms, {"hatch": "////"}),
}
"""How two series are drawn in one grey, and a second cue that tells them apart."""


@pytest.mark.parametrize("case", ALIKE)
@pytest.mark.parametrize("cue", [False, True])
def test_whatever_draws_series_alike_in_grey_is_found(case, cue):
    _, axes = mpl.pyplot.subplots(figsize=(4.0, 3.0))
    draw, look = ALIKE[case]
    draw(axes, look if cue else {})
    assert len(print_faults(axes.figure)) == (0 if cue else 1)


@pytest.mark.parametrize(("edge", "found"), [("#D55E00", 1), ("black", 0)])
def test_an_edge_of_the_colour_inside_is_no_second_cue(edge, found):
    _, axes = mpl.pyplot.subplots(figsize=(4.0, 3.0))
    axes.axvspan(0.0, 1.0, facecolor=style.GREEN, linewidth=0.0)
    axes.axvspan(1.0, 2.0, facecolor=style.VERMILION, edgecolor=edge, linewidth=1.0)
    assert len(print_faults(axes.figure)) == found


@pytest.mark.parametrize(("width", "found"), [(1.6, 1), (2.2, 1), (2.3, 0), (1.0, 0)])
def test_a_width_that_nobody_sees_is_no_second_cue(width, found):
    _, axes = mpl.pyplot.subplots(figsize=(4.0, 3.0))
    axes.plot([0.0, 1.0], [0.0, 1.0], color=style.GREEN, linewidth=1.5)
    axes.plot([0.0, 1.0], [1.0, 0.0], color=style.VERMILION, linewidth=width)
    assert len(print_faults(axes.figure)) == found


@pytest.mark.parametrize(("points", "found"), [(5.0, ["'twice' is printed with 3.9 points"]), (7.0, [])])
def test_small_text_is_found_where_the_same_words_stand_in_a_larger_size(points, found):
    _, axes = mpl.pyplot.subplots(figsize=(4.2, 3.0))
    axes.plot([0.0, 1.0], [0.0, 1.0])
    axes.text(0.2, 0.6, "twice", fontsize=points)
    axes.text(0.2, 0.2, "twice", fontsize=12.0)
    assert print_faults(axes.figure) == found


@pytest.mark.parametrize(("colour", "light"), [("white", 1.0), ("black", 0.0), ("#00000080", 0.498), ("#FF0000", 0.299)])
def test_grey_is_that_of_a_printer(colour, light):
    assert grey(colour) == pytest.approx(light, abs=2e-3)
