"""What an experiment is: how the data come about from which intervals are computed."""

from typing import Any, Protocol

import numpy as np

from grpo_theory.simulate.draw.streams import Rng, as_seed_sequence


class Experiment(Protocol):
    """How datasets are drawn, in blocks.

    Attributes
    ----------
    block_replications : int
        The number of datasets in a block: fixed by the shape of a dataset alone, so that a replication is known by its number.
    """

    @property
    def block_replications(self) -> int:
        """The number of datasets in a block."""

    def sample(self, problem: Any, rng: Rng, replications: int) -> Any:
        """Return a block of independent datasets, its arrays with a leading axis of length `replications`."""

    def take(self, block: Any, i: int) -> Any:
        """Return dataset i of a block, without the leading axis."""


def check_experiment(experiment: Experiment) -> None:
    """Raise unless `experiment` has what a laboratory needs."""
    missing = [name for name in ("block_replications", "sample", "take") if not hasattr(experiment, name)]
    if missing:
        raise TypeError(
            f"experiment must have block_replications, sample(problem, rng, replications) and take(block, i), "
            f"as gt.Pilot(batch_size, group_size) has; {experiment!r} lacks {', '.join(missing)}"
        )


def as_generator(rng: Rng) -> np.random.Generator:
    """Return `rng` if it is a Generator, or one seeded by it."""
    return rng if isinstance(rng, np.random.Generator) else np.random.Generator(np.random.SFC64(as_seed_sequence(rng)))
