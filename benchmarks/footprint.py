"""What a process costs: peak memory and start-up, rows 5 and 7; each in fresh processes: python -m benchmarks.footprint WHAT."""

import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.process import run_python
from benchmarks.table import Row, at_most

MEMORY_TARGET = 1.05
IMPORT_TARGET = 1.0
FIRST_CALL_TARGET = 0.1
FEW, MANY = 10**5, 10**7
STARTS = 5


def peak_memory(replications: int) -> float:
    """Simulate with two workers in this process, and return its peak resident set in megabytes."""
    import grpo_theory as gt

    problem = gt.gallery.problem("tabular")
    gt.simulate_gradients(problem, problem.theta, "rloo", batch_size=1, group_size=2, replications=replications, rng=1, workers=2)
    status = Path("/proc/self/status")
    if status.exists():  # getrusage also counts what the parent had when it started this process
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def start_up() -> tuple[float, float]:
    """Return the seconds of the import and of a first, tiny simulation; the problem is made between the two."""
    start = time.perf_counter()
    import grpo_theory as gt

    imported = time.perf_counter()
    problem = gt.gallery.problem("tabular")
    made = time.perf_counter()
    gt.simulate_gradients(problem, problem.theta, "rloo", batch_size=2, group_size=4, replications=10, rng=1, workers=1)
    return imported - start, time.perf_counter() - made


def memory_row() -> Row:
    """Compare the peak memory of many replications with that of few."""
    few, many = (run_python(["-m", "benchmarks.footprint", str(replications)]) for replications in (FEW, MANY))
    name = "peak memory, 10^7 over 10^5 replications; tabular, 1 x 2"
    return at_most(name, many / few, MEMORY_TARGET, f"{many:.0f} / {few:.0f} MB")


def start_up_rows() -> list[Row]:
    """Measure the start of a fresh process with a warm and with a cold disk cache."""
    arguments = ["-m", "benchmarks.footprint", "start"]
    run_python(arguments)
    imports, calls = zip(*(run_python(arguments) for _ in range(STARTS)), strict=True)
    with tempfile.TemporaryDirectory() as folder:
        cold_import, cold_call = run_python(arguments, {"NUMBA_CACHE_DIR": folder})
    detail = f"median of {STARTS} processes"
    return [
        at_most("import, warm cache, seconds", median(imports), IMPORT_TARGET, detail),
        at_most("first driver call, warm cache, seconds", median(calls), FIRST_CALL_TARGET, detail),
        Row("import and first driver call, empty cache, seconds", f"{cold_import:.2f} and {cold_call:.2f}"),
    ]


if __name__ == "__main__":
    what = sys.argv[1]
    print(json.dumps(start_up() if what == "start" else peak_memory(int(what))))
