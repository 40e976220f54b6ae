"""How the cost changes with the group size and with the number of workers: rows 4 and 6."""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

from benchmarks.process import run_python
from benchmarks.simulator import simulator
from benchmarks.table import Row, at_least
from benchmarks.task import ESTIMATOR, Task
from benchmarks.timing import nanoseconds_per_response

GROUP_SIZES = (4, 8, 16, 32, 64)
NOISE = 1.05
WORKERS_TARGET = 1.7
SIX_ESTIMATORS = ("rloo", "reinforce", "oracle", "optimal", "dr_grpo", "grpo")


def group_size_row() -> Row:
    """Measure the cost of a response as the groups grow, at a fixed batch size."""
    costs = nanoseconds_per_response([simulator(Task("tabular", 8, group_size)) for group_size in GROUP_SIZES])
    sizes = ", ".join(map(str, GROUP_SIZES))
    value = ", ".join(f"{cost:.1f}" for cost in costs) + " ns"
    falls = all(later <= NOISE * earlier for earlier, later in pairwise(costs))
    return Row(f"cost of a response; tabular, B = 8, G = {sizes}", value, "falls (within 5%)", falls)


def busy_processors(seconds: float = 0.5) -> float:
    """Return how many processors two busy processes get: below 2 where other work runs, and no two workers can do better."""
    spin = (
        "import time\n"
        f"end = time.perf_counter() + {seconds}\n"
        "start = time.process_time()\n"
        "while time.perf_counter() < end: pass\n"
        "print(time.process_time() - start)"
    )
    with ThreadPoolExecutor(2) as pool:
        return sum(pool.map(run_python, [["-c", spin]] * 2)) / seconds


def worker_rows() -> list[Row]:
    """Compare two workers with one, and say what the machine could give."""
    before = busy_processors()
    rows = []
    for task, estimators in ((Task("tabular", 8, 16), (ESTIMATOR,)), (Task("lm-few-shot", 8, 16), SIX_ESTIMATORS)):
        one, two = nanoseconds_per_response([simulator(task, workers=n, estimators=estimators) for n in (1, 2)])
        name = f"two workers over one; {task.label}, estimators: {len(estimators)}"
        rows.append(at_least(name, one / two, WORKERS_TARGET, f"{one:.1f} / {two:.1f} ns a response"))
    return [*rows, Row("processors that two busy processes get, before and after", f"{before:.2f}, {busy_processors():.2f}")]
