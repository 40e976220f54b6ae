"""What is measured: the error of the leave-one-out estimator, or of another, on a problem of the gallery or one of a size."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import grpo_theory as gt
from benchmarks.problems import find_problem
from grpo_theory.problem.logit_map import HeadMap

ESTIMATOR = "rloo"
SEED = 1


class Estimate(NamedTuple):
    """A mean squared error and its standard error."""

    mse: float
    standard_error: float


@dataclass(frozen=True)
class Task:
    """A problem and the shape of a batch.

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
    estimator: str = ESTIMATOR

    @property
    def label(self) -> str:
        """The problem and the shape, for the table."""
        return f"{self.problem_name}, {self.batch_size} x {self.group_size}"

    @property
    def key(self) -> tuple[str, int, int]:
        """What the task is made from."""
        return self.problem_name, self.batch_size, self.group_size

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
    def exact(self) -> gt.Moments:
        """The exact moments; the true gradient is among them."""
        return self.point.moments

    @cached_property
    def is_tabular(self) -> bool:
        """Whether gradients are the covectors themselves, prompt by prompt."""
        return isinstance(self.problem.policy, gt.TabularSoftmax)

    @cached_property
    def inner_products(self) -> NDArray[np.float64]:
        """The weights w in <gradient, gradient> = sum w(m, n) c_m . c_n of covectors, shape (M, M)."""
        logit_map = self.problem.policy.logit_map
        if isinstance(logit_map, HeadMap):
            return logit_map.hidden @ logit_map.hidden.T
        return np.eye(logit_map.n_prompts)

    @cached_property
    def gradient_logits(self) -> NDArray[np.float64]:
        """The inner products of the true gradient with unit covectors, shape (M, K)."""
        return self.problem.policy.logits(self.exact.gradient)

    @cached_property
    def exact_mse(self) -> float:
        """The exact mean squared error."""
        where = (self.problem, self.problem.theta)
        return float(gt.gradient_mse(*where, self.estimator, batch_size=self.batch_size, group_size=self.group_size))

    def check(self, name: str, estimate: Estimate) -> None:
        """Raise if an estimate lies more than five standard errors from the exact value."""
        z = (estimate.mse - self.exact_mse) / estimate.standard_error
        if not abs(z) < 5.0:
            raise RuntimeError(f"{name} is {z:.1f} standard errors from the exact error of {self.label}")


TASKS = (
    *(Task("tabular", batch_size, group_size) for batch_size, group_size in ((4, 8), (8, 16), (8, 64), (2, 512))),
    *(Task("lm-few-shot", batch_size, group_size) for batch_size, group_size in ((8, 16), (4, 64))),
)
GRADED_TASK = Task("graded of 3", 8, 16)
"""With rewards 0, 1/2 and 1."""
LARGE_GROUP = 64
"""From this group size on more is asked of the simulator."""
