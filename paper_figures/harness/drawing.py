"""Drawing figures to files, several at a time."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import as_completed
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG

from grpo_theory.harness.executors import process_pool
from grpo_theory.harness.store import StoreError, read_table
from grpo_theory.harness.verdicts import check_together
from paper_figures.harness import style
from paper_figures.harness.discovery import figures


def draw(name: str, results: Path, out: Path) -> None:
    """Draw one figure as PNG and SVG, laid out once; `savefig` would draw it unseen before each."""
    module = figures()[name]
    check_together(results, module.TABLES)
    tables = {table: read_table(results, table)[0] for table in module.TABLES}
    try:
        figure = module.draw(tables)
    except KeyError as error:
        reason = f"the tables of {', '.join(module.TABLES)} lack what the figure {name} reads, {error}"
        raise StoreError(reason, f"run {' '.join(module.TABLES)}") from error
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


def draw_all(names: Sequence[str], results: Path, out: Path) -> Iterator[str]:
    """Draw figures, as many at a time as there are processors, and yield the name of each: pictures keep one processor each."""
    if not names:
        return
    workers = min(len(names), os.cpu_count() or 1)
    with process_pool(workers, prepare) as pool:
        futures = {pool.submit(draw, name, results, out): name for name in names}
        try:
            for future in as_completed(futures):
                future.result()
                yield futures[future]
        finally:
            for future in futures:
                future.cancel()
