"""A small gallery of named problems: bandit, policy and parameters."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from grpo_theory.data.arithmetic import POLICIES, arithmetic
from grpo_theory.policy import LinearSoftmax, Policy, TabularSoftmax
from grpo_theory.problem import Bandit


@dataclass(frozen=True)
class Problem:
    """A bandit, a policy and the parameters at which they are studied.

    Attributes
    ----------
    name : str
    title : str
        For figures and tables.
    bandit : Bandit
    policy : Policy
    theta : ndarray, shape (d,)
    """

    name: str
    title: str
    bandit: Bandit
    policy: Policy
    theta: NDArray[np.float64]


def _two_arms() -> tuple[Bandit, Policy, NDArray[np.float64]]:
    """One prompt, two arms, the better one twice as likely as the worse; everything can be checked by hand."""
    return Bandit([[0.3, 0.8]]), TabularSoftmax(1, 2), np.array([0.0, np.log(2.0)])


def _uniform() -> tuple[Bandit, Policy, NDArray[np.float64]]:
    """A tabular policy before training: all score norms are equal, so Assumption 2 holds exactly."""
    rng = np.random.default_rng(1)
    return Bandit(rng.uniform(0.1, 0.9, (6, 4))), TabularSoftmax(6, 4), np.zeros(24)


def _tabular() -> tuple[Bandit, Policy, NDArray[np.float64]]:
    """A tabular policy on its way: logits at random, unequal prompt weights."""
    rng = np.random.default_rng(2)
    weights = rng.dirichlet(np.full(6, 4.0))
    return Bandit(rng.uniform(0.05, 0.95, (6, 4)), weights), TabularSoftmax(6, 4), rng.normal(size=24)


def _linear() -> tuple[Bandit, Policy, NDArray[np.float64]]:
    """Prompts share five features: what is learned on one changes the others."""
    rng = np.random.default_rng(3)
    features = rng.normal(size=(12, 5, 5)) / np.sqrt(5.0)
    return Bandit(rng.uniform(0.05, 0.95, (12, 5))), LinearSoftmax(features), rng.normal(size=5)


def _graded() -> tuple[Bandit, Policy, NDArray[np.float64]]:
    """Three-valued rewards, format plus accuracy, on shared features."""
    rng = np.random.default_rng(4)
    features = rng.normal(size=(8, 4, 6)) / np.sqrt(6.0)
    law = rng.dirichlet(np.ones(3), size=(8, 4))
    return Bandit.from_law([0.0, 1.0, 2.0], law), LinearSoftmax(features), rng.normal(size=6)


def _mixed_difficulty() -> tuple[Bandit, Policy, NDArray[np.float64]]:
    """Eight prompts with one right answer in five, from hardly ever found (2%) to nearly always (98%)."""
    found = expit(np.linspace(-4.0, 4.0, 8))
    success = np.zeros((8, 5))
    success[:, 0] = 1.0
    logits = np.zeros((8, 5))
    logits[:, 0] = np.log(4.0 * found / (1.0 - found))
    return Bandit(success), TabularSoftmax(8, 5), logits.reshape(-1)


_MAKERS: dict[str, tuple[str, Callable[[], tuple[Bandit, Policy, NDArray[np.float64]]]]] = {
    "two-arms": ("two arms", _two_arms),
    "uniform": ("tabular, uniform", _uniform),
    "tabular": ("tabular", _tabular),
    "linear": ("linear features", _linear),
    "graded": ("three-valued reward", _graded),
    "mixed": ("mixed difficulty", _mixed_difficulty),
    **{f"lm-{policy}": (f"SmolLM2, {policy}", partial(lambda name: arithmetic().problem(name), policy)) for policy in POLICIES},
}


def names() -> tuple[str, ...]:
    """Return the names of the gallery's problems; those of the language model begin with "lm-"."""
    return tuple(_MAKERS)


def problem(name: str) -> Problem:
    """Return a problem of the gallery by name.

    Raises
    ------
    ValueError
        If there is none of that name.
    """
    if name not in _MAKERS:
        raise ValueError(f"name must be one of {', '.join(_MAKERS)}, got {name!r}")
    title, make = _MAKERS[name]
    return Problem(name, title, *make())
