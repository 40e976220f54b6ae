"""The options of commands that compute: what a user may give, and how it is written to be repeated."""

import argparse
import logging
import os
import re
import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from multiprocessing import active_children, connection, get_context, parent_process
from pathlib import Path
from typing import Any

from grpo_theory.harness.interrupts import RefusedError, interrupts_held

PATIENCE = 20.0
"""Seconds to wait for a scheduler that does not answer."""
CHATTY = ("distributed.client", "distributed.core", "distributed.comm", "distributed.utils", "distributed.batched")
"""Loggers of Dask that write tracebacks when a connection ends, which is said in a line here."""


class ClusterLostError(BrokenExecutor):
    """A cluster that was lost while chunks were computed; the message says how."""


@contextmanager
def dask(workers: int, prepare: Callable[[], object], address: str = "") -> Iterator[Executor]:
    """Open a cluster of Dask's: of so many processes on this machine, or the one whose scheduler is at HOST:PORT.

    A process that dies is replaced and its chunk computed again.  Elsewhere the cluster decides how many workers it has, and when
    they come and go.

    Raises
    ------
    RefusedError
        If no scheduler answers there, or Dask is not installed.
    ClusterLostError
        If it is lost at work.
    """
    try:
        import distributed
    except ImportError:
        raise RefusedError("--executor dask needs the extra dask: pip install 'grpo-theory[dask]'") from None
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
            raise RefusedError(f"--executor must name a scheduler that answers, got {where}: {error}") from None
        try:
            yield client.get_executor(pure=False)
        except distributed.KilledWorker as error:
            raise ClusterLostError("chunks have ended the workers that they were given to, perhaps for want of memory") from error
        except (CancelledError, distributed.comm.core.CommClosedError) as error:
            raise ClusterLostError(f"the scheduler {where} is gone") from error


Opened = Callable[[int, Callable[[], object]], AbstractContextManager[Executor]]
"""Opens an executor of so many workers, and closes it; its processes may begin by calling what imports the studies."""


def nothing(*arguments: object) -> None:
    """Do nothing: a process is started for it all the same."""


@contextmanager
def threads(workers: int, prepare: Callable[[], object] = nothing) -> Iterator[Executor]:
    """Open threads, which share what this process has imported; an interrupt does not wait for what they are at."""
    pool, wait = ThreadPoolExecutor(workers), True
    try:
        yield pool
    except KeyboardInterrupt:
        wait = False
        raise
    finally:
        pool.shutdown(wait, cancel_futures=not wait)


@contextmanager
def process_pool(workers: int, prepare: Callable[[], object] = nothing) -> Iterator[Executor]:
    """Open processes, in which a study's Python runs side by side too; they start at once, and each first calls `prepare`.

    They import the studies while the parent finds out what is missing.  They are deaf to interrupts from their first moment: the
    parent alone says what an interrupt ends, and ends them.  If it is killed itself, they end with it.
    """
    with ProcessPoolExecutor(workers, get_context("spawn"), initializer=_begin, initargs=(prepare,)) as pool:
        with interrupts_held():
            for _ in range(workers):
                pool.submit(nothing)
        try:
            yield pool
        except KeyboardInterrupt:
            for process in active_children():
                process.kill()
            raise


def _begin(prepare: Callable[[], object]) -> None:
    """Ignore interrupts, and end with the parent: the pipe that is waited at is held open by the process's siblings, too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if (parent := parent_process()) is not None:
        ends = [parent.sentinel]
        threading.Thread(target=lambda: (connection.wait(ends), os._exit(1)), daemon=True).start()
    prepare()


EXECUTORS: dict[str, Opened] = {"threads": threads, "processes": process_pool, "dask": dask}
"""Executors by name."""


def executor_named(name: str) -> Opened:
    """Return what opens the executor that the command line names.

    Raises
    ------
    argparse.ArgumentTypeError
        If there is none of that name.
    """
    if found := re.fullmatch(r"dask://([^\s/]+:\d{1,5})", name):
        return partial(dask, address=found[1])
    if name not in EXECUTORS:
        raise argparse.ArgumentTypeError(f"must be one of {', '.join(EXECUTORS)} or dask://HOST:PORT, got {name!r}")
    return EXECUTORS[name]


SHARDS = "shards"
"""Where shards' folders stand within the results."""


def shard(text: str) -> tuple[int, int]:
    """Read i/n, the number of a shard, from 1, and how many equal parts of a run there are.

    Raises
    ------
    argparse.ArgumentTypeError
        Unless 1 <= i <= n.
    """
    found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise argparse.ArgumentTypeError(f"must be i/n with 1 <= i <= n, as 3/8, got {text!r}")
    return int(found[1]), int(found[2])


def add_workers(command: argparse.ArgumentParser) -> None:
    """Let a command be told who computes."""
    command.add_argument(
        "--workers", type=_at_least(1), default=os.cpu_count() or 1, help="how many (default: as many as processors)"
    )
    command.add_argument(
        "--executor",
        type=executor_named,
        default="threads",
        metavar="NAME",
        help="what the workers are: threads (default), processes, dask (processes that are replaced when they die), "
        "or dask://HOST:PORT (those of a cluster)",
    )


def add_run(command: argparse.ArgumentParser, quick: str) -> None:
    """Let a command be told what is computed; `quick` says what becomes of a quick run's results."""
    command.add_argument("--quick", action="store_true", help=f"fewer replications; {quick}")
    command.add_argument("--kernels", type=Path, action="append", default=[], metavar="FILE", help="register its estimators")
    command.add_argument("--seed", type=_at_least(0), default=0)


def repeated(*, quick: bool, seed: int, results: Path | None, kernels: Sequence[Path] = (), folder: str = "--results") -> str:
    """Return the options that a command must repeat to be about the same results; the defaults are left out."""
    words = ["--quick"] if quick else []
    words += ["--seed", str(seed)] if seed else []
    words += [folder, str(results)] if results is not None else []
    words += [word for path in kernels for word in ("--kernels", str(path))]
    return shlex.join(words)


def _at_least(least: int) -> Callable[[str], int]:
    """Return what reads a whole number of at least so many."""

    def integer(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, got {text}")
        return int(text)

    return integer
