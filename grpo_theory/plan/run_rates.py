"""Success rates at which simulated runs start: those of a log, in the ways that the log leaves open."""

from typing import NamedTuple

import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.plan.brackets import binomial_table
from grpo_theory.plan.success_rates import Cells, SuccessRates
from grpo_theory.samples import RewardCounts

DROP = 0.5
"""By so much the log-likelihood falls where a rate is one standard error from the likeliest."""
RARER = 30.0
"""By what factor the prompts that were never solved are rarer in the other reading: it takes them out of reach of most runs."""
SMALLEST, LARGEST = 1e-5, 1.0 - 1e-3
"""Success rates of simulated prompts: a prompt at 0 or 1 never learns."""


class Reading(NamedTuple):
    """Success rates at the start that agree with a log.

    Attributes
    ----------
    floor : float
        The rate of the prompts that the log cannot tell from 0.
    rates : ndarray, shape (M,)
        The largest first.
    agreement : float
        The likelihood of the log's counts, over that of the likeliest law.
    """

    floor: float
    rates: Array
    agreement: float


def readings(counts: RewardCounts, law: SuccessRates, prompts: int) -> tuple[Reading, ...]:
    """Return one or two readings of a log: prompts that were never solved are as rare as it allows, or far rarer.

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
    tuple of Reading
    """
    floor = _floor(Cells.of(counts), law)
    quantiles = law.quantile((np.arange(prompts, 0, -1) - 0.5) / prompts)
    found = []
    for low in (floor, max(floor / RARER, SMALLEST)):
        agreement = float(np.exp(-_fall(Cells.of(counts), law, low)))
        found.append(Reading(low, np.clip(quantiles, low, LARGEST), agreement))
    same = np.array_equal(found[0].rates, found[1].rates)
    return tuple(found[:1] if same else found)


def _fall(cells: Cells, law: SuccessRates, floor: float) -> float:
    """Return by how much the log-likelihood of the counts falls if no rate is below a floor."""
    at = np.log(binomial_table(cells.successes, cells.sizes, np.maximum(law.atoms, floor)) @ law.weights)
    best = np.log(binomial_table(cells.successes, cells.sizes, law.atoms) @ law.weights)
    return float(cells.prompts @ (best - at))


def _floor(cells: Cells, law: SuccessRates) -> float:
    """Return the largest floor that the counts allow, by halving an interval of its logarithm."""
    low, high = np.log(SMALLEST), np.log(0.5)
    for _ in range(30):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _fall(cells, law, float(np.exp(middle))) <= DROP else (low, middle)
    return float(np.exp(low))
