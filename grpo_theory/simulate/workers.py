"""Work on many blocks in threads, whose results come in the order of the blocks."""

import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import parent_process
from threading import Event, Timer, current_thread, local, main_thread
from typing import TypeVar

from tqdm import tqdm

PATIENCE = 3.0
"""Seconds after which progress is shown."""
Job = TypeVar("Job")
Result = TypeVar("Result")


class Waiting(local):
    """Whether somebody waits for what this thread computes: the event is set when nobody does any more."""

    ended: Event | None = None


_WAITING = Waiting()


class NotWantedError(Exception):
    """Nobody waits any more for what a thread computes."""


def check_wanted() -> None:
    """Raise `NotWantedError` in a thread for which nobody waits any more; long work asks now and then."""
    if _WAITING.ended is not None and _WAITING.ended.is_set():
        raise NotWantedError


def with_progress(done: Iterable[Result], total: int, what: str) -> Iterator[Result]:
    """Yield what is done, under a bar with a name on a terminal, if it takes seconds, as where code is compiled first."""
    if not what or not sys.stderr.isatty() or current_thread() is not main_thread() or parent_process() is not None:
        yield from done
        return
    with tqdm(total=total, desc=what, delay=PATIENCE, leave=False) as bar:
        timer = Timer(PATIENCE, bar.refresh)  # a bar alone is shown when something is done
        timer.daemon = True
        timer.start()
        try:
            for one in done:
                yield one
                bar.update()
        finally:
            timer.cancel()


def map_in_order(function: Callable[[Job], Result], jobs: Iterable[Job], workers: int, what: str = "") -> Iterator[Result]:
    """Yield function(job) for each job, in the jobs' order; what is not done is given up where nobody waits any more."""
    jobs = [*jobs]
    if workers == 1:
        yield from with_progress(map(function, jobs), len(jobs), what)
        return
    ended = Event()
    pool = ThreadPoolExecutor(workers, initializer=setattr, initargs=(_WAITING, "ended", ended))
    try:
        yield from with_progress(pool.map(function, jobs), len(jobs), what)
    finally:
        ended.set()
        pool.shutdown(cancel_futures=True)
