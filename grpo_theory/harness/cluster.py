"""Chunks on a cluster, through Dask's executor: workers may die, come late, or run on other machines.

Every worker needs the same checkout, and the same versions of the libraries that decide the numbers. `compute_chunk` refuses to
run where they differ. A user's files of kernels are sent with the chunks.
"""

import logging
import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from grpo_theory.harness.interrupts import interrupts_held

PATIENCE = 20.0
"""Seconds to wait for a scheduler that does not answer."""
LONGEST_GREETING = 2**20
"""A scheduler speaks first, with the length of its greeting: a larger one is that of another protocol, read as a number."""
CHATTY = ("distributed.client", "distributed.core", "distributed.comm", "distributed.utils", "distributed.batched")
"""Loggers of Dask that write tracebacks when a connection ends, which is said in a line here."""


class ClusterError(Exception):
    """A cluster that cannot be used; the message says which and why."""


class ClusterLostError(BrokenExecutor):
    """A cluster that was lost while chunks were computed; the message says how."""


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
    distributed = _distributed()
    try:
        _check_greeting(address)
    except OSError as error:
        raise _unanswered(f"tcp://{address}", error) from None
    with _connected(distributed, f"tcp://{address}") as executor:
        yield executor


def _check_greeting(address: str) -> None:
    """Raise OSError unless what answers at HOST:PORT begins as a scheduler does: Dask itself would wait for that for ever."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + PATIENCE
    while True:
        left = max(deadline - time.monotonic(), 0.01)
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=left) as stream:
                first = _received(stream, deadline)
        except ConnectionRefusedError:  # a scheduler that is about to begin, perhaps
            if left < 0.2:
                raise
            time.sleep(0.1)
            continue
        if len(first) < 8 or struct.unpack("<Q", first)[0] > LONGEST_GREETING:
            raise OSError("what answers is no scheduler of Dask's")
        return


def _received(stream: socket.socket, deadline: float) -> bytes:
    """Return the first eight bytes that come, fewer if the other side ends before."""
    found = b""
    while len(found) < 8:
        stream.settimeout(max(deadline - time.monotonic(), 0.01))
        try:
            part = stream.recv(8 - len(found))
        except TimeoutError:
            raise OSError(f"what is there takes connections and has not greeted within {PATIENCE:g} s") from None
        if not part:
            break
        found += part
    return found


def _unanswered(where: Any, error: OSError) -> ClusterError:
    return ClusterError(f"--executor must name a scheduler that answers, got {where}: {error}")


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
        raise _unanswered(where, error) from None
    with _quiet(), client:
        try:
            yield client.get_executor(pure=False)
        except distributed.KilledWorker as error:
            raise ClusterLostError("chunks have ended the workers that they were given to, perhaps for want of memory") from error
        except (CancelledError, distributed.comm.CommClosedError) as error:
            raise ClusterLostError(f"the scheduler {where} is gone") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Dask's tracebacks of connections that end to itself."""
    loggers = [logging.getLogger(name) for name in CHATTY]
    levels = [one.level for one in loggers]
    for one in loggers:
        one.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for one, level in zip(loggers, levels, strict=True):
            one.setLevel(level)
