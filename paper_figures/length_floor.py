"""What dividing by the response's own length leaves over: a squared gradient that does not vanish, and value.

Updates divide by the response's own length, or by the horizon. The left panel shows the average squared gradient of a run of N
updates with the step 1/(sqrt N log|V|). There, a policy's only parameter decides whether a response stops or goes on to the
horizon of {HORIZON} tokens. Lines are exact, for large groups. Marks are means of simulated runs, with 95% intervals. The grey
line is the limit that is predicted for the own length. The right panel shows what is lost where training with own lengths ends,
as a share of what training could gain (grey: all of it). Each mark is a random problem with shared features, computed exactly. A
run with too few problems for the right panel has the left one alone.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter

from grpo_theory.page.style import BLACK, BLUE, GREY, VERMILION, Look
from paper_figures.content.panels import Tables, points, ticks

PLACE = 220
TABLES = ("stationarity", "own_length")
HORIZON = 2
FEWEST = 3
"""The number of problems from which their losses are drawn."""
LOOKS = {
    ("own length", 0): Look("own length, large groups", VERMILION, "", "--"),
    ("constant", 0): Look("horizon, large groups", BLACK, "", "-"),
    ("constant", 2): Look("horizon, G = 2", BLUE, "D", ""),
}


def draw(tables: Tables) -> Figure:
    """Draw the average squared gradient against N, and the losses in order."""
    table = tables["stationarity"].query("not equal and horizon == @HORIZON")
    loss = tables["own_length"].query("quantity == 'loss'")
    wide = len(loss) >= FEWEST
    figure, panels = plt.subplots(1, 2 if wide else 1, figsize=(8.6 if wide else 5.0, 3.4), squeeze=False)
    rates = panels[0, 0]
    if wide:
        _losses(panels[0, 1], np.sort(loss["estimate"].to_numpy()))
    for (rule, size), look in LOOKS.items():
        part = table[(table["rule"] == rule) & (table["group_size"] == size)].sort_values("updates")
        if size:
            points(rates, part["updates"], part["estimate"], part["standard_error"], look)
            rates.plot([], [], look.marker, color=look.colour, markerfacecolor="white", label=look.label)
        else:
            rates.plot(part["updates"], part["estimate"], look.line, color=look.colour, label=look.label)
        if rule == "own length":
            limit = part["prediction"].iloc[0]
            rates.axhline(limit, color=GREY, linestyle=":", linewidth=1.1, label="own length, predicted limit")
    rates.set_xscale("log")
    ticks(rates.xaxis, (64, 256, 1024, 4096, 16384, 65536))
    rates.set(yscale="log", xlabel="updates $N$", ylabel="average $\\|\\nabla J\\|^2$")
    rates.legend(fontsize="small", loc="lower left", bbox_to_anchor=(0.0, 0.06))
    return figure


def _losses(losses: Axes, found: np.ndarray) -> None:
    """Draw what is lost, in order."""
    losses.plot(np.arange(1, found.size + 1), found, "X", color=VERMILION, markerfacecolor="white")
    losses.axhline(1.0, color=GREY, linestyle=":", linewidth=1.1)
    losses.set_xlim(0.5, found.size + 0.5)
    losses.xaxis.set_major_locator(FixedLocator(range(1, found.size + 1)))
    losses.set_yscale("log")
    losses.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100.0 * share:g}%"))
    losses.set(xlabel="problem, in order of its loss", ylabel="loss, of what there is to gain")
    losses.text(0.98, 1.0, "all of it", transform=losses.get_yaxis_transform(), ha="right", va="bottom", fontsize="small")
