"""Work on many blocks: threads, a bounded number in flight, results in the order of the blocks."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

Result = TypeVar("Result")
Place = TypeVar("Place")
_OWN = threading.local()


def check_wanted() -> None:
    """Raise in a worker of `map_in_order` whose results nobody waits for any more; long work calls it now and then."""
    if hasattr(_OWN, "over") and _OWN.over.is_set():
        raise CancelledError


@contextmanager
def borrowed(places: list[Place], make: Callable[[], Place]) -> Iterator[Place]:
    """Give a thread what it works in, from a list or made anew; where all went well, it is put back for whoever comes next."""
    try:
        place = places.pop()
    except IndexError:
        place = make()
    yield place
    places.append(place)


def map_in_order(function: Callable[..., Result], jobs: Iterable[tuple], workers: int) -> Iterator[Result]:
    """Yield function(*job) for each job, in the jobs' order; one worker needs no thread."""
    if workers == 1:
        yield from (function(*job) for job in jobs)
        return
    over = threading.Event()
    with ThreadPoolExecutor(workers, initializer=setattr, initargs=(_OWN, "over", over)) as pool:
        pending: deque[Future[Result]] = deque()
        try:
            for job in jobs:
                pending.append(pool.submit(function, *job))
                if len(pending) > 2 * workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            over.set()
            for future in pending:
                future.cancel()
