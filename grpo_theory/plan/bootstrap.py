"""Confidence limits of anything that is computed from prompts, by one bootstrap over the prompts."""

from collections.abc import Callable

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

from grpo_theory.intervals.interval import Interval
from grpo_theory.validation import Array

DRAWS, BLOCK, MOST_GROUPS = 2000, 250, 256
"""Resampled sets of prompts, how many are looked at together, and into how many groups the jackknife divides the prompts."""
SEED = 20261129


def bootstrap_limits(statistic: Callable[[Array], Array], prompts: int, level: float, draws: int = DRAWS) -> Interval:
    """Return bias-corrected and accelerated limits (BCa, Efron 1987) of L statistics of B prompts, each of shape (L,).

    Limits from few prompts would be too narrow. So the normal quantile is replaced by Student's times the root of B/(B - 1)
    (Hesterberg 2015, section 5.3). The draws have a fixed seed: the same data have the same limits.

    Parameters
    ----------
    statistic : callable
        From how often each prompt stands in R samples, shape (R, B), of whole numbers as float64, to the statistics (R, L). Where
        a sample has no value it may be NaN, or infinite. Products of two different prompts must leave out a prompt's product
        with a copy of itself.
    prompts : int
        B of at least 2.
    level : float
    draws : int, default 2000
    """
    rng, chance = np.random.default_rng(SEED), np.full(prompts, 1.0 / prompts)
    sizes = [BLOCK] * (draws // BLOCK) + [draws % BLOCK] * (draws % BLOCK > 0)
    found = np.concatenate([statistic(rng.multinomial(prompts, chance, size).astype(np.float64)) for size in sizes])
    estimate = statistic(np.ones((1, prompts)))[0]
    groups = min(prompts, MOST_GROUPS)
    left_out = (np.arange(prompts) % groups != np.arange(groups)[:, None]).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        jackknife = np.concatenate([statistic(part) for part in np.array_split(left_out, -(-groups // BLOCK))])
        moved = np.nan_to_num(jackknife.mean(axis=0) - jackknife, nan=0.0, posinf=0.0, neginf=0.0)
        # z0 = Phi^-1(share of draws below the estimate), a = sum d^3/(6 (sum d^2)^1.5): Efron and Tibshirani 1993, 14.3.
        share = np.clip(
            ((found < estimate).mean(axis=0) + (found <= estimate).mean(axis=0)) / 2.0, 0.5 / draws, 1.0 - 0.5 / draws
        )
        squares = (moved**2).sum(axis=0)
        z0 = ndtri(share)
        acceleration = np.where(squares > 0.0, (moved**3).sum(axis=0) / (6.0 * np.maximum(squares, 1e-300) ** 1.5), 0.0)
        quantile = np.sqrt(prompts / (prompts - 1.0)) * float(stdtrit(prompts - 1, (1.0 + level) / 2.0))
        limits = []
        for side in (-1.0, 1.0):
            z = z0 + side * quantile
            # Where the acceleration takes z past its pole, the limit is the last draw on that side.
            bend = 1.0 - acceleration * z
            at = np.where(bend > 0.0, ndtr(z0 + z / np.maximum(bend, 1e-12)), 0.5 + side / 2.0)
            ordered = np.sort(np.where(np.isnan(found), side * np.inf, found), axis=0)
            place = np.clip(np.round(at * (draws + 1.0)) - 1.0, 0, draws - 1).astype(np.int64)
            limits.append(np.take_along_axis(ordered, place[None], axis=0)[0])
        error = np.std(found, axis=0, ddof=1)
    return Interval(estimate, error, np.minimum(limits[0], estimate), np.maximum(limits[1], estimate), level)
