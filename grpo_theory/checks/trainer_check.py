"""Checks of a trainer from its log: everything that `grpo-theory check` shows."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from grpo_theory.checks.contradictions import Contradictions, find_contradictions
from grpo_theory.checks.conventions import Fit, GroupTable, best_fits
from grpo_theory.checks.direction import Direction, direction_left, response_weights
from grpo_theory.checks.importance import ImportanceRatios, available, importance_ratios
from grpo_theory.checks.regroupings import FOLLOWED, Regrouping, find_regrouping
from grpo_theory.checks.trainer_log import TrainerLog, read_trainer_log
from grpo_theory.validation import Array, as_not_negative, as_positive

NEEDED = {
    "advantages": "advantage (one number per response, or the same for all its tokens)",
    "staleness": "logprobs and old_logprobs (lists per token, or sums per response)",
    "mismatch": "old_logprobs, or logprobs, and rollout_logprobs (as the sampler computed them)",
    "direction": "sketch (gt.sketch), advantage and two of the log-probabilities",
}
"""What would be needed to say more: the columns, by what they are for."""


@dataclass(frozen=True)
class Loss:
    """The policy loss where all ratios are 1, minus the mean advantage, with tokens added up in two ways.

    Attributes
    ----------
    by_response : float
        The mean over responses.
    by_token : float
        The mean over all tokens; NaN without lengths.
    by_group : float
        The largest absolute mean advantage of a group.
    size : float
        The mean absolute advantage, beside which the others are small or not.
    """

    by_response: float
    by_token: float
    by_group: float
    size: float


@dataclass(frozen=True, eq=False)
class TrainerCheck:
    """What a log tells about its trainer.

    Attributes
    ----------
    log : TrainerLog
    clip : (float, float)
        The widths below and above 1 with which clipped shares are counted.
    cap : float
        The bound on the ratio of trainer and sampler.
    fits : tuple of Fit
        The conventions that most groups follow, which this log does not tell apart; empty without advantages.
    negated : tuple of Fit
        The conventions that most groups follow once the signs of all advantages are reversed. It is empty unless reversal
        explains more than the logged signs do, and more than other groups do.
    regrouping : Regrouping or None
        Other groups that explain the advantages better.
    contradictions : Contradictions or None
        Groups that the convention does not explain.
    loss : Loss or None
    ratios : tuple of ImportanceRatios
    direction : Direction or None
        What is left of the update's direction after the ratios.

    Examples
    --------
    >>> import csv, tempfile, grpo_theory as gt
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "log.csv"
    ...     with path.open("w", newline="") as file:
    ...         csv.writer(file).writerows([("prompt_id", "reward"), *[(n // 4, n % 2) for n in range(12)]])
    ...     check = gt.checks.check_log(path)
    >>> sorted(check.missing), check.followed
    (['advantages', 'direction', 'mismatch', 'staleness'], False)
    """

    log: TrainerLog
    clip: tuple[float, float]
    cap: float
    fits: tuple[Fit, ...]
    negated: tuple[Fit, ...]
    regrouping: Regrouping | None
    contradictions: Contradictions | None
    loss: Loss | None
    ratios: tuple[ImportanceRatios, ...]
    direction: Direction | None

    @property
    def followed(self) -> bool:
        """Whether more than half of the groups that tell conventions apart follow one."""
        return bool(self.fits) and self.fits[0].share > FOLLOWED

    @property
    def missing(self) -> dict[str, str]:
        """What could not be checked, and the columns that it needs."""
        there = {"staleness": any(one.name != "mismatch" for one in self.ratios)}
        there |= {"mismatch": any(one.name != "staleness" for one in self.ratios)}
        there |= {"advantages": self.log.advantages is not None, "direction": self.direction is not None}
        return {name: columns for name, columns in NEEDED.items() if not there[name]}


def check_log(
    log: TrainerLog | str | Path,
    *,
    clip: tuple[float, float] = (0.2, 0.2),
    cap: float = 2.0,
    columns: Mapping[str, Any] | None = None,
    rows: Mapping[str, Any] | None = None,
) -> TrainerCheck:
    """Check what a trainer logged: the convention of its advantages, groups that contradict it, its importance ratios.

    Parameters
    ----------
    log : TrainerLog, str or Path
        As `read_trainer_log` returns it, or the file or folder that it reads.
    clip : (float, float), default (0.2, 0.2)
        The widths of the trainer's clip below and above 1, for the share that is clipped.
    cap : float, default 2
        The bound of the trainer on the ratio of trainer and sampler, for the direction that is left.
    columns, rows : mapping, optional
        Names of columns, and which rows are read, as for `read_trainer_log`.

    Returns
    -------
    TrainerCheck
        To be shown by `gt.page.check_to_text` or `gt.page.check_to_json`.

    Raises
    ------
    ValueError
        As `read_trainer_log`; if a width is negative, or the cap not above 0.

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
    >>> check.fits[0].candidate.label, check.fits[0].share, check.contradictions.total
    ('rloo', 1.0, 0)
    """
    widths = as_not_negative("clip[0]", clip[0]), as_not_negative("clip[1]", clip[1])
    cap = as_positive("cap", cap)
    read = log if isinstance(log, TrainerLog) else read_trainer_log(log, columns, rows)
    fits, negated, regrouping, contradictions = _conventions(read)
    return TrainerCheck(
        log=read,
        clip=widths,
        cap=cap,
        fits=fits,
        negated=negated,
        regrouping=regrouping,
        contradictions=contradictions,
        loss=None if read.advantages is None else _loss(read, read.advantages),
        ratios=tuple(
            importance_ratios(read.logprobs, name, read.advantages, read.lengths, widths) for name in available(read.logprobs)
        ),
        direction=_direction(read, widths, cap),
    )


def _conventions(log: TrainerLog) -> tuple[tuple[Fit, ...], tuple[Fit, ...], Regrouping | None, Contradictions | None]:
    if log.advantages is None:
        return (), (), None, None
    table = group_table(log, log.advantages)
    fits = tuple(best_fits(table))
    share = fits[0].share if fits else 0.0
    negated = tuple(best_fits(table.negated())) if share <= FOLLOWED else ()
    explained = negated[0].share if negated else 0.0
    regrouping = find_regrouping(table, max(share, explained)) if share <= FOLLOWED else None
    if explained <= FOLLOWED or regrouping is not None:
        negated = ()
    told = fits[0] if fits and (share > FOLLOWED or not fits[0].telling.any()) else None
    return fits, negated, regrouping, find_contradictions(table, told)


def group_table(log: TrainerLog, advantages: Array) -> GroupTable:
    """Return the groups of a log with their steps."""
    rollouts = log.rollouts
    batches = np.zeros(rollouts.batch_size, dtype=np.int64)
    if log.steps is not None:
        batches[rollouts.index] = np.unique(log.steps, return_inverse=True)[1]
    return GroupTable(rollouts.rewards, advantages, rollouts.index, batches, log.lengths)


def _loss(log: TrainerLog, advantages: Array) -> Loss:
    lengths, groups = log.lengths, log.rollouts
    by_token = np.nan if lengths is None else -float(lengths @ advantages / max(lengths.sum(), 1.0))
    means = np.bincount(groups.index, advantages) / groups.sizes
    return Loss(-float(advantages.mean()), by_token, float(np.abs(means).max()), float(np.abs(advantages).mean()))


def _direction(log: TrainerLog, clip: tuple[float, float], cap: float) -> Direction | None:
    if log.rollouts.scores is None or log.advantages is None or not available(log.logprobs):
        return None
    weights = response_weights(log.logprobs, log.advantages, clip, cap)
    return direction_left(log.rollouts.scores, log.advantages, weights)
