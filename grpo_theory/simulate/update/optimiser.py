"""Stage 5 of a training step, the optimiser: from the estimated gradient to the next iterate."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numba
import numpy as np

from grpo_theory.compiler import F1, F2, F3, FunctionValue, function_value
from grpo_theory.validation import Array, as_count, as_positive, as_real_array, shown

MOVE = numba.void(F2, F2, F3, F1, numba.float64, numba.int64)
"""``move(theta, gradient, moments, settings, step, count)``: the iterates and estimates are (d, R), the moments (P, d, R)."""


class Optimiser(Protocol):
    """An optimiser, which turns estimated gradients into steps: `SGD` or `Adam`.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> gt.SGD(), gt.Adam(betas=(0.9, 0.99))
    (SGD(), Adam(betas=(0.9, 0.99), eps=1e-08))
    """

    @property
    def move(self) -> FunctionValue:
        """Moves theta, and updates the moments, by the `count`-th gradient; see `MOVE`."""

    @property
    def n_moments(self) -> int:
        """How many arrays of theta's shape it remembers."""

    @property
    def settings(self) -> Array:
        """What `move` reads besides, shape (S,)."""


@function_value(MOVE)
def ascend(theta, gradient, moments, settings, step, count):
    """Theta moves by the step times the gradient."""
    for j in range(theta.shape[0]):
        for i in range(theta.shape[1]):
            theta[j, i] += step * gradient[j, i]


@function_value(MOVE)
def ascend_adaptively(theta, gradient, moments, settings, step, count):
    """Theta moves by the step times the mean gradient over the root of the mean square, both running and freed of their start."""
    first, second, eps = settings[0], settings[1], settings[2]
    of_mean, of_square = 1.0 / (1.0 - first**count), 1.0 / (1.0 - second**count)
    for j in range(theta.shape[0]):
        for i in range(theta.shape[1]):
            g = gradient[j, i]
            mean = first * moments[0, j, i] + (1.0 - first) * g
            square = second * moments[1, j, i] + (1.0 - second) * g * g
            moments[0, j, i] = mean
            moments[1, j, i] = square
            theta[j, i] += step * of_mean * mean / (np.sqrt(of_square * square) + eps)


def check_optimiser(optimiser: Optimiser) -> None:
    """Raise TypeError or ValueError unless there is all that an optimiser has."""
    if isinstance(optimiser, type):
        made = f"{optimiser.__name__}()"
        raise TypeError(f"optimiser must be an object, got {shown(optimiser)}. Write {made}, with its settings in the brackets")
    if not all(hasattr(optimiser, name) for name in ("move", "n_moments", "settings")):
        raise TypeError(
            f"optimiser must be SGD(), Adam(...), or an object of yours with move, n_moments and settings, got {shown(optimiser)}"
        )
    n_moments = as_count("n_moments", optimiser.n_moments, minimum=0)
    settings = settings_of(optimiser)
    if isinstance(optimiser.move, FunctionValue) and optimiser.move.signature == MOVE:
        _try_move(type(optimiser).__name__, optimiser.move.function, np.zeros((n_moments, 1, 1)), settings)


def _try_move(name: str, move: Callable, moments: Array, settings: Array) -> None:
    """Run a move as plain Python, which sees what the compiled one does not: that it reads or writes beyond its arrays."""
    try:
        with np.errstate(all="ignore"):
            move(np.zeros((1, 1)), np.ones((1, 1)), moments, settings, 0.1, 1)
    except IndexError as error:
        raise ValueError(
            f"the move of {name} leaves its arrays ({error}): there are n_moments = {len(moments)} moments and {settings.size} "
            "settings, so raise n_moments, lengthen settings, or correct the move"
        ) from error


def settings_of(optimiser: Optimiser) -> Array:
    """Return an optimiser's settings, whatever sequence they are given as, shape (S,); there may be none."""
    return as_real_array("settings", optimiser.settings, 1) if np.size(optimiser.settings) else np.empty(0)


def moments_kept(optimiser: Optimiser) -> int:
    """Return how many moments the driver keeps: it calls `move` where there are any, and makes plain ascent's step itself.

    A `move` of another kind that remembers nothing is given one array, which it need not read.

    Raises
    ------
    TypeError
        If `move` is not compiled, or for other arguments.
    """
    if not isinstance(optimiser.move, FunctionValue) or optimiser.move.signature != MOVE:
        got = f"{optimiser.move!r} of another signature" if isinstance(optimiser.move, FunctionValue) else shown(optimiser.move)
        raise TypeError(
            f"the move of {type(optimiser).__name__} must be compiled, got {got}: "
            "put @function_value(MOVE) above it, from grpo_theory.compiler and grpo_theory.simulate"
        )
    return 0 if optimiser.move is ascend else max(1, optimiser.n_moments)


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient ascent, theta <- theta + eta_i ghat: the papers' algorithms.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, sizes = gt.gallery.problem("single"), {"batch_size": 4, "group_size": 4, "steps": 20, "replications": 8}
    >>> runs = gt.simulate_training(problem, problem.theta, "rloo", gt.Constant(0.2), **sizes, optimiser=gt.SGD(), rng=0)
    >>> bool(runs.objectives.mean() > gt.objective(problem, problem.theta))
    True
    """

    move = ascend
    n_moments = 0
    settings = np.empty(0)


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma and Ba, arXiv 1412.6980, Algorithm 1), upwards; the schedule gives its learning rates.

    Each coordinate moves by ``eta_i m / (sqrt(v) + eps)``, with m and v the running means of the gradient and of its square.
    Both are divided by 1 - beta^i because they start at 0.  A constant that multiplies all gradients cancels, except beside eps.

    Parameters
    ----------
    betas : (float, float), default (0.9, 0.999)
        How much of the running means of gradient and square remains at each update, in [0, 1).
    eps : float, default 1e-8

    Raises
    ------
    ValueError

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, sizes = gt.gallery.problem("single"), {"batch_size": 4, "group_size": 4, "steps": 20, "replications": 8}
    >>> runs = gt.simulate_training(problem, problem.theta, "grpo", gt.Constant(0.05), **sizes, optimiser=gt.Adam(), rng=0)
    >>> runs.objectives.shape
    (8, 1)
    """

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    move = ascend_adaptively
    n_moments = 2

    def __post_init__(self) -> None:
        betas = as_real_array("betas", self.betas, 1)
        if betas.shape != (2,) or (betas < 0.0).any() or (betas >= 1.0).any():
            raise ValueError(f"betas must be two numbers in [0, 1), got {self.betas!r}")
        as_positive("eps", self.eps)

    @property
    def settings(self) -> Array:
        """Both betas, and eps."""
        return np.array([*self.betas, self.eps])
