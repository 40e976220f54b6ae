"""The last stage of a step: from the estimated gradient to the next iterate, its average, and its distance from the start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.jit import kernel, summing_kernel
from grpo_theory.problem import Policy
from grpo_theory.validation import Array, as_count, as_positive, as_real_array, check_shape, read_only, shown


class Optimiser(Protocol):
    """An optimiser, which turns estimated gradients into steps: `SGD`, `Adam`, or an object of your own with these three.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> gt.SGD(), gt.Adam(betas=(0.9, 0.99))
    (SGD(), Adam(betas=(0.9, 0.99), eps=1e-08))
    """

    @property
    def move(self) -> Callable:
        """``move(theta, gradient, moments, settings, step, count)`` moves theta (d, R) by the `count`-th gradient (d, R).

        It updates the moments (P, d, R), and is compiled: what numba compiles, it may do.
        """

    @property
    def n_moments(self) -> int:
        """How many arrays of theta's shape it remembers."""

    @property
    def settings(self) -> Array:
        """What `move` reads besides, shape (S,)."""


@kernel
def ascend(theta, gradient, moments, settings, step, count):
    """Theta moves by the step times the gradient."""
    for j in range(theta.shape[0]):
        for i in range(theta.shape[1]):
            theta[j, i] += step * gradient[j, i]


@kernel
def ascend_adaptively(theta, gradient, moments, settings, step, count):
    """Theta moves by the step times the mean gradient over the root of the mean square, both running and freed of their start."""
    first, second, eps = settings[0], settings[1], settings[2]
    # theta + step m^/(sqrt(v^) + eps), with m^ = m/(1 - beta_1^count) and v^ = v/(1 - beta_2^count)
    # (arXiv 1412.6980, Algorithm 1).
    of_mean, of_square = 1.0 / (1.0 - first**count), 1.0 / (1.0 - second**count)
    for j in range(theta.shape[0]):
        for i in range(theta.shape[1]):
            g = gradient[j, i]
            mean = first * moments[0, j, i] + (1.0 - first) * g
            square = second * moments[1, j, i] + (1.0 - second) * g * g
            moments[0, j, i] = mean
            moments[1, j, i] = square
            theta[j, i] += step * of_mean * mean / (np.sqrt(of_square * square) + eps)


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

    move = staticmethod(ascend)
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

    move = staticmethod(ascend_adaptively)
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


def check_optimiser(optimiser: Optimiser) -> Array:
    """Raise TypeError or ValueError unless there is all that an optimiser has; returns its settings (S,).

    The move is run once as plain Python, which sees that it leaves its arrays; compiled code does not.
    """
    if isinstance(optimiser, type):
        made = f"{optimiser.__name__}()"
        raise TypeError(f"optimiser must be an object, got {shown(optimiser)}. Write {made}, with its settings in the brackets")
    if not all(hasattr(optimiser, name) for name in ("move", "n_moments", "settings")) or not callable(optimiser.move):
        raise TypeError(
            f"optimiser must be SGD(), Adam(...), or an object of yours with move, n_moments and settings, got {shown(optimiser)}"
        )
    n_moments = as_count("n_moments", optimiser.n_moments, minimum=0)
    settings = as_real_array("settings", optimiser.settings, 1) if np.size(optimiser.settings) else np.empty(0)
    try:
        with np.errstate(all="ignore"):
            move = getattr(optimiser.move, "py_func", optimiser.move)
            move(np.zeros((1, 1)), np.ones((1, 1)), np.zeros((n_moments, 1, 1)), settings, 0.1, 1)
    except IndexError as error:
        raise ValueError(
            f"the move of {type(optimiser).__name__} leaves its arrays ({error}): there are n_moments = {n_moments} moments and "
            f"{settings.size} settings, so raise n_moments, lengthen settings, or correct the move"
        ) from error
    return settings


@dataclass(frozen=True, eq=False)
class Ball:
    """The ball onto which iterates are projected.

    Parameters
    ----------
    centre : array_like, shape (d,)
    radius : float

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> problem, sizes = gt.gallery.problem("single"), {"batch_size": 4, "group_size": 4, "steps": 20, "replications": 8}
    >>> ball = gt.Ball(problem.theta, radius=0.5)
    >>> runs = gt.simulate_training(problem, problem.theta, "rloo", gt.Constant(1.0), **sizes, ball=ball, rng=0)
    >>> bool(np.linalg.norm(runs.theta - problem.theta, axis=1).max() <= 0.5 + 1e-12)
    True
    >>> ball.as_array(problem.policy).shape
    (3,)
    """

    centre: ArrayLike
    radius: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "centre", read_only(as_real_array("centre", self.centre, 1)))
        as_positive("radius", self.radius)

    def as_array(self, policy: Policy) -> Array:
        """Return the centre followed by the radius, shape (d + 1,)."""
        centre = np.asarray(self.centre)
        check_shape("centre", centre, (policy.dimension,), "(d,), the policy's parameters")
        return np.append(centre, self.radius)


class State(NamedTuple):
    """Where the runs of a block are; arrays of parameters are (d, LANES), or (runs, d) where each run is by itself.

    Attributes
    ----------
    theta, average, start, gradient, before : ndarray
        The last is the iterate before a step, or (0, 0) where the runs' steps have no factors.
    moments : ndarray of three dimensions
        P such arrays, which an optimiser remembers.
    farthest : ndarray, shape (LANES,) or (runs,)
        The largest squared distance of an iterate from the start.
    factors : ndarray of that shape
        What multiplies the step size of each run.
    path : ndarray, shape (runs, n + 1, d), or (0, 0, 0)
        The iterates, where they are kept.
    past : ndarray of three dimensions
        The iterates before the last lag + 1 rollouts, each in the place of the oldest; none without a lag.
    """

    theta: Array
    average: Array
    start: Array
    gradient: Array
    before: Array
    moments: Array
    farthest: Array
    factors: Array
    path: Array
    past: Array


def make_state(starts: Array, factors: Array, n_moments: int, steps: int, *, lanes: int, lag: int, keeps: bool) -> State:
    """Return the state of runs that are about to start, (R, d), whose steps have factors (R,); 0 lanes if each is by itself."""
    rows = np.array(starts) if lanes == 0 else np.concatenate([starts, np.repeat(starts[-1:], lanes - len(starts), axis=0)])
    theta = rows if lanes == 0 else np.ascontiguousarray(rows.T)
    path = np.empty((len(starts), steps + 1, starts.shape[1])) if keeps else np.empty((0, 0, 0))
    if keeps:
        path[:, 0] = starts
    filled = np.ones(len(rows))
    filled[: len(factors)] = factors
    before = theta.copy() if (filled != 1.0).any() else np.empty((0, 0))
    return State(
        theta.copy(),
        np.zeros_like(theta),
        theta,
        np.zeros_like(theta),
        before,
        np.zeros((n_moments, *theta.shape)),
        0.0 * filled,
        filled,
        path,
        np.repeat(theta[None], lag + 1 if lag else 0, axis=0),
    )


@kernel
def sampling_iterate(theta, past, rollout):
    """Keep theta among the past, if there is a lag, and return what draws this rollout: theta of so many rollouts ago."""
    sampler = theta
    if past.shape[0] > 0:
        for j in range(theta.shape[0]):
            for i in range(theta.shape[1]):
                past[rollout % past.shape[0], j, i] = theta[j, i]
        sampler = past[(rollout + 1) % past.shape[0]]
    return sampler


@summing_kernel
def follow(state, ball, alone, count, distances):
    """Multiply the last step by each run's factor, project iterates onto the ball, and take them into averages and distances.

    What there is none of is left out: factors, a ball, and a path in which iterates are kept.
    """
    theta, average, start, before = state.theta, state.average, state.start, state.before
    for j in range(before.shape[0]):
        for i in range(before.shape[1]):
            theta[j, i] = before[j, i] + state.factors[j if alone else i] * (theta[j, i] - before[j, i])
    if ball.shape[0] > 0:
        radius = ball[ball.shape[0] - 1]
        distances[:] = 0.0
        for j in range(theta.shape[0]):
            for i in range(theta.shape[1]):
                gap = theta[j, i] - ball[i if alone else j]
                distances[j if alone else i] += gap * gap
        for j in range(theta.shape[0]):
            for i in range(theta.shape[1]):
                squared, middle = distances[j if alone else i], ball[i if alone else j]
                if squared > radius * radius:
                    # centre + radius (theta - centre)/||theta - centre||, the projection (docs/derivations.md, section 7).
                    theta[j, i] = middle + radius / np.sqrt(squared) * (theta[j, i] - middle)
    distances[:] = 0.0
    for j in range(theta.shape[0]):
        for i in range(theta.shape[1]):
            # mean_n = mean_{n-1} + (theta_n - mean_{n-1})/n of theta_1, ..., theta_n (Polyak and Juditsky 1992).
            average[j, i] += (theta[j, i] - average[j, i]) / count
        for i in range(theta.shape[1]):
            gap = theta[j, i] - start[j, i]
            if alone:
                distances[j] += gap * gap
            else:
                distances[i] += gap * gap
    for j in range(distances.shape[0]):
        state.farthest[j] = max(state.farthest[j], distances[j])
    for j in range(before.shape[0]):
        for i in range(before.shape[1]):
            before[j, i] = theta[j, i]
    for run in range(state.path.shape[0]):
        for x in range(state.path.shape[2]):
            state.path[run, count, x] = theta[run, x] if alone else theta[x, run]
