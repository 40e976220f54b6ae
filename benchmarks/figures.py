"""Figures of cost: python -m benchmarks.figures measures the sweeps and draws them; with --draw it draws what was measured."""

import argparse
import json
from collections.abc import Sequence

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, LogLocator, NullLocator, ScalarFormatter
from tqdm import tqdm

from benchmarks.peaks import measure_peaks
from benchmarks.process import ROOT
from benchmarks.sweeps import JAX, NUMPY, SIMULATOR, SWEEPS, TRAINER, Point
from benchmarks.table import circumstances
from grpo_theory.harness.store import write_atomically
from grpo_theory.page import style
from grpo_theory.page.style import BLUE, GREEN, GREY, ORANGE, VERMILION, Look

COSTS, PICTURE = ROOT / "benchmarks" / "COSTS.json", ROOT / "docs" / "costs.svg"
LOOKS = {
    SIMULATOR: Look("simulate_gradients", BLUE, "o", "-"),
    TRAINER: Look("simulate_training", VERMILION, "s", "-"),
    NUMPY: Look("fastest NumPy found (gradients)", ORANGE, "^", "--"),
    JAX: Look("fastest JAX found (gradients)", GREEN, "D", "--"),
}
SHORT = 40.0
"""An axis that spans a smaller ratio has ticks between the powers of ten."""
PANELS = {
    "G": ("responses in a group, $G$", "$B = 8$; training: $B = 1$, penalty"),
    "K": ("possible responses, $K$", "$B = 8$, $G = 64$; training: $B = 1$"),
    "d": ("parameters of a linear policy, $d$", "$B = 4$, $G = 64$, $K = 4$"),
    "B": ("prompts in a batch, $B$", "$G = 16$"),
    "workers": ("workers", "$B = 8$, $G = 64$; training: linear, $B = 4$, $G = 8$"),
    "replications": ("replications, or runs, of a call", "$B = 8$, $G = 16$; training: $B = 1$, $G = 4$"),
}


def draw(points: Sequence[Point]) -> Figure:
    """Draw a panel for each sweep."""
    figure, panels = plt.subplots(2, 3, figsize=(9.6, 6.0), sharey=False)
    for letter, axes, (sweep, (label, title)) in zip("abcdef", panels.flat, PANELS.items(), strict=True):
        here = [point for point in points if point.sweep == sweep]
        _draw_panel(axes, here)
        axes.set_xlabel(label)
        axes.set_title(f"$\\mathbf{{{letter}}}$   {title}", loc="left", fontweight="normal", fontsize="small")
        _scale(axes, sorted({point.size for point in here}), [point.cost for point in here])
    for axes in panels[:, 0]:
        axes.set_ylabel("time per response, ns")
    handles = [
        axes.plot([], [], look.line, color=look.colour, marker=look.marker, label=look.label)[0] for look in LOOKS.values()
    ]
    handles += axes.plot([], [], ":", color=GREY, label="floor of each simulator")
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure


def _draw_panel(axes: Axes, points: Sequence[Point]) -> None:
    for who, look in LOOKS.items():
        own = sorted((point for point in points if point.who == who), key=lambda point: point.size)
        if not own:
            continue
        sizes = [point.size for point in own]
        axes.plot(sizes, [point.cost for point in own], look.line, color=look.colour, marker=look.marker)
        floors = [point.floor for point in own if point.floor is not None]
        if floors:
            axes.plot(sizes, floors, ":", color=look.colour, linewidth=1.2)


def _scale(axes: Axes, sizes: Sequence[float], costs: Sequence[float]) -> None:
    axes.set_yscale("log")
    is_short = max(costs, default=1.0) < SHORT * min(costs, default=1.0)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if is_short else (1.0,)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())
    if sizes and sizes[-1] > 10**4:
        axes.set_xscale("log")
        return
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(sizes[:: 2 if len(sizes) > 6 else 1]))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_locator(NullLocator())


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    top = argparse.ArgumentParser(prog="python -m benchmarks.figures", description="Measure and draw costs against sizes.")
    top.add_argument("--draw", action="store_true", help="draw what was measured before")
    options = top.parse_args(arguments)
    if not options.draw:
        peaks, measured = measure_peaks(), list[Point]()
        for name in tqdm(SWEEPS, disable=None):
            measured += SWEEPS[name](peaks)
        body = {"circumstances": circumstances(), "points": [point._asdict() for point in measured]}
        write_atomically(COSTS, f"{json.dumps(body, indent=1)}\n".encode())
    mpl.use("Agg")
    style.apply()
    points = [Point(**point) for point in json.loads(COSTS.read_bytes())["points"]]
    draw(points).savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
