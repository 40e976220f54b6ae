"""Where an estimator leads on average: its mean advantages, its mean estimate, the path of mean updates, fixed points.

Let the rewards of a prompt have the law q on L values.  Let a_l(q) be the mean advantage of a response that has the l-th of them,
the group's others drawn.  On policy an estimate's mean is E[a_Z W].  That is the policy gradient with the reward a_Z(q) in place
of Z.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln

from grpo_theory.estimation import AGGREGATIONS, CLIPS, CREDITS, RATIOS, Estimator, find
from grpo_theory.estimation import named as papers
from grpo_theory.estimation import trainer_kernels as trainers
from grpo_theory.exact.derivatives import Observable, fisher_information, objective
from grpo_theory.exact.group_law import law_between, points_at
from grpo_theory.exact.multisets import advantages_beside, multisets
from grpo_theory.exact.score_moments import token_weights
from grpo_theory.problem import ChainPoint, Objective, Point, Problem
from grpo_theory.schedule import Schedule, step_sizes
from grpo_theory.validation import Array, Integers, as_count, as_numbers, as_real_array, check_shape, check_within, typed

NEVER = -1e4
"""The logarithm of a chance of 0, times a count of 0 is 0, and times another the logarithm of what underflows to 0."""
LARGEST = 1e100
"""Squares of rewards are numbers up to it."""
CLOSED = 1e-9
"""By how much advantages may differ that are to be equal, beside the largest."""

Population = Callable[[Array, Array], Array]
Move = Callable[[Point, Array, float], Array]
"""What makes the next parameters of a point, a mean estimate (d,) and a step size."""
DIFFERENCE = 1e-5
"""The step of central differences of the mean, relative to the larger of 1 and the parameter: right to 1e-9."""
TIME, FLAT = 1e3, 1e-9
"""How long small updates are followed towards a fixed point, and the Fisher information along a direction that is lost."""
RESIDUAL = 1e-9
"""The largest mean estimate that counts as 0, relative to the larger of 1 and that at the start."""


def group_chances(counts: Integers, law: Array) -> Array:
    """Return the multinomial probability of each multiset (n, L) by laws (..., L), shape (..., n)."""
    size = counts[0].sum()
    logs = np.log(law, out=np.full(law.shape, NEVER), where=law > 0.0)
    # P(n_1..n_L) = G!/(n_1!..n_L!) prod_l q_l^n_l.
    return np.exp(logs @ counts.T + gammaln(size + 1.0) - gammaln(counts + 1.0).sum(axis=1))


def given_own_reward(
    estimator: str | Estimator | Population, values: Array, law: Array, group_size: int | float
) -> tuple[Array | None, Array]:
    """Return the chances of what the group's others get (..., n), and the advantages of each reward beside them (n, L).

    In groups without end nothing is left to chance: the first is None, and the advantages have shape (..., L).
    """
    if callable(estimator):
        return None, np.broadcast_to(estimator(values, law), law.shape)
    if isinstance(group_size, float) and group_size == math.inf:
        return None, population(estimator)(values, law)
    found, size = find(estimator), as_count("group_size", cast(int, group_size))
    found.check_defined(size, values)
    counts, advantages = advantages_beside(found, tuple(values.tolist()), size, size - 1)
    return group_chances(counts, law), advantages


@typed
def mean_advantages(
    estimator: str | Estimator | Population, values: ArrayLike, law: ArrayLike, *, group_size: int | float
) -> Array:
    """Return the mean advantage of a response with each reward, shape (..., L), by laws of the rewards (..., L).

    Parameters
    ----------
    estimator : str, Estimator or callable
        One that reads only rewards and sees each group alone.  A callable ``advantage(values, law)`` is the advantage itself, of
        groups without end; see `population`.
    values : array_like, shape (L,)
        The rewards, ascending.
    law : array_like, shape (..., L)
        Their probabilities.
    group_size : int or inf
        Of groups without end it is the population advantage.

    Raises
    ------
    NotEnumerableError
        If the estimator reads more than rewards or couples groups.

    Examples
    --------
    Dividing by the standard deviation gives a rare success more, by less the smaller the group:

    >>> import math, grpo_theory as gt
    >>> for size in (4, 64, math.inf):
    ...     print(gt.exact.mean_advantages("grpo", [0.0, 1.0], [0.9, 0.1], group_size=size).round(2))
    [-0.15  1.32]
    [-0.32  2.91]
    [-0.33  3.  ]
    """
    values, law = as_real_array("values", values, 1), as_numbers("law", law)
    check_within("values", values, -LARGEST, LARGEST)
    check_shape("law", law, (*law.shape[:-1], len(values)), "(..., L)")
    check_within("law", law, -CLOSED, 1.0 + CLOSED)
    chances, advantages = given_own_reward(estimator, values, law, group_size)
    # a_l(q) = sum over multisets n of the G - 1 others of P(n) A(l; n + e_l) (docs/derivations.md, section 39).
    return advantages if chances is None else np.asarray(chances @ advantages)


POPULATIONS: dict[Callable, str] = {
    papers.reinforce.advantage.function: "rewards",
    **dict.fromkeys((trainers.centred, trainers.leave_one_out), "centred"),
    **dict.fromkeys((one.advantage.function for one in (papers.oracle, papers.rloo, papers.dr_grpo)), "centred"),
    **dict.fromkeys((papers.grpo.advantage.function, trainers.standardised, trainers.leave_one_out_standardised), "standardised"),
    trainers.relative_to_mean: "relative to the mean",
}
"""By kernel, what its advantages become in groups without end; a test compares each with large groups."""


@typed
def population(estimator: str | Estimator) -> Population:
    """Return an estimator's advantage in groups without end, a function of rewards (L,) and their law (..., L).

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> gt.exact.population("grpo")(np.array([0.0, 1.0]), np.array([0.8, 0.2])).round(3).tolist()
    [-0.5, 2.0]
    """
    found = find(estimator)
    if found.advantage.function not in POPULATIONS:
        raise ValueError(
            f"estimator {found.name!r} has no known advantage in groups without end: give a function advantage(values, law) "
            "in its place, of rewards (L,) and laws (..., L)"
        )
    kind, parameters = POPULATIONS[found.advantage.function], found.advantage.parameters

    def advantages(values: Array, law: Array) -> Array:
        mean = (law @ values)[..., None]
        if kind in ("rewards", "centred"):
            return np.broadcast_to(values, law.shape) if kind == "rewards" else values - mean
        divisor, divided = mean, mean > 0.0
        if kind == "standardised":
            deviation = np.sqrt(np.maximum((law @ values**2)[..., None] - mean**2, 0.0))
            divisor = deviation + parameters["epsilon"]
            divided = (deviation > parameters.get("floor", 0.0)) & (divisor > 0.0)
        return np.divide(values - mean, divisor, out=np.zeros(law.shape), where=divided)

    return advantages


@typed
def climbed(estimator: str | Estimator, values: ArrayLike, *, group_size: int) -> Objective:
    """Return the objective whose gradient an estimator's mean is, on policy; ValueError where there is none.

    The mean is grad F if sum_l a_l dq_l is dF, with a the mean advantages.  Of two rewards there is always such an F.  Of more
    there is none where a kernel divides by the group's standard deviation (docs/derivations.md, section 39).  Responses have one
    length, or tokens weigh alike.

    Parameters
    ----------
    estimator : str or Estimator
        One that reads only rewards and sees each group alone.
    values : array_like, shape (L,)
        The rewards, ascending.
    group_size : int

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.Problem(gt.Bandit([[0.3, 0.8]]), gt.TabularSoftmax(1, 2))
    >>> climbed = gt.exact.climbed("grpo", [0.0, 1.0], group_size=8)
    >>> own = gt.Problem(problem.bandit, problem.policy, objective=climbed)
    >>> law = gt.gradient_law(own, own.theta, "grpo", batch_size=1, group_size=8)
    >>> bool(abs(law.bias).max() < 1e-15)
    True
    """
    found, values = find(estimator), as_real_array("values", values, 1)
    check_within("values", values, -LARGEST, LARGEST)
    size, levels = as_count("group_size", group_size, 2), tuple(values.tolist())
    if found.credit.name != "none":
        raise ValueError(f"estimator {found.name!r} has credits of tokens, whose mean is no function of the rewards' law")
    found.check_defined(size, values)
    counts, advantages = advantages_beside(found, levels, size, size - 1)
    others, pairs = advantages_beside(found, levels, size, size - 2)
    # da_l/dq_j = (G - 1) E[A(l; n + e_l + e_j)], n the G - 2 others.  The form is closed where u'(da - da')v = 0 for all u and v
    # that sum to 0.  The monomials of q are independent, so that it must be so in every group.
    turned = pairs - np.swapaxes(pairs, 1, 2)
    centre = np.eye(len(levels)) - 1.0 / len(levels)
    curl = float(np.abs(centre @ turned @ centre).max())
    if curl > CLOSED * max(1.0, float(np.abs(pairs).max())):
        raise ValueError(
            f"estimator {found.name!r} climbs no objective with rewards {list(levels)} in groups of {size}: its mean is not the "
            f"gradient of any function of the rewards' law (its mixed derivatives differ by up to {(size - 1) * curl:.3g})"
        )
    nodes, weights = np.polynomial.legendre.leggauss(size // 2 + 1)
    start = np.eye(len(levels))[0]

    def slope(_: Array, law: Array) -> Array:
        return np.asarray(group_chances(counts, law) @ advantages)

    def value(_: Array, law: Array) -> Array:
        # F(q) = int_0^1 a(e_1 + t (q - e_1)) . (q - e_1) dt; a has degree G - 1 in t, for which these nodes are exact.
        move, times = law - start, 0.5 * (nodes + 1.0)
        along = np.clip(start + times[:, None] * move[..., None, :], 0.0, None)
        return np.asarray(0.5 * np.einsum("t,...tl,...l->...", weights, slope(values, along), move))

    return Objective(
        name=f"what {found.name} climbs in groups of {size}",
        value=value,
        slope=slope,
        curvature=lambda _, law: (size - 1) * np.einsum("...n,nlj->...lj", group_chances(others, law), pairs),
    )


@typed
def group_expectation(problem: Problem, theta: ArrayLike | None, statistic: Callable, *, group_size: int) -> Array:
    """Return the mean of a statistic of a group's rewards, by prompt, shape (M, ...), exactly.

    Parameters
    ----------
    problem : Problem
        With listed responses; penalties in the reward are left out.
    theta : array_like, shape (d,)
    statistic : callable
        ``statistic(rewards)``, of one group's rewards (G,) in ascending order: a number or an array.
    group_size : int

    Examples
    --------
    The share of groups whose rewards are all equal:

    >>> import numpy as np, grpo_theory as gt
    >>> problem = gt.gallery.problem("two-arms")
    >>> gt.exact.group_expectation(problem, problem.theta, lambda rewards: np.ptp(rewards) == 0.0, group_size=4).round(3).tolist()
    [0.179]
    """
    point, size, values = problem.listed().at(theta), as_count("group_size", group_size), problem.bandit.values
    counts = multisets(len(values), size)
    found = np.array([statistic(np.repeat(values, row)) for row in counts], dtype=np.float64)
    return np.tensordot(group_chances(counts, point.reward_law), found, 1)


def find_forgetful(estimator: str | Estimator | Population) -> Estimator | Population:
    """Return the estimator of a name; raise ValueError if it has a memory, because its mean is then another at each update."""
    found = find(estimator) if isinstance(estimator, str | list | tuple) else estimator
    if isinstance(found, Estimator) and found.advantage.memory:
        raise ValueError(f"estimator {found.name!r} has a memory: gt.gradient_law has one update, gt.simulate_training many")
    return found


def mean_estimate(current: Point, sampler: Point, estimator: Estimator | Population, group_size: int | float) -> Array:
    """Return an estimator's mean at one point, shape (d,), of responses drawn at another; see `gt.gradient_mean`.

    Of a kernel that reads only rewards the mean is a policy gradient with mean advantages in place of rewards.  Nothing is then
    enumerated but the rewards of the group's others.  Other estimators take their whole law.
    """
    bandit, on_policy, plain = sampler.bandit, current is sampler, True
    if isinstance(estimator, Estimator):
        estimator = estimator.at_lengths(current.policy.lengths)
        penalised = current.kl is not None and estimator.kl.place == "reward"
        reads_more = estimator.aggregation.pool or estimator.advantage.memory or estimator.reads - {"rewards", "parameters"}
        if isinstance(current, ChainPoint) or penalised or reads_more:
            return law_between(current, sampler, estimator, batch_size=1, group_size=cast(int, group_size)).mean
        parts = estimator.ratio, estimator.clip, estimator.aggregation, estimator.kl.place, estimator.credit
        plain = on_policy and parts == (RATIOS["none"], CLIPS["none"], AGGREGATIONS["sum"], "reward", CREDITS["none"])
    elif current.kl is not None or isinstance(current, ChainPoint) or not on_policy:
        raise ValueError(
            "estimator must be named or composed where there is a penalty, a TokenChain or a behaviour policy: a function of "
            "values and law is an advantage in groups without end, and knows nothing of these"
        )
    chances, advantages = given_own_reward(estimator, bandit.values, sampler.reward_law, group_size)
    paths = current.policy.paths

    def worth(kept: Array) -> Array:
        """Return the mean of what is kept of the advantages, times each response's chance, shape (M, K)."""
        by_reward = kept if chances is None else chances @ kept
        return sampler.probabilities * np.einsum("mkl,ml->mk", bandit.probabilities, by_reward)

    if plain or not isinstance(estimator, Estimator):
        # E[a_Z W] = sum_k pi_k (w_k - sum_j pi_j w_j) c_k, w_k = sum_l P(l | k) a_l, as sum_k pi_k c_k = 0.
        own = worth(advantages)
        lead = own - sampler.probabilities * own.sum(axis=1, keepdims=True)
        edges = paths.centre(paths.collect(lead), current.token_probabilities)
    else:
        weights = token_weights(current, sampler, estimator)
        tables = weights.by_token(np.arange(len(current.token_probabilities)))
        # Clips see an advantage's sign, so that its positive and negative parts have means of their own (section 39).
        split = [np.maximum(advantages, 0.0), np.minimum(advantages, 0.0)] if weights.depends_on_sign else [advantages]
        shares = [*map(worth, split), *[sampler.probabilities] * weights.drifting]
        on_edges = paths.add_up(np.einsum("fmk,mfkt->mkt", shares, tables))
        edges = paths.centre(on_edges, current.token_probabilities)
    return current.tangent.adjoint(bandit.prompt_weights[:, None] * edges)


@typed
def gradient_mean(
    problem: Problem,
    theta: ArrayLike,
    estimator: str | Estimator,
    *,
    batch_size: int,
    group_size: int,
    behaviour: ArrayLike | None = None,
) -> Array:
    """Return the exact expected estimate, shape (d,); arguments as for `gradient_law`.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> problem, sizes = gt.gallery.problem("linear"), {"batch_size": 8, "group_size": 4}
    >>> gradient = gt.exact.gradient(problem, problem.theta)
    >>> [bool(np.allclose(gt.gradient_mean(problem, problem.theta, name, **sizes), gradient)) for name in ("rloo", "dr_grpo")]
    [True, False]
    """
    as_count("batch_size", batch_size)
    return mean_estimate(*points_at(problem, theta, behaviour), find(estimator), as_count("group_size", group_size))


def plain_step(point: Point, mean: Array, step: float) -> Array:
    """Return theta + step times the mean."""
    return point.theta + step * mean


def natural_step(problem: Problem, radius: float | None = None) -> Move:
    """Return a move along the natural gradient, the Fisher information's pseudoinverse times the mean.

    With a radius the step is as long as a KL divergence of it allows, to second order, whatever the step size (TRPO).

    Examples
    --------
    With a logit for each response it is mirror descent: logits rise by the step times the advantages.

    >>> import numpy as np, grpo_theory as gt
    >>> problem = gt.gallery.problem("two-arms")
    >>> move = gt.exact.natural_step(problem)
    >>> path = gt.mean_path(problem, problem.theta, "rloo", gt.Constant(0.5), group_size=4, steps=1, move=move)
    >>> advantage = problem.bandit.mean_reward[0] - problem.at(problem.theta).value
    >>> moved = path.theta[1] - path.theta[0]
    >>> bool(np.allclose(np.diff(moved), 0.5 * np.diff(advantage)))
    True
    """

    def move(point: Point, mean: Array, step: float) -> Array:
        fisher = fisher_information(problem, point.token_probabilities, point.theta)
        direction = np.linalg.pinv(fisher, hermitian=True) @ mean
        if radius is not None:
            length = math.sqrt(max(float(direction @ mean), 0.0))
            # KL is about s'Fs/2 for a step s, and d'Fd = d . mean for d = F^-1 mean.
            step = math.sqrt(2.0 * radius) / length if length > 0.0 else 0.0
        return point.theta + step * direction

    return move


@dataclass(frozen=True, eq=False)
class MeanPath:
    """The path of an estimator's mean updates.

    Attributes
    ----------
    problem : Problem
    theta : ndarray, shape (n + 1, d)
        The parameters, the start first.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("single")
    >>> path = gt.mean_path(problem, problem.theta, "grpo", gt.Constant(0.2), group_size=8, steps=10)
    >>> path
    MeanPath(updates=10, objective=0.337 to 0.343)
    >>> entropies = path.observe(gt.Observable.entropy())
    >>> entropies.shape, bool(entropies[-1] < entropies[0])
    ((11,), True)
    """

    problem: Problem
    theta: Array

    def __repr__(self) -> str:
        first, last = self.objectives[[0, -1]]
        return f"MeanPath(updates={len(self.theta) - 1}, objective={first:.3g} to {last:.3g})"

    @property
    def objectives(self) -> Array:
        """The objective after each update, shape (n + 1,)."""
        return objective(self.problem, self.theta)

    def observe(self, observable: Observable) -> Array:
        """Return an observable after each update, shape (n + 1,)."""
        return observable.along(self.problem, self.theta)


@typed
def mean_path(
    problem: Problem,
    theta0: ArrayLike | None = None,
    estimator: str | Estimator | Population = "",
    schedule: Schedule | ArrayLike = (),
    *,
    group_size: int | float = math.inf,
    steps: int,
    inner_steps: int = 1,
    behaviour: ArrayLike | None = None,
    move: Move = plain_step,
) -> MeanPath:
    """Return the path theta <- theta + eta_i E[estimate], exactly: what training is without noise, or with batches without end.

    Parameters
    ----------
    problem : Problem
    theta0 : array_like, shape (d,), optional
        The problem's own theta if omitted.
    estimator : str, Estimator or callable
        A callable ``advantage(values, law)`` is a population advantage, see `gt.exact.population`.
    schedule : Schedule or array_like, shape (steps,)
        The step sizes.
    group_size : int or inf, default inf
        G.  Groups without end have the population advantage.
    steps : int
        n.
    inner_steps : int, default 1
        The updates that one behaviour policy serves: it is the current one at the first of them, and lags at the others.
    behaviour : array_like, shape (d,), optional
        One behaviour policy for all updates.
    move : callable, default a plain step
        ``move(point, mean, step)`` returns the next parameters: `gt.exact.natural_step(problem)`, or a projection of one's own.

    Raises
    ------
    ValueError
        If the estimator's mean cannot be had exactly.

    Examples
    --------
    Dividing by the group's standard deviation takes longer steps where rewards vary little:

    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("two-arms")
    >>> paths = [gt.mean_path(problem, problem.theta, name, gt.Constant(0.5), steps=8) for name in ("rloo", "grpo")]
    >>> [round(float(path.objectives[-1]), 2) for path in paths]
    [0.71, 0.74]
    """
    sizes = step_sizes(schedule, as_count("steps", steps))
    inner_steps, followed = as_count("inner_steps", inner_steps), find_forgetful(estimator)
    current = problem.at(problem.parameters(theta0, "theta0"))
    sampler, fixed = current, None if behaviour is None else problem.at(problem.policy.check_theta(behaviour, "behaviour"))
    path = [current.theta]
    for number, step in enumerate(sizes.tolist()):
        sampler = fixed or (current if number % inner_steps == 0 else sampler)
        moved = as_numbers("move", move(current, mean_estimate(current, sampler, followed, group_size), step))
        if not np.abs(moved).max() <= problem.policy.largest_parameter:
            raise ValueError(
                f"schedule must leave theta below {problem.policy.largest_parameter:g}, and step {number + 1} does not"
            )
        current = problem.at(moved)
        path.append(current.theta)
    return MeanPath(problem, np.array(path))


@dataclass(frozen=True, eq=False)
class FixedPoint:
    """Where an estimator's mean is 0, and whether updates lead there.

    Attributes
    ----------
    theta : ndarray, shape (d,)
    eigenvalues : ndarray of complex, shape (d,)
        Of the mean's Jacobian there, by falling real part; those that are 0 are directions along which nothing changes.
    residual : float
        The length of the mean that is left.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("kl-linear")
    >>> found = gt.fixed_point(problem, problem.theta, "rloo", group_size=8)
    >>> found.stable, found.largest_step > 1.0, found.residual < 1e-9
    (True, True, True)
    """

    theta: Array
    eigenvalues: Array
    residual: float

    @property
    def stable(self) -> bool:
        """Whether small steps lead there from nearby."""
        return self.largest_step > 0.0

    @property
    def largest_step(self) -> float:
        """The step size below which updates lead there from nearby; 0 where none does."""
        size = np.abs(self.eigenvalues)
        moving = self.eigenvalues[size > 1e-6 * max(1e-3, float(size.max(initial=0.0)))]
        if not (moving.real < 0.0).all():
            return 0.0
        # |1 + eta l|^2 < 1 exactly where eta < -2 Re(l)/|l|^2.
        return float((-2.0 * moving.real / np.abs(moving) ** 2).min(initial=np.inf))


@typed
def fixed_point(
    problem: Problem,
    theta0: ArrayLike | None = None,
    estimator: str | Estimator | Population = "",
    *,
    group_size: int | float = math.inf,
) -> FixedPoint:
    """Find a fixed point of an estimator's mean updates on policy, from a start, by least squares.

    Raises
    ------
    ValueError
        If none is found from there: without a penalty all may lie at infinity.

    Examples
    --------
    With a penalty in the loss, dividing by the standard deviation stays where the reward is higher:

    >>> import numpy as np, grpo_theory as gt
    >>> problem = gt.Problem(gt.Bandit([[0.0, 1.0]]), gt.TabularSoftmax(1, 2), kl=gt.KL(1.0, [[0.8, 0.2]]))
    >>> name = gt.compose("grpo_k2_example", advantage="grpo", kl="k2 in loss")
    >>> found = gt.fixed_point(problem, problem.theta, name, group_size=64)
    >>> found.stable, round(float(problem.at(found.theta).reward_law[0, 1]), 2)
    (True, 0.67)
    """
    followed = find_forgetful(estimator)

    def mean(theta: Array) -> Array:
        point = problem.at(theta)
        return mean_estimate(point, point, followed, group_size)

    def slopes(theta: Array) -> Array:
        steps = DIFFERENCE * np.maximum(1.0, np.abs(theta))
        shifts = np.diag(steps)
        return np.stack(
            [(mean(theta + one) - mean(theta - one)) / (2.0 * step) for one, step in zip(shifts, steps, strict=True)], axis=1
        )

    from scipy.integrate import solve_ivp  # slow to import, and not always wanted
    from scipy.optimize import least_squares

    def rank(theta: Array) -> int:
        fisher = fisher_information(problem, problem.at(theta).token_probabilities, theta)
        return int(np.linalg.matrix_rank(fisher, tol=FLAT, hermitian=True))

    start = problem.parameters(theta0, "theta0")
    enough, free, near = RESIDUAL * max(1.0, float(np.linalg.norm(mean(start)))), rank(start), start
    for _ in range(2):
        theta = least_squares(mean, near, slopes, xtol=1e-15, ftol=1e-15, gtol=1e-15).x
        left = float(np.linalg.norm(mean(theta)))
        # Where a policy is all but sure every mean is 0: that is no fixed point, but one at infinity.
        if left <= enough and rank(theta) == free:
            break
        near = solve_ivp(lambda _, at: mean(at), (0.0, TIME), start, method="LSODA").y[:, -1]
    else:
        raise ValueError(
            "theta0 must be a start from which a fixed point is found, and none is by least squares, from there or from where "
            f"small updates lead: the last ended where the mean has length {left:.3g}. Without a penalty all may lie at infinity"
        )
    values: Any = np.linalg.eigvals(slopes(theta))
    return FixedPoint(theta, values[np.argsort(-values.real)], left)
