"""Training with and without division by the standard deviation, and the phases that a program finds.

SmolLM2's head is trained on few-shot questions. The upper row shows mean success with (solid) and without (dashed) division by
the standard deviation. Lines are for all questions, and for the halves that were easier and harder at the start. The middle row
shows by how many points of a hundred success is ahead of plain training. Lines are for division, and for multiplication instead
(the control). Bars are 95% intervals where runs are sampled. Without division, the lower row shows the mean deviation relative to
its highest. It also shows the share of pairs of questions whose gradients have |cos| < {NEAR:g}. Shaded windows are phases that
the criterion of docs/derivations.md, 32, finds; it finds none in windows left white. With exact gradients, the first updates of
all arms have the same length.{sampled}
"""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from grpo_theory.page.style import BLACK, BLUE, GREEN, GREY, NORMAL_95, ORANGE, PHASES, PURPLE, SKY, VERMILION
from paper_figures.content.panels import Tables, ticks
from paper_figures.content.phase_windows import shade, shade_of, tell
from simulations.normalisation.heads import NEAR
from simulations.normalisation.phase_course import BATCH_SIZE, GROUP_SIZE

PLACE = 252
TABLES = ("phase_course",)
COLUMNS = {
    ("exact", "own"): "own coordinates, exact",
    ("exact", "ridge 1"): "ridge 1, exact",
    ("exact", "ridge 0.01"): "ridge 0.01, exact",
    ("sampled", "ridge 0.01"): "ridge 0.01, sampled",
}
PARTS = {
    "success": ("all questions", BLACK, ""),
    "easy": ("easier half", SKY, "^"),
    "hard": ("harder half", VERMILION, "v"),
}
GAINS = {"divided": ("divided", BLUE, "-"), "multiplied": ("multiplied", ORANGE, ":")}


def _column(panels: list[Axes], part: pd.DataFrame) -> None:
    """Draw one system of coordinates: success, advantages, and what the phases are read from."""
    top, middle, bottom = panels
    updates = sorted(part["update"].unique())
    first = updates[1] / 2.0
    windows = part[(part["quantity"] == "increase") & (part["arm"] == "divided")]
    at = part[part["quantity"] != "increase"].set_index(["quantity", "arm"]).sort_index()
    for quantity, (_, colour, marker) in PARTS.items():
        for arm, line in (("divided", "-"), ("plain", "--")):
            curve = at.loc[(quantity, arm)]
            top.plot(curve["update"].clip(lower=first), curve["estimate"], line, marker=marker, markersize=3.5, color=colour)
    for arm, (_, colour, line) in GAINS.items():
        curve = at.loc[("advantage", arm)]
        error = 100.0 * NORMAL_95 * curve["standard_error"]
        places = curve["update"].clip(lower=first)
        middle.errorbar(places, 100.0 * curve["estimate"], error, color=colour, linestyle=line, capsize=2)
    middle.axhline(0.0, color=BLACK, linewidth=0.7)
    deviation, share = at.loc[("deviation", "plain")], at.loc[("orthogonality", "plain")]
    bottom.plot(deviation["update"].clip(lower=first), deviation["estimate"] / deviation["estimate"].max(), color=GREEN)
    bottom.plot(share["update"].clip(lower=first), share["estimate"], "-.", color=PURPLE)
    tell(bottom, windows, first)
    for axes in panels:
        shade(axes, windows, first)
        axes.set(xscale="log", xlim=(first, updates[-1]))
        ticks(axes.xaxis, [first, *updates[1::2]], FuncFormatter(lambda update, _: f"{update if update > first else 0:g}"))
        axes.grid(False)
    for axes in (top, middle):
        axes.tick_params(labelbottom=False)
    bottom.set(ylim=(0.0, 1.05), xlabel="updates")


def settings(tables: Tables) -> dict[str, object]:
    """Return what the caption says of these tables."""
    words = f" With sampled groups (G = {GROUP_SIZE}, B = {BATCH_SIZE}), the means of the first updates have the same length."
    return {"sampled": words if "sampled" in set(tables["phase_course"]["how"]) else ""}


def draw(tables: Tables) -> Figure:
    """Draw a column for each way of training and a row for success, the advantage, and the phases' measures."""
    table = tables["phase_course"].set_index(["how", "coordinates"]).sort_index()
    columns = [key for key in COLUMNS if key in table.index]
    figure, panels = plt.subplots(3, len(columns), figsize=(2.3 * len(columns) + 2.0, 6.2), sharey="row", squeeze=False)
    for column, key in zip(panels.T, columns, strict=True):
        _column(list(column), table.loc[key])
        column[0].set_title(COLUMNS[key], fontsize="small")
    for axes, text in zip(panels[:, 0], ("mean success", "ahead of plain training\n(points of 100)", "share"), strict=True):
        axes.set_ylabel(text)
    _name(*panels[:, -1])
    shades = [Patch(**shade_of(name), label=f"phase {name}") for name in PHASES]
    figure.legend(handles=shades, loc="outside lower center", ncols=len(shades), fontsize="small")
    return figure


def _name(top: Axes, middle: Axes, bottom: Axes) -> None:
    """Name the lines of each row beside its last panel."""
    of_success = [(name, colour, f"{marker}-") for name, colour, marker in PARTS.values()]
    of_success += [("with division", GREY, "-"), ("without", GREY, "--")]
    of_gains = [(f"gradients {name}\nby the deviation", colour, line) for name, colour, line in GAINS.values()]
    of_measures = [("mean deviation\n/ its highest", GREEN, "-"), (f"pairs of questions\nwith |cos| < {NEAR:g}", PURPLE, "-.")]
    for axes, lines in ((top, of_success), (middle, of_gains), (bottom, of_measures)):
        handles = [axes.plot([], [], line, markersize=3.5, color=colour, label=name)[0] for name, colour, line in lines]
        axes.legend(handles=handles, loc="center left", bbox_to_anchor=(1.02, 0.5), fontsize="small")
