"""What ends a command: what it cannot use; an interrupt, one line and exit status 130; and an output that takes no more."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

STATUS = 130
"""What a shell expects of a command that ended by an interrupt."""
GO_ON = "what was finished is kept, run the same command to go on"
KEPT = f"interrupted: {GO_ON}"
"""What is said of an interrupt while studies are computed."""
_leave = os._exit
STANDARD_ERROR = 2
"""The number of the file, which may be closed or stand for something else in Python."""


class RefusedError(Exception):
    """What a command cannot do, such as use a results folder, a table, a cluster or a file of kernels.

    Attributes
    ----------
    reason : str
        What it cannot use, and why.
    remedy : str
        The command that mends it, without the program's name and options; empty if there is none.
    """

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(reason, remedy)
        self.reason, self.remedy = reason, remedy

    def told(self, options: str, program: str = "python -m simulations") -> str:
        """Return the message, its remedy with the options that were given."""
        command = " ".join([program, self.remedy, options]).rstrip()
        return f"{self.reason}: run `{command}`" if self.remedy else self.reason

    def __str__(self) -> str:
        return self.told("")


@contextmanager
def ending_at_once(line: str) -> Iterator[None]:
    """Let an interrupt end the process with this line, without running more Python code, while modules are imported.

    An exception is not safe here.  An extension module that is interrupted while it is initialised turns the exception into an
    ``ImportError``.  Or it is left half made, and the interpreter crashes.  Nothing has been computed that could be lost.
    """

    def end(number: int, frame: FrameType | None) -> None:
        try:
            os.write(STANDARD_ERROR, f"{line}\n".encode())
        finally:
            _leave(STATUS)

    minds = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a job in the background ignores interrupts
    if not minds or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Hold back interrupts for a moment, as processes that start in it do for good; here they come when it is over."""
    if not hasattr(signal, "pthread_sigmask"):  # as on Windows
        yield
        return
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


@contextmanager
def exits_told() -> Iterator[None]:
    """Let `os._exit` of a study's, in any thread, be said in a line, and its status not be 0: nothing was decided."""
    leave, own, once = os._exit, os.getpid(), threading.Lock()

    def end(status: int) -> NoReturn:
        if os.getpid() == own:  # not a process that was forked, which ends so
            once.acquire()  # another thread would say it again while this one writes
            os.write(STANDARD_ERROR, f"a study has ended the process with os._exit({status}): {GO_ON}\n".encode())
            leave(status or 1)
        leave(status)

    os._exit = end
    try:
        yield
    finally:
        os._exit = leave


def ended(line: str) -> int:
    """Say that the work was interrupted; returns the exit status, or ends where threads would be waited for."""
    print(line, file=sys.stderr, flush=True)
    if any(not one.daemon for one in threading.enumerate() if one is not threading.main_thread()):
        _leave(STATUS)
    # If a signal arrives while exec() runs (as in namedtuple creation), CPython exits with it; a no-op exec resets that.
    exec("")
    return STATUS


def output_refused(error: OSError) -> int:
    """Say that the standard output takes no more, as on a full disk, if that is what the error is of, or raise it again.

    Returns the exit status.
    """
    try:
        print(flush=True)
    except OSError as why:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python would try once more at its end
        if not isinstance(error, BrokenPipeError):  # whoever read the output has enough of it, as `head` has
            print(f"standard output: {why.strerror or why}", file=sys.stderr)
        return 1
    raise error
