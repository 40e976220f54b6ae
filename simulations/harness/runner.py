"""Run a study's missing chunks on an executor, and build its table."""

import time
from collections.abc import Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from typing import Any

from tqdm import tqdm

from grpo_theory.estimation import SourceFile
from simulations.harness.discovery import study_in
from simulations.harness.store import Store, StoreError
from simulations.harness.study import Cell, Study, cell_seed, table_of


def compute_chunk(module: str, cell: Cell, seed: int, chunk: int, kernels: Sequence[SourceFile]) -> tuple[Any, float]:
    """Compute one chunk of the study that a module defines; returns its result and its run time.

    A function of its arguments alone, fit for any executor: files of kernels travel with it.
    """
    for kernel in kernels:
        kernel.load()
    study = study_in(module)
    start = time.perf_counter()
    data = study.compute(cell.settings, cell_seed(study.name, cell, seed), chunk)
    return data, time.perf_counter() - start


def run(
    study: Study,
    store: Store,
    *,
    quick: bool = False,
    workers: int = 1,
    executor: Executor | None = None,
    kernels: Sequence[SourceFile] = (),
) -> int:
    """Compute what is missing of a study and write its table; returns the number of chunks computed.

    Parameters
    ----------
    study : Study
    store : Store
    quick : bool, default False
        Fewer cells and replications.
    workers : int, default 1
        Threads, if no executor is given.
    executor : concurrent.futures.Executor, optional
        Any executor of that shape, of threads or processes; it is not shut down.
    kernels : sequence of SourceFile, default empty
        Files whose estimators join the registry of whatever process computes a chunk.
    """
    cells = study.cells(quick)
    missing = [(cell, c) for cell in cells for c in range(cell.chunks) if store.read_chunk(study, cell, c) is None]
    pool = executor or ThreadPoolExecutor(workers)
    try:
        futures: dict[Future[tuple[Any, float]], tuple[Cell, int]] = {
            pool.submit(compute_chunk, study.module, cell, store.seed, chunk, kernels): (cell, chunk) for cell, chunk in missing
        }
        for future in tqdm(as_completed(futures), total=len(futures), desc=study.name, unit="chunk", disable=None):
            store.write_chunk(study, *futures[future], *future.result())
    finally:
        if executor is None:
            pool.shutdown(cancel_futures=True)
    rows, seconds = [], 0.0
    for cell in cells:
        records = [_record(study, store, cell, chunk) for chunk in range(cell.chunks)]
        seconds += sum(record["seconds"] for record in records)
        rows += study.rows(cell.settings, [record["data"] for record in records])
    store.write_table(study, table_of(rows), seconds)
    return len(missing)


def _record(study: Study, store: Store, cell: Cell, chunk: int) -> dict[str, Any]:
    """Read back a chunk that is there, because a table without it would be of fewer replications than it says."""
    record = store.read_chunk(study, cell, chunk)
    if record is None:
        raise StoreError(f"chunk {chunk} of study {study.name} cannot be read back: run the same command again to compute it")
    return record
