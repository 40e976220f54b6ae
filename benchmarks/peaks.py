"""How fast this machine does each kind of work on one thread, by small compiled loops over lanes that stay in the first cache."""

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np

from benchmarks.work import Peaks
from grpo_theory.compiler import OPTIONS
from grpo_theory.simulate.draw.streams import LANES, block_streams, fill_words

SECONDS = 0.02
ROWS = 16
"""Rows of 128 lanes that a loop goes through: 16 KB of words."""


def _draw(times, lanes, words):
    for _ in range(times):
        fill_words(lanes, LANES, words)


def _compare(times, words, thresholds, counts):
    """Compare each word with four thresholds."""
    for _ in range(times):
        for i in range(0, words.shape[0], 4):
            for j in range(LANES):
                first, second, third, fourth = words[i, j], words[i + 1, j], words[i + 2, j], words[i + 3, j]
                for o in range(4):
                    threshold = thresholds[o, j]
                    total = counts[o, j] + np.uint16(first < threshold) + np.uint16(second < threshold)
                    counts[o, j] = total + np.uint16(third < threshold) + np.uint16(fourth < threshold)


def _multiply(times, factor, x):
    """Multiply and add eight times while a number is in a register."""
    for _ in range(times):
        for j in range(LANES):
            y = x[j]
            for _ in range(8):
                y = y * factor + 1.0
            x[j] = y


@cache
def _loops() -> dict[str, tuple[Callable[[int], Any], int]]:
    """Return the loops, and how much work one turn of each is."""
    options = OPTIONS | {"fastmath": {"contract"}}
    draw, compare, multiply = (numba.njit(function, **options) for function in (_draw, _compare, _multiply))
    lanes = block_streams(np.random.SeedSequence(1), 0).lanes
    words = np.zeros((ROWS, LANES), dtype=np.uint64)
    halves = np.random.default_rng(1).integers(-(1 << 15), 1 << 15, (4 * ROWS, LANES), dtype=np.int16)
    thresholds, counts, x = halves[:4].copy(), np.zeros((4, LANES), dtype=np.uint16), np.ones(LANES)
    return {
        "word": (lambda times: draw(times, lanes, words), words.size),
        "comparison": (lambda times: compare(times, halves, thresholds, counts), 4 * halves.size),
        "operation": (lambda times: multiply(times, 0.5, x), 8 * LANES),
    }


def measure_peaks(repetitions: int = 15) -> Peaks:
    """Return the least that one of each takes, the repetitions of the loops interleaved."""
    loops, times = _loops(), {}
    for kind, (run, _) in loops.items():
        run(1)
        times[kind] = 64
        while _seconds(run, times[kind]) < SECONDS:
            times[kind] *= 2
    least = dict.fromkeys(loops, np.inf)
    for _ in range(repetitions):
        for kind, (run, size) in loops.items():
            least[kind] = min(least[kind], 1e9 * _seconds(run, times[kind]) / (times[kind] * size))
    return Peaks(**least)


def _seconds(run: Callable[[int], Any], times: int) -> float:
    start = time.perf_counter()
    run(times)
    return time.perf_counter() - start
