"""The intervals whose coverage is studied: what each is of, the exact truth, and the experiment that it is tried on."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

import grpo_theory as gt
from grpo_theory import intervals
from grpo_theory.intervals import Interval
from grpo_theory.laboratory import Experiment
from grpo_theory.samples import Rollouts
from simulations.coverage import limits
from simulations.coverage.problems import directions, problem

ASKED = (256, 16)
"""Batch and group size at which the error of the gradient is estimated."""


@dataclass(frozen=True)
class Candidate:
    """An interval function under study.

    Attributes
    ----------
    name : str
    function : callable
        ``function(data, level)``, vectorised.
    target : str
        What it is an interval of: a key of `TARGETS`.
    conservative : bool, default False
        Whether it promises at least the nominal coverage, not the nominal one.
    slow : bool, default False
        Whether it is tried with fewer replications, and in the cells of the design only.
    limit : callable, optional
        ``limit(problem_name, group_size, level)`` is the coverage it tends to as B grows, if that is not the level.
    """

    name: str
    function: Callable[..., Any]
    target: str
    conservative: bool = False
    slow: bool = False
    limit: Callable[[str, int, float], ArrayLike] | None = None


@dataclass(frozen=True)
class Target:
    """What is to be covered.

    Attributes
    ----------
    truth : callable
        ``truth(problem_name)``, exact.
    experiment : callable
        ``experiment(problem_name, batch_size, group_size)``.
    labels : tuple of str, default empty
        Names of the truth's components that are targets of their own.
    """

    truth: Callable[[str], ArrayLike]
    experiment: Callable[[str, int, int], Experiment]
    labels: tuple[str, ...] = ()


@cache
def _moments(name: str) -> gt.Moments:
    case = problem(name)
    return gt.moments(case, case.theta)


@cache
def _law(name: str) -> gt.GroupSizeLaw:
    case = problem(name)
    return gt.group_size_law(case, case.theta)


def value(name: str) -> float:
    """E[Z]."""
    moments = _moments(name)
    return float(moments.prompt_weights @ moments.value)


def gradient(name: str) -> ArrayLike:
    """E[W Z], or its components along the directions of the problem."""
    along, gradient = directions(name), _moments(name).gradient
    return gradient if along is None else along @ gradient


def components(name: str) -> ArrayLike:
    """(c1, c2, c3)."""
    law = _law(name)
    return law.c1, law.c2, law.c3


def error(name: str) -> float:
    """The mean squared error of the leave-one-out gradient at the sizes asked for."""
    case = problem(name)
    batch_size, group_size = ASKED
    return float(gt.gradient_mse(case, case.theta, "rloo", batch_size=batch_size, group_size=group_size))


def group_size(name: str) -> float:
    """G*."""
    return _law(name).optimum


def reciprocal_group_size(name: str) -> float:
    """1/G*, which is 0 where all prompts have one gradient."""
    return 1.0 / group_size(name)


def pilot(name: str, batch_size: int, group_size: int) -> Experiment:
    """Draw full scores, or coordinates that keep norms."""
    return gt.Pilot(batch_size, group_size)


def pilot_along_directions(name: str, batch_size: int, group_size: int) -> Experiment:
    """Draw the scores' components along the directions of the problem."""
    return gt.Pilot(batch_size, group_size, directions(name))


def reciprocal(function: Callable[..., Interval]) -> Callable[..., Interval]:
    """Make an interval of 1/x from one of x > 0."""

    def inverted(rollouts: Rollouts, level: float) -> Interval:
        interval = function(rollouts, level)
        estimate = 1.0 / interval.estimate
        with np.errstate(invalid="ignore"):
            standard_error = np.where(estimate > 0.0, interval.standard_error * estimate**2, np.inf)
        return Interval(estimate, standard_error, 1.0 / interval.high, 1.0 / interval.low, interval.level)

    return inverted


def at_sizes_asked(function: Callable[..., Interval], **options: Any) -> Callable[..., Interval]:
    """Make an interval of the error at the sizes asked for."""

    def asked(rollouts: Rollouts, level: float) -> Interval:
        return function(rollouts, *ASKED, level, **options)

    return asked


TARGETS = {
    "value": Target(value, pilot_along_directions),
    "gradient": Target(gradient, pilot_along_directions),
    "components": Target(components, pilot, ("c1", "c2", "c3")),
    "error": Target(error, pilot),
    "group size": Target(group_size, pilot),
    "1/group size": Target(reciprocal_group_size, pilot),
}

CANDIDATES = (
    Candidate("value_naive", intervals.value_naive, "value", limit=limits.naive_value),
    Candidate("value_clustered", intervals.value_clustered, "value"),
    Candidate("value_effective", intervals.value_effective, "value", conservative=True),
    Candidate("gradient_jackknife", intervals.gradient_jackknife, "gradient", limit=limits.gradient_jackknife),
    Candidate("gradient_between", intervals.gradient_between, "gradient"),
    Candidate("gradient_ellipsoid", intervals.gradient_ellipsoid, "gradient"),
    Candidate("components_jackknife", intervals.components_jackknife, "components"),
    Candidate("components_bootstrap", partial(intervals.components_bootstrap, rng=0), "components", slow=True),
    Candidate("mse_jackknife", at_sizes_asked(intervals.mse_jackknife), "error"),
    Candidate("mse_bootstrap", at_sizes_asked(intervals.mse_bootstrap, rng=0), "error", slow=True),
    Candidate("group_size_jackknife", intervals.group_size_jackknife, "group size"),
    Candidate("group_size_fieller", intervals.group_size_fieller, "group size"),
    Candidate("group_size_bootstrap", partial(intervals.group_size_bootstrap, rng=0), "group size", slow=True),
    Candidate("group_size_jackknife", reciprocal(intervals.group_size_jackknife), "1/group size"),
    Candidate("group_size_fieller", reciprocal(intervals.group_size_fieller), "1/group size", conservative=True),
)
