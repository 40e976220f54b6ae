"""Command line of the benchmarks."""

import argparse
import os
import platform
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tqdm import tqdm

from benchmarks.footprint import memory_row, start_up_rows
from benchmarks.rivalry import jax_rows, numpy_rows
from benchmarks.scaling import group_size_row, worker_rows
from benchmarks.table import Row, markdown
from benchmarks.training_rivalry import jax_training_rows, numpy_training_rows, study_row

PACKAGES = ("grpo-theory", "numpy", "numba", "jax")


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    top = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure the yardsticks of the simulators.")
    top.add_argument("--out", type=Path, help="file to which the table is written, too")
    return top


def circumstances() -> str:
    """Name the machine's processors and the versions that the numbers depend on."""
    found = [f"Python {platform.python_version()}"]
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"no {package}")
    return f"{os.cpu_count()} processors ({platform.machine()}), {', '.join(found)}"


def measure() -> list[Row]:
    """Measure everything, the fresh processes first."""
    parts: dict[str, Callable[[], list[Row]]] = {
        "start-up": start_up_rows,
        "memory": lambda: [memory_row()],
        "NumPy": numpy_rows,
        "JAX, one thread": lambda: jax_rows(1),
        "JAX, two threads": lambda: jax_rows(2),
        "group size": lambda: [group_size_row()],
        "workers": worker_rows,
        "training, NumPy": numpy_training_rows,
        "training, JAX, one thread": lambda: jax_training_rows(1),
        "training, JAX, two threads": lambda: jax_training_rows(2),
        "training, a study": lambda: [study_row()],
    }
    rows = []
    progress = tqdm(parts.items(), disable=None)
    for name, part in progress:
        progress.set_description(name)
        rows += part()
    return rows


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = parser().parse_args(arguments)
    report = f"{circumstances()}\n\n{markdown(measure())}\n"
    print(report)
    if options.out:
        options.out.write_text(report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
