"""What a trainer's log tells of its trainer: everything that `grpo-theory check` shows."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd

from grpo_theory.checks import sentences
from grpo_theory.checks.contradictions import EXPLANATIONS, Contradictions, find_contradictions
from grpo_theory.checks.conventions import FOLLOWED, Explanation, Fit, Groups, best_fits, explain, half_spacings, named
from grpo_theory.checks.ratios import PAIRS, Direction, ImportanceRatios, direction_left, importance_ratios, token_logs
from grpo_theory.logs import RolloutLog, read_rollouts
from grpo_theory.user_text import json_value, printable
from grpo_theory.validation import Array, as_not_negative, as_positive, counted

SHOWN_GROUPS = 5
"""The number of groups that are named."""
SMALL = 0.05
"""A loss below this share of the mean absolute advantage counts as 0."""
ALL_ZERO = "All advantages are 0, so the gradient of the policy loss is 0 too: nothing is learned from these responses."
NEEDED = {
    "advantages": "advantage (one number per response)",
    "staleness": "trained and behaviour (log-probabilities now, and at the start of the update)",
    "mismatch": "behaviour, or trained, and sampled (as the sampler computed them)",
    "direction": "sketches (gt.sketch), advantage and two of the log-probabilities",
}
"""What would be needed to say more: the columns, by what they are for."""
Section = tuple[str, list[str], list[tuple[str, ...]]]
"""A title, paragraphs and a table."""


@dataclass(frozen=True, eq=False)
class AdvantageCheck:
    """What the logged advantages follow.

    Attributes
    ----------
    groups : Groups
        The groups in which every row has an advantage.
    prompts : list of str
        The prompt of each group.
    left_out : int
        How many groups have a row without one.
    fits : tuple of Fit
        The conventions that most groups follow, which this log does not tell apart.
    explanation : Explanation or None
        What explains most groups if no convention does: other groups, a common baseline, a constant factor.
    """

    groups: Groups
    prompts: list[str]
    left_out: int
    fits: tuple[Fit, ...]
    explanation: Explanation | None

    @property
    def followed(self) -> bool:
        """Whether more than half of the groups that tell conventions apart follow one."""
        return bool(self.fits) and self.fits[0].share > FOLLOWED

    @property
    def wrong(self) -> str | None:
        """What is wrong, in a sentence or two; None if a convention is followed, or the log does not tell."""
        if self.followed:
            # rewards themselves are a convention, but in groups of several rows they have no baseline
            alone = set(self.fits[0].names) == {"reinforce"} and int(self.groups.sizes.max()) > 1
            return sentences.one_baseline(0.0, False) if alone else None
        if self.explanation is not None or self.uniform:
            return self.explanation and self.explanation.said
        if self.groups.advantages.any():
            return "Look at the advantages: no registered convention gives them."
        return "All logged advantages are 0: nothing is learned, or the column is another."

    @property
    def uniform(self) -> bool:
        """Whether all rewards of each group are equal, so that nothing tells."""
        return not self.fits and not self.groups.spread(self.groups.rewards).any()

    @property
    def text(self) -> str:
        """What the advantages follow, in a line."""
        if not self.followed:
            equal = "all rewards of each group are equal: every convention gives 0"
            return equal if self.uniform else "not as they should be, see above"
        best = self.fits[0]
        near, telling = int((best.near & best.telling).sum()), int(best.telling.sum())
        return f"{named(self.fits)} in {near:,} of {counted(telling, 'group')} that tell"


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

    @cached_property
    def contradictions(self) -> Contradictions | None:
        """Groups that the convention does not explain."""
        if self.advantages is None:
            return None
        return find_contradictions(self.advantages.groups, self.advantages.fits[0] if self.advantages.followed else None)

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
        means = np.bincount(groups.index, values) / groups.sizes
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
        missing = ("What could not be checked", [], [*self.missing.items()]) if self.missing else None
        lines: list[str] = []
        for title, paragraphs, table in filter(None, (self._convention(), self._loss(), self._ratios(), missing)):
            lines += ["", title.upper(), *(fill(one, 100, initial_indent="  ", subsequent_indent="  ") for one in paragraphs)]
            widths = [max(map(len, column)) for column in zip(*table, strict=True)]
            lines += ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in table]
        return "\n".join([*lines[1:], ""])

    def _convention(self) -> Section | None:
        found, own = self.contradictions, self.advantages
        if found is None or own is None:
            return None
        said = [f"The advantages follow {own.text}." if own.followed else None, own.wrong]
        if own.followed:
            best = own.fits[0].estimator.advantage
            shown = [f"{name} = {value:g}" for name, value in best.parameters.items() if name in ("ddof", "epsilon", "floor")]
            said.append(f"Its formula: {best.description.rstrip('.')}{'; ' if shown else ''}{', '.join(shown)}.")
            first = [printable(own.prompts[group]) for group in found.groups[:SHOWN_GROUPS]]
            more = f" and {found.total - len(first):,} more" if found.total > len(first) else ""
            none = f"None of {counted(found.judged, 'group')} contradicts it."
            said.append(f"{found.total:,} of {found.judged:,} groups contradict it: {', '.join(first)}{more}." if first else none)
        if found.unequal:
            said.append(
                f"In {counted(found.unequal, 'group')} of {found.judged:,}, equal rewards got different advantages. "
                "Either the rows of a group are not the trainer's group, or the reward that it used is not the logged one."
            )
        if own.left_out:
            said.append(f"{counted(own.left_out, 'group')} with a row without an advantage left out.")
        table = [(name, f"{count:,}", EXPLANATIONS[name]) for name, count in found.counts.items()]
        return "The convention of the advantages", [*filter(None, said)], table and [("explanation", "groups", "meaning"), *table]

    def _loss(self) -> Section | None:
        if not self.loss:
            return None
        by_response, by_token, by_group, size = self.loss.values()
        said = f"When all ratios are 1 the loss is {by_response:.3g} as a mean over responses"
        said += f", and {by_token:.3g} as a mean over tokens." if np.isfinite(by_token) else "."
        told = f"Advantages do not add up to 0 in every group: their mean is up to {by_group:.3g}."
        if by_group <= SMALL * size:
            told = (
                "A loss of 0 is correct here and does not mean that nothing is learned. Advantages add up to 0 in every group. "
                "Its gradient is not 0. Watch the reward and the norm of the gradient."
            )
        return "The loss at the start of an update", [said, told if size else ALL_ZERO], []

    def _ratios(self) -> Section | None:
        if not self.ratios:
            return None
        said = [*self.remarks, *(f"{one.name.capitalize()} is {PAIRS[one.name][1]}." for one in self.ratios)]
        said += [sentences.information(one.name, one.effective) for one in self.ratios]
        if self.direction is not None:
            said.append(
                f"The update with ratios, clip and a cap of {self.cap:g} has cosine {self.direction.cosine:.3g} with the update "
                f"without them, and {self.direction.length:.3g} of its length (sketches of {self.direction.numbers} numbers)."
            )
        unit, (low, high) = "token" if self.ratios[0].by_token else "response", (1.0 - self.clip[0], 1.0 + self.clip[1])
        cells: dict[str, Any] = {
            f"mean ratio per {unit}": lambda one: f"{one.mean:.3g}",
            "largest ratio": lambda one: f"{one.largest:.3g}",
            f"below {low:g}": lambda one: sentences.percent(one.outside[0]),
            f"above {high:g}": lambda one: sentences.percent(one.outside[1]),
            "clipped by sign": lambda one: "-" if one.name == "mismatch" else sentences.percent(one.clipped),
            **{f"above {cap:g}": lambda one, cap=cap: sentences.percent(one.capped[cap]) for cap in self.ratios[0].capped},
            f"KL per {unit} (k3), nats": lambda one: f"{one.k3:.3g}",
            "effective sample size": lambda one: sentences.percent(one.effective),
            "the same, geometric mean": lambda one: sentences.percent(one.geometric),
        }
        table = [("", *(one.name for one in self.ratios))]
        return "Importance ratios", said, [*table, *((name, *map(cell, self.ratios)) for name, cell in cells.items())]

    def to_dict(self) -> dict[str, Any]:
        """Return the check as dictionaries, lists, strings, finite numbers and None; docs/trainer_checks.md lists the keys."""
        own, found = self.advantages, self.contradictions
        return json_value(
            {
                "format": 2,
                **{name: getattr(self, name) for name in ("clip", "cap", "loss", "direction", "missing", "remarks")},
                "responses": len(self.rows),
                "followed": own.followed if own else None,
                "conventions": [
                    {
                        **{"names": list(one.names), "kernel": one.estimator.advantage.name},
                        **{"parameters": dict(one.estimator.advantage.parameters), "factor": one.factor},
                        **{"share": one.share, "telling_groups": int(one.telling.sum())},
                    }
                    for one in (own.fits if own else ())
                ],
                "wrong": own.wrong if own else None,
                "explanation": own.explanation if own else None,
                "contradictions": found
                and own
                and found._asdict()
                | {"explanations": found.counts, "prompts": [printable(own.prompts[group]) for group in found.groups]},
                "ratios": {one.name: one for one in self.ratios},
            }
        )

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
    >>> check.advantages.fits[0].label, check.advantages.fits[0].share, check.contradictions.total
    ('rloo', 1.0, 0)
    """
    widths, cap = (as_not_negative("clip[0]", clip[0]), as_not_negative("clip[1]", clip[1])), as_positive("cap", cap)
    rows = (log if isinstance(log, RolloutLog) else read_rollouts(log, require_reward=False, **options)).rows
    logs, advantages, lengths = token_logs(rows), _whole(rows, "advantage"), _whole(rows, "length")
    ratios: tuple[ImportanceRatios, ...] = ()
    direction = None
    if logs is not None:
        ratios = tuple(importance_ratios(logs, name, advantages, lengths, widths) for name in logs.available)
        if "scores" in rows and advantages is not None:
            direction = direction_left(np.array(rows["scores"].tolist(), dtype=np.float64), advantages, logs, widths, cap)
    return TrainerCheck(rows, widths, cap, check_advantages(rows), ratios, direction, logs.remarks if logs else ())


def _whole(rows: pd.DataFrame, name: str) -> Array | None:
    """Return a column of numbers if every row has one."""
    return rows[name].to_numpy(float) if name in rows and rows[name].notna().all() else None


def check_advantages(rows: pd.DataFrame) -> AdvantageCheck | None:
    """Return what the advantages of a log's rows follow; None without advantages or rewards."""
    if not {"advantage", "reward"} <= set(rows) or rows["advantage"].isna().all():
        return None
    kept = rows[rows["advantage"].notna().groupby(rows["group"]).transform("all")]
    if kept.empty:
        raise ValueError("advantage must be a number in every row of a group at least, and each group lacks one")
    rewards, logged = (kept[name].to_numpy(float) for name in ("reward", "advantage"))
    if not np.isfinite(logged).all():
        raise ValueError("advantage must be finite numbers, and has inf; --advantage '' reads none")
    index, steps = (np.unique(kept[name], return_inverse=True)[1] for name in ("group", "step"))
    groups = Groups(rewards, logged, half_spacings(logged), index, steps, _whole(kept, "length"))
    fits = best_fits(groups)
    share = fits[0].share if fits else 0.0
    told = explain(groups, share, _whole(kept, "turns")) if share <= FOLLOWED and logged.any() else None
    prompts = kept.groupby("group")["prompt"].first().tolist()
    return AdvantageCheck(groups, prompts, int(rows["group"].nunique()) - len(prompts), fits, told)
