"""The intervals whose coverage is studied, the exact truths, and what coverages tend to that do not tend to the level."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

import grpo_theory as gt
from grpo_theory import intervals
from grpo_theory.intervals import Interval
from simulations.coverage.problems import directions, problem

LEVEL = 0.95
"""Of all intervals."""
ASKED = (256, 16)
"""Batch and group size at which the error of the gradient is estimated."""
LABELS = {"components": ("c1", "c2", "c3")}
"""Components of a truth that are targets of their own."""


class Candidate(NamedTuple):
    """An interval function under study.

    Attributes
    ----------
    name : str
    function : callable
        ``function(data, level)``, vectorised.
    target : str
        What it is an interval of: see `truth`.
    conservative : bool, default False
        Whether it promises at least the nominal coverage, not the nominal one.
    slow : bool, default False
        Whether it is tried with fewer replications, and in the cells of the design only.
    limit : callable, optional
        ``limit(problem_name, group_size, level)`` is the coverage it tends to as B grows, if that is not the level.
    """

    name: str
    function: Any
    target: str
    conservative: bool = False
    slow: bool = False
    limit: Any = None


def truth(target, name):
    """Return what is to be covered."""
    case, along = problem(name), directions(name)
    moments, law = gt.moments(case, case.theta), gt.group_size_law(case, case.theta)
    batch_size, group_size = ASKED
    truths: dict[str, Any] = {
        "value": moments.prompt_weights @ moments.value,
        "gradient": moments.gradient if along is None else along @ moments.gradient,
        "components": (law.c1, law.c2, law.c3),
        "error": gt.gradient_mse(case, case.theta, "rloo", batch_size=batch_size, group_size=group_size),
        "group size": law.optimum,
        "1/group size": 1.0 / law.optimum,  # 0 where all prompts have one gradient
    }
    return truths[target]


def reciprocal(function):
    """Make an interval of 1/x from one of x > 0."""

    def inverted(rollouts, level):
        interval = function(rollouts, level)
        estimate = 1.0 / interval.estimate
        with np.errstate(invalid="ignore"):
            standard_error = np.where(estimate > 0.0, interval.standard_error * estimate**2, np.inf)
        return Interval(estimate, standard_error, 1.0 / interval.high, 1.0 / interval.low, interval.level)

    return inverted


def at_sizes_asked(function, **options):
    """Make an interval of the error at the sizes asked for."""
    return lambda rollouts, level: function(rollouts, *ASKED, level, **options)


def share(level, ratio):
    """P(|N(0,1)| < z ratio), ratio that of the interval's standard error to the true one."""
    return 2.0 * ndtr(ndtri(0.5 + level / 2.0) * ratio) - 1.0


def naive_value(name, group_size, level):
    """The limit for `value_naive`: the design effect 1 + (G-1) rho is left out of its variance."""
    case = problem(name)
    moments = gt.moments(case, case.theta)
    f, mean = moments.prompt_weights, moments.prompt_weights @ moments.value
    between, within = f @ (moments.value - mean) ** 2, f @ moments.reward_variance
    return share(level, 1.0 / np.sqrt(1.0 + (group_size - 1.0) * between / (between + within)))


def gradient_jackknife(name, group_size, level):
    """The limit for each component of `gradient_jackknife`, about the population's gradient (docs/derivations.md, section 9)."""
    case: Any = problem(name)
    moments = gt.moments(case, case.theta)
    pi, success, value = case.policy.probabilities(case.theta), case.bandit.mean_reward, moments.value[:, None]
    squares = case.policy.scores(case.theta) ** 2
    deviation = success * (1.0 - value) ** 2 + (1.0 - success) * value**2
    power = moments.prompt_gradients**2
    terms = (
        (moments.prompt_gradients - moments.gradient) ** 2,
        np.einsum("mk,mk,mkd->md", pi, deviation, squares) - power,
        moments.reward_variance[:, None] * np.einsum("mk,mkd->md", pi, squares) + power,
    )
    c1, c2, c3 = (moments.prompt_weights @ term for term in terms)
    size = float(group_size)
    own = c1 + c2 / size + c3 / (size * (size - 1.0))
    seen = c2 / size + 2.0 * c3 / (size * (size - 2.0))
    return share(level, np.sqrt(seen / own))


CANDIDATES = (
    Candidate("value_naive", intervals.value_naive, "value", limit=naive_value),
    Candidate("value_clustered", intervals.value_clustered, "value"),
    Candidate("value_effective", intervals.value_effective, "value", conservative=True),
    Candidate("gradient_jackknife", intervals.gradient_jackknife, "gradient", limit=gradient_jackknife),
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
