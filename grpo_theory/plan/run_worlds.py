"""Worlds in which a whole run is tried: they start at a log's rewards, and differ in what rewards do not show."""

from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import logsumexp, softmax

from grpo_theory.intervals.ragged import RewardCounts
from grpo_theory.laboratory.prompt_features import Sharing, graded_features, graded_logits
from grpo_theory.plan.success_rates import fit_success_rates
from grpo_theory.problem import Bandit, LinearSoftmax, Problem, TabularSoftmax
from grpo_theory.validation import Array, Integers

LEVELS = 6
"""The most rewards of a simulated world: of its 8 answers two may be right, and two are left for the least reward."""
KEPT = (0.8, 1.25)
"""How much of the log's variance within groups levels may have: a quarter more noise moves the best size by less than two."""
CURVATURES = (-40.0, -15.0, -5.0, 0.0, 5.0, 15.0, 40.0, 120.0)
"""How much rarer than in the log rewards far from a prompt's own are: from all at the ends to all at neighbouring levels."""
TINY = 1e-300
"""Of what never happens: its logarithm is a number."""
DROP = 0.5
"""By so much the log-likelihood falls where a rate is one standard error from the likeliest."""
RARER = 30.0
"""By what factor the prompts that were never solved are rarer in the other reading: it takes them out of reach of most runs."""
SMALLEST, LARGEST = 1e-5, 1.0 - 1e-3
"""Success rates of simulated prompts: a prompt at 0 or 1 never learns."""
UNSEEN = 1e-9
"""Of the responses to a prompt at a level between two that it has: an answer has a logit."""
FROZEN = 1e3
"""Logits of the start are a feature, divided by this, times a parameter that begins here: it hardly learns."""


class Ladder(NamedTuple):
    """The levels that stand for a log's rewards, and how often each prompt got each.

    Attributes
    ----------
    rewards : ndarray, shape (L,)
        In the log's unit, ascending: of at most `LEVELS` different rewards these, and else the means of clusters.
    counts : ndarray of int, shape (B, L)
    """

    rewards: Array
    counts: Integers

    @property
    def grades(self) -> Array:
        """The levels on a scale from 0, the least, to 1, the greatest, shape (L,)."""
        return (self.rewards - self.rewards[0]) / (self.rewards[-1] - self.rewards[0])

    @property
    def pooled(self) -> Array:
        """The share of all responses at each level, shape (L,)."""
        totals = self.counts.sum(axis=0)
        return np.asarray(totals / totals.sum())

    @property
    def rows(self) -> tuple[Integers, Array]:
        """The different rows of counts, shape (C, L), and how many prompts have each; of more than 4096 some, spread evenly."""
        rows, prompts = np.unique(self.counts, axis=0, return_counts=True)
        kept = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), 4096)).round().astype(int))
        return rows[kept], prompts[kept] * (prompts.sum() / prompts[kept].sum())


def reward_ladder(counts: RewardCounts, most: int = LEVELS) -> Ladder:
    """Return at most so many levels for a log's rewards: clusters of neighbours, with the least squared distances to their means.

    A cluster's mean stands for its rewards, so that the log's mean reward is kept. Of its variance as much is kept as so many
    levels can.

    Raises
    ------
    ValueError
        If the levels do not keep the variance within groups, of which advantages are made: prompts differ more than responses.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> from grpo_theory.plan.run_worlds import reward_ladder
    >>> counts = gt.RewardCounts.from_rewards([0, 0, 0, 1, 1, 1], [0.0, 0.1, 1.0, 0.0, 0.9, 0.5])
    >>> ladder = reward_ladder(counts, 3)
    >>> ladder.rewards.round(3).tolist(), ladder.counts.tolist()
    ([0.033, 0.5, 0.95], [[2, 0, 1], [1, 1, 1]])
    """
    values = counts.values
    if values.size <= most:
        return Ladder(values, counts.counts.toarray())
    weights = np.asarray(counts.counts.sum(axis=0)).ravel().astype(np.float64)
    # Different rewards are first put together in 256 runs of neighbours, so that the search is fast.
    inner = np.array_split(np.arange(1, values.size - 1), min(values.size, 256) - 2)
    firsts = np.array([0, *(chunk[0] for chunk in inner), values.size - 1])  # the ends are alone: one may be an outlier
    mass = np.add.reduceat(weights, firsts)
    centres = np.add.reduceat(weights * (values - values[0]), firsts) / mass
    cuts = firsts[best_cuts(centres / centres[-1], mass, most)]
    level = np.searchsorted(cuts, np.arange(values.size), side="right") - 1
    membership = sparse.csr_array((np.ones(values.size, dtype=np.int64), (np.arange(values.size), level)))
    means = values[0] + np.add.reduceat(weights * (values - values[0]), cuts) / np.add.reduceat(weights, cuts)
    ladder = Ladder(means, (counts.counts @ membership).toarray())
    logged = _within(values, counts.counts)
    kept = _within(ladder.rewards, sparse.csr_array(ladder.counts)) / logged if logged > 0.0 else 1.0
    if not KEPT[0] <= kept <= KEPT[1]:
        raise ValueError(
            f"rewards must differ within groups as they do between prompts. The {len(ladder.rewards)} levels that stand for them "
            f"have {kept:.2g} times the log's variance within groups; from {KEPT[0]:g} to {KEPT[1]:g} is allowed. Subtract from "
            "each reward its prompt's usual reward, which changes no advantage. Or ask for one step with --budget, which reads "
            "graded rewards as they are"
        )
    return ladder


def _within(values: Array, counts: sparse.csr_array) -> float:
    """Return the sum of squared distances from the means of the groups."""
    sizes, near = np.asarray(counts.sum(axis=1)).ravel(), values - values[values.size // 2]
    return float((counts @ near**2 - (counts @ near) ** 2 / np.maximum(sizes, 1)).sum())


def best_cuts(values: Array, weights: Array, clusters: int) -> Integers:
    """Return where each cluster begins, (clusters,), of those with the least squared distance from their means.

    Clusters of numbers in order are runs of neighbours, so that the best are found exactly, one cluster more at a time (Fisher
    1958). Values (V,) are ascending, weights above 0, and clusters at most V.
    """
    size = values.size
    # Squares as far as an outlier would swamp all others.
    values = values - values[np.searchsorted(np.cumsum(weights), 0.5 * weights.sum())]
    mass, first, second = (np.append(0.0, np.cumsum(weights * values**power)) for power in range(3))
    some = np.arange(size + 1)[:, None] < np.arange(size + 1)
    total = np.where(some, mass[None, :] - mass[:, None], 1.0)
    within = (second[None, :] - second[:, None]) - (first[None, :] - first[:, None]) ** 2 / total
    cost = np.where(some, within, np.inf)  # of values i to j - 1
    best, cuts = cost[0], np.zeros((1, size + 1), dtype=np.int64)
    for _ in range(clusters - 1):
        through = best[:, None] + cost
        last = through.argmin(axis=0)
        best, cuts = through.min(axis=0), np.vstack([cuts[:, last], last])
    return cuts[:, size]


def tilted_laws(grades: Array, pooled: Array) -> Array:
    """Return laws of rewards of many means and spreads, shape (A, L), the largest mean first: the log's own law, tilted.

    A law is in proportion to w exp(a x - b x^2), with w the shares in the whole log and x the grades. This is the exponential
    family whose statistics are the mean reward and the mean square. With three levels it contains every law, if tilts may be
    large.
    """

    def law(tilt: Array) -> Array:
        usual = np.log(np.maximum(pooled, TINY))
        return np.asarray(softmax(usual + tilt[:, None] * grades - curvature[:, None] * grades**2, axis=1))

    angles = np.linspace(0.0, np.pi / 2.0, 25)[1:-1]  # of equal steps, as standard errors of a success rate are
    near = np.array([1e-6, 1e-5, 1e-4, 1e-3])  # to an end: nearer than a step
    means = np.unique(np.concatenate([np.sin(angles) ** 2, near, 1.0 - near]))
    mean, curvature = (grid.ravel() for grid in np.meshgrid(means, CURVATURES, indexing="ij"))
    low, high = np.full(mean.size, -500.0), np.full(mean.size, 500.0)
    for _ in range(60):
        middle = 0.5 * (low + high)
        above = law(middle) @ grades > mean
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    laws = law(0.5 * (low + high))
    return laws[np.lexsort((laws @ grades**2, laws @ grades))[::-1]]


def fit_reward_laws(ladder: Ladder) -> tuple[Array, Array]:
    """Fit the distribution of the prompts' laws of rewards by maximum likelihood: `fit_success_rates`, or over `tilted_laws`.

    With more than two levels a prompt has a mean and a spread of its own. Given its law, a prompt's counts are multinomial. The
    weights are then found by expectation-maximisation. It stops short of the very best fit, which does not change the shape of
    worlds.

    Returns
    -------
    laws : ndarray, shape (A, L)
        The largest mean first.
    weights : ndarray, shape (A,)

    Examples
    --------
    >>> import numpy as np
    >>> from grpo_theory.plan.run_worlds import Ladder, fit_reward_laws
    >>> laws, weights = fit_reward_laws(Ladder(np.array([0.0, 0.5, 1.0]), np.array([[4, 4, 0]] * 40)))
    >>> (weights @ laws).round(2).tolist()
    [0.5, 0.5, 0.0]
    """
    if len(ladder.rewards) == 2:
        law = fit_success_rates(RewardCounts(ladder.rewards, sparse.csr_array(ladder.counts)))
        return np.stack([1.0 - law.atoms, law.atoms], axis=-1)[::-1], law.weights[::-1]
    laws, (rows, prompts) = tilted_laws(ladder.grades, ladder.pooled), ladder.rows
    logs = rows @ np.log(np.maximum(laws, TINY)).T
    table = np.exp(logs - logs.max(axis=1, keepdims=True))
    shares, weights = prompts / prompts.sum(), np.full(len(laws), 1.0 / len(laws))
    for _ in range(400):
        weights = weights * (table.T @ (shares / (table @ weights)))
    some = weights > 1e-6
    return laws[some], weights[some] / weights[some].sum()


class RateReading(NamedTuple):
    """Rewards at the start that agree with a log.

    Attributes
    ----------
    floor : float
        The rate of the prompts that the log cannot tell from 0: of success, or of more than the least reward.
    shares : ndarray, shape (M, L)
        Of each prompt's responses at each level of reward; the prompts with the largest mean first.
    agreement : float
        The likelihood of the log's counts, over that of the likeliest law.
    """

    floor: float
    shares: Array
    agreement: float


def readings(ladder: Ladder, laws: Array, weights: Array, prompts: int) -> tuple[RateReading, ...]:
    """Return one or two readings of a log: what a prompt never got is as frequent as the log allows, or far rarer.

    Every prompt has responses of every level. What is above the least reward has a rate of at least a floor, spread over the
    levels as in the whole log. The floor of the first reading is the largest at which the log-likelihood of the counts falls by
    no more than `DROP`. The second divides it by `RARER`. There is one reading where the log has no prompts below the floor.
    Laws and weights are those of `fit_reward_laws(ladder)`; the worlds start at M quantiles of these.
    """
    (rows, held), pooled = ladder.rows, ladder.pooled

    def likelihood(some: Array) -> float:
        return float(held @ logsumexp(rows @ np.log(np.maximum(some, TINY)).T, axis=1, b=weights))

    at = np.searchsorted(np.cumsum(weights), (np.arange(prompts) + 0.5) / prompts * (1.0 - 1e-12))
    best, quantiles = likelihood(laws), laws[np.minimum(at, len(laws) - 1)]
    low, high = np.log(SMALLEST), np.log(0.5)
    for _ in range(30):
        middle = 0.5 * (low + high)
        allowed = best - likelihood(lift(laws, np.exp(middle), pooled)) <= DROP
        low, high = (middle, high) if allowed else (low, middle)
    floors = float(np.exp(low)), max(float(np.exp(low)) / RARER, SMALLEST)
    agreements = [float(np.exp(likelihood(lift(laws, floor, pooled)) - best)) for floor in floors]
    shares = [lift(quantiles, floor, pooled, LARGEST) for floor in floors]
    found = tuple(map(RateReading, floors, shares, agreements))
    return found[:1] if np.array_equal(shares[0], shares[1]) else found


def lift(laws: Array, floor: float, pooled: Array, most: float = 1.0) -> Array:
    """Return laws (A, L), all above 0, in which more than the least reward has at least a rate, and the greatest at most another.

    What is added or taken is spread over the levels as in the pooled law.
    """
    # The probability of each level or more but the least, shape (..., L - 1).
    usual, above = (np.cumsum(one[..., ::-1], axis=-1)[..., -2::-1] for one in (pooled, laws))
    above = np.maximum(above, floor * usual / usual[0])
    above = np.minimum(above, 1.0 - (1.0 - most) * (1.0 - usual) / (1.0 - usual[-1]))
    ends = np.ones((len(above), 1))
    shares = np.maximum(-np.diff(np.concatenate([ends, above, 0.0 * ends], axis=1), axis=1), UNSEEN)
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


class RunWorld(NamedTuple):
    """How prompts and right answers share parameters: what rewards alone do not tell.

    Attributes
    ----------
    title : str
        What it is, in the words of the planner.
    roominess : float
        The dimension of the features that all prompts share, over the number of prompts. 0 is a table, in which no prompt
        touches another. Below 1 no parameter solves all prompts.
    answers, right : int
        Of each prompt, and how many of them are right.
    coherence, transfer, misled : float
        As in `grpo_theory.laboratory.prompt_features.Sharing`.
    """

    title: str
    roominess: float = 1.0
    answers: int = 8
    right: int = 1
    coherence: float = 0.0
    transfer: float = 0.0
    misled: float = 0.0

    def graded(self, values: Array, shares: Array, draw: int = 0) -> Problem:
        """Return the problem of graded rewards whose prompts start at given laws of them.

        Of the answers `right` have the greatest reward, one has each reward between, and all others have the least.

        Parameters
        ----------
        values : ndarray, shape (L,)
            From 0 to 1, ascending; fewer than `answers` less `right`, plus 2.
        shares : ndarray, shape (M, L)
            Of each prompt's responses, above 0; prompts with the largest mean reward first.
        draw : int, default 0
            The number of the draw of features and starting logits; the planner's own worlds are draw 0.

        Returns
        -------
        Problem
        """
        rng, (count, size) = np.random.default_rng((20261127, draw)), shares.shape
        order = np.maximum(size - 1 - np.maximum(np.arange(self.answers) - self.right + 1, 0), 0)
        levels = np.broadcast_to(order, (count, self.answers))
        logits = graded_logits(shares, levels, rng)
        bandit = Bandit.from_law(values, np.eye(size)[levels])
        if not self.roominess:
            return Problem(bandit, TabularSoftmax(count, self.answers), theta=logits.reshape(-1))
        sharing = Sharing(max(round(self.roominess * count), 2), self.coherence, self.transfer, self.misled)
        features = np.concatenate([graded_features(values[levels], sharing, rng), logits[..., None] / FROZEN], axis=-1)
        return Problem(bandit, LinearSoftmax(features), theta=np.append(np.zeros(sharing.dimension), FROZEN))


WORLDS: tuple[RunWorld, ...] = (
    RunWorld("prompts do not touch each other", roominess=0.0),
    RunWorld("prompts share parameters, with room for all"),
    RunWorld("prompts compete for few parameters", roominess=0.25),
    RunWorld("prompts teach each other", transfer=0.1),
    RunWorld("easy prompts mislead the hard ones", transfer=0.1, misled=0.25),
    RunWorld("right answers are several and alike", right=2, coherence=0.9),
    RunWorld("right answers are several and compete", right=2),
)
"""The dials of the study of whole runs that no log of rewards shows, one at a time."""
