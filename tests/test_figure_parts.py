"""What figures are made of: numbers in cells, marks that are spread out, names of targets."""

import matplotlib as mpl
import numpy as np
import pytest

mpl.use("Agg")

import seaborn as sns

from grpo_theory.page.captions import signed
from paper_figures.content.cells import make_readable
from paper_figures.content.phase_windows import shade_of
from paper_figures.content.targets import symbol
from paper_figures.gap_quantiles import COUNT, _spread


def luminance(colour):
    """Of the web's guidelines (WCAG 2), from 0 to 1."""
    parts = np.array(mpl.colors.to_rgb(colour))
    return float(np.where(parts <= 0.03928, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722])


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("colours", ["Greys", "cividis_r", "blend:#F4F7FA,#D55E00"])
def test_numbers_in_cells_have_the_contrast_that_guidelines_ask(colours):
    """Four and a half to one: of black and white, one always has it, and seaborn's choice did not."""
    axes = mpl.pyplot.figure().add_subplot()
    palette = sns.color_palette(colours, as_cmap=True) if ":" in colours else colours
    sns.heatmap(np.linspace(0.0, 1.0, 21)[None, :], annot=True, cmap=palette, cbar=False, ax=axes)

    def least():
        cells = axes.collections[0].get_facecolors()
        return min(contrast(text.get_color(), cell) for text, cell in zip(axes.texts, cells, strict=True))

    assert least() < 4.5, "as seaborn chooses"
    make_readable(axes)
    assert least() >= 4.5
    mpl.pyplot.close("all")


SIGNED = [(-0.03, ".2f", "\u22120.03"), (-0.001, ".2f", "0.00"), (0.04, "+.1f", "0.0"), (1.25, "+.1f", "+1.2")]


@pytest.mark.parametrize(("number", "form", "text"), SIGNED)
def test_minus_is_no_hyphen_and_nought_has_no_sign(number, form, text):
    assert signed(number, form) == text


def test_quantiles_that_are_drawn_are_spread_out_and_differ_between_estimators():
    levels = np.geomspace(1e-3, 10.0, 400)
    first, second, third = (_spread(levels, shift) for shift in range(3))
    assert len(first) == COUNT
    assert (first[0], first[-1]) == (0, 399)
    np.testing.assert_allclose(np.diff(np.log(levels[first])), np.log(1e4) / (COUNT - 1), rtol=0.06)
    drawn = np.sort(np.concatenate([first[1:], second[1:], third[1:]]))
    assert np.diff(drawn).min() > 10, "marks of different estimators do not meet"


def test_constants_are_symbols_and_other_targets_words():
    assert (symbol("c1"), symbol("group size")) == ("$c_1$", "group size")


def test_each_phase_has_a_hatch_of_its_own():
    assert len({shade_of(phase)["hatch"] for phase in ("I", "II", "III")}) == 3
