"""What keeps an error of a monitor from ending the run that it watches."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from grpo_theory.user_text import LONGEST_MESSAGE, printable

LOG = logging.getLogger("grpo_theory.live")
"""Remarks and the one error are written here, as warnings: these are shown where nobody set up a log."""


class Guard:
    """Holds back errors: the first one is logged, and later ones are only counted.

    Attributes
    ----------
    errors : int
        How many there were.
    """

    def __init__(self) -> None:
        self.errors = 0

    @contextmanager
    def held(self, what: str) -> Iterator[None]:
        """Hold back what goes wrong inside; an interrupt passes."""
        try:
            yield
        except Exception as error:
            self.refuse(what, error)

    def refuse(self, what: str, error: Exception) -> None:
        """Log an error if it is the first, and count it."""
        self.errors += 1
        if self.errors == 1:
            message = printable(f"{type(error).__name__}: {error}", LONGEST_MESSAGE)
            LOG.warning("%s failed (%s). Training goes on; later errors of the monitor are not logged.", what, message)
            LOG.debug("where it failed", exc_info=error)
