"""The simulator against its rivals and its floor: rows 1 to 3."""

from importlib.util import find_spec

from benchmarks.numpy_rivals import textbook, tuned
from benchmarks.process import run_python
from benchmarks.simulator import bare_uniforms, simulator
from benchmarks.table import Row, at_least, at_most
from benchmarks.task import TASKS
from benchmarks.timing import nanoseconds_per_response

NUMPY_TARGET = 20.0
JAX_TARGET = 10.0
UNIFORMS_TARGET = 6.0
NO_JAX = "not measured (pip install .[bench])"


def numpy_rows() -> list[Row]:
    """Compare one worker with both NumPy rivals and with the bare uniforms."""
    rows = []
    for task in TASKS:
        contenders = [simulator(task), tuned(task), textbook(task), bare_uniforms(task)]
        own, *others, floor = nanoseconds_per_response(contenders)
        for contender, cost in zip(contenders[1:], others, strict=False):
            name = f"{contender.name} / simulator; {task.label}"
            rows.append(at_least(name, cost / own, NUMPY_TARGET, f"{cost:.1f} / {own:.1f} ns a response"))
        name = f"simulator / bare uniforms; {task.label}"
        rows.append(at_most(name, own / floor, UNIFORMS_TARGET, f"{own:.1f} / {floor:.2f} ns a response"))
    return rows


def jax_rows(cpus: int) -> list[Row]:
    """Compare so many workers with the fastest JAX rival of each task on as many processors."""
    where, environment = jax_process(cpus)
    names = [f"JAX / simulator, {where}; {task.label}" for task in TASKS]
    if find_spec("jax") is None:
        return [Row(name, NO_JAX, f"at least {JAX_TARGET:g}") for name in names]
    rows = []
    for name, timed in zip(names, run_python(["-m", "benchmarks.jax_rivals", str(cpus)], environment), strict=True):
        (_, own), *rivals = timed
        variant, cost = min(rivals, key=lambda rival: rival[1])
        detail = f"{cost:.1f} / {own:.1f} ns a response; {variant}"
        rows.append(at_least(name, cost / own, JAX_TARGET, detail))
    return rows


def jax_process(cpus: int) -> tuple[str, dict[str, str]]:
    """Return words and environment variables for a process in which JAX has so many processors."""
    single = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    flags = single if cpus == 1 else f"--xla_force_host_platform_device_count={cpus}"
    where = "1 thread" if cpus == 1 else f"{cpus} threads and devices"
    return where, {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
