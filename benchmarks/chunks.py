"""What a chunk costs beside its work: a worker's start, handing it out, its file; python -m benchmarks.chunks WHAT ..."""

import gc
import json
import resource
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.process import run_python
from benchmarks.table import Row

EXECUTORS = ("threads", "processes", "dask")
MANY = 2000
STARTS = 3
STUDY = "estimators"


def processor_seconds(children: bool = False) -> float:
    """Return what this process has used, or the children of it that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN if children else resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def nothing(*arguments: Any) -> tuple[list[float], float]:
    """Take what a chunk takes and return what it might, without any work."""
    return [0.0] * 64, 0.0


def start() -> float:
    """Return the processor seconds until a fresh worker could begin a chunk: all studies imported, the code fingerprinted."""
    from grpo_theory.harness.runner import made_with
    from grpo_theory.harness.store import study_fingerprint
    from simulations.collection import studies

    made_with("simulations")
    for study in studies().values():
        study_fingerprint(study)
    return processor_seconds()


def handing_out(name: str) -> float:
    """Return the processor seconds that this process spends on one chunk: on handing it out and taking its result back."""
    from grpo_theory.harness.options import EXECUTORS as OPENED
    from grpo_theory.harness.runner import made_with
    from simulations.collection import collection

    cell, wanted = collection().studies[STUDY].cells(True)[0], made_with("simulations")
    with OPENED[name](1, collection().prepare) as executor:
        executor.submit(nothing, STUDY, cell, 0, 0, (), wanted).result()
        gc.collect()  # or a collection of all that the imports have made, a tenth of a second, may fall between the chunks
        before = processor_seconds()
        for future in [executor.submit(nothing, STUDY, cell, 0, chunk, (), wanted) for chunk in range(MANY)]:
            future.result()
        return (processor_seconds() - before) / MANY


def file_sizes() -> list[int]:
    """Return the sizes in bytes of the chunks' files of a study of seven estimators."""
    from simulations.__main__ import main

    with tempfile.TemporaryDirectory() as folder, redirect_stdout(sys.stderr):
        if main(["run", "baselines", "--quick", "--results", folder]):
            raise RuntimeError("the study could not be run")
        return [path.stat().st_size for path in Path(folder).rglob("[0-9]*.json")]


def chunk_rows() -> list[Row]:
    """Measure, in fresh processes, what a plan for many machines is made of."""
    starts = [run_python(["-m", "benchmarks.chunks", "start"]) for _ in range(STARTS)]
    rows = [Row("start of a worker, processor seconds", median(starts), f"median of {STARTS} processes, least {min(starts):.3g}")]
    for name in EXECUTORS:
        spent = 1e3 * run_python(["-m", "benchmarks.chunks", "hand-out", name])
        rows.append(Row(f"handing out a chunk, {name}, processor milliseconds", spent, f"{MANY} chunks without work"))
    sizes = run_python(["-m", "benchmarks.chunks", "sizes"])
    rows.append(Row("file of a chunk, bytes", median(sizes), f"median of {len(sizes)}, largest {max(sizes)}; baselines, quick"))
    return rows


if __name__ == "__main__":
    asked: dict[str, Callable[..., Any]] = {"start": start, "hand-out": handing_out, "sizes": file_sizes}
    print(json.dumps(asked[sys.argv[1]](*sys.argv[2:])))
