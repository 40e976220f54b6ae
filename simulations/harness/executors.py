"""Where the chunks of studies are computed: anything with the shape of ``concurrent.futures.Executor`` will do."""

import signal
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context


def processes(workers: int) -> ProcessPoolExecutor:
    """Return processes, in which a study's Python runs side by side too; they leave an interrupt to their parent."""
    return ProcessPoolExecutor(workers, get_context("spawn"), initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN))


EXECUTORS: dict[str, Callable[[int], Executor]] = {"threads": ThreadPoolExecutor, "processes": processes}
"""Executors by name, made for a number of workers."""
