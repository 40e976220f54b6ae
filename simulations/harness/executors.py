"""Where the chunks of studies are computed: anything with the shape of ``concurrent.futures.Executor`` will do."""

import signal
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

from simulations.harness.discovery import studies


def processes(workers: int) -> ProcessPoolExecutor:
    """Return processes, in which a study's Python runs side by side too; they leave an interrupt to their parent.

    They start at once, and import the studies while the parent finds out what is missing.
    """
    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_prepare)
    for _ in range(workers):
        pool.submit(_start)
    return pool


def _prepare() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    studies()


def _start() -> None:
    """Do nothing, but for that a process is needed."""


EXECUTORS: dict[str, Callable[[int], Executor]] = {"threads": ThreadPoolExecutor, "processes": processes}
"""Executors by name, made for a number of workers."""
