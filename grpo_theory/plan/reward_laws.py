"""How the laws of graded rewards are distributed over prompts, with the sampling noise of small groups removed."""

from typing import NamedTuple

import numpy as np

from grpo_theory.plan.reward_levels import Ladder
from grpo_theory.validation import Array, Integers

STEPS = 24
"""Steps of the grid of mean rewards, of equal angle, as standard errors of a success rate are."""
NEAREST = (1e-6, 1e-5, 1e-4, 1e-3)
"""Mean rewards nearer to an end than a step."""
CURVATURES = (-40.0, -15.0, -5.0, 0.0, 5.0, 15.0, 40.0, 120.0)
"""How much rarer than in the log rewards far from a prompt's own are: from all at the ends to all at neighbouring levels."""
STEEPEST = 500.0
"""Bound of the tilt that gives a law its mean."""
HALVINGS = 60
ITERATIONS = 400
TINY = 1e-300
"""Of what never happens: its logarithm is a number."""
MOST_CELLS = 4096
"""The most different rows of counts that the law is fitted to: more are thinned out evenly."""


class RewardLaws(NamedTuple):
    """A distribution over prompts of the law of their rewards, on finitely many laws.

    Attributes
    ----------
    laws : ndarray, shape (A, L)
        The probabilities of the levels, those of the largest mean reward first.
    weights : ndarray, shape (A,)
        The share of the prompts that has each.
    """

    laws: Array
    weights: Array

    def quantiles(self, prompts: int) -> Array:
        """Return the laws (M, L) at the middles of M equal shares of the prompts, the largest mean reward first."""
        at = np.searchsorted(np.cumsum(self.weights), (np.arange(prompts) + 0.5) / prompts * (1.0 - 1e-12))
        return self.laws[np.minimum(at, len(self.laws) - 1)]


class LawRows(NamedTuple):
    """Different rows of counts, and how many prompts have each.

    Attributes
    ----------
    counts : ndarray of int, shape (C, L)
    prompts : ndarray, shape (C,)
    """

    counts: Integers
    prompts: Array

    @classmethod
    def of(cls, ladder: Ladder) -> "LawRows":
        """Return the rows of a log; of very many different ones, evenly thinned, in the order of their counts."""
        counts, prompts = np.unique(ladder.counts, axis=0, return_counts=True)
        kept = np.unique(np.linspace(0, len(counts) - 1, min(len(counts), MOST_CELLS)).round().astype(int))
        return cls(counts[kept], prompts[kept] * (prompts.sum() / prompts[kept].sum()))

    def log_likelihoods(self, laws: Array) -> Array:
        """Return the logarithm of each row's probability under each law, shape (C, A), without multinomial coefficients."""
        return np.asarray(self.counts @ np.log(np.maximum(laws, TINY)).T)


def tilted_laws(grades: Array, pooled: Array) -> Array:
    """Return laws of rewards of many means and spreads, shape (A, L), the largest mean first: the log's own law, tilted.

    A law is in proportion to w exp(a x - b x^2), with w the shares in the whole log and x the grades. This is the exponential
    family whose statistics are the mean reward and the mean square. With three levels it contains every law, if tilts may be
    large.

    Parameters
    ----------
    grades, pooled : ndarray, shape (L,)
        From 0 to 1; above 0.
    """
    angles = np.linspace(0.0, np.pi / 2.0, STEPS + 1)[1:-1]
    means = np.unique(np.concatenate([np.sin(angles) ** 2, NEAREST, 1.0 - np.array(NEAREST)]))
    mean, curvature = (grid.ravel() for grid in np.meshgrid(means, CURVATURES, indexing="ij"))
    low, high = np.full(mean.size, -STEEPEST), np.full(mean.size, STEEPEST)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        above = _law(middle, curvature, grades, pooled) @ grades > mean
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    laws = _law(0.5 * (low + high), curvature, grades, pooled)
    return laws[np.lexsort((laws @ grades**2, laws @ grades))[::-1]]


def _law(tilt: Array, curvature: Array, grades: Array, pooled: Array) -> Array:
    with np.errstate(divide="ignore"):  # a level that no response reached has probability 0
        shares = np.log(pooled)
    logs = shares + tilt[:, None] * grades - curvature[:, None] * grades**2
    law = np.exp(logs - logs.max(axis=1, keepdims=True))
    return law / law.sum(axis=1, keepdims=True)


def fit_reward_laws(ladder: Ladder) -> RewardLaws:
    """Fit the distribution of the prompts' laws of rewards by maximum likelihood over `tilted_laws`.

    This is done as for success rates, but a prompt has a mean and a spread of its own. Given its law, a prompt's counts are
    multinomial. The weights are found by expectation-maximisation. It stops short of the very best fit, which does not change
    the shape of worlds.

    Parameters
    ----------
    ladder : Ladder

    Returns
    -------
    RewardLaws

    Examples
    --------
    >>> import numpy as np
    >>> from grpo_theory.plan.reward_laws import fit_reward_laws
    >>> from grpo_theory.plan.reward_levels import Ladder
    >>> found = fit_reward_laws(Ladder(np.array([0.0, 0.5, 1.0]), np.array([[4, 4, 0]] * 40)))
    >>> (found.weights @ found.laws).round(2).tolist()
    [0.5, 0.5, 0.0]
    """
    rows, laws = LawRows.of(ladder), tilted_laws(ladder.grades, ladder.pooled)
    logs = rows.log_likelihoods(laws)
    table = np.exp(logs - logs.max(axis=1, keepdims=True))
    shares, weights = rows.prompts / rows.prompts.sum(), np.full(len(laws), 1.0 / len(laws))
    for _ in range(ITERATIONS):
        weights = weights * (table.T @ (shares / (table @ weights)))
    kept = weights > 1e-6
    return RewardLaws(laws[kept], weights[kept] / weights[kept].sum())
