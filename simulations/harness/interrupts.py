"""Interrupts of a command: one line, and exit status 130, whatever they come upon."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STATUS = 130
"""What a shell expects of a command that ended by an interrupt."""
STANDARD_ERROR = 2
"""The number of the file, which may be closed or stand for something else in Python."""


@contextmanager
def ending_at_once(line: str) -> Iterator[None]:
    """Let an interrupt end the process with this line, without any more of Python, as long as modules are imported.

    An exception is not safe here: an extension module that is interrupted while it is initialised turns it into an
    ``ImportError``, or is left half made, which the interpreter does not survive.  Nothing has been computed that could be lost.
    """

    def end(number: int, frame: FrameType | None) -> None:
        try:
            os.write(STANDARD_ERROR, f"{line}\n".encode())
        finally:
            os._exit(STATUS)

    minds = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a job in the background ignores interrupts
    if not minds or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def ended(line: str) -> int:
    """Say that the work was interrupted; returns the exit status."""
    print(line, file=sys.stderr)
    exec("")  # Python ends by the signal if one came while it ran a text, as named tuples do: this makes it forget that
    return STATUS
