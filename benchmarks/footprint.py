"""What a process costs: memory, start-up, compilation; each in fresh processes: python -m benchmarks.footprint WHAT ..."""

import inspect
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.process import run_python
from benchmarks.table import Row, at_most

MEMORY_TARGET = 1.05
IMPORT_TARGET = 1.0
FIRST_CALL_TARGET = 0.1
COLD_CALL_TARGET = 6.0
KINDS = ("gradients", "training")
FEW, MANY = 10**7, 10**8
"""Replications: with few, too, each worker has full blocks, so that what many take more is memory that is never given back."""
STARTS = 5


def peak_memory(replications: str) -> float:
    """Simulate with two workers in this process, and return its peak resident set in megabytes."""
    import grpo_theory as gt

    problem = gt.gallery.problem("tabular")
    gt.simulate_gradients(
        problem, problem.theta, "rloo", batch_size=1, group_size=2, replications=int(replications), rng=1, workers=2
    )
    status = Path("/proc/self/status")
    if status.exists():  # getrusage also counts what the parent had when it started this process
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def start_up(what: str) -> tuple[float, float]:
    """Return the seconds of the import and of a first, tiny simulation; the problem is made between the two.

    The names are imported, because the package loads what stands behind a name when it is first asked for it.
    """
    start = time.perf_counter()
    from grpo_theory import Constant, gallery, simulate_gradients, simulate_training

    imported = time.perf_counter()
    problem = gallery.problem("tabular")
    made = time.perf_counter()
    shape: dict[str, Any] = {"batch_size": 2, "group_size": 4, "replications": 10, "rng": 1, "workers": 1}
    if what == "gradients":
        simulate_gradients(problem, problem.theta, "rloo", **shape)
    else:
        simulate_training(problem, problem.theta, "rloo", Constant(0.1), steps=10, **shape)
    return imported - start, time.perf_counter() - made


def changes(what: str, cache: str) -> dict[str, int]:
    """Return, for each change of the simulation, how many machine codes were newly written to an empty cache because of it.

    The code of a kernel that was not seen before, and of what reads it as a value, is its own and not counted.
    """
    import grpo_theory as gt
    from benchmarks.problems import find_problem

    def simulate(problem: gt.Problem, kernel: str = "rloo", group_size: int = 4) -> None:
        shape: dict[str, Any] = {"batch_size": 2, "group_size": group_size, "replications": 10, "rng": 1, "workers": 1}
        if what == "gradients":
            gt.simulate_gradients(problem, problem.theta, kernel, **shape)
        else:
            gt.simulate_training(problem, problem.theta, kernel, gt.Constant(0.1), steps=10, **shape)

    small, large = find_problem("tabular of 4"), find_problem("tabular of 9")
    calls: dict[str, Callable[[], None]] = {
        "first": lambda: simulate(small),
        "K": lambda: simulate(large),
        "G": lambda: simulate(small, group_size=16),
        "problem": lambda: simulate(gt.gallery.problem("tabular")),
        "kernel": lambda: simulate(small, "reinforce"),
    }
    counts, kernels = {}, Path(inspect.getfile(gt.estimation.named)).stem
    known: set[Path] = set()
    for change, call in calls.items():
        call()
        written = set(Path(cache).rglob("*.nbc"))
        counts[change] = sum(not path.name.startswith(f"{kernels}.") for path in written - known)
        known = written
    return counts


def memory_row() -> Row:
    """Compare the peak memory of many replications with that of few."""
    few, many = (run_python(["-m", "benchmarks.footprint", "memory", str(replications)]) for replications in (FEW, MANY))
    name = "memory that is not given back: peak at 10^8 over 10^7 replications; tabular, 1 x 2"
    return at_most(name, many / few, MEMORY_TARGET, f"{many:.0f} / {few:.0f} MB")


def start_up_rows() -> list[Row]:
    """Measure the start of a fresh process with a warm and with an empty disk cache."""
    rows: list[Row] = []
    for what in KINDS:
        arguments = ["-m", "benchmarks.footprint", "start", what]
        run_python(arguments)
        imports, calls = zip(*(run_python(arguments) for _ in range(STARTS)), strict=True)
        with tempfile.TemporaryDirectory() as folder:
            _, cold = run_python(arguments, {"NUMBA_CACHE_DIR": folder})
        detail = f"median of {STARTS} processes, least {{:.3g}}"
        if not rows:
            rows.append(
                at_most(
                    "import of all that a simulation is made of, seconds",
                    median(imports),
                    IMPORT_TARGET,
                    detail.format(min(imports)),
                )
            )
        name = f"first call after that, {what}, {{}} cache, seconds"
        rows.append(at_most(name.format("warm"), median(calls), FIRST_CALL_TARGET, detail.format(min(calls))))
        rows.append(at_most(name.format("empty"), cold, COLD_CALL_TARGET, "1 process"))
    return rows


def compilation_rows() -> list[Row]:
    """Count what is compiled anew for another number of responses, group size, problem or kernel."""
    rows = []
    for what in KINDS:
        with tempfile.TemporaryDirectory() as folder:
            counts = run_python(["-m", "benchmarks.footprint", "changes", what, folder], {"NUMBA_CACHE_DIR": folder})
        detail = ", ".join(f"{change} {number}" for change, number in counts.items())
        name = f"newly compiled for another K, G, problem or kernel, {what}"
        rows.append(at_most(name, sum(counts.values()) - counts["first"], 0, detail))
    return rows


if __name__ == "__main__":
    asked: dict[str, Callable[..., Any]] = {
        "start": start_up,
        "changes": changes,
        "memory": peak_memory,
    }
    print(json.dumps(asked[sys.argv[1]](*sys.argv[2:])))
