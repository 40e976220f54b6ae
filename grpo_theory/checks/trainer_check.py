"""What a trainer's log tells of its trainer: everything that `grpo-theory check` shows.

Importance ratios from logged log-probabilities say how far two policies are from each other, and what it leaves of an update.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from grpo_theory.checks.conventions import EXPLANATIONS, AdvantageCheck, Contradictions, check_advantages, whole
from grpo_theory.checks.sentences import percent, unequal
from grpo_theory.logs import RolloutLog, read_rollouts
from grpo_theory.user_text import json_value
from grpo_theory.validation import Array, Integers, as_not_negative, as_positive, counted, outline

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


SMALL = 0.05
"""A loss below this share of the mean absolute advantage counts as 0."""
NEEDED = {
    "advantages": "advantage (one number per response)",
    "staleness": "trained and behaviour (log-probabilities now, and at the start of the update)",
    "mismatch": "behaviour, or trained, and sampled (as the sampler computed them)",
    "direction": "sketches (gt.sketch), advantage and two of the log-probabilities",
}
"""What would be needed to say more: the columns, by what they are for."""


@dataclass(frozen=True, eq=False)
class TrainerCheck:
    """What a log tells about its trainer.

    Attributes
    ----------
    rows : DataFrame
        The responses that were read (`gt.read_rollouts(...).rows`).
    clip : (float, float)
        The widths below and above 1 with which clipped shares are counted.
    cap : float
        The bound on the ratio of trainer and sampler.
    advantages : AdvantageCheck or None
    ratios : tuple of ImportanceRatios
    direction : Direction or None
        What is left of the update's direction after the ratios.
    remarks : tuple of str
        What is wrong with columns that were read all the same.

    Examples
    --------
    >>> import csv, tempfile, grpo_theory as gt
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "log.csv"
    ...     with path.open("w", newline="") as file:
    ...         csv.writer(file).writerows([("prompt_id", "reward"), *[(n // 4, n % 2) for n in range(12)]])
    ...     check = gt.checks.check_log(path)
    >>> sorted(check.missing)
    ['advantages', 'direction', 'mismatch', 'staleness']
    """

    rows: pd.DataFrame
    clip: tuple[float, float]
    cap: float
    advantages: AdvantageCheck | None
    ratios: tuple[ImportanceRatios, ...]
    direction: Direction | None
    remarks: tuple[str, ...]
    __repr__ = outline

    @property
    def contradictions(self) -> Contradictions | None:
        """Groups that the convention does not explain."""
        return self.advantages.contradictions if self.advantages else None

    @cached_property
    def loss(self) -> dict[str, float]:
        """The policy loss where all ratios are 1, minus the mean advantage; empty without advantages.

        `by_response` and `by_token` are means over these (NaN without lengths), `by_group` is the largest of a group's mean, and
        `size` the mean absolute advantage.
        """
        if self.advantages is None:
            return {}
        groups = self.advantages.groups
        lengths, values = groups.lengths, groups.advantages
        by_token = np.nan if lengths is None else -float(lengths @ values / max(lengths.sum(), 1.0))
        means = np.bincount(groups.numbers, values) / groups.sizes
        size, by_group = float(np.abs(values).mean()), float(np.abs(means).max())
        return {"by_response": -float(values.mean()), "by_token": by_token, "by_group": by_group, "size": size}

    @property
    def missing(self) -> dict[str, str]:
        """What could not be checked, and the columns that it needs."""
        names = {one.name for one in self.ratios}
        found = {"staleness", "mismatch"} if "both" in names else names
        found |= {name for name in ("advantages", "direction") if getattr(self, name) is not None}
        return {name: columns for name, columns in NEEDED.items() if name not in found}

    def to_text(self) -> str:
        """Return the check in words, lines of at most 100 characters but for tables."""
        lines: list[str] = []
        for title, paragraphs, table in self._sections():
            lines += ["", title.upper(), *(fill(one, 100, initial_indent="  ", subsequent_indent="  ") for one in paragraphs)]
            widths = [max(map(len, column)) for column in zip(*table, strict=True)]
            lines += ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in table]
        return "\n".join([*lines[1:], ""])

    def _sections(self) -> Iterator[tuple[str, list, list]]:
        """Yield the title, the paragraphs and the table of each section."""
        if self.advantages is not None:
            own, found = self.advantages, self.advantages.contradictions
            said = [f"The advantages follow {own.text}." if own.followed else None, own.wrong]
            if own.followed:
                best = own.fits[0].estimator.advantage
                shown = [f"{name} = {value:g}" for name, value in best.parameters.items() if name in ("ddof", "epsilon", "floor")]
                said.append(f"Its formula: {'; '.join(filter(None, (best.description.rstrip('.'), ', '.join(shown))))}.")
                said.append(None if found.total else f"None of {counted(found.judged, 'group')} contradicts it.")
            if found.unequal:
                said.append(unequal(found.unequal, found.judged))
            if own.left_out:
                said.append(f"{counted(own.left_out, 'group')} with a row without an advantage left out.")
            table = [(name, f"{count:,}", EXPLANATIONS[name]) for name, count in found.counts.items()]
            table = table and [("explanation", "groups", "meaning"), *table]
            yield "The convention of the advantages", [*filter(None, dict.fromkeys(said))], table
            by_response, by_token, by_group, size = self.loss.values()
            loss = f"When all ratios are 1 the loss is {by_response:.3g} as a mean over responses"
            loss += f", and {by_token:.3g} as a mean over tokens." if np.isfinite(by_token) else "."
            told = f"Advantages do not add up to 0 in every group: their mean is up to {by_group:.3g}."
            if size == 0.0:
                told = "All advantages are 0, so the gradient of the policy loss is 0 too: nothing is learned from these rows."
            elif by_group <= SMALL * size:
                told = "A loss of 0 is correct here and does not mean that nothing is learned. Advantages add up to 0 in every "
                told += "group. Its gradient is not 0. Watch the reward and the norm of the gradient."
            yield "The loss at the start of an update", [loss, told], []
        if self.ratios:
            said = [*self.remarks, *(f"{one.name.capitalize()} is {PAIRS[one.name][1]}." for one in self.ratios)]
            as_weight = "as a weight on whole responses the log carries as much information as"
            said += [f"With {one.name} {as_weight} {percent(one.effective)} of its responses." for one in self.ratios]
            if self.direction is not None:
                said.append(
                    f"The update with ratios, clip and a cap of {self.cap:g} has cosine {self.direction.cosine:.3g} with the "
                    f"update without them, and {self.direction.length:.3g} of its length (sketches of {self.direction.numbers} "
                    "numbers)."
                )
            unit = "token" if self.ratios[0].by_token else "response"
            cells: dict[str, Any] = {
                "": lambda one: one.name,
                f"mean ratio per {unit}": lambda one: f"{one.mean:.3g}",
                "largest ratio": lambda one: f"{one.largest:.3g}",
                f"below {1.0 - self.clip[0]:g}": lambda one: percent(one.outside[0]),
                f"above {1.0 + self.clip[1]:g}": lambda one: percent(one.outside[1]),
                "clipped by sign": lambda one: "-" if one.name == "mismatch" else percent(one.clipped),
                **{f"above {cap:g}": lambda one, cap=cap: percent(one.capped[cap]) for cap in CAPS},
                f"KL per {unit} (k3), nats": lambda one: f"{one.k3:.3g}",
                "effective sample size": lambda one: percent(one.effective),
                "the same, geometric mean": lambda one: percent(one.geometric),
            }
            yield "Importance ratios", said, [(name, *map(cell, self.ratios)) for name, cell in cells.items()]
        if self.missing:
            yield "What could not be checked", [], [*self.missing.items()]

    def to_dict(self) -> dict[str, Any]:
        """Return the check as dictionaries, lists, strings, finite numbers and None."""
        own, found = self.advantages, self.contradictions
        told = {
            "format": 2,
            **{name: getattr(self, name) for name in ("clip", "cap", "loss", "direction", "missing", "remarks")},
            "responses": len(self.rows),
            **{name: getattr(own, name, None) for name in ("followed", "wrong", "explanation")},
            "conventions": [one.summary for one in own.fits] if own else [],
            "contradictions": found and found._asdict() | {"explanations": found.counts},
            "ratios": {one.name: one for one in self.ratios},
        }
        return json_value(told)

    def to_json(self) -> str:
        """Return the keys of `to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"


def check_log(
    log: RolloutLog | str | Path, *, clip: tuple[float, float] = (0.2, 0.2), cap: float = 2.0, **options: Any
) -> TrainerCheck:
    """Check what a trainer logged: the convention of its advantages, groups that contradict it, its importance ratios.

    Parameters
    ----------
    log : RolloutLog, str or Path
        As `gt.read_rollouts` returns it, or the file or folder that it reads.
    clip : (float, float), default (0.2, 0.2)
        The widths of the trainer's clip below and above 1, for the share that is clipped.
    cap : float, default 2
        The bound on the ratio of trainer and sampler, for the direction left.
    **options
        Columns and rows, as for `gt.read_rollouts`. A log without rewards is read for its ratios.

    Returns
    -------
    TrainerCheck
        With `to_text`, `to_dict` and `to_json`.

    Raises
    ------
    ValueError
        As `gt.read_rollouts`; if a width is negative, or the cap not above 0.

    Examples
    --------
    >>> import csv, tempfile, grpo_theory as gt
    >>> from pathlib import Path
    >>> rewards = [[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 1.0]]
    >>> logged = zip(rewards, gt.advantages(rewards, "rloo"))
    >>> rows = [(b, z, a) for b, pair in enumerate(logged) for z, a in zip(*pair)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "log.csv"
    ...     with path.open("w") as file:
    ...         csv.writer(file).writerows([("prompt_id", "reward", "advantage"), *rows])
    ...     check = gt.checks.check_log(path)
    >>> check.advantages.fits[0].names[0], check.advantages.fits[0].share, check.contradictions.total
    ('rloo', 1.0, 0)
    """
    widths, cap = (as_not_negative("clip[0]", clip[0]), as_not_negative("clip[1]", clip[1])), as_positive("cap", cap)
    rows = (log if isinstance(log, RolloutLog) else read_rollouts(log, require_reward=False, **options)).rows
    logs, advantages, lengths = token_logs(rows), whole(rows, "advantage"), whole(rows, "length")
    ratios: tuple[ImportanceRatios, ...] = ()
    direction = None
    if logs is not None:
        ratios = tuple(importance_ratios(logs, name, advantages, lengths, widths) for name in logs.logarithms)
        if "scores" in rows and advantages is not None:
            direction = direction_left(np.array(rows["scores"].tolist(), dtype=np.float64), advantages, logs, widths, cap)
    return TrainerCheck(rows, widths, cap, check_advantages(rows), ratios, direction, logs.remarks if logs else ())
