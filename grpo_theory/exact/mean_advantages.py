"""What a reward is worth on average: the mean advantage of a response given its own reward, the group's others drawn.

Let the rewards of a prompt have the law q on L values.  Let a_l(q) be the mean advantage of a response that has the l-th of them.

On policy an estimate's mean is E[a_Z W].  That is the policy gradient with the reward a_Z(q) in place of Z.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import cast

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln

from grpo_theory.estimation import Estimator, find
from grpo_theory.estimation import named as papers
from grpo_theory.estimation import trainer_kernels as trainers
from grpo_theory.exact.multisets import UNREAD, advantage_table, multiset_lines, multisets
from grpo_theory.exact.score_moments import NotEnumerableError
from grpo_theory.problem import Objective, Problem
from grpo_theory.validation import (
    Array,
    Integers,
    as_count,
    as_numbers,
    as_real_array,
    check_shape,
    check_within,
    read_only,
    typed,
)

NEVER = -1e4
"""The logarithm of a chance of 0, times a count of 0 is 0, and times another the logarithm of what underflows to 0."""
LARGEST = 1e100
"""Squares of rewards are numbers up to it."""
CLOSED = 1e-9
"""By how much advantages may differ that are to be equal, beside the largest."""

Population = Callable[[Array, Array], Array]


def group_chances(counts: Integers, law: Array) -> Array:
    """Return the multinomial probability of each multiset (n, L) by laws (..., L), shape (..., n)."""
    size = counts[0].sum()
    logs = np.log(law, out=np.full(law.shape, NEVER), where=law > 0.0)
    # P(n_1..n_L) = G!/(n_1!..n_L!) prod_l q_l^n_l.
    return np.exp(logs @ counts.T + gammaln(size + 1.0) - gammaln(counts + 1.0).sum(axis=1))


@lru_cache(maxsize=64)
def advantages_beside(estimator: Estimator, values: tuple[float, ...], group_size: int, others: int) -> tuple[Integers, Array]:
    """Return multisets of `others` rewards (n, L), and the advantage of each reward in a group of these, itself, and more.

    The advantages have shape (n, L) if `others` is G - 1.  If it is G - 2, another reward completes the group, and their shape is
    (n, L, L): reward, then the one that completes the group.
    """
    table = None
    if not estimator.advantage.reads - {"rewards", "parameters"}:
        table = advantage_table(estimator.advantage, values, group_size, UNREAD)
    if table is None:
        raise NotEnumerableError(
            f"estimator {estimator.name!r} must treat responses alike, read only rewards and see each group by itself, and "
            f"groups of {group_size} with {len(values)} rewards must not be too large for a table of all of them"
        )
    n = len(values)
    counts = multisets(n, others)
    added = counts[:, None] + np.eye(n, dtype=np.int64)
    if others < group_size - 1:
        added = added[:, :, None] + np.eye(n, dtype=np.int64)
    lines = multiset_lines(added.reshape(-1, n), table.ranks).reshape(added.shape[:-1])
    own = np.arange(n) if added.ndim == 3 else np.arange(n)[:, None]
    return read_only(counts), read_only(table.advantages[0][lines, own])


def given_own_reward(
    estimator: str | Estimator | Population, values: Array, law: Array, group_size: int | float
) -> tuple[Array | None, Array]:
    """Return the chances of what the group's others get (..., n), and the advantages of each reward beside them (n, L).

    In groups without end nothing is left to chance: the first is None, and the advantages have shape (..., L).
    """
    if not isinstance(estimator, str | Estimator):
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


def _moments(values: Array, law: Array) -> tuple[Array, Array]:
    mean = law @ values
    return values - mean[..., None], np.sqrt(np.maximum(law @ values**2 - mean**2, 0.0))[..., None]


def _centred(values: Array, law: Array, parameters: dict[str, float]) -> Array:
    return _moments(values, law)[0]


def _standardised(values: Array, law: Array, parameters: dict[str, float]) -> Array:
    centred, deviation = _moments(values, law)
    divided = deviation + parameters["epsilon"]
    return np.divide(
        centred, divided, out=np.zeros_like(centred), where=(deviation > parameters.get("floor", 0.0)) & (divided > 0.0)
    )


def _relative(values: Array, law: Array, parameters: dict[str, float]) -> Array:
    centred, mean = _moments(values, law)[0], (law @ values)[..., None]
    return np.divide(centred, mean, out=np.zeros_like(centred), where=mean > 0.0)


POPULATIONS: dict[Callable, Callable[[Array, Array, dict[str, float]], Array]] = {
    papers.reinforce.advantage.function: lambda values, law, parameters: np.broadcast_to(values, law.shape),
    **dict.fromkeys((trainers.centred, trainers.leave_one_out), _centred),
    **dict.fromkeys((one.advantage.function for one in (papers.oracle, papers.rloo, papers.dr_grpo)), _centred),
    **dict.fromkeys((papers.grpo.advantage.function, trainers.standardised, trainers.leave_one_out_standardised), _standardised),
    trainers.relative_to_mean: _relative,
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
    limit, parameters = POPULATIONS[found.advantage.function], dict(found.advantage.parameters)
    return lambda values, law: limit(values, law, parameters)


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

    def curvature(_: Array, law: Array) -> Array:
        return np.asarray((size - 1) * np.einsum("...n,nlj->...lj", group_chances(others, law), pairs))

    return Objective(f"what {found.name} climbs in groups of {size}", value, slope, curvature)


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
