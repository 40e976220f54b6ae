"""What is measured: errors of gradient estimates, and training, by the leave-one-out estimator or another."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

import grpo_theory as gt
from benchmarks.timing import Contender
from grpo_theory.problem.logits import FeatureMap, HeadMap

Array = NDArray[np.float64]
SEED = 1
ROUND_RESPONSES = 1 << 22
PROMPTS, RESPONSES = 6, 4
"""Of problems that are made up."""


def find_problem(name: str) -> gt.Problem:
    """Return a problem of the gallery, or a tabular one that is made up.

    Such as "graded of 3", with three values of the reward, from 0 to 1. Such as "penalised of 2", with two values, and a penalty
    for what leads away from the uniform policy.
    """
    kind, _, n_values = name.partition(" of ")
    if not n_values:
        return gt.gallery.problem(name)
    generator = np.random.default_rng(int(n_values))
    law = generator.dirichlet(np.ones(int(n_values)), size=(PROMPTS, RESPONSES))
    bandit, policy = gt.Bandit.from_law(np.linspace(0.0, 1.0, int(n_values)), law), gt.TabularSoftmax(PROMPTS, RESPONSES)
    penalty = gt.KL(0.1, np.full((PROMPTS, RESPONSES), 1.0 / RESPONSES)) if kind == "penalised" else None
    return gt.Problem(bandit, policy, penalty, theta=generator.normal(size=policy.dimension))


@dataclass(frozen=True)
class Task:
    """A problem and the shape of a batch, of which the estimate's error is wanted.

    Attributes
    ----------
    problem_name : str
        A problem that `find_problem` knows; rivals ask for a tabular policy or a softmax head.
    batch_size, group_size : int
        B prompts, G responses each.
    estimator : str, default "rloo"
        Rivals have no other.
    """

    problem_name: str
    batch_size: int
    group_size: int
    estimator: str = "rloo"

    @property
    def label(self) -> str:
        """The problem and the shape, for the table."""
        return f"{self.problem_name}, {self.batch_size} x {self.group_size}"

    @property
    def batch_responses(self) -> int:
        """The number of responses in a batch, B G."""
        return self.batch_size * self.group_size

    @cached_property
    def problem(self) -> gt.Problem:
        """The problem."""
        return find_problem(self.problem_name)

    @cached_property
    def point(self) -> gt.Point:
        """The problem at its theta, with the law of a whole response."""
        return self.problem.at(self.problem.theta)

    @cached_property
    def is_tabular(self) -> bool:
        """Whether a logit is a parameter, so that gradients are the logit gradients themselves, prompt by prompt."""
        return isinstance(self.problem.policy, gt.TabularSoftmax)

    @cached_property
    def inner_products(self) -> Array:
        """The weights w in <gradient, gradient> = sum w(m, n) c_m . c_n of logit gradients, shape (M, M)."""
        logit_map = self.problem.policy.logit_map
        return logit_map.hidden @ logit_map.hidden.T if isinstance(logit_map, HeadMap) else np.eye(logit_map.n_prompts)

    @cached_property
    def gradient_logits(self) -> Array:
        """The inner products of the true gradient with unit logit gradients, shape (M, K)."""
        return self.problem.policy.logits(self.point.moments.gradient)

    @cached_property
    def exact_mse(self) -> float:
        """The exact mean squared error."""
        where = (self.problem, self.problem.theta)
        return float(gt.gradient_mse(*where, self.estimator, batch_size=self.batch_size, group_size=self.group_size))

    def check(self, name: str, mse: float, standard_error: float) -> None:
        """Raise if an estimate lies more than five standard errors from the exact value."""
        z = (mse - self.exact_mse) / standard_error
        if not abs(z) < 5.0:
            raise RuntimeError(f"{name} is {z:.1f} standard errors from the exact error of {self.label}")

    def simulator(self, workers: int = 1, estimators: Sequence[str] = ()) -> Contender:
        """Return `simulate_gradients` of the estimator, or of several that begin with it; the answer is checked at every run."""
        shape: dict[str, Any] = {"batch_size": self.batch_size, "group_size": self.group_size}

        def run(rounds: int) -> None:
            replications = rounds * ROUND_RESPONSES // self.batch_responses
            where = (self.problem, self.problem.theta, estimators or self.estimator)
            found = gt.simulate_gradients(*where, **shape, replications=replications, rng=SEED, workers=workers)
            self.check("simulate_gradients", float(found.mse[0]), float(found.mse_standard_error[0]))

        return Contender("simulate_gradients", run, ROUND_RESPONSES)


@dataclass(frozen=True, kw_only=True)
class Training(Task):
    """The same for many runs of training, which are compared by their mean objective at the end; rivals ask for dense features.

    Attributes
    ----------
    schedule : Schedule
    steps, runs : int
        The length of a run, and the number of runs in a round.
    """

    schedule: gt.Schedule
    steps: int
    runs: int

    @property
    def label(self) -> str:
        """The problem and the shape, for the table."""
        return f"training, {super().label}"

    @property
    def responses(self) -> int:
        """The number of responses in a round."""
        return self.runs * self.steps * self.batch_responses

    @cached_property
    def features(self) -> Array:
        """The feature vectors of a linear policy, shape (M, K, d)."""
        logit_map = self.problem.policy.logit_map
        assert isinstance(logit_map, FeatureMap)
        return logit_map.features

    def train(self, runs: int, seed: int = SEED, workers: int = 1) -> Array:
        """Train, and return the runs' exact objectives at the end."""
        where = (self.problem, self.problem.theta, self.estimator, self.schedule)
        shape: dict[str, Any] = {"batch_size": self.batch_size, "group_size": self.group_size, "steps": self.steps}
        return gt.simulate_training(*where, **shape, replications=runs, rng=seed, workers=workers).objectives[:, -1]

    @cached_property
    def reference(self) -> Array:
        """The objectives of a round of runs on a seed that no contender uses."""
        return self.train(self.runs, seed=SEED + 1)

    def check_runs(self, name: str, objectives: Array) -> None:
        """Raise if the mean or the variance at the end is more than five standard errors from the reference's."""
        for power in (1, 2):
            one, other = ((values - self.reference.mean()) ** power for values in (objectives, self.reference))
            z = (one.mean() - other.mean()) / np.hypot(*(x.std(ddof=1) / np.sqrt(x.size) for x in (one, other)))
            if not abs(z) < 5.0:
                raise RuntimeError(f"{name} ends {z:.1f} standard errors from the simulator in {self.label} (moment {power})")

    def simulator(self, workers: int = 1, estimators: Sequence[str] = ()) -> Contender:
        """Return `simulate_training` as a contender; its answer is checked at every run."""

        def run(rounds: int) -> None:
            self.check_runs("simulate_training", self.train(rounds * self.runs, workers=workers))

        return Contender("simulate_training", run, self.responses)


TASKS = (
    *(Task("tabular", batch_size, group_size) for batch_size, group_size in ((4, 8), (8, 16), (8, 64), (2, 512))),
    *(Task("lm-few-shot", batch_size, group_size) for batch_size, group_size in ((8, 16), (4, 64))),
    Task("graded of 3", 8, 16),
)
TRAINED = (
    Training("kl-tabular", 1, 4, schedule=gt.Harmonic(5.0, 10), steps=500, runs=4096),
    Training("linear", 4, 8, schedule=gt.Constant(0.05), steps=200, runs=2048),
)
PRECISIONS = ("single", "double")
