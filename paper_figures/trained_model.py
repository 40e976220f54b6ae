"""SmolLM2 as it learns: group sizes at equal responses, what a step's efficiency says of them, and cosines.

SmolLM2 is trained on arithmetic questions. In the top row, the last block, last norm and head are trained over frozen states. In
the bottom row, low-rank adapters are trained on all matrices of all blocks (LoRA). The left panels show mean success by group
size at the end of runs of {USUAL} updates with Adam. Each update has {RESPONSES} responses, and each arm has its own best of the
rates tried. Bars are 95% intervals over seeds. Hollow markers are questions that were held out. Small markers are the ends of
longer runs, of other seeds. The middle panels show the exact efficiency of one update by group size. It is given at the start and
at the end of a run with groups of {FOLLOWED}. The right panels show the share of pairs of questions whose gradients have |cos| <
{NEAR:g}, against mean success. Policies climb exact gradients in balanced coordinates. Lines are for the model while it learns,
and for the linear policy with the features of the start.
"""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from grpo_theory.page.style import BLACK, BLUE, GREY, VERMILION, Look
from paper_figures.content.panels import Tables, curve, marks, ticks
from simulations.normalisation.heads import NEAR
from simulations.runs.recorded_scores import FOLLOWED  # noqa: F401, for the caption
from simulations.runs.trained_sizes import RESPONSES, USUAL  # noqa: F401, for the caption

PLACE = 262
TABLES = ("trained_sizes", "trained_features")
ESTIMATORS = {"dr_grpo": Look("Dr. GRPO", BLUE, "o", "-"), "grpo": Look("GRPO", VERMILION, "s", "-")}
TIMES = {"start": "-", "update 96": "--"}
COURSES = {
    "plain": Look("features learn", BLUE, "o", "-"),
    "divided": Look("features learn, divided", VERMILION, "s", "--"),
    "plain, features of the start": Look("features of the start", BLACK, "^", ":"),
}


HEADROOM = 1.6
"""How much higher than its curves the panel of efficiency is, for the legend."""
ROWS = {"last block": "last block", "adapters": "LoRA"}


def draw(tables: Tables) -> Figure:
    """Draw a panel of success, one of efficiency and one of cosines, for each part of the model that learned."""
    figure, panels = plt.subplots(len(ROWS), 3, figsize=(10.2, 6.8))
    for (trained, label), row in zip(ROWS.items(), panels, strict=True):
        sizes, features = (tables[name][tables[name]["trained"] == trained] for name in TABLES)
        _success(row[0], sizes)
        _efficiency(row[1], sizes[sizes["quantity"] == "efficiency"])
        _cosines(row[2], features)
        for axes in row[:2]:
            axes.set_xscale("log", base=2)
            ticks(axes.xaxis, sorted(sizes["group_size"].dropna().unique()))
            axes.set(xlabel="group size $G$", xlim=(1.6, 96.0))
        for axes in row:
            axes.set_title(f"{label}: {axes.get_title()}")
    for axes in panels.flat:
        axes.set_ylim(bottom=0.0)
        axes.legend(fontsize="small", loc="upper right", handlelength=3.0)
    return figure


def _success(axes: Axes, table: pd.DataFrame) -> None:
    """Draw success and held-out success at the end by group size, and success of longer runs beside it."""
    longest = table["update"].max()
    for i, (name, look) in enumerate(ESTIMATORS.items()):
        own = table[table["estimator"] == name]
        for quantity, runs, face, size, aside in (
            ("success", "usual", look.colour, 4.0, 1.06),
            ("held out", "usual", "white", 4.0, 1.06),
            ("success", "longer", look.colour, 2.5, 1.24),
        ):
            part = own[(own["quantity"] == quantity) & (own["runs"] == runs) & own["group_size"].notna()]
            part = part[part["update"] == part["update"].max()].sort_values("group_size")
            label = look.label if (quantity, runs) == ("success", "usual") else None
            style = {"markerfacecolor": face, "markersize": size, "label": label}
            places, half = part["group_size"] * aside ** (2 * i - 1), part["high"] - part["estimate"]
            marks(axes, places, part["estimate"], look, yerr=half, **style)
    axes.plot([], [], "o", color=GREY, markerfacecolor="white", label="held-out questions")
    if longest > USUAL:
        axes.plot([], [], "o", color=GREY, markersize=2.5, label=f"after {longest:g} updates")
    axes.set(title="a whole run", ylabel="mean success", ylim=(0.0, 1.6), yticks=(0.0, 0.2, 0.4, 0.6, 0.8, 1.0))


def _efficiency(axes: Axes, table: pd.DataFrame) -> None:
    """Draw the efficiency by group size, at two policies."""
    for name, look in ESTIMATORS.items():
        for time, line in TIMES.items():
            part = table[(table["estimator"] == name) & (table["place"] == time)].sort_values("group_size")
            style = {"markersize": 3.5, "markerfacecolor": look.colour, "label": f"{look.label}, {time}"}
            curve(axes, part["group_size"], part["estimate"], look._replace(line=line), **style)
    axes.set(title="one update", ylabel="efficiency", ylim=(0.0, HEADROOM * float(table["estimate"].max())))


def _cosines(axes: Axes, table: pd.DataFrame) -> None:
    """Draw the share of near-orthogonal pairs against success."""
    table = table[(table["quantity"] == f"share below {NEAR:g}") & (table["coordinates"] == "balanced")]
    for name, look in COURSES.items():
        part = table[table["course"] == name].sort_values("update")
        if len(part):  # a quick run has one ascent
            curve(axes, part["success"], part["estimate"], look, markersize=4.0, markerfacecolor=look.colour)
    label = f"share of pairs with |cos| < {NEAR:g}"
    axes.set(title="cosines", xlabel="mean success", ylabel=label, ylim=(0.0, 1.0))
