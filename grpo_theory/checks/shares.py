"""What the rewards of a log say of its groups and prompts: shares with signal, success rates, pass@k, and two logs compared."""

from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import gammaln, ndtri, stdtrit

from grpo_theory.checks.sentences import Estimate
from grpo_theory.validation import Array

TINY = 0.01
"""Rewards of a group that differ by less than this share of the log's range differ hardly."""
POWER = 0.8


def clustered_share(values: Array, clusters: np.ndarray) -> Estimate:
    """Return the mean of values (N,) in [0, 1] with 95% limits, where values of one cluster (N,) may depend on each other.

    The limits are Wilson's at the effective sample size p (1 - p) / v, where v is the variance of the mean over clusters.
    The size is cut by the squared ratio of normal to t quantiles, as v has few degrees of freedom (Korn and Graubard 1998).
    If all values are equal the size is the number of clusters.
    """
    from statsmodels.stats.proportion import proportion_confint  # slow to import, as are the others

    values = np.asarray(values, dtype=float)
    mean, index = float(values.mean()), np.unique(clusters, return_inverse=True)[1]
    sums = np.bincount(index, values - mean)
    n = sums.size
    variance = float((sums**2).sum()) * n / max(n - 1, 1) / values.size**2
    size = float(n)
    if variance > 1e-12:
        size = mean * (1.0 - mean) / variance * (ndtri(0.975) / stdtrit(max(n - 1, 1), 0.975)) ** 2
    low, high = proportion_confint(mean * size, size, method="wilson")
    return Estimate(mean, max(0.0, float(low)), min(1.0, float(high)))


def group_signal(rows: pd.DataFrame, rewards: pd.Series) -> dict[str, Estimate]:
    """Return the shares of groups whose rewards are mixed, all at the top of the whole log's rewards (right), or at the bottom.

    If the log has one reward, right and wrong cannot be told apart: both shares are NaN, between 0 and 1.
    """
    bottom, top = rewards.min(), rewards.max()
    groups = rows.groupby("group", sort=False).agg(low=("reward", "min"), high=("reward", "max"), prompt=("prompt", "first"))
    kinds = {"mixed": groups["low"] < groups["high"], "right": groups["low"] == top, "wrong": groups["high"] == bottom}
    codes = pd.factorize(groups["prompt"])[0]
    found = {name: clustered_share(one.to_numpy(), codes) for name, one in kinds.items()}
    return found if bottom < top else found | dict.fromkeys(("right", "wrong"), Estimate(np.nan, 0.0, 1.0))


def tiny_share(rows: pd.DataFrame) -> float:
    """Return the share of mixed groups whose rewards differ by less than 1% of the log's range."""
    groups = rows.groupby("group")["reward"]
    spread = groups.max() - groups.min()
    spread = spread[spread > 0]
    return float((spread < TINY * np.ptp(rows["reward"])).mean()) if len(spread) else 0.0


def prompt_successes(rows: pd.DataFrame, is_right: pd.Series) -> pd.DataFrame:
    """Return a row a prompt: its n responses, c right ones, and the 95% limits, each one-sided, of its success rate.

    The limits are those of Clopper and Pearson.
    """
    from statsmodels.stats.proportion import proportion_confint

    table = is_right.groupby(rows["prompt"].astype(str), observed=True).agg(n="size", c="sum")
    low, high = proportion_confint(table["c"].to_numpy(), table["n"].to_numpy(), alpha=0.1, method="beta")
    return table.assign(low=low, high=high)


def pass_at(table: pd.DataFrame, k: int) -> Estimate:
    """Return the share of prompts that k responses solve, 1 - C(n - c, k)/C(n, k), with limits over prompts (Chen 2021)."""
    enough = table[table["n"] >= k]
    n, wrong = enough["n"].to_numpy(float), (enough["n"] - enough["c"]).to_numpy(float)
    logs = gammaln(wrong + 1) - gammaln(np.maximum(wrong - k, 0) + 1) - gammaln(n + 1) + gammaln(n - k + 1)
    solved = 1.0 - np.where(wrong >= k, np.exp(logs), 0.0)
    return clustered_share(np.clip(solved, 0.0, 1.0), np.arange(solved.size))


def inside_groups(rows: pd.DataFrame, column: str, kind: pd.Series) -> Estimate | None:
    """Return how much larger a column's mean is in responses of a kind than in others of their group; None in under three groups.

    Only inside a group is the prompt the same: hard prompts have longer responses, which are cut more often, and lower rewards.
    """
    means = rows[column].groupby([rows["group"], kind]).mean().unstack()
    apart = (means[True] - means[False]).dropna() if {True, False} <= set(means) else means.iloc[:0, 0]
    return mean_limits(apart.to_numpy()) if len(apart) > 2 else None


def mean_limits(values: Array) -> Estimate:
    """Return the mean of values (N,) with Student's 95% limits."""
    half = float(stdtrit(values.size - 1, 0.975) * values.std(ddof=1) / values.size**0.5)
    return Estimate(float(values.mean()), float(values.mean()) - half, float(values.mean()) + half)


class Comparison(NamedTuple):
    """The mean reward of a second log less that of the first.

    Attributes
    ----------
    difference : Estimate
    prompts : int
        The pairs, or the prompts of the smaller log if they are not paired.
    paired : bool
        Whether at least half of the prompts of the smaller log are in both.
    deviation : float
        The standard deviation of a prompt's difference.
    """

    difference: Estimate
    prompts: int
    paired: bool
    deviation: float

    def needed(self, difference: float) -> int:
        """Return how many prompts show a true difference with a power of 80%, by a t test at 5%."""
        from statsmodels.stats.power import TTestPower

        effect = abs(difference) / self.deviation if self.deviation else np.inf
        return int(np.ceil(TTestPower().solve_power(effect, alpha=0.05, power=POWER))) if effect < 2.0 else 5


def compare(first: pd.DataFrame, second: pd.DataFrame) -> Comparison:
    """Compare two logs, paired by prompt where they have the same prompts; raise ValueError if one has a single prompt."""
    from statsmodels.stats.weightstats import CompareMeans, DescrStatsW

    means = [rows.groupby(rows["prompt"].astype(str))["reward"].mean() for rows in (first, second)]
    both = pd.concat(means, axis=1, join="inner")
    if 2 * len(both) >= min(map(len, means)) and len(both) > 1:
        apart = (both.iloc[:, 1] - both.iloc[:, 0]).to_numpy()
        return Comparison(mean_limits(apart), len(apart), True, float(apart.std(ddof=1)))
    if min(map(len, means)) < 2:
        raise ValueError("--against needs logs with two prompts or more, and one has a single prompt")
    limits = map(float, CompareMeans(DescrStatsW(means[1]), DescrStatsW(means[0])).tconfint_diff(usevar="unequal"))
    apart = float(means[1].mean() - means[0].mean())
    return Comparison(Estimate(apart, *limits), min(map(len, means)), False, float(np.hypot(means[0].std(), means[1].std())))
