"""Chunks on a cluster, through Dask's executor: workers may die, come late, or stand on other machines.

Every worker needs the same checkout and the same versions of what numbers are made with; `compute_chunk` refuses where they
differ. A user's files of kernels travel with the chunks.
"""

from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from simulations.harness.executors import interrupts_held

PATIENCE = 20.0
"""Seconds to wait for a scheduler that does not answer."""


class ClusterError(Exception):
    """A cluster that cannot be used; the message says which and why."""


@contextmanager
def local_cluster(workers: int) -> Iterator[Executor]:
    """Open a cluster of so many processes on this machine; they leave interrupts to their parent."""
    distributed = _distributed()
    with interrupts_held():
        cluster = distributed.LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)
    with cluster, _connected(distributed, cluster) as executor:
        yield executor


@contextmanager
def scheduler_at(address: str) -> Iterator[Executor]:
    """Open the cluster whose scheduler is at HOST:PORT.

    Raises
    ------
    ClusterError
        If no scheduler answers there.
    """
    with _connected(_distributed(), f"tcp://{address}") as executor:
        yield executor


def _distributed() -> ModuleType:
    try:
        import distributed
    except ImportError:
        raise ClusterError("--executor dask needs the extra dask: pip install 'grpo-theory[dask]'") from None
    return distributed


@contextmanager
def _connected(distributed: ModuleType, where: Any) -> Iterator[Executor]:
    try:
        client = distributed.Client(where, timeout=PATIENCE, set_as_default=False)
    except OSError as error:
        raise ClusterError(f"--executor must name a scheduler that answers, got {where}: {error}") from None
    with client:
        try:
            yield client.get_executor(pure=False)
        except distributed.KilledWorker as error:
            raise BrokenExecutor(f"chunks have ended the workers that they were given to: {error}") from error
        except CancelledError as error:
            raise BrokenExecutor(f"the scheduler {where} is gone") from error
