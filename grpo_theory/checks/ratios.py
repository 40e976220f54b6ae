"""Importance ratios from logged log-probabilities: how far two policies are from each other, and what it leaves of an update."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from grpo_theory.validation import Array, Integers

PAIRS = {
    "staleness": (("trained", "behaviour"), "the policy that is trained over the one at the start of the update"),
    "mismatch": (("behaviour", "sampled"), "the trainer's policy at the start of the update over the sampler's"),
    "both": (("trained", "sampled"), "the policy that is trained over the sampler's"),
}
"""Ratios by name: whose log-probabilities over whose, and in words."""
CAPS = (2.0, 3.0, 5.0)
"""Bounds that trainers have by default on ratios of trainer and sampler: verl's 2, TRL's 3, AReaL's 5."""
LARGEST = 700.0
"""Logarithms beyond it have no exponential in double precision."""
ROUNDED = 1e-3
"""A log-probability may be so far above 0 by rounding: logits up to 1,000 in float32 leave 1e-4."""


@dataclass(frozen=True, eq=False)
class TokenLogs:
    """Log-probabilities of the tokens that count, response after response.

    Attributes
    ----------
    values : mapping of str to ndarray, shape (T,)
        Natural logarithms by policy: "trained", "behaviour" (at the start of the update), "sampled" (as the sampler computed).
    counts : ndarray of int64, shape (N,)
        The tokens of each response; 1 if `by_token` is False: then a value is the sum over its tokens.
    by_token : bool
    remarks : tuple of str
        What is wrong with columns that were read all the same.
    """

    values: dict[str, Array]
    counts: Integers
    by_token: bool
    remarks: tuple[str, ...] = ()

    @property
    def logarithms(self) -> dict[str, Array]:
        """The logarithms of the ratios (T,) by name; those of both only if staleness and mismatch are not both there."""
        pairs = {name: pair for name, (pair, _) in PAIRS.items() if set(pair) <= set(self.values)}
        if len(pairs) > 1:
            del pairs["both"]
        return {name: self.values[one] - self.values[other] for name, (one, other) in pairs.items()}

    def sums(self, values: Array) -> Array:
        """Return the sum over each response's tokens (N,), 0 for a response without any."""
        index = np.repeat(np.arange(self.counts.size), self.counts)
        return np.asarray(np.bincount(index, values, minlength=self.counts.size), dtype=np.float64)


class ImportanceRatios(NamedTuple):
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


class Direction(NamedTuple):
    """The update sum_i A_i w_i s_i beside sum_i A_i s_i, s the responses' sketches and w what ratios make of them.

    Attributes
    ----------
    cosine : float
        Between -1 and 1; NaN if either update is 0.
    length : float
        The length of the update over that without ratios.
    numbers : int
        How many numbers a sketch has: a cosine is right to about one over the root of them.
    """

    cosine: float
    length: float
    numbers: int


def token_logs(rows: pd.DataFrame) -> TokenLogs | None:
    """Return the log-probabilities of a log's rows, without tokens of mask 0; None without two policies.

    Raises ValueError if policies differ in how many numbers a response has, or a number is not finite.
    """
    roles = [one for one in ("trained", "behaviour", "sampled") if one in rows]
    if len(roles) < 2:
        return None
    read = [*roles, *(["mask"] if "mask" in rows else [])]
    lists = {role: [np.atleast_1d(np.asarray(one, dtype=np.float64)) for one in rows[role]] for role in read}
    sizes = {role: np.array([one.size for one in own]) for role, own in lists.items()}
    counts = sizes[roles[0]]
    for role, own in sizes.items():
        if (own != counts).any():
            row = int(np.argmax(own != counts))
            told = f"{roles[0]} and {role} must have as many numbers in every row, and response {row + 1} has {counts[row]} and"
            raise ValueError(f"{told} {own[row]}; --{role} '' leaves {role} out")
    response = np.repeat(np.arange(counts.size), counts)
    stays = np.concatenate(lists["mask"]) > 0 if "mask" in lists else np.ones(response.size, dtype=np.bool_)
    response, values, remarks = response[stays], {}, []
    for role in roles:
        values[role] = one = np.concatenate(lists[role])[stays]
        if not np.isfinite(one).all():
            raise ValueError(f"{role} must be finite numbers, and has {one[~np.isfinite(one)][0]}; --{role} '' reads none")
        above = np.flatnonzero(one > ROUNDED)
        if above.size:
            remarks.append(
                f"{role} has {above.size:,} of {one.size:,} numbers above 0, the first of them {one[above[0]]:.3g} in response "
                f"{response[above[0]] + 1}. A log-probability is at most 0. The column holds something else, or tokens whose "
                "mask must be named. Ratios of this column are not to be trusted."
            )
    by_token = any(isinstance(one, list | tuple | np.ndarray) for one in rows[roles[0]])
    return TokenLogs(values, np.bincount(response, minlength=counts.size), by_token, tuple(remarks))


def effective_share(log_weights: Array) -> float:
    """Return (sum w)^2/(N sum w^2) of weights given by their logarithms (N,): 1 if all are equal, 1/N if one is everything."""
    weights = np.exp(log_weights - log_weights.max())
    return float(weights.sum() ** 2 / (weights.size * np.square(weights).sum()))


def importance_ratios(
    logs: TokenLogs, name: str, advantages: Array | None, lengths: Array | None, clip: tuple[float, float]
) -> ImportanceRatios:
    """Describe the ratios of a pair of policies; clip (2,) are the widths below and above 1."""
    own, low, high = logs.logarithms[name], 1.0 - clip[0], 1.0 + clip[1]
    bounded = np.clip(own, -LARGEST, LARGEST)
    ratios, sums, tokens = np.exp(bounded), logs.sums(own), logs.counts if logs.by_token else lengths
    clipped = np.nan
    if advantages is not None:
        signs = np.repeat(advantages, logs.counts)
        clipped = float((((ratios > high) & (signs > 0.0)) | ((ratios < low) & (signs < 0.0))).mean())
    outside = float((ratios < low).mean()), float((ratios > high).mean())
    capped = {cap: float((ratios > cap).mean()) for cap in CAPS}
    geometric = np.nan if tokens is None else effective_share(sums / np.maximum(tokens, 1.0))
    size = float(ratios.mean()), float(ratios.max()), float(-own.mean()), float((np.expm1(bounded) - own).mean())
    return ImportanceRatios(name, logs.by_token, *size, effective_share(sums), geometric, outside, clipped, capped)


def direction_left(scores: Array, advantages: Array, logs: TokenLogs, clip: tuple[float, float], cap: float) -> Direction:
    """Compare the update with weights and without, from sketches (N, J) and advantages (N,).

    A response has the mean weight of its tokens: staleness clipped by sign, times mismatch of at most `cap`. A sketch is of a
    whole response, so that tokens cannot be weighed apart.
    """
    signs, weights = np.repeat(advantages, logs.counts), np.ones(int(logs.counts.sum()))
    for name, own in logs.logarithms.items():
        ratios = np.exp(np.clip(own, -LARGEST, LARGEST))
        kept = np.where(signs > 0.0, ratios <= 1.0 + clip[1], ratios >= 1.0 - clip[0])
        weights *= np.minimum(ratios, cap) if name == "mismatch" else np.where(kept, ratios, 0.0)
    plain, weighed = advantages @ scores, (advantages * (logs.sums(weights) / np.maximum(logs.counts, 1))) @ scores
    before, after = float(np.linalg.norm(plain)), float(np.linalg.norm(weighed))
    cosine = float(plain @ weighed) / (before * after) if before * after > 0.0 else np.nan
    return Direction(cosine, after / before if before > 0.0 else np.nan, scores.shape[1])
