"""Drawing figures to files, several at a time."""

import os
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG

from paper_figures.harness import style
from paper_figures.harness.discovery import figures
from simulations.harness.store import read_table


def draw(name: str, results: Path, out: Path) -> None:
    """Draw one figure as PNG and SVG, laid out once; `savefig` would draw it unseen before each."""
    module = figures()[name]
    figure = module.draw({table: read_table(results, table)[0] for table in module.TABLES})
    figure.set_dpi(mpl.rcParams["savefig.dpi"])
    layout = figure.get_layout_engine()
    if layout is not None:
        layout.execute(figure)
        figure.set_layout_engine("none")
    FigureCanvasAgg(figure).print_png(out / f"{name}.png")
    FigureCanvasSVG(figure).print_svg(out / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)


def prepare() -> None:
    """Set up a process for drawing."""
    mpl.use("Agg")
    style.apply()


def draw_all(results: Path, out: Path) -> None:
    """Draw every figure, as many at a time as there are processors: pictures keep one processor each.

    A table that is missing is an error before any process is started.
    """
    for table in {table for module in figures().values() for table in module.TABLES}:
        read_table(results, table)
    workers = min(len(figures()), os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, get_context("spawn"), initializer=prepare) as pool:
        for _ in pool.map(draw, figures(), repeat(results), repeat(out)):
            pass
