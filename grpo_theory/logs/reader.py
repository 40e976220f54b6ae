"""A trainer's log as a table of responses, by a declared schema: nothing is guessed, and what fits none is refused."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from grpo_theory.intervals.rollouts import LARGEST, RaggedRollouts, RewardCounts
from grpo_theory.logs import files as log_files
from grpo_theory.logs.expressions import RowError, columns_of, entries, numbers, truth, value
from grpo_theory.logs.findings import Findings, reward_remarks
from grpo_theory.logs.schema import KEYS, NUMBERS, PLACES, ROLES, TOKENS, Opened, opened
from grpo_theory.user_text import listed, printable
from grpo_theory.validation import Array, as_count, as_real_array, counted, outline, shown

EVALUATION = ("eval", "evaluation", "val", "validation", "test")
HIDDEN = ("row", "file", "code", "split", "run_id")
LONGEST = 2**31
"""No response has more tokens."""
LONE = 0.1
"""The share of groups with one response above which a log is refused."""
AGREE = 1e-4
"""Relative to the largest advantage, how far advantages of equal rewards may differ."""


@dataclass(frozen=True, eq=False)
class RolloutLog:
    """A log of rollouts that was read whole.

    Attributes
    ----------
    rows : DataFrame
        All responses of all steps, one row each: `prompt`, `group`, `step` and `reward`. Rows of one group (a number from 0) were
        normalised together in a step. The step is 0 where the log has none. Where the log has them, also `advantage`, `length`
        (tokens), `truncated`, `environment` and `scores`. `turns` says how many rows make up the response. `sampled`,
        `behaviour`, `trained` are lists of natural log-probabilities, and `mask` says which tokens count. Columns asked for by
        `keep` are there too.
    used : ndarray of bool, shape (R,)
        The rows of the groups in `rollouts`.
    findings : Findings
        What the log holds; print it.

    Examples
    --------
    >>> import csv, tempfile, grpo_theory as gt
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "log.csv"
    ...     with path.open("w", newline="") as file:
    ...         csv.writer(file).writerows([("prompt_id", "reward"), *[(n // 4, n % 2) for n in range(12)]])
    ...     log = gt.read_rollouts(path)
    >>> log.rollouts.batch_size, log.rows.groupby("group").reward.mean().tolist(), log.lengths, log.steps
    (3, [0.5, 0.5, 0.5], None, None)
    """

    rows: pd.DataFrame
    used: np.ndarray
    findings: Findings
    __repr__ = outline

    @cached_property
    def rollouts(self) -> RaggedRollouts:
        """Each prompt's newest group, or those asked for; ids are (step, prompt) where several groups are of one prompt."""
        if "reward" not in self.rows:
            raise ValueError("the log has no rewards: name their column (--reward COLUMN)")
        rows = self.rows[self.used]
        index, first = pd.factorize(rows["group"])[0], rows.drop_duplicates("group")
        ids: Iterable = first["prompt"].astype(str)
        if self.findings.groups > self.findings.prompts:
            ids = zip(first["step"].map(lambda one: int(one) if one.is_integer() else one), ids, strict=True)
        scores: list = []
        for number, one in enumerate(rows.get("scores", ()), 1):
            with suppress(TypeError, ValueError, OverflowError):
                scores.append(as_real_array("scores", entries(one), 1))
            if len(scores) < number or scores[-1].size != scores[0].size or np.abs(scores[-1]).max() > LARGEST["scores"]:
                raise ValueError(
                    f"scores ({printable(self.findings.columns['scores'])}) must be lists of equal length of numbers of at most "
                    f"{LARGEST['scores']:g} in size, and are not in row {number} of those used; --scores '' reads none"
                )
        return RaggedRollouts.from_index(list(ids), index, rows["reward"].to_numpy(), np.array(scores) if scores else None)

    @property
    def lengths(self) -> Array | None:
        """Tokens of the responses in `rollouts`, shape (N,)."""
        return self.rows["length"].to_numpy()[self.used] if "length" in self.rows else None

    @property
    def steps(self) -> Array | None:
        """Steps of the responses in `rollouts`, shape (N,)."""
        return self.rows["step"].to_numpy()[self.used] if self.findings.steps else None


def read_rollouts(
    source: str | Path,
    *,
    schema: str | None = None,
    where: str | None = None,
    files: str | None = None,
    group_of: int | None = None,
    steps: str | int | tuple[float, float] = "newest",
    turns: str | None = None,
    lone: str | None = None,
    keep: Iterable[str] = (),
    require_reward: bool = True,
    **columns: str | None,
) -> RolloutLog:
    """Read rollouts from CSV, JSON, JSON lines, Parquet or Arrow, a file or a folder, by the schema of the trainer's log.

    A schema says which column is what (docs/planner.md has the list). A log that fits none, or two, is refused with the option
    that decides. An option is also a keyword here.

    Parameters
    ----------
    source : str or Path
    schema : str, optional
        The schema's name; None takes the only one that fits.
    where : str, optional
        Which rows are read: an expression, as "split == 'train' and length < 1000".
    files : str, optional
        A pattern of the files of a folder, as "*train*".
    group_of : int, optional
        So many successive rows of a prompt, or of the log where no prompt is known, are a group.
    steps : "newest", "last", "all", number or (low, high)
        Which groups `rollouts` has: each prompt's newest, those of the last step, all, those of a step, or each prompt's newest
        between two steps. Intervals assume groups of different prompts, and come out too narrow with "all".
    turns : "last" or "sum", optional
        What the reward of a response is whose turns are rows with different rewards.
    lone : "keep" or "drop", optional
        What becomes of groups of one response. None drops a few, and refuses a log with many.
    keep : iterable of str
        Further columns or expressions that `rows` shall have.
    require_reward : bool, default True
        Refuse a log without rewards.
    **columns : str
        What takes a schema's place: prompt, group, rollout, step, reward, advantage, length, truncated, scores, response.
        Also environment, split, run_id, sampled, behaviour, trained and mask. Rows with one value of rollout are turns of one
        response, and scores are sketches. Each is an expression over columns, as ``info.reward``, ``content[0]``,
        ``correct + 0.2 * format`` or ``last(advantages)``. ``each(scores)`` makes a row of each entry. An empty one reads none.
        As in TRL, a missing part of a sum counts as 0 beside one that is there.

    Returns
    -------
    RolloutLog

    Raises
    ------
    ValueError
        If a file is missing, empty, broken or cut off, or a column is missing (those found are listed). If the log fits no
        schema or several, or rewards, steps or prompts are not what they must be. The message names the option that helps.

    Examples
    --------
    >>> import csv, tempfile, grpo_theory as gt
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "log.csv"
    ...     with path.open("w", newline="") as file:
    ...         csv.writer(file).writerows([("question", "right", "form"), *[(f"q{n // 4}", n % 2, 1) for n in range(12)]])
    ...     log = gt.read_rollouts(path, prompt="question", reward="right + 0.2 * form")
    >>> log.rollouts.prompts.tolist(), log.findings.sizes, log.findings.rewards
    (['q0', 'q1', 'q2'], {4: 3}, {0.2: 6, 1.2: 6})
    """
    for name, text in {"schema": schema, "where": where, "files": files, "turns": turns, "lone": lone}.items():
        if not isinstance(text, str | None) or text == "":
            raise TypeError(f"{name} must be text, got {shown(text)}")
    for name, one, allowed in (("turns", turns, ("last", "sum")), ("lone", lone, ("keep", "drop"))):
        if one not in (None, *allowed):
            raise ValueError(f"{name} must be {' or '.join(map(repr, allowed))}, got {shown(one)}")
    pair = isinstance(steps, tuple) and len(steps) == 2
    if not (steps in ("newest", "last", "all") if isinstance(steps, str) else pair or isinstance(steps, int | float)):
        raise ValueError(f"steps must be 'newest', 'last', 'all', a step or the first and last of a range, got {shown(steps)}")
    if unknown := [one for one in columns if one not in ROLES]:
        raise TypeError(f"read_rollouts has no argument {unknown[0]!r}; columns are {', '.join(ROLES)}")
    if not isinstance(source, str | Path):
        raise TypeError(f"source must be a file's or a folder's name, got {shown(source)}")
    given = {role: log_files.utf8(text) for role, text in columns.items() if text is not None}
    log = _Reading(opened(Path(source), schema, files and log_files.utf8(files), given), given, where and log_files.utf8(where))
    log.load(tuple(keep), group_of, require_reward)
    log.group(group_of)
    log.merge_turns(turns)
    if "reward" in log.rows:
        log.leave_lone(lone)
        if group_of is None and "group" not in given:
            log.refuse_contradictions()
    return log.result(steps)


class _Reading:
    """A log while it is read: rows become responses, groups and steps, and what is left out is counted."""

    rows: pd.DataFrame

    def __init__(self, source: Opened, given: Mapping[str, str], where: str | None) -> None:
        self.source, self.given = source, given
        self.where = None if where is None else source.checked("--where", where)
        self.left_out: dict[str, int] = {}
        self.remarks: list[str] = []

    def load(self, keep: Sequence[str], group_of: int | None, require_reward: bool) -> None:
        """Read the rows; refuse what must not be pooled, and leave out what has no reward."""
        self.chosen = self.source.columns(self.given, group_of is not None, require_reward)
        roles = {role: text for role, text in self.chosen.items() if role != "response"}
        self.keep = keep
        kept = {name: self.source.checked("keep (--by)", name) for name in keep if name not in roles}
        self.rows = rows = self._table(roles | kept)
        held_out = rows["split"].isin(EVALUATION) if "split" in rows else pd.Series(dtype=bool)
        if held_out.any() and not held_out.all():
            text = self.chosen["split"]
            where = "" if "file" in columns_of(text) else f" or rows (--where \"{text} == 'train'\")"
            told = f"{held_out.sum()} of {len(rows)} rows are of evaluation. Choose files (--files '*train*'){where},"
            raise ValueError(f"{told} or pool them (--split '')")
        if "run_id" in rows and rows["run_id"].nunique() > 1:
            runs = listed(map(str, rows["run_id"].dropna().unique()))
            raise ValueError(f"the files are of several runs ({runs}): choose one, as --files '*seed_0*'; --run-id '' pools them")
        for role in [one for one in ("reward", "step", "length") if one in rows]:
            self._check(role, rows[role].abs() > LARGEST["rewards"], f"at most {LARGEST['rewards']:g} in size")
        if "reward" in rows:
            if rows["reward"].isna().all():
                raise ValueError(f"reward ({printable(self.chosen['reward'])}) is empty in every row: name another by --reward")
            self._leave("rows without a reward", rows["reward"].notna())
        if "length" in self.rows and (odd := ~self.rows["length"].fillna(0.0).between(0.0, LONGEST)).any():
            self.rows = self.rows.assign(length=self.rows["length"].mask(odd))
            self.remarks.append(f"{counted(int(odd.sum()), 'length')} below 0 or above {LONGEST:,} tokens: taken for missing.")

    def _table(self, roles: Mapping[str, str]) -> pd.DataFrame:
        """Return a column for each role, and a row for each response."""
        texts = [*roles.values(), *([self.where] if self.where else [])]
        wanted = sorted({name for text in texts for name in columns_of(text)} - PLACES)
        raw = log_files.rows(self.source.mine, wanted, self.source.head)
        self.read = len(raw)
        source = Path(log_files.utf8(self.source.path))
        raw["file"] = raw["file"].cat.rename_categories(lambda one: log_files.place(Path(one), source))
        raw[[name for name in wanted if name not in raw]] = None
        self.first = raw.drop_duplicates("file").set_index("file")["row"]
        if self.where:
            with self._named("where", self.where, raw):
                raw = raw[truth(value(self.where, raw))]
            self.left_out["rows not asked for (--where)"] = self.read - len(raw)
        if raw.empty:
            none = f"no row is left: --where {printable(self.where)} is true of none"
            raise ValueError(none if self.read else "the log has no rows")
        table: pd.DataFrame = raw[["file", "row"]].copy()
        for role, text in roles.items():
            with self._named(role, text, raw):
                table[role] = value(text, raw)
        depth = {role: text.count("each(") + text.count("successes(") for role, text in roles.items()}
        for level in range(max(depth.values(), default=0)):
            split = [role for role, deep in depth.items() if deep > level]
            try:
                table = table.astype(dict.fromkeys(split, object)).explode(split)
            except ValueError:
                told = f"lists of {' and '.join(split)} differ in length in a row; --{split[-1]} '' reads none"
                raise ValueError(told) from None
        table = table.reset_index(drop=True)
        for role in [one for one in roles if one in (*NUMBERS, *KEYS, "truncated")]:
            if role == "group" and roles[role] == roles.get("prompt"):
                table[role] = table["prompt"]
                continue
            with self._named(role, roles[role], table):
                table[role] = (numbers if role in NUMBERS else keys if role in KEYS else truth)(table[role])
        return table

    @contextmanager
    def _named(self, role: str, text: str, rows: pd.DataFrame) -> Iterator[None]:
        """Say of an error which column it is of, where it stands, and which option names another."""
        try:
            yield
        except (ValueError, TypeError, AttributeError, KeyError, OverflowError) as error:
            at = f" in {self._at(rows, error.row)}" if isinstance(error, RowError) else ""
            option = role if role in (*ROLES, "where") else "by"
            raise ValueError(f"{role} ({printable(text)}) {error}{at}; another is named by --{option}") from None

    def _at(self, rows: pd.DataFrame, index: Any) -> str:
        """Return where a row stands."""
        file = rows["file"][index]
        return f"row {int(rows['row'][index] - self.first[file]) + 1} of {printable(file)}"

    def _check(self, role: str, bad: pd.Series, what: str = "given") -> None:
        """Refuse rows where a column is not as it must be."""
        if bad.any():
            where, many = self._at(self.rows, bad.idxmax()), counted(int(bad.sum()), "row")
            told = f"{role} ({printable(self.chosen[role])}) must be {what} in every row, and is not in {many}, the first of them"
            raise ValueError(f"{told} {where}: leave them out (--where), name another (--{role} COLUMN), or none (--{role} '')")

    def _leave(self, what: str, kept: pd.Series) -> None:
        if not kept.all():
            self.left_out[what] = int((~kept).sum())
            self.rows = self.rows[kept]

    def group(self, group_of: int | None) -> None:
        """Number the groups: rows of a step with one group's id, or each so many rows of these."""
        self.stepped = "step" in self.rows and bool(self.rows["step"].notna().any())
        if not self.stepped:
            self.rows = self.rows.assign(step=0.0)
        key = next((role for role in ("group", "prompt") if role in self.rows), None)
        for role in [one for one in ("step", "prompt", key) if one in self.rows and one in self.chosen]:
            self._check(role, self.rows[role].isna())
        self.rows = self.rows.assign(code=self.rows[key].cat.codes if key else 0)
        if self.stepped and "response" in self.chosen and "reward" in self.rows:
            # Steps whose rows are those of the step before are left out: several updates were made from one batch.
            rows = self.rows[["step", "code", "reward"]]
            again = _repeated(rows)
            if again.size:  # responses are read only where all else is equal
                table = self._table({role: self.chosen[role] for role in ("reward", "response")})
                rows = rows.assign(response=keys(table["response"]).loc[rows.index])
                again = _repeated(rows[~rows["step"].isin(rows["step"][rows["response"].isna()])])
            if again.size:
                steps = ", ".join(f"{one:g}" for one in again[:8])
                what = f"rows of {counted(again.size, 'step')} that repeat the step before ({steps})"
                self._leave(what, ~self.rows["step"].isin(again))
        rows = self.rows
        if len(self.source.mine) > 1 and key and not self.stepped and "reward" in rows:
            inside = rows.groupby(["code", "file"], observed=True).size()
            again = inside.groupby("code").size() > 1
            if again.mean() > 0.5 and inside.max() > 1:
                told = f"{again.sum()} of {len(again)} groups are in several files, and no step is known: --step COLUMN, or a"
                raise ValueError(f"{told} pattern of the number in the files' paths, as --step \"in_path('step_([0-9]+)')\"")
        same = rows.groupby(["step", "code"], sort=False)
        number, block = same.ngroup(), np.zeros(len(rows), dtype=np.int64)
        if group_of is not None:
            group_of = as_count("group_of", group_of)
            size = same["code"].transform("size")
            if (bad := size[size % group_of != 0]).size:
                least = f"must divide the number of a prompt's rows in a step; one has {bad.iloc[0]}"
                raise ValueError(f"group_of (--group-of {group_of}) {least}")
            block = (same.cumcount() // group_of).to_numpy()
            number = pd.Series(pd.factorize(number * len(rows) + block)[0], index=rows.index)
            self.remarks.append(f"Each {group_of} rows of a prompt one after another are read as a group.")
        prompt = rows["prompt"] if "prompt" in rows else rows["code"].astype(str).astype("category")
        if key == "group" and pd.DataFrame({"group": number, "prompt": prompt}).drop_duplicates()["group"].duplicated().any():
            self.remarks.append(f"The prompts ({self.chosen['prompt']}) differ inside groups: groups' ids are taken for them.")
            prompt = rows["group"]
        if (self.source.schema.anew and "prompt" not in self.given) or (key is None and self.stepped):
            prompt = (rows["step"].map("{:g}/".format) + prompt.astype(str)).astype("category")
        if block.any():
            parts = np.where(block > 0, pd.Series(block, rows.index).map(" #{}".format), "")
            prompt = (prompt.astype(str) + parts).astype("category")
        self.rows = rows.assign(prompt=prompt, group=number)

    def merge_turns(self, turns: str | None) -> None:
        """Make one row of the turns of a rollout; what their rewards are together is not guessed where they differ."""
        if "rollout" not in self.rows:
            return
        self._check("rollout", self.rows["rollout"].isna())
        self.rows = rows = self.rows.assign(turns=1.0)
        same = rows.groupby(["group", "rollout"], sort=False, observed=True)
        if same.ngroups == len(rows):
            return
        if "reward" in rows and turns is None and (same["reward"].max() > same["reward"].min()).any():
            raise ValueError("the rewards of a rollout's turns differ: --turns last (the last one has it), or --turns sum")
        how: dict[str, Any] = {name: "last" for name in rows if name not in ("group", "rollout")}
        how |= {"turns": "sum"} | ({"reward": turns or "last"} if "reward" in rows else {})
        how |= {role: lambda lists: [one for part in lists for one in entries(part)] for role in TOKENS}
        how = {role: one for role, one in (how | {"length": "sum"}).items() if role in rows}
        self.rows = same.agg(how).reset_index()

    def leave_lone(self, lone: str | None) -> None:
        """Leave out a few groups of one response, and refuse many: their ids are no groups'."""
        size = self.rows.groupby("group")["group"].transform("size")
        alone, groups = int((size == 1).sum()), self.rows["group"].nunique()
        if lone == "keep" or not alone:
            return
        if (lone is None and alone > LONE * groups) or alone == groups:
            key = printable(self.chosen.get("group", self.chosen.get("prompt", "")))
            raise ValueError(
                f"{alone} of {groups} groups have one response: {key} is no group's id, or the prompt's text changes inside a "
                "rollout. Say --prompt COLUMN, --group COLUMN or --group-of N; --lone drop leaves them out, --lone keep does not"
            )
        self._leave("responses without another to their prompt", size > 1)

    def refuse_contradictions(self) -> None:
        """Refuse groups whose equal rewards have different advantages, if these agree in blocks of rows; else say so."""
        rows = self.rows
        if "advantage" not in rows or not (apart := _compared(rows, rows["group"])[0]).any():
            return
        inside = rows.groupby("group", sort=False)
        place, size = inside.cumcount(), inside["group"].transform("size")
        for block in range(int(size.max()) // 2, 1, -1):
            differ, tied = _compared(rows, rows["group"], place // block)
            if not (size % block).any() and not differ.any() and (tied & apart).any():  # blocks without ties show nothing
                raise ValueError(
                    f"equal rewards of a group have different advantages, and agree in blocks of {block} rows: several prompts "
                    f"may share one text, as with images. --group-of {block} reads the blocks, --group COLUMN what you name"
                )
        self.remarks.append("Equal rewards of a group have different advantages: these may not be the trainer's groups.")

    def result(self, steps: str | float | tuple[float, float]) -> RolloutLog:
        """Return the log, with the groups of the steps that are asked for."""
        first = asked = self.rows.drop_duplicates("group")[["group", "step", "prompt", "code"]]
        if not self.stepped and not isinstance(steps, str):
            raise ValueError(f"steps must be 'newest' for a log without steps, got {steps}")
        if steps == "last" or not isinstance(steps, str):
            low, high = steps if isinstance(steps, tuple) else (first["step"].max() if isinstance(steps, str) else steps,) * 2
            asked = first[first["step"].between(low, high)]
            self.left_out["groups of other steps"] = len(first) - len(asked)
        if asked.empty:
            there = f"{first['step'].min():g} to {first['step'].max():g}"
            raise ValueError(f"steps must name a step of the log: it has none from {low:g} to {high:g}, and contains {there}")
        if steps != "all":
            newest = asked.sort_values(["step", "code", "group"]).drop_duplicates("prompt", keep="last")
            self.left_out["groups whose prompt has a newer one"] = len(asked) - len(newest)
            asked = newest
        used = self.rows["group"].isin(asked["group"]).to_numpy()
        rows = self.rows.drop(columns=({*HIDDEN} & {*self.rows}) - {*self.keep})
        rows = rows.assign(group=pd.factorize(rows["group"])[0]).reset_index(drop=True)
        used, mask = rows[used], used
        rewards: dict[float, int] = {}
        uniform, remarks = 0, list(self.remarks)
        if "reward" in used:
            counts = RewardCounts.from_rewards(pd.factorize(used["group"])[0], used["reward"])
            totals = np.asarray(counts.counts.sum(axis=0)).ravel()
            rewards, uniform = dict(zip(counts.values.tolist(), totals.tolist(), strict=True)), int(counts.uniform.sum())
            remarks += reward_remarks(counts, used)
        if self.source.others:
            remarks.append(f"Not read: {listed(self.source.others)}.")
        same = self.chosen.get("group") == self.chosen.get("prompt")
        unsaid = {*HIDDEN} | ({"group"} if same else set()) | (set() if self.stepped else {"step"})
        columns = {role: text for role, text in self.chosen.items() if role in used and role not in unsaid}
        left = {what: many for what, many in self.left_out.items() if many}
        read = self.source.schema.name, columns, len(self.source.mine), self.read, left
        at = tuple(np.unique(used["step"]).tolist()) if self.stepped else ()
        sizes = used["group"].value_counts().value_counts().sort_index()
        held = {int(size): int(many) for size, many in sizes.items()}
        findings = Findings(*read, at, int(used["prompt"].nunique()), held, rewards, uniform, tuple(remarks))
        return RolloutLog(rows, mask, findings)


def _repeated(rows: pd.DataFrame) -> np.ndarray:
    """Return the steps whose rows are those of the step before, in whatever order."""
    marks = pd.util.hash_pandas_object(rows.drop(columns="step"), index=False).groupby(rows["step"]).sum()
    return np.asarray(marks.index[1:][marks.to_numpy()[1:] == marks.to_numpy()[:-1]])


def _compared(rows: pd.DataFrame, *groups: pd.Series) -> tuple[pd.Series, pd.Series]:
    """Return of each row whether equal rewards of its group have advantages that differ, and whether there are two of them."""
    same = rows["advantage"].groupby([*groups, rows["reward"]])
    return same.transform("max") - same.transform("min") > AGREE * rows["advantage"].abs().max(), same.transform("count") > 1


def keys(values: pd.Series) -> pd.Series:
    """Return ids as categories that are equal where the ids are: 7, 7.0 and "7", and lists and objects by what they hold."""
    try:
        codes, known = pd.factorize(values)
    except (TypeError, NotImplementedError):  # lists and objects
        codes, known = pd.factorize(np.array([_text(one) for one in values], dtype=object))
    if pd.api.types.is_float_dtype(values.dtype) and (np.abs(np.asarray(known, dtype=float)) >= 2.0**53).any():
        raise ValueError("has more digits than a number of the file keeps apart: write the ids as texts")
    texts = [_text(one) for one in known]
    names = sorted({one for one in texts if one is not None})
    place = {one: k for k, one in enumerate(names)} | {None: -1}
    try:
        for name in names:
            name.encode()  # pandas itself minds from version 3 on
    except UnicodeEncodeError as error:
        row = values.index[np.argmax(codes == texts.index(error.object))]
        raise RowError(f"must be text, and {error.object[error.start]!r} is half of a character", row) from None
    return pd.Series(pd.Categorical.from_codes(np.array([*map(place.get, texts), -1])[codes], names), index=values.index)


def _text(one: Any) -> str | None:
    if one is None or one is pd.NA or isinstance(one, str) or (isinstance(one, float) and np.isnan(one)):
        return one if isinstance(one, str) and one else None
    if isinstance(one, dict | list | tuple | np.ndarray):
        return json.dumps(_said(one), default=str)
    return f"{one:.17g}" if isinstance(one, float) else str(one)


def _said(one: Any) -> Any:
    """Return a value without the empty fields that Arrow adds where another row has them."""
    if isinstance(one, dict):
        return {name: _said(inside) for name, inside in sorted(one.items()) if inside is not None}
    return [_said(inside) for inside in one] if isinstance(one, list | tuple | np.ndarray) else one
