"""The windows of training that are a phase, as shades behind curves and as words at the foot of a panel."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from grpo_theory.page.style import PHASES

HATCHES = {"I": "", "II": "....", "III": "////"}
"""White on the shades of the phases, which are alike in grey."""


def shade_of(phase: str) -> dict[str, Any]:
    """Return the look of a phase: its shade and its hatch."""
    return {"facecolor": PHASES[phase], "edgecolor": "white", "hatch": HATCHES[phase], "linewidth": 0.0}


def shade(axes: Axes, windows: pd.DataFrame, first: float) -> None:
    """Shade each stretch of a phase; what begins before `first` begins there."""
    for phase, begin, end in _stretches(windows, first):
        axes.axvspan(begin, end, **shade_of(phase), zorder=0)


def tell(axes: Axes, windows: pd.DataFrame, first: float) -> None:
    """Write the phases at the foot of a panel with a logarithmic axis."""
    for phase, begin, end in _stretches(windows, first):
        middle = (begin * end) ** 0.5
        axes.text(middle, 0.02, phase, transform=axes.get_xaxis_transform(), ha="center", va="bottom", fontsize="small")


def _stretches(windows: pd.DataFrame, first: float) -> Iterator[tuple[str, float, float]]:
    """Yield each phase with its beginning and its end, once for windows that follow one another."""
    windows = windows.sort_values("update")
    for _, own in windows.groupby((windows["phase"] != windows["phase"].shift()).cumsum()):
        phase = own["phase"].iloc[0]
        if phase in PHASES:
            yield phase, max(float(own["update"].min()), first), float(own["until"].max())
