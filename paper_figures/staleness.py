"""How old rollouts may be in whole runs, and what asynchronous generation gains in time.

The success that is lost by stale rollouts is shown against their age, by what is done about the importance ratio. It is a share
of what training on policy gains in {UPDATES} updates. Each update has {BATCH_SIZE} prompts with {GROUP_SIZE} responses each.
Below zero, stale rollouts end with more success. For lines and filled markers, rollouts lag by the number of updates on the axis.
For hollow markers, rollouts are used for several updates, and are drawn at their mean age. Every point has the best of the
learning rates tried. The optimiser is Adam, or the one that a title names. The dashed line is at {LOST:.0%}. Points are means
over {DRAWS} draws of a world; where to stop is one problem, whose seeds stand for draws. Bars are single 95% limits of paired
differences. The last panel shows the mean course of success against time, in the world that its title names. The update of a
response takes {UPDATE_COST:.2f} of the time of its generation. Updates and generation alternate on policy and in stages of
{FOUR_STAGES.inner_steps} updates. They overlap where rollouts lag.
"""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from grpo_theory.page.style import BLACK, GREY, RATIOS, SKY, Look
from paper_figures.content.panels import Tables, curve, marks
from simulations.runs.staleness import (
    BATCH_SIZE,  # noqa: F401, for the caption
    CAP,
    COURSES_OF,
    DRAWS,  # noqa: F401, for the caption
    FOUR_STAGES,
    GROUP_SIZE,  # noqa: F401, for the caption
    LOST,
    PLACES,
    UPDATE_COST,
    UPDATES,
)

PLACE = 312
ABOUT = "P7/stages"
TABLES = ("staleness",)
LOOKS = {
    "none": RATIOS["none"],
    "clip": RATIOS["token, clipped"],
    "truncated": RATIOS["trajectory, clipped"]._replace(label=f"response's ratio, truncated at {CAP:g}"),
    "veto": Look("relaxed clip and veto", SKY, "v", "-."),
}
TIMED = {0: ("on policy", BLACK, "-"), 4: ("lag 4", GREY, "-."), 16: ("lag 16", GREY, ":")}
"""How the courses are drawn by their lags, all but the first with the truncated ratio."""
ROOM = 1.3
"""By how much the axis of time is longer than the last course, for the legend."""

LEAST_RANGE = (-0.02, 0.09)
"""What a panel shows at least, so that noise does not fill it."""


def draw(tables: Tables) -> Figure:
    """Draw a panel for each world, and one of the course against time."""
    table = tables["staleness"]
    whole = table[table["steps"] == UPDATES]
    worlds = [world for world in PLACES if world in set(table["world"])]
    columns = min(4, 1 + len(worlds))
    lines = -(-(1 + len(worlds)) // columns)
    figure, panels = plt.subplots(lines, columns, figsize=(2.7 * columns + 0.3, 2.7 * lines + 0.6), squeeze=False)
    *places, last = panels.flat[: 1 + len(worlds)]
    for axes, world in zip(places, worlds, strict=True):
        _losses(axes, whole[whole["world"] == world])
        axes.set_title(PLACES[world].title, fontsize="small")
    _times(last, whole[(whole["world"] == COURSES_OF) & (whole["quantity"] == "course")])
    for axes in panels[:, 0]:
        axes.set_ylabel("share of the gain lost")
    handles, labels = places[0].get_legend_handles_labels()
    spare = panels.ravel()[1 + len(worlds) :]
    for axes in spare:
        axes.set_axis_off()
    if len(spare):
        spare[0].legend(handles, labels, loc="center")
    else:
        figure.legend(handles, labels, loc="outside lower center", ncols=min(3, columns))
    return figure


def _losses(axes: Axes, part: pd.DataFrame) -> None:
    """Draw the share of the gain that is lost against the age of rollouts, arm by arm."""
    on_policy = part[(part["quantity"] == "success") & (part["arm"] == "on policy")].iloc[0]
    gain = on_policy["estimate"] - on_policy["start"]
    lost = part[part["quantity"] == "below on policy"]
    axes.axhline(0.0, color=BLACK, linewidth=0.8)
    axes.axhline(LOST, color=BLACK, linewidth=0.8, linestyle="--", label=f"{LOST:.0%} of the gain")
    for arm, look in LOOKS.items():
        own = lost[lost["arm"] == arm]
        own = own.assign(estimate=own["estimate"] / gain, half=(own["high"] - own["estimate"]) / gain)
        lags, stages = own[own["inner_steps"] == 1], own[own["inner_steps"] > 1]
        filled = {"fmt": look.marker + look.line, "markerfacecolor": look.colour, "label": look.label}
        marks(axes, lags["lag"], lags["estimate"], look, yerr=lags["half"], **filled)
        marks(axes, (stages["inner_steps"] - 1) / 2, stages["estimate"], look, yerr=stages["half"])
    axes.errorbar([], [], [], color=GREY, marker="o", mfc="white", ls="", label="in stages")
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, LEAST_RANGE[0]), max(high, LEAST_RANGE[1]))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set(xticks=(0, 4, 8, 12, 16), xlabel="age of rollouts, updates")


def _times(axes: Axes, courses: pd.DataFrame) -> None:
    """Draw mean courses against time, in units of the generation of an update's responses."""
    for lag, (label, colour, line) in TIMED.items():
        arm, cost = ("truncated", max(1.0, UPDATE_COST)) if lag else ("on policy", 1.0 + UPDATE_COST)
        own = courses[(courses["arm"] == arm) & (courses["lag"] == lag) & (courses["inner_steps"] == 1)]
        axes.plot(cost * own["update"], own["estimate"], linestyle=line, color=colour, label=label)
    stages = courses[(courses["arm"] == "veto") & (courses["inner_steps"] == FOUR_STAGES.inner_steps)]
    times = (1.0 + UPDATE_COST) * stages["update"]
    curve(axes, times, stages["estimate"], LOOKS["veto"], label="in stages, veto")
    axes.set(xlim=(None, ROOM * times.max()), xlabel="time, generations of a batch", ylabel="success")
    axes.set_title(PLACES[COURSES_OF].title, fontsize="small")
    axes.legend(fontsize="small", loc="lower right", handlelength=1.8)
