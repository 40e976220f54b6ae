"""Work on many blocks in threads, whose results come in the order of the blocks."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event, local
from typing import TypeVar

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


def map_in_order(function: Callable[[Job], Result], jobs: Iterable[Job], workers: int) -> Iterator[Result]:
    """Yield function(job) for each job, in the jobs' order; what is not done is given up where nobody waits any more."""
    if workers == 1:
        yield from map(function, jobs)
        return
    ended = Event()
    pool = ThreadPoolExecutor(workers, initializer=setattr, initargs=(_WAITING, "ended", ended))
    try:
        yield from pool.map(function, jobs)
    finally:
        ended.set()
        pool.shutdown(cancel_futures=True)
