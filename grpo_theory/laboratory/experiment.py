"""Experiments: how the data are drawn from which intervals are computed."""

from typing import Any, Protocol

import numpy as np

from grpo_theory.simulate.draw.streams import Rng, as_seed_sequence


class Experiment(Protocol):
    """How datasets are drawn, in blocks.

    Attributes
    ----------
    block_replications : int
        The number of datasets in a block: fixed by the shape of a dataset alone, so that a replication is known by its number.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> class Halves:
    ...     block_replications = 64
    ...     def sample(self, problem, rng, replications):
    ...         return gt.Pilot(batch_size=8, group_size=4).sample(problem, rng, replications)
    ...     def take(self, block, i):
    ...         return gt.Pilot(batch_size=8, group_size=4).take(block, i)
    >>> problem, experiment = gt.gallery.problem("two-arms"), Halves()
    >>> block = experiment.sample(problem, 0, 2)
    >>> experiment.take(block, 0).rewards.shape
    (8, 4)
    >>> truth = gt.objective(problem, problem.theta)
    >>> gt.coverage(gt.intervals.value_clustered, problem, truth, experiment=experiment, replications=64, rng=0).replications
    64
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
