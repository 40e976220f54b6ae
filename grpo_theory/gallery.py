"""A small gallery of named problems: bandit, policy and parameters."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from grpo_theory.data.arithmetic import POLICIES, arithmetic
from grpo_theory.kl import KL
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
        Where the problem is studied; of a training problem, where a search for its optimum starts.
    kl : KL, optional
        The penalty of a training problem.
    """

    name: str
    title: str
    bandit: Bandit
    policy: Policy
    theta: NDArray[np.float64]
    kl: KL | None = None


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


def _kl_tabular() -> Problem:
    """A tabular policy with a penalty: the optimum is known, and flat in one direction a prompt."""
    rng = np.random.default_rng(11)
    bandit = Bandit(rng.uniform(0.2, 0.8, (2, 3)))
    penalty = KL(1.0, np.full((2, 3), 1.0 / 3.0))
    return Problem("kl-tabular", "tabular, KL penalty", bandit, TabularSoftmax(2, 3), np.zeros(6), penalty)


def _kl_linear() -> Problem:
    """Shared features with a penalty: the optimum is unique, and found by Newton's method."""
    rng = np.random.default_rng(12)
    bandit = Bandit(rng.uniform(0.1, 0.9, (4, 3)))
    policy = LinearSoftmax(rng.normal(size=(4, 3, 3)))
    return Problem("kl-linear", "linear features, KL penalty", bandit, policy, np.zeros(3), KL(0.5, np.full((4, 3), 1.0 / 3.0)))


def _conflict() -> Problem:
    """No penalty, yet an interior maximiser: what helps one prompt harms another.

    In each prompt the middle response is right, and the features of the three put it between the others, elsewhere for each
    prompt; no theta makes all prompts sure of it.
    """
    angles = np.array([0.0, 1.0, 2.2, 3.9])
    along = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    offsets = np.array([[-1.2, 0.0, 2.0], [-2.0, 0.0, 1.0], [-1.5, 0.0, 1.2], [-1.0, 0.0, 1.8]])
    success = np.tile([0.1, 0.9, 0.2], (4, 1))
    return Problem(
        "conflict",
        "linear features, conflict",
        Bandit(success),
        LinearSoftmax(offsets[:, :, None] * along[:, None, :]),
        np.zeros(2),
    )


def _single() -> Problem:
    """One prompt, binary reward, an interior maximiser: every group estimator ascends a function of the same value."""
    features = np.array([[[-1.2, 0.3], [0.0, 0.0], [1.5, 0.2], [0.1, -1.4]]])
    return Problem("single", "one prompt", Bandit([[0.1, 0.9, 0.2, 0.15]]), LinearSoftmax(features), np.zeros(2))


def _indifferent() -> Problem:
    """All responses to a prompt are equally good: the reward says nothing of the score, and Corollary 10's assumption holds."""
    bandit = Bandit(np.repeat([[0.3], [0.8]], 3, axis=1))
    penalty = KL(1.0, np.full((2, 3), 1.0 / 3.0))
    return Problem("indifferent", "indifferent rewards, KL penalty", bandit, TabularSoftmax(2, 3), np.zeros(6), penalty)


def crowd(n_prompts: int) -> Problem:
    """Return a tabular problem with a penalty whose limit law has 2 n_prompts comparable weights."""
    rng = np.random.default_rng(13)
    bandit = Bandit(rng.uniform(0.2, 0.8, (n_prompts, 3)))
    penalty = KL(1.0, np.full((n_prompts, 3), 1.0 / 3.0))
    policy = TabularSoftmax(n_prompts, 3)
    return Problem("crowd", f"tabular, {n_prompts} prompts, KL penalty", bandit, policy, np.zeros(policy.dimension), penalty)


def _two_speeds() -> Problem:
    """Everything by hand: two prompts want opposite things in a flat direction, a third has luck alone in a curved one.

    The maximiser is 0, where the policy is the reference; the curvatures are strength/6 and 4 strength/3.
    """
    features = np.zeros((3, 2, 2))
    features[:2, 0, 0] = 1.0
    features[2, 0, 1] = 4.0
    penalty = KL(3.0, np.full((3, 2), 0.5))
    bandit = Bandit([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    return Problem("two-speeds", "two speeds, KL penalty", bandit, LinearSoftmax(features), np.zeros(2), penalty)


_TRAINING: dict[str, Callable[[], Problem]] = {
    "kl-tabular": _kl_tabular,
    "kl-linear": _kl_linear,
    "conflict": _conflict,
    "single": _single,
    "indifferent": _indifferent,
    "crowd": partial(crowd, 16),
    "two-speeds": _two_speeds,
}


def training_names() -> tuple[str, ...]:
    """Return the names of the problems whose optimum is interior and known."""
    return tuple(_TRAINING)


def training_problem(name: str) -> Problem:
    """Return a problem with a known optimum by name; see `training_names`."""
    if name not in _TRAINING:
        raise ValueError(f"name must be one of {', '.join(_TRAINING)}, got {name!r}")
    return _TRAINING[name]()
