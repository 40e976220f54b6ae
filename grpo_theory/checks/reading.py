"""The first screen of a log, `grpo-theory read`: what to do, and the numbers that say so, in at most 25 lines."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import gammaln

from grpo_theory.checks import sentences
from grpo_theory.checks.conventions import AdvantageCheck, check_advantages
from grpo_theory.checks.estimates import Change, Course, Estimate, clustered_share, fit_course, group_signal, mean_estimate
from grpo_theory.checks.sentences import MATTERS, percent, share_text, steps_text
from grpo_theory.intervals.interval import binomial_limits
from grpo_theory.logs import RolloutLog, read_rollouts
from grpo_theory.user_text import json_value, printable
from grpo_theory.validation import counted, outline

RECENT = 4
"""Signal, prompts and lengths of a log with a course are those of the last quarter of its steps: of the policy of now."""
LONGER = 0.1
"""Lengths that grow by less than this share are not said to grow."""
CUT = 0.05
"""Truncation is worth a sentence if the lower limit of its share is above this, and the upper one of its difference below 0."""
NEARLY, TINY = 0.01, 0.1
"""Rewards of a group that differ by less than 1% of the range differ hardly; from 10% of the mixed groups on that is said."""
SURE, POWER = 0.9, 0.8
KINDS_SHOWN, MOST_ADVICE, MOST_REMARKS, LINE = 6, 3, 2, 118
DIFFERENCES = (0.02, 0.05, 0.1)
"""True differences of mean reward for which the number of prompts is told, unless one is asked for."""


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
    steps : (str, str)
        The steps of the first log and of the second that are compared.
    """

    difference: Estimate
    prompts: int
    paired: bool
    deviation: float
    steps: tuple[str, str]

    def needed(self, difference: float) -> int:
        """Return how many prompts show a true difference with a power of 80%, by a t test at 5%."""
        from statsmodels.stats.power import TTestPower

        effect = abs(difference) / self.deviation if self.deviation else np.inf
        return int(np.ceil(TTestPower().solve_power(effect, alpha=0.05, power=POWER))) if effect < 2.0 else 5


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
    __repr__ = outline

    @cached_property
    def course(self) -> Course | None:
        """The course of the mean reward; None if the log has fewer than eight steps."""
        return self.course_of("reward")

    def course_of(self, column: str) -> Course | None:
        """Return the course of the mean of a column."""
        rows = self.log.rows
        if column not in rows:
            return None
        by = rows[column].astype(float).groupby(rows["step"]).agg(["mean", "count"]).dropna()  # a step may have none
        return fit_course(by.index.to_numpy(float), by["mean"].to_numpy(), by["count"].to_numpy(float))

    @cached_property
    def recent(self) -> pd.DataFrame:
        """The rows of the last quarter of the steps, or all if there is no course."""
        rows, steps = self.log.rows, np.unique(self.log.rows["step"])
        return rows if self.course is None else rows[rows["step"] >= steps[-max(steps.size // RECENT, 1)]]

    @property
    def span(self) -> str:
        """The steps of the recent rows, in words."""
        steps = self.recent["step"]
        return f"steps {steps.min():g} to {steps.max():g}" if self.course else "all steps"

    @cached_property
    def signal(self) -> dict[str, Estimate]:
        """The shares of groups that are mixed, all right and all wrong."""
        return group_signal(self.recent, (self.log.rows["reward"].min(), self.log.rows["reward"].max()))

    @cached_property
    def solved(self) -> pd.Series | None:
        """Which recent responses are right: from `right` on, or with the higher of the log's two rewards; else None."""
        levels = self.log.rows["reward"].unique()
        least = (levels.max() if len(levels) == 2 else None) if self.right is None else self.right
        return None if least is None else self.recent["reward"] >= least

    @cached_property
    def prompts(self) -> pd.DataFrame | None:
        """A row a prompt: n responses, c right ones, the limits of its success rate; None where `solved` is.

        The limits are those of Clopper and Pearson, each one-sided at 95%.
        """
        if self.solved is None:
            return None
        table = self.solved.groupby(self.recent["prompt"].astype(str), observed=True).agg(n="size", c="sum")
        low, high = binomial_limits(table["c"].to_numpy(), (table["n"] - table["c"]).to_numpy(), 0.9)
        return table.assign(low=low, high=high)

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
        return clustered_share(cut.to_numpy(), rows["prompt"].astype(str)), _inside_groups(rows, "reward", cut)

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
        cut, apart = self.truncated or (None, None)
        found = [self.advantages and self.advantages.wrong, self.fallen and sentences.fall(self.fallen, self.longer)]
        if cut and apart and cut.low > CUT and apart.high < 0.0:
            found.append(
                f"Raise the length limit, or leave truncated responses out of the loss: {percent(cut.value)} are truncated, and "
                f"their mean reward is {-apart.value:.2g} lower inside groups."
            )
        groups = self.recent.groupby("group")["reward"]
        spread = groups.max() - groups.min()
        share = float((spread[spread > 0] < NEARLY * np.ptp(self.recent["reward"])).mean())
        if share >= TINY:
            told = f"Round the rewards: in {percent(share)} of the mixed groups they differ by less than 1% of their range."
            found.append(f"{told} Division by the standard deviation makes such differences as large as a right answer.")
        found.append(sentences.difficulty(self.signal["right"], self.signal["wrong"], int(groups.size().median())))
        return [one for one in found if one][:MOST_ADVICE] or ["Nothing to change."]

    @cached_property
    def comparison(self) -> Comparison | None:
        """The mean reward of the other log less that of this one, paired by prompt where they have the same prompts."""
        from statsmodels.stats.weightstats import CompareMeans, DescrStatsW

        if self.against is None:
            return None
        logs = self, Reading(self.against)
        first, second = (one.recent.groupby(one.recent["prompt"].astype(str))["reward"].mean() for one in logs)
        both, fewer = pd.concat([first, second], axis=1, join="inner"), min(len(first), len(second))
        steps = self.span, logs[1].span
        if 2 * len(both) >= fewer and len(both) > 1:
            apart = (both.iloc[:, 1] - both.iloc[:, 0]).to_numpy()
            return Comparison(mean_estimate(apart), len(apart), True, float(apart.std(ddof=1)), steps)
        if fewer < 2:
            raise ValueError("--against needs logs with two prompts or more, and one has a single prompt")
        limits = map(float, CompareMeans(DescrStatsW(second), DescrStatsW(first)).tconfint_diff(usevar="unequal"))
        difference = Estimate(float(second.mean() - first.mean()), *limits)
        return Comparison(difference, fewer, False, float(np.hypot(first.std(), second.std())), steps)

    def pass_at(self, every: bool = True) -> dict[int, Estimate]:
        """Return the share of prompts that k responses solve, for powers of 2; for three of them if not every one is wanted.

        A prompt of n responses, c of them right, counts 1 - C(n - c, k)/C(n, k); limits are over prompts (Chen 2021).
        """
        if self.prompts is None:
            return {}
        found, ks = {}, [2**power for power in range(12) if 2**power <= self.prompts["n"].median()]
        for k in ks if every or len(ks) <= 4 else [1, ks[len(ks) // 2], ks[-1]]:
            enough = self.prompts[self.prompts["n"] >= k]
            n, wrong = enough["n"].to_numpy(float), (enough["n"] - enough["c"]).to_numpy(float)
            logs = gammaln(wrong + 1) - gammaln(np.maximum(wrong - k, 0) + 1) - gammaln(n + 1) + gammaln(n - k + 1)
            solved = 1.0 - np.where(wrong >= k, np.exp(logs), 0.0)
            found[k] = clustered_share(np.clip(solved, 0.0, 1.0), np.arange(solved.size))
        return found

    def prompts_csv(self) -> str:
        """Return the prompts as CSV, those solved least first: id, n responses, c right ones, limits of the rate."""
        if self.prompts is None:
            raise ValueError("no prompt is solved or not without two rewards: say from which reward on one is right (--right X)")
        return self.prompts.sort_values(["high", "low"]).to_csv()

    def to_text(self, more: bool = False) -> str:
        """Return the screen, at most 25 lines; with `more` every step of the course, size of pass@k and value of `by`."""
        lines = [fill(f"{name:<12}{text}", LINE, subsequent_indent=" " * 12) for name, text in self._lines(more)]
        advice = [fill(one, LINE, initial_indent="  ", subsequent_indent="  ") for one in self.advice]
        return "\n".join(["WHAT TO DO", *advice, "", *lines]) + "\n"

    def _lines(self, more: bool) -> Iterator[tuple[str, str]]:
        """Yield each line's name and text."""
        rows, recent, right, table, longer = self.log.rows, self.recent, self.solved, self.prompts, self.longer
        found, by_step, against = self.log.findings, rows.groupby("step")["reward"].mean(), self.comparison
        sizes = np.unique(rows.groupby("group").size())
        counts = (counted(rows[name].nunique(), name) for name in ("group", "prompt", "step"))
        between = " to ".join(map(str, {sizes[0]: 0, sizes[-1]: 0}))
        yield "Read", ", ".join((counted(len(rows), "response"), *counts, f"groups of {between}"))
        if left := [one for one in found.left if " group" not in one]:
            yield "", f"left out: {', '.join(left)}"
        yield from (("", one) for one in found.remarks[:MOST_REMARKS])
        yield "Advantages", self.advantages.text if self.advantages else "none logged"
        yield "Signal", sentences.signal(*self.signal.values()) + (f" ({self.span})" if self.course else "")
        changes = [self.course.now] if self.course else []
        if self.fallen and self.fallen.since.value < changes[0].since.value:
            changes.append(self.fallen)
        for place, one in enumerate(changes):
            said = f"{one.direction} since {steps_text(*one.since)}: mean reward {one.start:.3g} to {one.end:.3g}"
            yield "" if place else "Course", f"{said} (change {one.difference.low:+.2g} to {one.difference.high:+.2g})"
        if not changes:
            few = "" if len(by_step) == 1 else f"; {len(by_step)} steps are too few for a course"
            yield "Course", f"mean reward {', '.join(f'{one:.3g}' for one in by_step.tail(8))}{few}"
        elif more:
            yield from (("", f"step {step:g}: {mean:.4g}") for step, mean in by_step.items())
        if "length" in recent and recent["length"].notna().any():
            said = f"mean {recent['length'].mean():.0f}"
            if longer:
                said += f"; longer since {steps_text(*longer.since)}: {longer.start:.0f} to {longer.end:.0f}"
            if right is not None and (apart := _inside_groups(recent, "length", right)):
                said += f"; right less wrong in a group {apart.value:+z.0f} ({apart.low:+z.0f} to {apart.high:+z.0f})"
            yield "Length", said
        if self.truncated:
            share, apart = self.truncated
            less = f"; mean reward {apart.value:+.2g} ({apart.low:+.2g} to {apart.high:+.2g}) in a group" if apart else ""
            yield "Truncated", f"{share_text(share)} of the responses{less}"
        if table is None:
            kind = "graded" if np.ptp(rows["reward"]) else "all equal"
            yield "Prompts", f"rewards are {kind}: --right X says from which reward on a response is right"
        else:
            above, below = (table["low"] >= SURE).sum(), (table["high"] <= 1 - SURE).sum()
            most = 0.05 ** (1 / table["n"].max())
            sure = f"solved at least {SURE:.0%} of the time (95% confidence): {above:,}, at most {1 - SURE:.0%}: {below:,}"
            if most < SURE:
                sure = f"{counted(table['n'].max(), 'response')} of a prompt can show at most {most:.0%} (95% confidence)"
            always = f"{(table['c'] == table['n']).sum():,} solved in all responses, {(table['c'] == 0).sum():,} in none"
            yield "Prompts", f"of {len(table):,}: {always}; {sure}"
            yield "pass", ", ".join(f"@{k} {share_text(share)}" for k, share in self.pass_at(more).items())
        kinds = list(recent.groupby(self.by, observed=True)) if self.by else []
        for value, rows in kinds if more else kinds[:KINDS_SHOWN]:
            low, high = rows["reward"].min(), rows["reward"].max()
            mixed, top, bottom = (percent(one.value) for one in group_signal(rows, (low, high)).values())
            span = f"{low:g} to {high:g}, mean {rows['reward'].mean():.3g}"
            signal = f"mixed {mixed}, all right {top}, all wrong {bottom}"
            yield printable(value)[:11], f"{counted(len(rows), 'response')}, rewards {span}; {signal}"
        if len(kinds) > KINDS_SHOWN and not more:
            yield "", f"and {len(kinds) - KINDS_SHOWN} more (--all)"
        if against:
            (value, low, high), (here, there) = against.difference, against.steps
            over = here if here == there else f"{here} here and {there} there"
            how = f"{'paired by prompt' if against.paired else 'of different prompts'}, of {over}"
            shown = "shown" if low > 0 or high < 0 else "not shown"
            mean = f"mean reward of the second log less this one's {value:+.4f} ({low:+.3f} to {high:+.3f})"
            yield "Against", f"{mean}: a difference is {shown}; {counted(against.prompts, 'prompt')}, {how}"
            differences = DIFFERENCES if self.difference is None else (self.difference,)
            needed = ", ".join(f"{against.needed(one):,} a difference of {one:g}" for one in differences)
            yield "", f"prompts that show it with a power of 80%: {needed}. Runs of other seeds may differ more."

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers of the screen as dictionaries, lists, strings, finite numbers and None."""
        own, table = self.advantages, self.prompts
        told = {
            "format": 1,
            **{name: getattr(self, name) for name in ("advice", "signal", "fallen", "longer", "truncated", "comparison")},
            "read": self.log.findings.reading,
            "advantages": own and {"text": own.text, "wrong": own.wrong},
            "now": self.course and self.course.now,
            "prompts": None if table is None else table.reset_index().to_dict("list"),
            "pass": self.pass_at(),
        }
        return json_value(told)

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
    asked = {"keep": [by] if by else [], **options}
    first = log if isinstance(log, RolloutLog) else read_rollouts(log, **asked)
    second = against if isinstance(against, RolloutLog | None) else read_rollouts(against, **asked)
    return Reading(first, right, second, by, difference)


def _inside_groups(rows: pd.DataFrame, column: str, kind: pd.Series) -> Estimate | None:
    """Return how much larger a column's mean is in responses of a kind than in others of their group; None in under three groups.

    Only inside a group is the prompt the same: hard prompts have longer responses, which are cut more often, and lower rewards.
    """
    means = rows[column].groupby([rows["group"], kind]).mean().unstack()
    apart = (means[True] - means[False]).dropna() if {True, False} <= set(means) else means.iloc[:0, 0]
    return mean_estimate(apart.to_numpy()) if len(apart) > 2 else None
