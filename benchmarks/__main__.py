"""Command line of the benchmarks."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tqdm import tqdm

from benchmarks.chunks import chunk_rows
from benchmarks.comparison import comparison
from benchmarks.footprint import compilation_rows, memory_row, start_up_rows
from benchmarks.results import Results, ResultsError, circumstances
from benchmarks.rivalry import jax_rows, numpy_rows, peak_rows
from benchmarks.routes import route_rows
from benchmarks.scaling import estimator_rows, group_size_row, worker_rows
from benchmarks.table import Row
from benchmarks.training_rivalry import jax_training_rows, numpy_training_rows, study_row

PARTS: dict[str, Callable[[], list[Row]]] = {
    "start-up": start_up_rows,
    "compilation": compilation_rows,
    "memory": lambda: [memory_row()],
    "chunks": chunk_rows,
    "peaks": peak_rows,
    "numpy": numpy_rows,
    "jax-1": lambda: jax_rows(1),
    "jax-2": lambda: jax_rows(2),
    "group-size": lambda: [group_size_row()],
    "estimators": estimator_rows,
    "routes": route_rows,
    "workers": worker_rows,
    "training-numpy": numpy_training_rows,
    "training-jax-1": lambda: jax_training_rows(1),
    "training-jax-2": lambda: jax_training_rows(2),
    "study": lambda: [study_row()],
}
"""What is measured, the fresh processes first."""


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    top = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure the yardsticks of the simulators.")
    top.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=f"measure these parts alone: {', '.join(PARTS)}")
    top.add_argument("--out", type=Path, metavar="FILE", help="write the table here, too, and all results beside it as JSON")
    top.add_argument("--compare", type=Path, metavar="FILE", help="say what has changed since these results (JSON)")
    top.add_argument("--measured", type=Path, metavar="FILE", help="take results (JSON) from here instead of measuring them")
    return top


def measure(parts: Sequence[str]) -> list[Row]:
    """Measure some parts."""
    rows = []
    progress = tqdm(parts, disable=None)
    for number, name in enumerate(progress):
        progress.set_description(name)
        if progress.disable:  # not a terminal: a line for each part in the place of the bar
            print(f"measuring {name}, part {number + 1} of {len(parts)}", file=sys.stderr, flush=True)
        rows += PARTS[name]()
    return rows


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = parser().parse_args(arguments)
    try:
        if options.out and not options.out.parent.is_dir():
            raise ResultsError(f"--out must be a file in a folder that exists, got {options.out}")
        old = Results.read(options.compare) if options.compare else None
        found = Results.read(options.measured) if options.measured else None
        if found is None:
            found = Results(circumstances(), measure([name for name in PARTS if name in (options.only or PARTS)]))
    except ResultsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(found.markdown())
    if options.out:
        found.write(options.out)
    if old is not None:
        print(comparison(old, found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
