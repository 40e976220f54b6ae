"""Work on many blocks: threads, a bounded number in flight, results in the order of the blocks."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")
_OWN = threading.local()


def check_wanted() -> None:
    """Raise in a worker of `map_in_order` whose results nobody waits for any more; long work calls it now and then."""
    if hasattr(_OWN, "over") and _OWN.over.is_set():
        raise CancelledError


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
