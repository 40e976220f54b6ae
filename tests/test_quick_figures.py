"""Figures of a quick run, whose tables have fewer cells: nothing is empty, cut off, on something else, or lost in print."""

from pathlib import Path

import matplotlib as mpl
import pytest
from figure_faults import faults

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


@pytest.mark.parametrize("name", figures())
def test_nothing_of_a_quick_run_is_wrong(name):
    """On the tables of the quick reproduction, where it was made in this checkout, as the gate does before its tests."""
    module = figures()[name]
    if not all((QUICK / f"{table}.parquet").exists() for table in module.TABLES):
        pytest.skip("make reproduce QUICK=1 makes the tables")
    tables = {table: read_table(QUICK, table)[0] for table in module.TABLES}
    assert faults(module.draw(tables)) == []
    assert long_sentences(caption_of(module, tables)) == []


def drawn(**second):
    """Return a panel with two lines in colours that are alike in grey, the second with other looks."""
    _, axes = mpl.pyplot.subplots(figsize=(4.0, 4.0))
    axes.plot([0.0, 1.0], [0.0, 1.0], marker="o", color=style.GREEN)
    axes.plot([0.0, 1.0], [1.0, 0.0], **{"marker": "o", "color": style.VERMILION, **second})
    return axes


CUES = ({"linestyle": "--"}, {"marker": "s"}, {"markerfacecolor": "white"}, {"linewidth": 4.0}, {"color": "black"})


def test_series_that_only_their_colour_tells_apart_are_found():
    assert faults(drawn().figure) == ["#009e73 and #d55e00 of '' are alike in grey"]
    assert [cue for cue in CUES if faults(drawn(**cue).figure)] == []
    assert len(faults(drawn(linewidth=1.6).figure)) == 1, "nobody sees so small a difference"


def test_what_is_cut_off_empty_covered_or_small_is_found():
    figure, (left, right) = mpl.pyplot.subplots(1, 2, figsize=(3.0, 3.0))
    left.plot([0, 1], [0, 1], label="a name that is much too long for a legend of so small a figure, whatever its size")
    right.axhspan(-1.0, 1.0)
    right.plot([], [], "o")
    figure.legend(loc="outside lower center")
    assert faults(figure)[0] == "a legend is cut off"
    assert "the panel '' is empty" in faults(figure)
    for place, found in (("lower left", ["the legend of '' lies on data"]), ("lower center", [])):
        axes = drawn(linestyle="--", label="x")
        axes.legend(loc=place)
        assert faults(axes.figure) == found
    axes = drawn(linestyle="--")
    axes.text(0.1, 0.5, "small", fontsize=4.0)
    assert faults(axes.figure) == ["'small' is printed with 3.3 points"]
