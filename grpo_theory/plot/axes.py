"""Axes to draw on: those that are given, or new ones."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes


def given_or_new(axes: "Axes | None") -> "Axes":
    """Return the axes that are given, as they are, or the axes of a new figure, in the style of the report.

    Raises
    ------
    TypeError
        If what is given is no Axes, as a Figure or an array of them.
    """
    import matplotlib.pyplot as plt  # slow to import, and not always wanted
    from matplotlib.axes import Axes

    from grpo_theory.page.style import BLACK, BLUE, BROWN, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION

    if axes is None:
        axes = plt.subplots(layout="constrained")[1]
        axes.set_prop_cycle(color=[BLUE, VERMILION, GREEN, BLACK, ORANGE, PURPLE, SKY, BROWN, GREY])
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#E3E3E3", linewidth=0.6)
        axes.set_axisbelow(True)
    if not isinstance(axes, Axes):
        raise TypeError(f"axes must be matplotlib Axes or None, got {type(axes).__name__}")
    return axes


def group_size_axis(axes: "Axes", sizes: "Sequence[int]") -> None:
    """Make the abscissa one of group sizes: each of few sizes has a tick, on a scale of powers of 2."""
    axes.set_xscale("log", base=2)
    ticks = np.unique(sizes)
    ticks = ticks if len(ticks) <= MOST_TICKS else ticks[np.log2(ticks) % 1 == 0]
    axes.set_xticks(ticks, [f"{size:g}" for size in ticks])
    axes.minorticks_off()
    axes.set_xlabel("group size $G$: responses to a prompt")


MOST_TICKS = 10
"""Up to this number, each size has a tick; of more, powers of 2 have one."""
