"""Fair timings: everyone warm, everyone given enough work, everyone in turn."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

SECONDS = 0.25
REPETITIONS = 5


class Cost(NamedTuple):
    """Nanoseconds that a response takes: the median and the least of the repetitions."""

    median: float
    least: float

    def __str__(self) -> str:
        return f"{self.median:.3g} ({self.least:.3g})"


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


def enough_rounds(contender: Contender, least: float = SECONDS) -> int:
    """Return a number of rounds that takes so many seconds at the least; the contender is warm then."""
    contender.run(1)
    rounds = 1
    while (seconds := _seconds(contender, rounds)) < least:
        rounds = max(2 * rounds, int(1.1 * rounds * least / seconds)) if seconds > 0.08 * least else 8 * rounds
    return rounds


def costs_of(contenders: Sequence[Contender], seconds: float = SECONDS, repetitions: int = REPETITIONS) -> list[Cost]:
    """Return each contender's cost, their repetitions interleaved."""
    rounds = [enough_rounds(contender, seconds) for contender in contenders]
    costs: list[list[float]] = [[] for _ in contenders]
    for _ in range(repetitions):
        for contender, count, measured in zip(contenders, rounds, costs, strict=True):
            measured.append(1e9 * _seconds(contender, count) / (count * contender.responses))
    return [Cost(median(measured), min(measured)) for measured in costs]


class Timed(NamedTuple):
    """A contender's name and cost."""

    name: str
    cost: Cost

    @classmethod
    def read(cls, written: Sequence[Any]) -> "Timed":
        """Return it as another process wrote it in JSON."""
        name, cost = written
        return cls(name, Cost(*cost))


def timed(contenders: Sequence[Contender], seconds: float = SECONDS, repetitions: int = REPETITIONS) -> list[Timed]:
    """Return the names and costs of contenders."""
    costs = costs_of(contenders, seconds, repetitions)
    return [Timed(contender.name, cost) for contender, cost in zip(contenders, costs, strict=True)]


def fastest(timed: Sequence[Timed]) -> Timed:
    """Return the contender with the least median."""
    return min(timed, key=lambda each: each.cost.median)


def _seconds(contender: Contender, rounds: int) -> float:
    start = time.perf_counter()
    contender.run(rounds)
    return time.perf_counter() - start
