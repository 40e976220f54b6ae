"""What dividing by the standard deviation is worth over a run, each arm at its own best step.

The vertical axis shows the gain from dividing advantages by their group's standard deviation. The gain is success with division
(grpo) minus success without (dr_grpo), averaged over a run, in percentage points. Each side is at the best of the constant
steps that were tried. Bars are 95% limits that count the choice of the step. The shaded band is one point either way. Answers
have one token and are right or wrong, prompts share features, and groups have at least {GROUP_SIZES[0]} responses. Rows are
optimisers. Columns are families of problems. Heads of SmolLM2 have frozen hidden states, as they are (raw) or whitened. They
and the made-up prompts are fixed problems, and limits count runs. The random features of prompts have d dimensions: gains are
means over draws of them, and limits count draws. Made-up prompts are all easy at the start, all hard, or mixed, and the legend
gives the correlation of their features. The figure has {settings} settings, of {runs} runs or draws each.
"""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from grpo_theory.page.captions import spanned
from grpo_theory.page.style import BLACK, BROWN, GREY, LANGUAGE_MODEL, ORANGE, PROBLEMS, PURPLE, SKY, VERMILION, Look
from paper_figures.content.panels import WORDS, Tables, curve, group_size_axis, marks
from simulations.normalisation.race import GROUP_SIZES  # noqa: F401, for the caption

PLACE = 390
TABLES = ("race",)
COLUMNS = WORDS["division"]
ROWS = {"SGD": "plain ascent (SGD)", "Adam": "Adam"}
LOOKS = {
    **{
        f"{name}, {kind}, 32 questions": PROBLEMS[name]._replace(label=name.removeprefix("lm-") + ", 32 questions")
        for name in LANGUAGE_MODEL
        for kind in ("raw", "whitened")
    },
    "lm-few-shot, raw, 128 questions": Look("few-shot, 128 questions", VERMILION, "^", "--"),
    "random, d = 16": Look("d = 16", ORANGE, "s", "-"),
    "random, d = 32": Look("d = 32", PURPLE, ">", "--"),
    "random, d = 64": Look("d = 64", SKY, "o", ":"),
    **{
        f"correlation {correlation}, {mixture}": Look(f"{mixture}, correlation {correlation}", colour, marker, line)
        for correlation, line in (("0.2", ":"), ("0.7", "-"))
        for mixture, colour, marker in (("easy", GREY, "o"), ("hard", BLACK, "s"), ("easy and hard", BROWN, "D"))
    },
}
"""How each problem is drawn; solid lines where prompts share most."""
WIDTH = 0.07
"""How far apart marks at one group size are, as a power of the size."""


def settings(tables: Tables) -> dict[str, object]:
    """Return what the caption says of these tables."""
    table = _gains(tables)
    return {"settings": len(table), "runs": spanned(table["replications"])}


def draw(tables: Tables) -> Figure:
    """Draw a row for each optimiser and a column for each family of problems."""
    table = _gains(tables)
    table = table.assign(column=table["family"].where(table["family"] != "head", table["problem"].str.split(", ").str[1]))
    columns = [name for name in COLUMNS if (table["column"] == name).any()]
    rows = [name for name in ROWS if (table["contest"] == name).any()]
    size = (1.0 + 2.5 * len(columns), 1.2 + 2.3 * len(rows))
    figure, panels = plt.subplots(len(rows), len(columns), figsize=size, sharex=True, sharey=True, squeeze=False)
    for contest, line in zip(rows, panels, strict=True):
        for name, axes in zip(columns, line, strict=True):
            part = table[(table["contest"] == contest) & (table["column"] == name)]
            axes.set_visible(len(part) > 0)  # a quick run does not race in all of them
            _panel(axes, part)
        first = _first_seen(line)
        first.set_ylabel(f"{ROWS[contest]}\ngain (points)")
        first.tick_params(labelleft=True)
    for name, column in zip(columns, panels.T, strict=True):
        _first_seen(column).set_title(COLUMNS[name])
    for name, axes in zip(columns, panels[-1], strict=True):
        group_size_axis(axes, sorted(table["group_size"].unique()))
        looks = {LOOKS[problem].label: LOOKS[problem] for problem in table.loc[table["column"] == name, "problem"].unique()}
        handles = [curve(axes, [], [], look) for look in looks.values()]
        axes.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.24), fontsize="small")
    return figure


def _gains(tables: Tables) -> pd.DataFrame:
    """Return the rows that are drawn."""
    table = tables["race"].query("quantity == 'plain less' and arm == 'divided'")
    return table[table["contest"].isin(ROWS)]


def _first_seen(panels: Sequence[Axes]) -> Axes:
    """Return the first of the panels that are drawn."""
    return next(axes for axes in panels if axes.get_visible())


def _panel(axes: Axes, table: pd.DataFrame) -> None:
    problems = table["problem"].unique()
    for shift, problem in zip(WIDTH * (np.arange(len(problems)) - (len(problems) - 1) / 2.0), problems, strict=True):
        own, look = table[table["problem"] == problem].sort_values("group_size"), LOOKS[problem]
        places, half = own["group_size"] * 2.0**shift, 100.0 * (own["high"] - own["estimate"])
        style = {"linestyle": look.line, "linewidth": 0.9, "elinewidth": 1.1}
        marks(axes, places, -100.0 * own["estimate"], look, yerr=half, **style)
    axes.axhspan(-1.0, 1.0, color=GREY, alpha=0.18, linewidth=0)
    axes.axhline(0.0, color=GREY, linewidth=0.7)
    axes.grid(axis="x", visible=False)
