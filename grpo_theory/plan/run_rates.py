"""Rewards at which simulated runs start: those of a log, in the ways that the log leaves open."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from grpo_theory.intervals.ragged import RewardCounts
from grpo_theory.plan.brackets import binomial_table
from grpo_theory.plan.reward_laws import LawRows, RewardLaws
from grpo_theory.plan.reward_levels import Ladder
from grpo_theory.plan.success_rates import Cells, SuccessRates
from grpo_theory.validation import Array

DROP = 0.5
"""By so much the log-likelihood falls where a rate is one standard error from the likeliest."""
RARER = 30.0
"""By what factor the prompts that were never solved are rarer in the other reading: it takes them out of reach of most runs."""
SMALLEST, LARGEST = 1e-5, 1.0 - 1e-3
"""Success rates of simulated prompts: a prompt at 0 or 1 never learns."""
UNSEEN = 1e-9
"""Of the responses to a prompt at a level between two that it has: an answer has a logit."""


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

    @property
    def rates(self) -> Array:
        """Of the greatest reward, shape (M,)."""
        return self.shares[:, -1]


def readings(counts: RewardCounts, law: SuccessRates, prompts: int) -> tuple[RateReading, ...]:
    """Return one or two readings of a log: prompts that were never solved succeed as often as it allows, or far more seldom.

    The first reading gives all rates at least the largest floor at which the log-likelihood of the counts falls by no more than
    `DROP`. The second divides the floor by `RARER`. There is one reading where the log has no prompts below the floor.

    Parameters
    ----------
    counts : RewardCounts
        Of two rewards.
    law : SuccessRates
        What `fit_success_rates(counts)` returns.
    prompts : int
        M, of the worlds: they start at so many quantiles of the law.

    Returns
    -------
    tuple of RateReading
    """
    cells = Cells.of(counts)
    quantiles = law.quantile((np.arange(prompts, 0, -1) - 0.5) / prompts)

    def fall(floor: float) -> float:
        return _fall(cells, law, floor)

    def shares(floor: float) -> Array:
        rates = np.clip(quantiles, floor, LARGEST)
        return np.stack([1.0 - rates, rates], axis=-1)

    return _near_and_far(fall, shares)


def graded_readings(ladder: Ladder, found: RewardLaws, prompts: int) -> tuple[RateReading, ...]:
    """Return one or two readings of a graded log: what a prompt never got is as frequent as the log allows, or far rarer.

    Every prompt has responses of every level. What is above the least reward has a rate of at least the floor, spread over the
    levels as in the whole log. With two levels these are `readings`.

    Parameters
    ----------
    ladder : Ladder
    found : RewardLaws
        What `fit_reward_laws(ladder)` returns.
    prompts : int
        M, of the worlds.

    Returns
    -------
    tuple of RateReading
    """
    rows, quantiles, pooled = LawRows.of(ladder), found.quantiles(prompts), ladder.pooled
    logs = rows.log_likelihoods(found.laws)
    tops = logs.max(axis=1, keepdims=True)
    best = np.log(np.exp(logs - tops) @ found.weights)

    def fall(floor: float) -> float:
        lifted = np.log(np.exp(rows.log_likelihoods(lift(found.laws, floor, pooled)) - tops) @ found.weights)
        return float(rows.prompts @ (best - lifted))

    return _near_and_far(fall, lambda floor: capped(lift(quantiles, floor, pooled), pooled))


def lift(laws: Array, floor: float, pooled: Array) -> Array:
    """Return laws (A, L) in which more than the least reward has at least a rate, spread over the levels as in the pooled law."""
    usual = _or_more(pooled)
    above = np.maximum(_or_more(laws), floor * usual / usual[..., :1])
    return _shares(above)


def capped(laws: Array, pooled: Array) -> Array:
    """Return laws (A, L) in which less than the greatest reward has at least 1 - `LARGEST`, spread as in the pooled law."""
    usual = 1.0 - _or_more(pooled)
    above = np.minimum(_or_more(laws), 1.0 - (1.0 - LARGEST) * usual / usual[..., -1:])
    return _shares(above)


def _or_more(laws: Array) -> Array:
    """Return the probability of each level or more but the least, shape (..., L - 1)."""
    return np.asarray(np.cumsum(laws[..., ::-1], axis=-1)[..., -2::-1])


def _shares(above: Array) -> Array:
    """Return laws, all above 0, of probabilities of each level or more."""
    ends = np.ones((len(above), 1))
    shares = np.maximum(-np.diff(np.concatenate([ends, above, 0.0 * ends], axis=1), axis=1), UNSEEN)
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def _near_and_far(fall: Callable[[float], float], shares: Callable[[float], Array]) -> tuple[RateReading, ...]:
    """Return the readings at the largest floor that a log allows, and at one `RARER` times as low, if they differ."""
    floor = _floor(fall)
    found = [RateReading(low, shares(low), float(np.exp(-fall(low)))) for low in (floor, max(floor / RARER, SMALLEST))]
    same = np.array_equal(found[0].shares, found[1].shares)
    return tuple(found[:1] if same else found)


def _fall(cells: Cells, law: SuccessRates, floor: float) -> float:
    """Return by how much the log-likelihood of the counts falls if no rate is below a floor."""
    at = np.log(binomial_table(cells.successes, cells.sizes, np.maximum(law.atoms, floor)) @ law.weights)
    best = np.log(binomial_table(cells.successes, cells.sizes, law.atoms) @ law.weights)
    return float(cells.prompts @ (best - at))


def _floor(fall: Callable[[float], float]) -> float:
    """Return the largest floor that the counts allow, by halving an interval of its logarithm."""
    low, high = np.log(SMALLEST), np.log(0.5)
    for _ in range(30):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if fall(float(np.exp(middle))) <= DROP else (low, middle)
    return float(np.exp(low))
