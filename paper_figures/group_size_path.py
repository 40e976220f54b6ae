"""The scaling law's constants and the best group size while the policy learns.

The upper row shows the constants of MSE = c1/B + c2/(BG) + c3/(BG(G-1)), relative to the start. They are taken along the
noise-free path of training with constant steps. The lower row shows the group size of the gradient's least error, exact and as
printed. It also shows the group size that trains the best policy when training ends there. The line of the best policy's size has
a gap where noise improves the policy. Group sizes above {LIMIT:g} are cut. All lines are exact.
"""

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from grpo_theory.page.style import BLACK, CONSTANTS, GREY, PURPLE
from paper_figures.content.panels import WORDS, Tables, log_axis, ticks

PLACE = 100
TABLES = ("group_size_path",)
TITLES = WORDS["group_size_path"]
OPTIMA = {
    "estimate": (r"least error of the gradient, $1 + \sqrt{c_3/c_1}$", BLACK, "-"),
    "paper_optimum": (r"printed, $\sqrt{c_3/c_1}$", GREY, ":"),
    "policy_optimum": ("best policy", PURPLE, "--"),
}
LIMIT = 256.0


def draw(tables: Tables) -> Figure:
    """Draw two rows of panels, one column for each problem."""
    table = tables["group_size_path"].query("statement == ''")
    table = table[table["schedule"] == table.groupby("problem")["schedule"].transform("first")]
    figure, panels = plt.subplots(2, len(TITLES), figsize=(9.6, 4.6), sharex=True, sharey="row")
    for (top, bottom), (problem, title) in zip(panels.T, TITLES.items(), strict=True):
        part = table[table["problem"] == problem].sort_values("checkpoint")
        x = part["checkpoint"] + 1
        for name, look in CONSTANTS.items():
            top.plot(x, part[name] / part[name].iloc[0], look.line, color=look.colour, label=look.label)
        for name, (label, colour, line) in OPTIMA.items():
            bottom.plot(x, part[name].where(part[name] <= 2.0 * LIMIT), line, color=colour, label=label)
        for axes in (top, bottom):
            axes.set_xscale("log")
            ticks(axes.xaxis, [1.0, 2.0, 5.0, 9.0, 17.0, 33.0], FuncFormatter(lambda value, _: f"{value - 1:g}"))
            log_axis(axes)
        top.set_ylim(0.03, 2.0)
        bottom.set_ylim(1.7, LIMIT)
        top.set_title(title, fontsize="small")
        bottom.set_xlabel("step $n$")
    panels[0, 0].set_ylabel("relative to the start")
    panels[1, 0].set_ylabel("best group size")
    panels[0, 0].legend(fontsize="small", loc="lower left")
    handles, labels = panels[1, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize="small")
    return figure
