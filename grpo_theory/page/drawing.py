"""Drawing figures to files, several at a time."""

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import as_completed
from importlib import import_module
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from grpo_theory.harness.interrupts import RefusedError
from grpo_theory.harness.options import process_pool
from grpo_theory.harness.store import check_together, read_table
from grpo_theory.page import style


def draw(module: str, results: Path, out: Path) -> None:
    """Draw the figure of a module, which reads the tables that it names, to files of the module's last name."""
    drawn = import_module(module)
    name = module.rpartition(".")[2]
    check_together(results, drawn.TABLES)
    tables = {table: read_table(results, table)[0] for table in drawn.TABLES}
    try:
        figure = drawn.draw(tables)
    except KeyError as error:
        reason = f"the tables of {', '.join(drawn.TABLES)} lack what the figure {name} reads, {error}"
        raise RefusedError(reason, f"run {' '.join(drawn.TABLES)}") from error
    save(figure, out, name)


def save(figure: Figure, out: Path, name: str) -> None:
    """Write a figure as PNG and SVG, laid out once; `savefig` would draw it unseen before each."""
    figure.set_dpi(mpl.rcParams["savefig.dpi"])
    if (layout := figure.get_layout_engine()) is not None:
        layout.execute(figure)
        figure.set_layout_engine("none")
    FigureCanvasAgg(figure).print_png(out / f"{name}.png")
    FigureCanvasSVG(figure).print_svg(out / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)


def prepare() -> None:
    """Set up a process for drawing."""
    mpl.use("Agg")
    style.apply()


def draw_all(modules: Mapping[str, str], results: Path, out: Path) -> Iterator[str]:
    """Draw figures, as many at a time as there are processors, and yield the name of each: pictures keep one processor each.

    Parameters
    ----------
    modules : Mapping of str to str
        By the names of the figures, the modules that draw them.
    results, out : Path
        Where the tables are, and where the figures go.
    """
    with process_pool(max(1, min(len(modules), os.cpu_count() or 1)), prepare) as pool:
        futures = {pool.submit(draw, module, results, out): name for name, module in modules.items()}
        try:
            for future in as_completed(futures):
                future.result()
                yield futures[future]
        finally:
            for future in futures:
                future.cancel()
