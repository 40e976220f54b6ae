"""Importance ratios from logged log-probabilities: how far two policies are from each other on the sampled tokens."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from grpo_theory.checks.kept_rows import TokenLogs
from grpo_theory.validation import Array, Integers

PAIRS = {
    "staleness": (("logprobs", "old_logprobs"), "the policy that is trained over the one at the start of the update"),
    "mismatch": (("old_logprobs", "rollout_logprobs"), "the trainer's policy at the start of the update over the sampler's"),
    "both": (("logprobs", "rollout_logprobs"), "the policy that is trained over the sampler's"),
}
"""Ratios by name: whose log-probabilities over whose, and in words."""
CAPS = (2.0, 3.0, 5.0)
"""Bounds that trainers have by default on ratios of trainer and sampler: verl's 2, TRL's 3, AReaL's 5."""
LARGEST = 700.0
"""Logarithms beyond it have no exponential in double precision."""


@dataclass(frozen=True, eq=False)
class ImportanceRatios:
    """Ratios of two policies.

    Attributes
    ----------
    name : str
        One of `PAIRS`.
    by_token : bool
        Whether the log has them per token.
    mean, largest : float
        The mean and largest ratio per token (per response if the log has sums). The mean is near 1 if the second policy sampled.
    k1, k3 : float
        Mean of minus the logarithm, and of r - 1 - log r: estimates of KL(second | first), in nats.
    effective : float
        Effective sample size of the responses with the ratio of the whole response as their weight, as a share of N.
    geometric : float
        The same for the geometric mean of the tokens' ratios; NaN if numbers of tokens are not known.
    outside : (float, float)
        Shares of the ratios below 1 - low and above 1 + high.
    clipped : float
        The share whose gradient a clip by sign drops; NaN without advantages.
    capped : mapping of float to float
        Shares of the ratios above each of `CAPS`.
    """

    name: str
    by_token: bool
    mean: float
    largest: float
    k1: float
    k3: float
    effective: float
    geometric: float
    outside: tuple[float, float]
    clipped: float
    capped: Mapping[float, float]


def available(logprobs: Mapping[str, TokenLogs]) -> list[str]:
    """Return the ratios that a log allows; that of both only if staleness and mismatch are not both there."""
    possible = [name for name, (pair, _) in PAIRS.items() if all(one in logprobs for one in pair)]
    return [name for name in possible if name != "both" or len(possible) == 1]


def log_ratios(logprobs: Mapping[str, TokenLogs], name: str) -> Array:
    """Return the logarithms of the ratios (T,)."""
    first, second = PAIRS[name][0]
    return logprobs[first].values - logprobs[second].values


def response_sums(values: Array, counts: Integers) -> Array:
    """Return the sum over each response's tokens (N,), 0 for a response without any."""
    sums, filled = np.zeros(counts.size), counts > 0
    sums[filled] = np.add.reduceat(values, (np.cumsum(counts) - counts)[filled])
    return sums


def effective_share(log_weights: Array) -> float:
    """Return (sum w)^2/(N sum w^2) of weights given by their logarithms (N,): 1 if all are equal, 1/N if one is everything."""
    weights = np.exp(log_weights - log_weights.max())
    return float(weights.sum() ** 2 / (weights.size * np.square(weights).sum()))


def importance_ratios(
    logprobs: Mapping[str, TokenLogs], name: str, advantages: Array | None, lengths: Array | None, clip: tuple[float, float]
) -> ImportanceRatios:
    """Describe the ratios of a pair of policies; clip (2,) are the widths below and above 1."""
    one = logprobs[PAIRS[name][0][0]]
    logs, low, high = log_ratios(logprobs, name), 1.0 - clip[0], 1.0 + clip[1]
    ratios = np.exp(np.clip(logs, -LARGEST, LARGEST))
    sums = response_sums(logs, one.counts)
    tokens = one.counts if one.by_token else lengths
    geometric = np.nan if tokens is None else effective_share(sums / np.maximum(tokens, 1.0))
    clipped = np.nan
    if advantages is not None:
        signs = np.repeat(advantages, one.counts)
        clipped = float((((ratios > high) & (signs > 0.0)) | ((ratios < low) & (signs < 0.0))).mean())
    return ImportanceRatios(
        name=name,
        by_token=one.by_token,
        mean=float(ratios.mean()),
        largest=float(ratios.max()),
        k1=float(-logs.mean()),
        k3=float((np.expm1(np.clip(logs, -LARGEST, LARGEST)) - logs).mean()),
        effective=effective_share(sums),
        geometric=float(geometric),
        outside=(float((ratios < low).mean()), float((ratios > high).mean())),
        clipped=clipped,
        capped={cap: float((ratios > cap).mean()) for cap in CAPS},
    )
