"""Where the chunks of studies are computed: anything with the shape of ``concurrent.futures.Executor`` will do.

This module imports nothing of the project before it is needed, because the command line reads the names of executors here.
"""

import argparse
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from multiprocessing import connection, get_context, parent_process

from grpo_theory.harness.interrupts import interrupts_held

Opened = Callable[[int, Callable[[], object]], AbstractContextManager[Executor]]
"""Opens an executor of so many workers, and closes it; its processes may begin by calling what imports the studies."""


def nothing() -> None:
    """Do nothing: a process is started for it all the same."""


def threads(workers: int, prepare: Callable[[], object] = nothing) -> ThreadPoolExecutor:
    """Return threads, which share what this process has imported."""
    return ThreadPoolExecutor(workers)


def processes(workers: int, prepare: Callable[[], object] = nothing) -> ProcessPoolExecutor:
    """Return processes, in which a study's Python runs side by side too: see `process_pool`.

    They import the studies while the parent finds out what is missing.
    """
    return process_pool(workers, prepare)


def process_pool(workers: int, prepare: Callable[[], object]) -> ProcessPoolExecutor:
    """Return processes that start at once, and each of which first calls `prepare`; they leave an interrupt to their parent.

    They end with their parent, even if it is killed, when nobody can tell them to.
    """
    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_begin, initargs=(prepare,))
    start_all(pool, workers)
    return pool


def start_all(pool: ProcessPoolExecutor, workers: int) -> None:
    """Start the processes of a pool, deaf to interrupts from their first moment: the parent alone says what an interrupt ends."""
    with interrupts_held():
        for _ in range(workers):
            pool.submit(nothing)


def _begin(prepare: Callable[[], object]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    prepare()


def _end_with_parent() -> None:
    """End this process when its parent has ended: the pipe that it waits at is held open by its siblings, too."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


@contextmanager
def dask(workers: int, prepare: Callable[[], object] = nothing) -> Iterator[Executor]:
    """Open a cluster of processes on this machine, run by Dask: a process that dies is replaced and its chunk computed again."""
    from grpo_theory.harness.cluster import local_cluster  # here, because Dask is an extra

    with local_cluster(workers) as executor:
        yield executor


@contextmanager
def dask_at(address: str, workers: int, prepare: Callable[[], object] = nothing) -> Iterator[Executor]:
    """Open a cluster whose scheduler is at HOST:PORT; the cluster decides how many workers it has, and when they come and go."""
    from grpo_theory.harness.cluster import scheduler_at  # here, because Dask is an extra

    with scheduler_at(address) as executor:
        yield executor


EXECUTORS: dict[str, Opened] = {"threads": threads, "processes": processes, "dask": dask}
"""Executors by name."""
_ADDRESS = re.compile(r"dask://(?P<address>[^\s/]+:\d{1,5})")


def executor_named(name: str) -> Opened:
    """Return what opens the executor that the command line names.

    Raises
    ------
    argparse.ArgumentTypeError
        If there is none of that name.
    """
    if found := _ADDRESS.fullmatch(name):
        return partial(dask_at, found["address"])
    if name not in EXECUTORS:
        raise argparse.ArgumentTypeError(f"must be one of {', '.join(EXECUTORS)} or dask://HOST:PORT, got {name!r}")
    return EXECUTORS[name]
