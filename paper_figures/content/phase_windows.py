"""The windows of training that are a phase, as shades behind curves and as words at the foot of a panel."""

from collections.abc import Iterator

import pandas as pd
from matplotlib.axes import Axes

from grpo_theory.page.style import PHASES


def shade(axes: Axes, windows: pd.DataFrame, first: float) -> None:
    """Shade each stretch of a phase; what begins before `first` begins there."""
    for phase, begin, end in _stretches(windows, first):
        axes.axvspan(begin, end, color=PHASES[phase], linewidth=0.0, zorder=0)


def tell(axes: Axes, windows: pd.DataFrame, first: float) -> None:
    """Write the phases at the foot of a panel with a logarithmic axis, because their shades are alike in grey."""
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
