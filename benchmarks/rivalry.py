"""The gradient simulator against its rivals."""

from importlib.util import find_spec

from benchmarks import numpy_counts
from benchmarks.jax_process import Request, ask, where
from benchmarks.numpy_rivals import textbook, tuned
from benchmarks.simulator import simulator
from benchmarks.table import Row, at_least
from benchmarks.task import GRADED_TASK, LARGE_GROUP, TASKS, Task
from benchmarks.timing import Cost, Timed, fastest, timed

RIVALLED = (*TASKS, GRADED_TASK)
TEXTBOOK_TARGET, NUMPY_TARGET = 20.0, 5.0
JAX_TARGETS = {False: 2.5, True: 6.0}  # at small groups and at large ones
NO_JAX = "not measured (pip install .[bench])"
COUNTING = ("16-bit words", "8-bit words")
"""What is in the names of rivals that count outcomes, as the simulators do, in the place of looking at every response."""
SEEING = "that sees every response"
"""What people write who have not read this code: the rivals against which the targets were set."""


def seeing(rivals: list[Timed]) -> list[Timed]:
    """Return the rivals that look at every response."""
    return [rival for rival in rivals if not any(name in rival.name for name in COUNTING)]


def kinds_of(rival: str, rivals: list[Timed]) -> list[tuple[str, list[Timed]]]:
    """Return the kinds of a library's rivals by name: those that look at every response, and all of them."""
    return [(f"{rival} {SEEING}", seeing(rivals)), (rival, rivals)]


def ratio_row(name: str, rival: Timed, own: Cost, target: float | None) -> Row:
    """Return the row of a rival's median cost over the simulator's; the detail has medians and, in brackets, the least costs."""
    return at_least(name, rival.cost.median / own.median, target, f"{rival.cost} / {own} ns a response; {rival.name}")


def numpy_rows() -> list[Row]:
    """Compare one worker with NumPy rivals."""
    return [row for task in RIVALLED for row in _numpy_rows(task)]


def _numpy_rows(task: Task) -> list[Row]:
    own, printed, *others = timed([simulator(task), textbook(task), tuned(task), *numpy_counts.rivals(task)])
    return [
        ratio_row(f"NumPy, textbook / simulator; {task.label}", printed, own.cost, TEXTBOOK_TARGET),
        *(
            ratio_row(f"{kind}, fastest found / simulator; {task.label}", fastest(rivals), own.cost, NUMPY_TARGET)
            for kind, rivals in kinds_of("NumPy", others)
        ),
    ]


def jax_rows(processors: int) -> list[Row]:
    """Compare so many workers with the fastest JAX rival of each task on as many processors."""
    targets = [JAX_TARGETS[task.group_size >= LARGE_GROUP] for task in RIVALLED]
    if find_spec("jax") is None:
        names = [f"JAX, fastest found / simulator, {where(processors)}; {task.label}" for task in RIVALLED]
        return [Row(name, None, NO_JAX, "higher", target) for name, target in zip(names, targets, strict=True)]
    answers, rows = ask("gradients", Request(processors, [task.key for task in RIVALLED])), []
    for task, target, (own, *rivals) in zip(RIVALLED, targets, answers, strict=True):
        for kind, others in kinds_of("JAX", rivals):
            name = f"{kind}, fastest found / simulator, {where(processors)}; {task.label}"
            rows.append(ratio_row(name, fastest(others), own.cost, target))
    return rows
