"""How NumPy's rivals are run."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.task import SEED, Estimate, Task
from benchmarks.timing import Contender

ROUND_CHUNKS = 64


def contender(name: str, task: Task, size: int, errors: Callable[[np.random.Generator], NDArray[Any]]) -> Contender:
    """Run chunks of so many replications one after the other; the answer is checked at every run."""
    generator = np.random.Generator(np.random.SFC64(SEED))
    chunks = max(1, min(ROUND_CHUNKS, (1 << 20) // (size * task.batch_responses)))

    def run(rounds: int) -> None:
        squared = np.concatenate([errors(generator) for _ in range(rounds * chunks)]).astype(np.float64)
        task.check(name, Estimate(float(squared.mean()), float(squared.std(ddof=1) / np.sqrt(squared.size))))

    return Contender(name, run, chunks * size * task.batch_responses)
