"""Runs in parts, as array jobs, which need no library: each computes its share of the chunks; a merge brings them together."""

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path

from grpo_theory.estimation import SourceFile
from grpo_theory.harness.runner import build_table, chunks_of, compute, missing_in
from grpo_theory.harness.shard import Shard
from grpo_theory.harness.store import Store
from grpo_theory.harness.study import Study


def run_shard(
    shard: Shard,
    chosen: Sequence[Study],
    root: Path,
    own: Store,
    executor: Executor,
    *,
    quick: bool = False,
    kernels: Sequence[SourceFile] = (),
    tell: Callable[[str], None] = lambda line: None,
) -> int:
    """Compute what is missing of every n-th chunk of studies into the shard's own store; returns how many were computed.

    Neighbours in the order of chunks cost alike, so that shards do. What the results or the shard already hold is not computed.
    """
    part = chunks_of(chosen, quick=quick)[shard.number - 1 :: shard.parts]
    missing = missing_in(part, own, Store(root, own.seed))
    tell(f"{len(missing)} of {len(part)} chunks to compute")
    return sum(1 for _ in compute(missing, own, executor, kernels))


def merge(
    chosen: Sequence[Study], store: Store, others: Sequence[Store], *, quick: bool = False, tell: Callable[[str], None]
) -> Counter[str]:
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
            if not any(store.take_over(other, *one) for other in others):
                lacking[study.name] += 1
        if not lacking[study.name]:
            build_table(study, store, study.cells(quick), quick=quick)
            tell(f"{study.name}: table in {store.root / study.name}.parquet")
        elif lacking[study.name] == len(chunks):
            del lacking[study.name]
    return lacking
