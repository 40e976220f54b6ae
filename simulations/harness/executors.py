"""Where the chunks of studies are computed: anything with the shape of ``concurrent.futures.Executor`` will do."""

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context

from simulations.harness.discovery import studies


def processes(workers: int) -> ProcessPoolExecutor:
    """Return processes, in which a study's Python runs side by side too; they leave an interrupt to their parent.

    They start at once, and import the studies while the parent finds out what is missing.
    """
    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_prepare)
    start_all(pool, workers)
    return pool


def start_all(pool: ProcessPoolExecutor, workers: int) -> None:
    """Start the processes of a pool, deaf to interrupts from their first moment: the parent alone says what an interrupt ends."""
    with _interrupts_held():
        for _ in range(workers):
            pool.submit(_start)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold back interrupts for a moment, as processes that start in it do for good; here they come when it is over."""
    if not hasattr(signal, "pthread_sigmask"):  # as on Windows
        yield
        return
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


def _prepare() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    studies()


def _start() -> None:
    """Do nothing, but for that a process is needed."""


EXECUTORS: dict[str, Callable[[int], Executor]] = {"threads": ThreadPoolExecutor, "processes": processes}
"""Executors by name, made for a number of workers."""
