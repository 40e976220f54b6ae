"""The first screen of a log, `grpo-theory read`: what to do, and the numbers that say so, in at most 25 lines."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd

from grpo_theory.checks import sentences, shares
from grpo_theory.checks.course import Change, Course, fit_course
from grpo_theory.checks.sentences import Estimate
from grpo_theory.checks.trainer_check import AdvantageCheck, check_advantages
from grpo_theory.logs import RolloutLog, read_rollouts
from grpo_theory.user_text import json_value, printable
from grpo_theory.validation import counted

RECENT = 4
"""Signal, prompts and lengths of a log with a course are those of the last quarter of its steps: of the policy of now."""
MATTERS = 0.05
"""A fall is worth a sentence if it is at least this share of the range of the rewards."""
LONGER = 0.1
"""Lengths that grow by less than this share are not said to grow."""
SURE = 0.9
KINDS_SHOWN, MOST_ADVICE, MOST_REMARKS, LINE = 6, 3, 2, 118
DIFFERENCES = (0.02, 0.05, 0.1)
"""True differences of mean reward for which the number of prompts is told, unless one is asked for."""


@dataclass(frozen=True, eq=False)
class Reading:
    """What a log says; each number is computed when it is first asked for.

    Attributes
    ----------
    log : RolloutLog
    right : float or None
        Responses are right from this reward on; None takes the higher of two rewards.
    against : RolloutLog or None
        The log that is compared.
    by : str or None
        A column whose values are shown apart.
    difference : float or None
        A true difference of the mean reward, for which the needed number of prompts is told.

    Examples
    --------
    >>> import csv, tempfile, grpo_theory as gt
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "log.csv"
    ...     with path.open("w", newline="") as file:
    ...         csv.writer(file).writerows([("prompt_id", "reward"), *[(n // 4, n % 2) for n in range(12)]])
    ...     reading = gt.checks.read_log(path)
    >>> reading.advice
    ['Nothing to change.']
    """

    log: RolloutLog
    right: float | None = None
    against: RolloutLog | None = None
    by: str | None = None
    difference: float | None = None

    @cached_property
    def course(self) -> Course | None:
        """The course of the mean reward; None if the log has fewer than eight steps."""
        return self.course_of("reward")

    def course_of(self, column: str) -> Course | None:
        """Return the course of the mean of a column."""
        rows = self.log.rows
        if column not in rows or rows[column].isna().all():
            return None
        by = rows[column].astype(float).groupby(rows["step"]).agg(["mean", "size"])
        return fit_course(by.index.to_numpy(float), by["mean"].to_numpy(), by["size"].to_numpy(float))

    @cached_property
    def recent(self) -> pd.DataFrame:
        """The rows of the last quarter of the steps, or all if there is no course."""
        rows, steps = self.log.rows, np.unique(self.log.rows["step"])
        return rows if self.course is None else rows[rows["step"] >= steps[-max(steps.size // RECENT, 1)]]

    @cached_property
    def signal(self) -> dict[str, Estimate]:
        """The shares of groups that are mixed, all right and all wrong."""
        return shares.group_signal(self.recent, self.log.rows["reward"])

    @cached_property
    def solved(self) -> pd.Series | None:
        """Which recent responses are right: from `right` on, or with the higher of the log's two rewards; else None."""
        levels = self.log.rows["reward"].unique()
        least = (levels.max() if len(levels) == 2 else None) if self.right is None else self.right
        return None if least is None else self.recent["reward"] >= least

    @cached_property
    def prompts(self) -> pd.DataFrame | None:
        """A row a prompt: n responses, c right ones, limits; None if rewards are graded and `right` is not given."""
        return None if self.solved is None else shares.prompt_successes(self.recent, self.solved)

    @cached_property
    def advantages(self) -> AdvantageCheck | None:
        """What the advantages follow."""
        return check_advantages(self.log.rows)

    @cached_property
    def truncated(self) -> tuple[Estimate, Estimate | None] | None:
        """The share of truncated responses, and their mean reward less that of the others of their group."""
        if "truncated" not in self.recent or self.recent["truncated"].isna().all():
            return None
        rows, cut = self.recent, self.recent["truncated"].fillna(False).astype(bool)
        return shares.clustered_share(cut.to_numpy(), rows["prompt"].astype(str)), shares.inside_groups(rows, "reward", cut)

    @cached_property
    def longer(self) -> Change | None:
        """Since when responses have become longer, if they have."""
        found = self.course_of("length")
        now = found.now if found else None
        return now if now and now.direction == "rising" and now.difference.value > LONGER * now.start else None

    @cached_property
    def fallen(self) -> Change | None:
        """The fall of the mean reward since it was highest, if it is shown and matters."""
        return self.course.fall(MATTERS * float(np.ptp(self.log.rows["reward"]))) if self.course else None

    @cached_property
    def advice(self) -> list[str]:
        """What to do, at most three sentences: what is wrong first, what would waste fewer responses next."""
        fall, longer, size = self.fallen, self.longer, int(self.recent.groupby("group").size().median())
        found = [
            self.advantages and self.advantages.wrong,
            fall and sentences.fall(fall.since, fall.start, fall.end, longer.since.value if longer else None),
            self.truncated and sentences.truncation(*self.truncated),
            sentences.tiny_differences(shares.tiny_share(self.recent)),
            sentences.difficulty(self.signal["right"], self.signal["wrong"], size),
        ]
        return [one for one in found if one][:MOST_ADVICE] or [sentences.NOTHING]

    @cached_property
    def comparison(self) -> shares.Comparison | None:
        """The mean reward of the other log less that of this one."""
        return None if self.against is None else shares.compare(self.recent, Reading(self.against).recent)

    def pass_at(self, every: bool = True) -> dict[int, Estimate]:
        """Return the share of prompts that k responses solve, for powers of 2; for three of them if not every one is wanted."""
        if self.prompts is None:
            return {}
        ks = [2**power for power in range(12) if 2**power <= self.prompts["n"].median()]
        return {k: shares.pass_at(self.prompts, k) for k in (ks if every or len(ks) <= 4 else [1, ks[len(ks) // 2], ks[-1]])}

    def prompts_csv(self) -> str:
        """Return the prompts as CSV, those solved least first: id, n responses, c right ones, limits of the rate."""
        if self.prompts is None:
            raise ValueError(
                "no prompt is solved or not without two rewards: say from which reward on a response is right (--right X)"
            )
        return self.prompts.sort_values(["high", "low"]).to_csv()

    def to_text(self, more: bool = False) -> str:
        """Return the screen, at most 25 lines; with `more` every step of the course, size of pass@k and value of `by`."""
        parts = [*self._read(), *self._course(more), *self._lengths(), *self._prompts(more), *self._compared(more)]
        lines = [fill(f"{name:<12}{text}", LINE, subsequent_indent=" " * 12) for name, text in parts]
        advice = [fill(one, LINE, initial_indent="  ", subsequent_indent="  ") for one in self.advice]
        return "\n".join(["WHAT TO DO", *advice, "", *lines]) + "\n"

    def _read(self) -> list[tuple[str, str]]:
        rows, found, steps = self.log.rows, self.log.findings, np.unique(self.recent["step"])
        sizes = np.unique(rows.groupby("group").size())
        counts = (counted(rows[name].nunique(), name) for name in ("group", "prompt", "step"))
        left = [f"{many:,} {what}" for what, many in found.left_out.items() if not what.startswith("groups ")]
        when = f" (steps {steps[0]:g} to {steps[-1]:g})" if self.course else ""
        between = " to ".join(map(str, {sizes[0]: 0, sizes[-1]: 0}))
        return [
            ("Read", ", ".join((counted(len(rows), "response"), *counts, f"groups of {between}"))),
            *([("", f"left out: {', '.join(left)}")] if left else []),
            *(("", one) for one in found.remarks[:MOST_REMARKS]),
            ("Advantages", self.advantages.text if self.advantages else "none logged"),
            ("Signal", sentences.signal(*self.signal.values()) + when),
        ]

    def _course(self, more: bool) -> list[tuple[str, str]]:
        by_step = self.log.rows.groupby("step")["reward"].mean()
        if self.course is None:
            few = "" if len(by_step) == 1 else f"; {len(by_step)} steps are too few for a course"
            return [("Course", f"mean reward {', '.join(f'{one:.3g}' for one in by_step.tail(8))}{few}")]
        now, fall = self.course.now, self.fallen
        changes = [now, fall] if fall and fall.since.value < now.since.value else [now]
        lines = [sentences.course(one.direction, one.since, one.start, one.end, one.difference) for one in changes]
        lines += [f"step {step:g}: {mean:.4g}" for step, mean in by_step.items()] if more else []
        return [("" if place else "Course", one) for place, one in enumerate(lines)]

    def _lengths(self) -> list[tuple[str, str]]:
        lines, rows, right = [], self.recent, self.solved
        if "length" in rows and rows["length"].notna().any():
            said, longer = [f"mean {rows['length'].mean():.0f}"], self.longer
            if longer:
                said.append(f"longer since {sentences.steps_text(*longer.since)}: {longer.start:.0f} to {longer.end:.0f}")
            if right is not None and (apart := shares.inside_groups(rows, "length", right)):
                said.append(f"right less wrong in a group {apart.value:+.0f} ({apart.low:+.0f} to {apart.high:+.0f})")
            lines.append(("Length", "; ".join(said)))
        if self.truncated:
            share, apart = self.truncated
            less = f"; mean reward {apart.value:+.2g} ({apart.low:+.2g} to {apart.high:+.2g}) in a group" if apart else ""
            lines.append(("Truncated", f"{sentences.share_text(share)} of the responses{less}"))
        return lines

    def _prompts(self, more: bool) -> list[tuple[str, str]]:
        table = self.prompts
        if table is None:
            kind = "graded" if np.ptp(self.log.rows["reward"]) else "all equal"
            return [("Prompts", f"rewards are {kind}: --right X says from which reward on a response is right")]
        above, below = (table["low"] >= SURE).sum(), (table["high"] <= 1 - SURE).sum()
        most = 0.05 ** (1 / table["n"].max())
        sure = f"solved at least {SURE:.0%} of the time (95% confidence): {above:,}, at most {1 - SURE:.0%}: {below:,}"
        sure = sure if most >= SURE else f"{table['n'].max()} responses of a prompt can show at most {most:.0%} (95% confidence)"
        counts = f"{(table['c'] == table['n']).sum():,} solved in all responses, {(table['c'] == 0).sum():,} in none"
        each = ", ".join(sentences.pass_at(k, share) for k, share in self.pass_at(more).items())
        return [("Prompts", f"of {len(table):,}: {counts}; {sure}"), ("pass", each)]

    def _compared(self, more: bool) -> list[tuple[str, str]]:
        lines, found = [], self.comparison
        for value, rows in self.recent.groupby(self.by, observed=True) if self.by else ():
            own = [sentences.percent(one.value) for one in shares.group_signal(rows, rows["reward"]).values()]
            span = f"{rows['reward'].min():g} to {rows['reward'].max():g}, mean {rows['reward'].mean():.3g}"
            kinds = "mixed {}, all right {}, all wrong {}".format(*own)
            lines.append((printable(value)[:11], f"{counted(len(rows), 'response')}, rewards {span}; {kinds}"))
        if len(lines) > KINDS_SHOWN and not more:
            lines = [*lines[:KINDS_SHOWN], ("", f"and {len(lines) - KINDS_SHOWN} more (--all)")]
        if found:
            value, low, high = found.difference
            shown = "shown" if low > 0 or high < 0 else "not shown"
            how = "paired by prompt" if found.paired else "of different prompts"
            sizes = DIFFERENCES if self.difference is None else (self.difference,)
            needed = ", ".join(f"{found.needed(one):,} a difference of {one:g}" for one in sizes)
            apart = f"mean reward {value:+.4f} ({low:+.3f} to {high:+.3f})"
            lines.append(("Against", f"{apart}: a difference is {shown}; {found.prompts} prompts, {how}"))
            lines.append(("", f"prompts that show it with a power of 80%: {needed}. Runs of other seeds may differ more."))
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers of the screen as dictionaries, lists, strings, finite numbers and None."""
        own, table = self.advantages, self.prompts
        return json_value(
            {
                "format": 1,
                **{name: getattr(self, name) for name in ("advice", "signal", "fallen", "longer", "truncated", "comparison")},
                "read": self.log.findings.reading,
                "advantages": own and {"text": own.text, "wrong": own.wrong},
                "now": self.course and self.course.now,
                "prompts": None if table is None else table.reset_index().to_dict("list"),
                "pass": self.pass_at(),
            }
        )

    def to_json(self) -> str:
        """Return the keys of `to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"


def read_log(
    log: RolloutLog | str | Path,
    *,
    right: float | None = None,
    against: RolloutLog | str | Path | None = None,
    by: str | None = None,
    difference: float | None = None,
    **options: Any,
) -> Reading:
    """Read a log and say what to do: the first screen of `grpo-theory read`.

    Parameters
    ----------
    log : RolloutLog, str or Path
        As `gt.read_rollouts` returns it, or the file or folder that it reads.
    right : float, optional
        Responses are right from this reward on.  Without it the higher of two rewards is right.
    against : RolloutLog, str or Path, optional
        A second log, compared with this one prompt by prompt.
    by : str, optional
        A column whose values, such as environments, are shown apart.
    difference : float, optional
        A true difference of the mean reward: how many prompts would show it.
    **options
        Columns and rows, as for `gt.read_rollouts`, for both logs.

    Returns
    -------
    Reading
        With `advice` (at most three sentences), `to_text`, `to_dict` and `to_json`.

    Raises
    ------
    ValueError
        As `gt.read_rollouts`; if the logs to be compared have a single prompt.

    Examples
    --------
    >>> import csv, tempfile, grpo_theory as gt
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "log.csv"
    ...     with path.open("w", newline="") as file:
    ...         csv.writer(file).writerows([("prompt_id", "reward"), *[(n // 4, n // 4 > 0) for n in range(80)]])
    ...     reading = gt.checks.read_log(path)
    >>> print(reading.advice[0])
    Too easy: 95% of the groups are all right. Take harder prompts or leave out the solved ones; larger groups would not help.
    """

    def opened(one: RolloutLog | str | Path) -> RolloutLog:
        return one if isinstance(one, RolloutLog) else read_rollouts(one, keep=[by] if by else [], **options)

    return Reading(opened(log), right, None if against is None else opened(against), by, difference)
