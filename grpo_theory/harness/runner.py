"""Run what is missing of studies on an executor, and build their tables."""

import platform
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, as_completed
from functools import cache
from typing import Any

from threadpoolctl import threadpool_limits
from tqdm import tqdm

from grpo_theory.estimation import SourceFile
from grpo_theory.harness.interrupts import GO_ON, RefusedError
from grpo_theory.harness.options import ClusterLostError
from grpo_theory.harness.store import NUMERICAL, Store, checkout_checksum, versions
from grpo_theory.harness.study import Cell, Settings, Study, chunk_generator, table_of
from grpo_theory.harness.study_file import load_study, study_in
from grpo_theory.user_text import LONGEST_MESSAGE, printable
from grpo_theory.validation import counted

Chunk = tuple[Study, Cell, int]
Origin = str | tuple[SourceFile, ...]
"""Where a worker finds a study: in a module of a package, or in files that travel."""


def made_with(origin: Origin) -> dict[str, str]:
    """Return what a study's numbers are made with in this process: the checkout and the versions that matter."""
    package = origin.partition(".")[0] if isinstance(origin, str) else ""
    return {"checkout": checkout_checksum(package)} | {name: versions()[name] for name in NUMERICAL}


one_thread = cache(threadpool_limits)
"""Gives BLAS one thread in this process, for good: a product's last bits depend on how many there are.

`simulations` asks for one before NumPy is imported, which comes too late in the processes of a cluster."""


def compute_chunk(
    origin: Origin, cell: Cell, seed: int, chunk: int, kernels: Sequence[SourceFile], wanted: Mapping[str, str]
) -> tuple[Any, float]:
    """Compute one chunk of a study; returns its result and its processor time.

    The result depends on the arguments alone, so any executor will do.  Files of kernels, and of a user's study, are sent along.

    Raises
    ------
    RefusedError
        If this process is not `made_with` what is wanted, as on another machine.
    """
    for name, own in made_with(origin).items():
        if own != wanted[name]:
            raise RefusedError(f"the worker on {platform.node()} has another {name}, {own[:12]} and not {wanted[name][:12]}")
    one_thread(1, user_api="blas")
    for kernel in kernels:
        kernel.load()
    study = study_in(origin) if isinstance(origin, str) else load_study(origin)
    start = time.thread_time()
    data = study.compute(cell.settings, chunk_generator(study.name, cell, seed, chunk), chunk)
    return data, time.thread_time() - start


def tell(line: str) -> None:
    """Print a line, above a bar if there is one, and at once though the output is a pipe."""
    tqdm.write(printable(line, LONGEST_MESSAGE))
    sys.stdout.flush()


def run(
    chosen: Sequence[Study], store: Store, executor: Executor, *, quick: bool = False, kernels: Sequence[SourceFile] = ()
) -> Iterator[tuple[Study, int]]:
    """Compute what is missing of studies and write their tables, telling what there is to do and how long it will take.

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

    Yields
    ------
    (Study, int)
        Each study whose table has just been written, and the number of chunks that were computed for it.
    """
    chunks = chunks_of(chosen, quick=quick)
    missing = missing_in(chunks, store)
    tell(f"{len(missing)} of {len(chunks)} chunks to compute")
    computed = Counter(study.name for study, _, _ in missing)
    waiting, start = Counter(computed), time.perf_counter()

    def built(study: Study) -> tuple[Study, int]:
        build_table(study, store, quick=quick)
        tell(f"{study.name}: {counted(computed[study.name], 'chunk')} computed, table in {store.root / study.name}.parquet")
        return study, computed[study.name]

    yield from (built(study) for study in chosen if not computed[study.name])
    for done, (study, _, _) in enumerate(compute_chunks(missing, store, executor, kernels), 1):
        waiting[study.name] -= 1
        if not waiting[study.name]:
            yield built(study)
            if left := len(missing) - done:
                minutes = (time.perf_counter() - start) * left / done / 60.0
                tell(f"{counted(left, 'chunk')} left, about {minutes:.1f} min")


def merge(chosen: Sequence[Study], store: Store, others: Sequence[Store], *, quick: bool = False) -> Counter[str]:
    """Take over the chunks that other stores hold, and build the tables that are then complete.

    A chunk is taken over only if it is whole and made by this code, these versions, settings and seed.

    Returns
    -------
    Counter of str
        How many chunks are still missing, by study, of those studies that have any chunk.
    """
    lacking: Counter[str] = Counter()
    for study in chosen:
        chunks = chunks_of([study], quick=quick)
        for one in missing_in(chunks, store):
            record = next(filter(None, (other.read_chunk(*one) for other in others)), None)
            if record is None:
                lacking[study.name] += 1
            else:
                store.write_chunk(*one, record["data"], record["seconds"])
        if not lacking[study.name]:
            build_table(study, store, quick=quick)
            tell(f"{study.name}: table in {store.root / study.name}.parquet")
        if lacking[study.name] in (0, len(chunks)):
            del lacking[study.name]
    return lacking


def chunks_of(chosen: Sequence[Study], *, quick: bool) -> list[Chunk]:
    """Return all chunks of studies, in an order that any machine finds alike."""
    return [(study, cell, chunk) for study in chosen for cell in study.cells(quick) for chunk in range(cell.chunks)]


def missing_in(chunks: Sequence[Chunk], *stores: Store) -> list[Chunk]:
    """Return the chunks that are in none of the stores."""
    return [one for one in chunks if all(store.read_chunk(*one) is None for store in stores)]


def compute_chunks(chunks: Sequence[Chunk], store: Store, executor: Executor, kernels: Sequence[SourceFile]) -> Iterator[Chunk]:
    """Compute chunks and yield each when it is written; what has not begun is cancelled if the caller ends."""
    # The first chunk of each study comes first, so that workers compile different studies' functions and not the same at once.
    leaders = {chunk[0].name: chunk for chunk in reversed(chunks)}
    wanted = {name: made_with(study.sources or study.module) for name, (study, _, _) in leaders.items()}
    futures: dict[Future[tuple[Any, float]], Chunk] = {}
    for one in sorted(chunks, key=lambda one: one is not leaders[one[0].name]):
        study, cell, chunk = one
        asked = study.sources or study.module, cell, store.seed, chunk, kernels, wanted[study.name]
        futures[executor.submit(compute_chunk, *asked)] = one
    try:
        for future in tqdm(as_completed(futures), total=len(futures), unit="chunk", disable=None):
            done = futures.pop(future)
            store.write_chunk(*done, *future.result())
            yield done
    finally:
        for future in futures:
            future.cancel()


def build_table(study: Study, store: Store, *, quick: bool = False) -> None:
    """Write a study's table from its chunks.

    Raises
    ------
    RefusedError
        If one cannot be read back: a table without it would be of fewer replications than it says.
    """
    seconds = 0.0

    def results() -> Iterator[tuple[Settings, list[Any]]]:
        nonlocal seconds
        for cell in study.cells(quick):
            records = [store.read_chunk(study, cell, chunk) for chunk in range(cell.chunks)]
            if None in records:
                lost = f"chunk {records.index(None)} of study {study.name}"
                raise RefusedError(f"{lost} cannot be read back: run the same command to compute it again")
            seconds += sum(record["seconds"] for record in records if record)
            yield cell.settings, [record["data"] for record in records if record]

    rows = study.table(results(), quick)
    store.write_table(study, table_of(rows), seconds, quick=quick)


def say_lost(error: BrokenExecutor) -> int:
    """Print that workers were lost, and what to do; returns the exit status."""
    died = "a worker has died, perhaps for want of memory, or a study called os._exit"
    message = f"{error if isinstance(error, ClusterLostError) else died}: {GO_ON}"
    print(printable(message, LONGEST_MESSAGE), file=sys.stderr)
    return 1
