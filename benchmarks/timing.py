"""Fair timings: everyone warm, everyone given enough work, everyone in turn."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

SECONDS, REPETITIONS = 0.25, 5


@dataclass(frozen=True)
class Contender:
    """Something to be timed.

    Attributes
    ----------
    name : str
    run : callable
        ``run(rounds)`` does the work of so many rounds.
    responses : int
        The number of responses in a round.
    """

    name: str
    run: Callable[[int], Any]
    responses: int

    def seconds(self, rounds: int) -> float:
        """Return how long so many rounds take."""
        start = time.perf_counter()
        self.run(rounds)
        return time.perf_counter() - start


class Timed(NamedTuple):
    """A contender, and the nanoseconds that a response takes it: the median and the least of the repetitions."""

    name: str
    median: float
    least: float

    def __str__(self) -> str:
        return f"{self.median:.3g} ({self.least:.3g})"


def timed(contenders: Sequence[Contender], seconds: float = SECONDS, repetitions: int = REPETITIONS) -> list[Timed]:
    """Return what each contender takes, their repetitions interleaved, each of so many seconds at the least."""
    counts = []
    for contender in contenders:
        contender.run(1)  # and is warm then
        count = 1
        while (taken := contender.seconds(count)) < seconds:
            count = max(2 * count, int(1.1 * count * seconds / taken)) if taken > 0.08 * seconds else 8 * count
        counts.append(count)
    costs: list[list[float]] = [[] for _ in contenders]
    for _ in range(repetitions):
        for contender, count, measured in zip(contenders, counts, costs, strict=True):
            measured.append(1e9 * contender.seconds(count) / (count * contender.responses))
    return [Timed(each.name, median(some), min(some)) for each, some in zip(contenders, costs, strict=True)]
