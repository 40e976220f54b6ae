"""Chunks on a cluster, through Dask's executor: workers may die, come late, or run on other machines.

Every worker needs the same checkout, and the same versions of the libraries that decide the numbers. `compute_chunk` refuses to
run where they differ. A user's files of kernels are sent with the chunks.
"""

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor
from contextlib import ExitStack, contextmanager
from typing import Any

from grpo_theory.harness.interrupts import interrupts_held

PATIENCE = 20.0
"""Seconds to wait for a scheduler that does not answer."""
CHATTY = ("distributed.client", "distributed.core", "distributed.comm", "distributed.utils", "distributed.batched")
"""Loggers of Dask that write tracebacks when a connection ends, which is said in a line here."""


class ClusterError(Exception):
    """A cluster that cannot be used; the message says which and why."""


class ClusterLostError(BrokenExecutor):
    """A cluster that was lost while chunks were computed; the message says how."""


@contextmanager
def dask(workers: int, prepare: Callable[[], object], address: str = "") -> Iterator[Executor]:
    """Open a cluster of Dask's: of so many processes on this machine, or the one whose scheduler is at HOST:PORT.

    A process that dies is replaced and its chunk computed again.  Elsewhere the cluster decides how many workers it has, and when
    they come and go.

    Raises
    ------
    ClusterError
        If no scheduler answers there, or Dask is not installed.
    ClusterLostError
        If it is lost at work.
    """
    try:
        import distributed
    except ImportError:
        raise ClusterError("--executor dask needs the extra dask: pip install 'grpo-theory[dask]'") from None
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with ExitStack() as stack:
        where: Any = f"tcp://{address}"
        if not address:
            with interrupts_held():  # its processes leave interrupts to their parent
                where = distributed.LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)
            stack.enter_context(where)
        try:
            client = stack.enter_context(distributed.Client(where, timeout=PATIENCE, set_as_default=False))
        except OSError as error:
            raise ClusterError(f"--executor must name a scheduler that answers, got {where}: {error}") from None
        try:
            yield client.get_executor(pure=False)
        except distributed.KilledWorker as error:
            raise ClusterLostError("chunks have ended the workers that they were given to, perhaps for want of memory") from error
        except (CancelledError, distributed.comm.core.CommClosedError) as error:
            raise ClusterLostError(f"the scheduler {where} is gone") from error
