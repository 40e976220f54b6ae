"""The experiment of a training run: the record that it leaves behind."""

from dataclasses import dataclass

from numpy.typing import ArrayLike

from grpo_theory.arrays import read_only
from grpo_theory.estimation import Estimator
from grpo_theory.problem import Problem
from grpo_theory.samples import TrainingRecord
from grpo_theory.schedule import Schedule, step_sizes
from grpo_theory.simulate import BLOCK_RUNS, simulate_records
from grpo_theory.simulate.draw.streams import Rng
from grpo_theory.validation import as_count, as_real_array


@dataclass(frozen=True, eq=False)
class RecordedTraining:
    """The experiment of training one run and keeping its record.

    A KL penalty of the problem is part of the reward.

    Parameters
    ----------
    estimator : str or Estimator
    schedule : Schedule or array_like, shape (steps,)
    batch_size, group_size : int
        B prompts, G responses each, a step.
    steps : int
        The length n of the run.
    theta0 : array_like, shape (d,), optional
        Where it starts; the problem's theta if omitted.
    tail : float, default 0.5
        The share of the run that is its last part.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("single")
    >>> training = gt.RecordedTraining("rloo", gt.Constant(0.1), batch_size=4, group_size=4, steps=40)
    >>> block = training.sample(problem, 0, replications=2)
    >>> block.path.shape, training.take(block, 1).path.shape
    ((2, 41, 2), (41, 2))
    """

    estimator: str | Estimator
    schedule: Schedule | ArrayLike
    batch_size: int
    group_size: int
    steps: int
    theta0: ArrayLike | None = None
    tail: float = 0.5

    def __post_init__(self) -> None:
        if not callable(getattr(self.schedule, "steps", None)):
            object.__setattr__(self, "schedule", read_only(step_sizes(self.schedule, as_count("steps", self.steps))))
        if self.theta0 is not None:
            object.__setattr__(self, "theta0", read_only(as_real_array("theta0", self.theta0, None)))

    @property
    def block_replications(self) -> int:
        """The number of runs in a block of the simulator."""
        return BLOCK_RUNS

    def sample(self, problem: Problem, rng: Rng, replications: int) -> TrainingRecord:
        """Train independently, at most a block of runs at a time.

        Parameters
        ----------
        problem : Problem
        rng : int, SeedSequence or Generator
        replications : int
            The number R of runs, at most `block_replications`.

        Returns
        -------
        TrainingRecord
            Path (R, n + 1, d).
        """
        replications = as_count("replications", replications)
        if replications > self.block_replications:
            raise ValueError(f"replications must be at most a block of {self.block_replications}, got {replications}")
        records = simulate_records(
            problem,
            problem.theta if self.theta0 is None else self.theta0,
            self.estimator,
            self.schedule,
            batch_size=self.batch_size,
            group_size=self.group_size,
            steps=self.steps,
            replications=replications,
            rng=rng,
            workers=1,
            tail=self.tail,
        )
        return next(records)

    def take(self, block: TrainingRecord, i: int) -> TrainingRecord:
        """Return run i of a block."""
        hessian = None if block.hessian is None else block.hessian[i]
        return TrainingRecord(block.step_sizes, block.path[i], block.mean_rewards[i], hessian, tail=block.tail)
