"""Command line of the benchmarks."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tqdm import tqdm

from benchmarks.footprint import compilation_rows, memory_row, start_up_rows
from benchmarks.rivalry import jax_rows, numpy_rows
from benchmarks.scaling import estimator_rows, group_size_row, route_rows, worker_rows
from benchmarks.table import Row, markdown
from benchmarks.training_rivalry import jax_training_rows, numpy_training_rows, study_row
from grpo_theory.harness.store import write_atomically

PARTS: dict[str, Callable[[], list[Row]]] = {
    "start-up": start_up_rows,
    "compilation": compilation_rows,
    "memory": lambda: [memory_row()],
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
    top.add_argument("--out", type=Path, metavar="FILE", help="write the table here, too")
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
    if options.out and not options.out.parent.is_dir():
        print(f"error: --out must be a file in a folder that exists, got {options.out}", file=sys.stderr)
        return 2
    table = markdown(measure([name for name in PARTS if name in (options.only or PARTS)]))
    print(table)
    if options.out:
        write_atomically(options.out, table.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
