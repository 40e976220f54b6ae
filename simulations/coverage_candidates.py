"""The intervals whose coverage is studied: what each is of, the exact truth, and the experiment that it is tried on."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

import grpo_theory as gt
from grpo_theory import inference
from grpo_theory.inference import Experiment, Interval, Rollouts
from simulations import coverage_limits
from simulations.coverage_problems import directions, problem

ASKED = (256, 16)
"""Batch and group size at which the error of the gradient is asked for."""


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
    source : str
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
    source: str
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
    return gt.moments(case.bandit, case.policy, case.theta, case.kl)


@cache
def _law(name: str) -> gt.GroupSizeLaw:
    case = problem(name)
    return gt.group_size_law(case.bandit, case.policy, case.theta, case.kl)


def value(name: str) -> float:
    """E[Z]."""
    found = _moments(name)
    return float(found.prompt_weights @ found.value)


def gradient(name: str) -> ArrayLike:
    """E[W Z], or its components along the directions of the problem."""
    along, found = directions(name), _moments(name).gradient
    return found if along is None else along @ found


def components(name: str) -> ArrayLike:
    """(c1, c2, c3)."""
    law = _law(name)
    return law.c1, law.c2, law.c3


def error(name: str) -> float:
    """The mean squared error of the leave-one-out gradient at the sizes asked for."""
    case = problem(name)
    batch_size, group_size = ASKED
    found = gt.gradient_mse(
        case.bandit, case.policy, case.theta, "rloo", batch_size=batch_size, group_size=group_size, kl=case.kl
    )
    return float(found)


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
        found = function(rollouts, level)
        estimate = 1.0 / found.estimate
        with np.errstate(invalid="ignore"):
            standard_error = np.where(estimate > 0.0, found.standard_error * estimate**2, np.inf)
        return Interval(estimate, standard_error, 1.0 / found.high, 1.0 / found.low, found.level)

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

SECTION = "docs/derivations.md, {}".format
CANDIDATES = (
    Candidate(
        "value_naive",
        inference.value_naive,
        "value",
        "Student's t, all rewards for independent",
        limit=coverage_limits.naive_value,
    ),
    Candidate("value_clustered", inference.value_clustered, "value", "Student's t on prompts' means"),
    Candidate("value_effective", inference.value_effective, "value", "Korn and Graubard (1998)", conservative=True),
    Candidate(
        "gradient_jackknife",
        inference.gradient_jackknife,
        "gradient",
        SECTION(9),
        limit=coverage_limits.gradient_jackknife,
    ),
    Candidate("gradient_between", inference.gradient_between, "gradient", SECTION(9)),
    Candidate("gradient_ellipsoid", inference.gradient_ellipsoid, "gradient", "Hotelling (1931)"),
    Candidate("components_jackknife", inference.components_jackknife, "components", SECTION(8)),
    Candidate("components_bootstrap", partial(inference.components_bootstrap, rng=0), "components", SECTION(10), slow=True),
    Candidate("mse_jackknife", at_sizes_asked(inference.mse_jackknife), "error", SECTION(8)),
    Candidate("mse_bootstrap", at_sizes_asked(inference.mse_bootstrap, rng=0), "error", SECTION(10), slow=True),
    Candidate("group_size_jackknife", inference.group_size_jackknife, "group size", SECTION(10)),
    Candidate("group_size_fieller", inference.group_size_fieller, "group size", "Fieller (1954)"),
    Candidate("group_size_bootstrap", partial(inference.group_size_bootstrap, rng=0), "group size", SECTION(10), slow=True),
    Candidate("group_size_jackknife", reciprocal(inference.group_size_jackknife), "1/group size", SECTION(10)),
    Candidate("group_size_fieller", reciprocal(inference.group_size_fieller), "1/group size", SECTION(10), conservative=True),
)
