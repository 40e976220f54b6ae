"""Chunks on a cluster, through Dask's executor: workers may die, come late, or run on other machines.

Every worker needs the same checkout, and the same versions of the libraries that decide the numbers. `compute_chunk` refuses to
run where they differ. A user's files of kernels are sent with the chunks.
"""

import logging
import socket
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor
from contextlib import ExitStack, contextmanager
from importlib import import_module
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
def cluster_of(workers: int, address: str = "") -> Iterator[Executor]:
    """Open a cluster of so many processes on this machine, or the one whose scheduler is at HOST:PORT.

    Raises
    ------
    ClusterError
        If no scheduler answers there, or Dask is not installed.
    ClusterLostError
        If it is lost at work.
    """
    try:
        distributed: Any = import_module("distributed")
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
            if address:
                _check_greeting(address)
            client = stack.enter_context(distributed.Client(where, timeout=PATIENCE, set_as_default=False))
        except OSError as error:
            raise ClusterError(f"--executor must name a scheduler that answers, got {where}: {error}") from None
        try:
            yield client.get_executor(pure=False)
        except distributed.KilledWorker as error:
            raise ClusterLostError("chunks have ended the workers that they were given to, perhaps for want of memory") from error
        except (CancelledError, distributed.comm.CommClosedError) as error:
            raise ClusterLostError(f"the scheduler {where} is gone") from error


def _check_greeting(address: str) -> None:
    """Raise OSError unless what answers at HOST:PORT begins as a scheduler does: Dask itself would wait for that for ever."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE) as stream:
        first = stream.recv(8)
    # A scheduler speaks first, with the length of its greeting: a large one is another protocol's text, read as a number.
    if len(first) < 8 or int.from_bytes(first, "little") > 2**20:
        raise OSError("what answers is no scheduler of Dask's")
