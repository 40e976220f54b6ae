"""Run what is missing of studies on an executor, and build their tables."""

import platform
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, as_completed
from functools import cache
from typing import Any

from threadpoolctl import threadpool_limits
from tqdm import tqdm

from grpo_theory.estimation import SourceFile
from grpo_theory.harness.discovery import study_in
from grpo_theory.harness.fingerprint import checkout_checksum
from grpo_theory.harness.store import NUMERICAL, Store, StoreError, versions
from grpo_theory.harness.study import Cell, Settings, Study, chunk_generator, table_of
from grpo_theory.harness.study_file import load_study
from grpo_theory.validation import counted

Chunk = tuple[Study, Cell, int]
Origin = str | tuple[SourceFile, ...]
"""Where a worker finds a study: in a module of a package, or in files that travel."""


class ForeignWorkerError(Exception):
    """A worker whose numbers would not be ours, because its code or its versions are others; the message says which."""


def made_with(origin: Origin) -> dict[str, str]:
    """Return what a study's numbers are made with in this process: the checkout and the versions that matter."""
    package = origin.partition(".")[0] if isinstance(origin, str) else ""
    return {"checkout": checkout_checksum(package)} | {name: versions()[name] for name in NUMERICAL}


@cache
def one_thread_for_products() -> None:
    """Give BLAS one thread in this process, for good: a product's last bits depend on how many there are.

    `simulations` asks for one before NumPy is imported, which comes too late in the processes of a cluster.
    """
    threadpool_limits(1, user_api="blas")


def compute_chunk(
    origin: Origin, cell: Cell, seed: int, chunk: int, kernels: Sequence[SourceFile], wanted: Mapping[str, str]
) -> tuple[Any, float]:
    """Compute one chunk of a study; returns its result and its processor time.

    The result depends on the arguments alone, so any executor will do.  Files of kernels, and of a user's study, are sent along.

    Raises
    ------
    ForeignWorkerError
        If this process is not `made_with` what is wanted, as on another machine.
    """
    for name, own in made_with(origin).items():
        if own != wanted[name]:
            raise ForeignWorkerError(
                f"the worker on {platform.node()} has another {name}, {own[:12]} and not {wanted[name][:12]}"
            )
    one_thread_for_products()
    for kernel in kernels:
        kernel.load()
    study = study_in(origin) if isinstance(origin, str) else load_study(origin)
    start = time.thread_time()
    data = study.compute(cell.settings, chunk_generator(study.name, cell, seed, chunk), chunk)
    return data, time.thread_time() - start


def run(
    chosen: Sequence[Study],
    store: Store,
    executor: Executor,
    *,
    quick: bool = False,
    kernels: Sequence[SourceFile] = (),
    tell: Callable[[str], None] = lambda line: None,
) -> Iterator[tuple[Study, int]]:
    """Compute what is missing of studies and write their tables.

    The chunks of all studies are in one queue, so that no processor waits for the last chunk of a study.  A study's table is
    built while the next one's chunks are computed.

    Parameters
    ----------
    chosen : sequence of Study
    store : Store
    executor : concurrent.futures.Executor
        Any executor with that interface, of threads or processes; it is not shut down.
    quick : bool, default False
        Fewer cells and replications.
    kernels : sequence of SourceFile, default empty
        Files whose estimators join the registry of whatever process computes a chunk.
    tell : callable, default silent
        Called with a line on what there is to do and, with each table, on how long the rest will take.

    Yields
    ------
    (Study, int)
        Each study whose table has just been written, and the number of chunks that were computed for it.
    """
    cells = {study.name: study.cells(quick) for study in chosen}
    chunks = chunks_of(chosen, quick=quick)
    missing = missing_in(chunks, store)
    tell(f"{len(missing)} of {len(chunks)} chunks to compute")
    computed = Counter(study.name for study, _, _ in missing)
    waiting = Counter(computed)
    for study in chosen:
        if not waiting[study.name]:
            build_table(study, store, cells[study.name], quick=quick)
            yield study, 0
    start = time.perf_counter()
    for done, (study, _, _) in enumerate(compute(missing, store, executor, kernels), 1):
        waiting[study.name] -= 1
        if not waiting[study.name]:
            build_table(study, store, cells[study.name], quick=quick)
            yield study, computed[study.name]
            if done < len(missing):
                tell(_remaining(time.perf_counter() - start, done, len(missing) - done))


def chunks_of(chosen: Sequence[Study], *, quick: bool) -> list[Chunk]:
    """Return all chunks of studies, in an order that any machine finds alike."""
    return [(study, cell, chunk) for study in chosen for cell in study.cells(quick) for chunk in range(cell.chunks)]


def missing_in(chunks: Sequence[Chunk], *stores: Store) -> list[Chunk]:
    """Return the chunks that are in none of the stores."""
    return [one for one in chunks if all(store.read_chunk(*one) is None for store in stores)]


def compute(chunks: Sequence[Chunk], store: Store, executor: Executor, kernels: Sequence[SourceFile]) -> Iterator[Chunk]:
    """Compute chunks and yield each when it is written; what has not begun is cancelled if the caller ends."""
    origins = {chunk[0].name: chunk[0].sources or chunk[0].module for chunk in chunks}
    wanted = {name: made_with(origin) for name, origin in origins.items()}
    futures: dict[Future[tuple[Any, float]], Chunk] = {
        executor.submit(compute_chunk, origins[study.name], cell, store.seed, chunk, kernels, wanted[study.name]): (
            study,
            cell,
            chunk,
        )
        for study, cell, chunk in _leaders_first(chunks)
    }
    try:
        for future in tqdm(as_completed(futures), total=len(futures), unit="chunk", disable=None):
            done = futures.pop(future)
            store.write_chunk(*done, *future.result())
            yield done
    finally:
        for future in futures:
            future.cancel()


def _remaining(seconds: float, done: int, left: int) -> str:
    """Say how long the chunks that are left will take if they take as long as those before."""
    return f"{counted(left, 'chunk')} left, about {seconds * left / done / 60.0:.1f} min"


def _leaders_first(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Put the first chunk of each study first, so that workers compile different studies' functions and not the same at once."""
    leaders = {chunk[0].name: chunk for chunk in reversed(chunks)}
    return sorted(chunks, key=lambda chunk: chunk is not leaders[chunk[0].name])


def build_table(study: Study, store: Store, cells: Sequence[Cell], *, quick: bool = False) -> None:
    """Write a study's table from its chunks."""
    seconds = 0.0

    def results() -> Iterator[tuple[Settings, list[Any]]]:
        nonlocal seconds
        for cell in cells:
            records = [_record(study, store, cell, chunk) for chunk in range(cell.chunks)]
            seconds += sum(record["seconds"] for record in records)
            yield cell.settings, [record["data"] for record in records]

    rows = study.table(results(), quick)
    store.write_table(study, table_of(rows), seconds, quick=quick)


def _record(study: Study, store: Store, cell: Cell, chunk: int) -> dict[str, Any]:
    """Read back a chunk that is there, because a table without it would be of fewer replications than it says."""
    record = store.read_chunk(study, cell, chunk)
    if record is None:
        raise StoreError(f"chunk {chunk} of study {study.name} cannot be read back: run the same command to compute it again")
    return record
