"""Run a study's missing chunks on an executor, and build its table."""

import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from typing import Any

import pandas as pd
from tqdm import tqdm

from simulations.registry import STUDIES
from simulations.store import Store
from simulations.study import Cell, Study, cell_seed


def compute_chunk(study: str, cell: Cell, seed: int, chunk: int) -> tuple[Any, float]:
    """Compute one chunk; returns its result and its run time.  A function of its arguments alone, fit for any executor."""
    start = time.perf_counter()
    data = STUDIES[study].compute(cell.settings, cell_seed(study, cell, seed), chunk)
    return data, time.perf_counter() - start


def run(study: Study, store: Store, *, quick: bool = False, workers: int = 1, executor: Executor | None = None) -> int:
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
        Any executor of that shape; it is not shut down.
    """
    cells = study.cells(quick)
    missing = [(cell, c) for cell in cells for c in range(cell.chunks) if store.read_chunk(study.name, cell, c) is None]
    pool = executor or ThreadPoolExecutor(workers)
    try:
        futures: dict[Future[tuple[Any, float]], tuple[Cell, int]] = {
            pool.submit(compute_chunk, study.name, cell, store.seed, chunk): (cell, chunk) for cell, chunk in missing
        }
        for future in tqdm(as_completed(futures), total=len(futures), desc=study.name, unit="chunk", disable=None):
            store.write_chunk(study.name, *futures[future], *future.result())
    finally:
        if executor is None:
            pool.shutdown(cancel_futures=True)
    rows, seconds = [], 0.0
    for cell in cells:
        records = [store.read_chunk(study.name, cell, chunk) for chunk in range(cell.chunks)]
        whole = [record for record in records if record is not None]
        seconds += sum(record["seconds"] for record in whole)
        rows += study.rows(cell.settings, [record["data"] for record in whole])
    store.write_table(study.name, pd.DataFrame(rows), seconds)
    return len(missing)
