"""Fair timings: everyone warm, everyone given enough work, everyone in turn."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

SECONDS = 0.25
REPETITIONS = 5


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


def enough_rounds(contender: Contender) -> int:
    """Return a number of rounds that takes long enough; the contender is warm then."""
    contender.run(1)
    rounds = 1
    while (seconds := _seconds(contender, rounds)) < SECONDS:
        rounds = max(2 * rounds, int(1.1 * rounds * SECONDS / seconds)) if seconds > 0.02 else 8 * rounds
    return rounds


def nanoseconds_per_response(contenders: Sequence[Contender]) -> list[float]:
    """Return each contender's median cost of one response, their repetitions interleaved."""
    rounds = [enough_rounds(contender) for contender in contenders]
    costs: list[list[float]] = [[] for _ in contenders]
    for _ in range(REPETITIONS):
        for contender, count, found in zip(contenders, rounds, costs, strict=True):
            found.append(1e9 * _seconds(contender, count) / (count * contender.responses))
    return [median(found) for found in costs]


def _seconds(contender: Contender, rounds: int) -> float:
    start = time.perf_counter()
    contender.run(rounds)
    return time.perf_counter() - start
