"""Work on many blocks: threads, a bounded number in flight, results in the order of the blocks."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def map_in_order(function: Callable[..., Result], jobs: Iterable[tuple], workers: int) -> Iterator[Result]:
    """Yield function(*job) for each job, in the jobs' order; one worker needs no thread."""
    if workers == 1:
        yield from (function(*job) for job in jobs)
        return
    with ThreadPoolExecutor(workers) as pool:
        pending: deque[Future[Result]] = deque()
        try:
            for job in jobs:
                pending.append(pool.submit(function, *job))
                if len(pending) > 2 * workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
