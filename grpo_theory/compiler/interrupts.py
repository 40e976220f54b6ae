"""Interrupts that come while the compiler works: they wait until it is done."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Let an interrupt (SIGINT) that comes inside this context take effect when the context ends.

    numba and llvmlite call back from C into Python while they compile. An exception that a signal handler raises in such a
    callback is printed and forgotten, so that Ctrl-C would not end the program. Nothing of numba is used.
    """
    # Only the main thread handles signals. A handler that is not callable is one of the system's (ignored, or the default
    # that kills the process), which no callback can lose.
    if threading.current_thread() is not threading.main_thread() or not callable(signal.getsignal(signal.SIGINT)):
        yield
        return
    pending: list[tuple] = []
    previous = signal.signal(signal.SIGINT, lambda *arguments: pending.append(arguments))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
        if pending and callable(previous):
            previous(*pending[0])
