"""What keeps an error of a monitor from ending the run that it watches."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from grpo_theory.user_text import LONGEST_MESSAGE, printable

LOG = logging.getLogger("grpo_theory.live")
"""Remarks and errors are written here, as warnings: these are shown where nobody set up a log."""


class Guard:
    """Holds back errors: of each part of a monitor's work the first one is logged, and later ones are only counted.

    So an early error of one part, such as a missing reward, does not hide that another part never works.

    Attributes
    ----------
    errors : int
        How many there were.
    """

    def __init__(self) -> None:
        self.errors = 0
        self._failed: set[str] = set()

    @contextmanager
    def held(self, what: str) -> Iterator[None]:
        """Hold back what goes wrong inside; an interrupt passes."""
        try:
            yield
        except Exception as error:
            self.refuse(what, error)

    def refuse(self, what: str, error: Exception) -> None:
        """Count an error, and log it if it is the first of its part, which is what failed but for the step."""
        self.errors += 1
        part = re.sub(r"\d+", "", what)
        if part not in self._failed:
            self._failed.add(part)
            message = printable(f"{type(error).__name__}: {error}", LONGEST_MESSAGE)
            LOG.warning("%s failed (%s). Training goes on; later errors there are not logged.", what, message)
            LOG.debug("where it failed", exc_info=error)
