"""What is trained: many runs of the leave-one-out estimator, or of another, compared by their mean objective at the end."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

import grpo_theory as gt
from benchmarks.problems import find_problem
from benchmarks.task import ESTIMATOR, SEED
from benchmarks.timing import Contender
from grpo_theory.problem.logit_map import FeatureMap

Array = NDArray[np.float64]
PRECISIONS = ("single", "double")


@dataclass(frozen=True)
class TrainingTask:
    """A problem, the shape of a batch, the step sizes and the size of a round.

    Attributes
    ----------
    problem_name : str
        A problem that `find_problem` knows, with a tabular policy or a dense linear one.
    batch_size, group_size : int
        B prompts, G responses each, a step.
    schedule : Schedule
    steps, runs : int
        The length of a run, and the number of runs in a round.
    estimator : str, default "rloo"
        Rivals have no other.
    """

    problem_name: str
    batch_size: int
    group_size: int
    schedule: gt.Schedule
    steps: int
    runs: int
    estimator: str = ESTIMATOR

    @property
    def label(self) -> str:
        """The problem and the shape, for the table."""
        return f"training, {self.problem_name}, {self.batch_size} x {self.group_size}"

    @property
    def responses(self) -> int:
        """The number of responses in a round."""
        return self.runs * self.steps * self.batch_size * self.group_size

    @cached_property
    def problem(self) -> gt.Problem:
        """The problem."""
        return find_problem(self.problem_name)

    @cached_property
    def is_tabular(self) -> bool:
        """Whether a logit is a parameter."""
        return isinstance(self.problem.policy, gt.TabularSoftmax)

    @cached_property
    def features(self) -> Array:
        """The feature vectors of a linear policy, shape (M, K, d)."""
        logit_map = self.problem.policy.logit_map
        assert isinstance(logit_map, FeatureMap)
        return logit_map.features

    def simulate(self, runs: int, seed: int = SEED, workers: int = 1) -> Array:
        """Train, and return the runs' exact objectives at the end."""
        training = gt.simulate_training(
            self.problem,
            self.problem.theta,
            self.estimator,
            self.schedule,
            batch_size=self.batch_size,
            group_size=self.group_size,
            steps=self.steps,
            replications=runs,
            rng=seed,
            workers=workers,
        )
        return training.objectives[:, -1]

    @cached_property
    def reference(self) -> Array:
        """The objectives of a round of runs on a seed that no contender uses."""
        return self.simulate(self.runs, seed=SEED + 1)

    def check(self, name: str, objectives: Array) -> None:
        """Raise if the mean or the variance at the end is more than five standard errors from the reference's."""
        z = self.distances(objectives)
        if not max(map(abs, z)) < 5.0:
            raise RuntimeError(f"{name} ends {z[0]:.1f} and {z[1]:.1f} standard errors from the simulator in {self.label}")

    def distances(self, objectives: Array) -> tuple[float, float]:
        """Return how many standard errors the mean and the variance lie from the reference's."""
        both = np.asarray(objectives, dtype=np.float64), self.reference
        centred = [values - self.reference.mean() for values in both]
        return _distance(*centred), _distance(*(values**2 for values in centred))


def _distance(one: Array, other: Array) -> float:
    error = np.hypot(*(values.std(ddof=1) / np.sqrt(values.size) for values in (one, other)))
    return float((one.mean() - other.mean()) / error)


def trainer(task: TrainingTask, *, workers: int = 1) -> Contender:
    """Return `simulate_training` as a contender; its answer is checked at every run."""

    def run(rounds: int) -> None:
        task.check("simulate_training", task.simulate(rounds * task.runs, workers=workers))

    return Contender("simulate_training", run, task.responses)


TRAINING_TASKS = (
    TrainingTask("kl-tabular", 1, 4, gt.Harmonic(5.0, 10), steps=500, runs=4096),
    TrainingTask("linear", 4, 8, gt.Constant(0.05), steps=200, runs=2048),
)
