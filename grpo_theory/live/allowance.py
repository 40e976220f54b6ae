"""How much of a run's time a monitor may take, and what it has taken."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from grpo_theory.validation import as_fraction

PLANNED = 0.8
"""The share of the allowed time that is planned to be spent; how long a reading takes is known from the last one alone."""


class Allowance:
    """A share of the time that passes, and what of it was spent.

    Parameters
    ----------
    share : float or None
        The most that may be spent, as a share of the other time since `start`; None sets no limit.
    clock : callable, default time.perf_counter
        Returns seconds.
    """

    def __init__(self, share: float | None, clock: Callable[[], float] = time.perf_counter) -> None:
        self.share = None if share is None else as_fraction("overhead", share)
        self._clock = clock
        self._depth = 0
        self.start()

    def start(self) -> None:
        """Count time from now on."""
        self._began, self.spent = self._clock(), 0.0

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._began

    @property
    def overhead(self) -> float:
        """What was spent, as a share of the other time that has passed; 0 before any has."""
        others = self.elapsed - self.spent
        return self.spent / others if others > 0.0 else 0.0

    @property
    def left(self) -> float:
        """Seconds that are planned to be spent; below 0 where more were already, and infinite without a limit."""
        if self.share is None:
            return float("inf")
        return PLANNED * self.share * (self.elapsed - self.spent) - self.spent

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Count what happens inside as spent; inside another such block it counts once."""
        began, self._depth = self._clock(), self._depth + 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                self.spent += self._clock() - began
