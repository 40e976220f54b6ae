"""The rows of a log as they are used: its files, the columns that are read, and the rows that are left out."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from grpo_theory.logs.column_names import FILE, RESPONSES, is_evaluation, known, witnesses
from grpo_theory.logs.column_values import hashes, ids, numbers, refuse_rows, vectors
from grpo_theory.logs.log_folder import check_one_run, open_folder, same_value, words
from grpo_theory.logs.log_groups import LogGroups
from grpo_theory.logs.log_opening import (
    INFINITE,
    UNSCORED,
    WORDS,
    Columns,
    Options,
    choose_columns,
    holds_several,
    open_files,
    within,
    without_ignored,
)
from grpo_theory.logs.log_survey import Survey, SurveyReading, judge
from grpo_theory.logs.nested_rows import ROW, parts_of, value_at
from grpo_theory.logs.reward_choice import reward_of
from grpo_theory.logs.row_responses import counted_rewards, response_tables, summed_rewards
from grpo_theory.user_text import printable
from grpo_theory.validation import Array, Flags, Integers, as_count, shown


class SourceRows(NamedTuple):
    """SourceRows of a batch: their groups and rewards (n,), and what else the log has of each."""

    groups: Integers
    rewards: Array
    steps: Integers | None
    lengths: Array | None
    responses: np.ndarray | None
    scores: Array | None


class Source:
    """The files of a log, the columns that are read from them, and what was left out."""

    def __init__(self, path: str | Path, options: Options, batch_rows: int) -> None:
        if not isinstance(path, str | Path):
            raise TypeError(f"path must be a file's or a folder's name, got {shown(path)}")
        if path == "":
            raise ValueError("path must be a file's or a folder's name, and is empty")
        options.check()
        self.options = options
        self.batch_rows = as_count("batch_rows", batch_rows)
        self.rows = 0
        self.left_out: Counter[str] = Counter()
        self.runs: Counter[int] = Counter()
        self._sizes = np.zeros(0, dtype=np.int64)
        self.folder = open_folder(Path(path), options.where)
        self.files = open_files(self.folder, options)
        if not any(key in ("run", "seed") or key == "path" for key in options.where):
            check_one_run(self.folder)
        fields = self.files[0].fields
        rewards, remarks = reward_of(self.files[0], options.reward)
        self.lead = rewards.first
        self.fields = within(fields, rewards)
        self._check_lists()
        self.seen = witnesses(self.fields, holds_several(self.files[0], rewards))
        reading = self._read_how(choose_columns(options, self.files, self.fields, rewards))
        self.reading = replace(reading, remarks=(*remarks, *reading.remarks))
        self.columns = without_ignored(self.reading.columns, self.files[0])
        self.group_of = options.group_of or self.reading.group_of
        self._places: Counter[tuple[int, int]] = Counter()

    def _check_lists(self) -> None:
        """Raise ValueError if a row holds several rewards and one response: they are of its turns, tokens or marks."""
        file, fields = self.files[0], self.fields
        if self.options.response == "":
            return
        texts = [path for path, one in fields.items() if one.kind == "text" and RESPONSES & set(words(path))]
        texts = [path for path in texts if not {"id", "uid"} & set(words(path))]
        if not texts or self.lead not in fields or fields[self.lead].kind != "list":
            return
        held = [value_at(row, parts_of(self.lead, file.kinds)) for row in file.sample]
        several = next((place for place, one in enumerate(held) if isinstance(one, list) and len(one) > 1), None)
        if several is not None:
            raise ValueError(
                f"reward ({printable(self.lead)}) must be one number of each response, and row {several + 1} of "
                f"{printable(file.path)} has {len(held[several])} and one {printable(texts[0])}. "
                f"Name reward='{printable(self.lead)}.sum' (--reward {printable(self.lead)}.sum) to add them up; .mean, .max and "
                ".-1 (the last) take another. If they are of several responses, response='' reads them so"
            )

    def _read_how(self, columns: Columns) -> SurveyReading:
        """Look at the first rows, where there is anything that tells which belong together."""
        named = self.options.prompts is not None or self.options.group_of is not None
        seen = self.seen
        if columns.counted is not None:
            seen = seen._replace(trajectories=(), advantages=(), turns=(), groups=())
        if self.options.trajectory == "" or self.options.group_of is not None:
            seen = seen._replace(trajectories=())
        if set(seen.splits) & self.options.where.keys():
            seen = seen._replace(splits=())
        again = [one for one in seen.all if one not in (*columns.prompt, columns.response)]
        several = columns.step is not None or len(self.files) > 1
        if not again and not (several and not named and set(columns.prompt) - set(seen.texts)):
            return SurveyReading(columns)
        wanted = dict.fromkeys((*columns.prompt, *(() if named else (*seen.prompts[:6], *seen.texts)), *seen.groups))
        wanted |= dict.fromkeys((*seen.trajectories, *seen.splits, *(one for one in (columns.step, columns.response) if one)))
        wanted |= dict.fromkeys((FILE,) if len(self.files) > 1 else ())
        advantage = next(iter(seen.advantages), None)
        needed = list(dict.fromkeys([*columns.needed, *wanted, *seen.advantages, *self.options.where]))
        survey = Survey.of(self._surveyed(needed, columns), list(wanted), advantage, lambda table: self._scored(table, columns))
        return judge(survey, columns, seen, named)

    def _surveyed(self, needed: list[str], columns: Columns) -> Iterator[pa.Table]:
        must = {*columns.prompt, *columns.reward, self.lead, columns.step}
        for file in self.files:
            names = [name for name in needed if name in must or name == ROW or known(name, file.fields)]
            for table in response_tables(file, names, self.lead, self.batch_rows):
                full = _filled(table, needed)
                yield full.filter(pa.array(self._wanted(full)))

    def _scored(self, table: pa.Table, columns: Columns) -> Array:
        return np.zeros(table.num_rows) if columns.counted is not None else summed_rewards(table, columns)[0]

    def _wanted(self, table: pa.Table) -> Flags:
        """Return which rows have the values asked for."""
        rows = np.ones(table.num_rows, dtype=np.bool_)
        for key, wanted in self.options.where.items():
            if key in table.column_names:
                several = wanted if isinstance(wanted, list | tuple | set) else (wanted,)
                encoded = ids(table[key], key)
                is_it = [any(same_value(one, value) for value in several) for one in encoded.dictionary.to_pylist()]
                codes = encoded.indices.fill_null(len(is_it)).to_numpy(zero_copy_only=False)
                rows &= np.array([*is_it, False], dtype=np.bool_)[codes]
        return rows

    def _of_training(self, table: pa.Table) -> Flags:
        split = self.reading.split
        if split is None:
            return np.ones(table.num_rows, dtype=np.bool_)
        encoded = ids(table[split], split)
        kept = [not is_evaluation(split, str(one)) for one in encoded.dictionary.to_pylist()]
        return np.array([*kept, True], dtype=np.bool_)[encoded.indices.fill_null(len(kept)).to_numpy(zero_copy_only=False)]

    def read(self, groups: LogGroups) -> Iterator[SourceRows]:
        """Yield all rows that are used, batch by batch; all at once where rows are turns of trajectories."""
        batches = self._batches(groups)
        if self.columns.trajectory is None:
            yield from batches
        else:
            yield _whole_trajectories(list(batches), self._trajectories)
        if not self.rows:
            raise ValueError(f"{printable(self.files[0].path)} has columns, and no rows")

    def _batches(self, groups: LogGroups) -> Iterator[SourceRows]:
        columns, width = self.columns, None
        split = () if self.reading.split is None else (self.reading.split,)
        names = list(dict.fromkeys([*columns.needed, *split, *(one for one in self.options.where if one != "path")]))
        optional = {columns.length, columns.response, *split}
        self._trajectories: list[np.ndarray] = []
        for file in self.files:
            before = 0
            here = [name for name in names if name not in optional or known(name, file.fields)]
            for held in response_tables(file, here, self.lead, self.batch_rows):
                table = _filled(held, names)
                table, row_numbers = self.used(table, np.arange(before + 1, before + table.num_rows + 1))
                where = file.path, row_numbers
                before += held.num_rows
                self.rows += held.num_rows
                if not table.num_rows:
                    continue
                batch = self._rows(table, groups, where, width)
                width = None if batch.scores is None else batch.scores.shape[1]
                yield batch

    def used(self, table: pa.Table, row_numbers: Integers) -> tuple[pa.Table, Integers]:
        """Return the rows that were asked for and are of training, and their numbers."""
        for why, rows in (("not asked for (where)", self._wanted), (f"evaluation ({self.reading.split})", self._of_training)):
            kept = rows(table)
            if not kept.all():
                self.left_out[why] += int((~kept).sum())
                table, row_numbers = table.filter(pa.array(kept)), row_numbers[kept]
        return table, row_numbers

    def _rows(self, table: pa.Table, groups: LogGroups, where: tuple[Path, Integers], width: int | None) -> SourceRows:
        columns, options = self.columns, self.options
        if columns.counted is not None:
            table, rewards = counted_rewards(table, columns.counted, *where)
            where = where[0], np.arange(1, table.num_rows + 1)
        else:
            rewards, missing, partly = summed_rewards(table, columns)
            infinite = ~np.isfinite(rewards)
            bad = infinite | (missing if options.unscored == "error" else False)
            hint = INFINITE if infinite.any() else WORDS if missing.all() and table[self.lead].null_count == 0 else UNSCORED
            refuse_rows(bad, table[self.lead], "reward", *where, hint=hint)
            if partly.any():
                self.left_out["without a part of the reward, which counts as 0"] += int(partly.sum())
            if missing.any():
                self.left_out["without a reward"] += int(missing.sum()) if options.unscored == "leave" else 0
                self.left_out["counted as 0"] += int(missing.sum()) if options.unscored == "zero" else 0
                if options.unscored == "leave":
                    table, rewards = table.filter(pa.array(~missing)), rewards[~missing]
                    where = where[0], where[1][~missing]
        steps = _whole_steps(table, columns.step, *where)
        codes, dictionary = _prompts(table, columns.prompt, *where)
        name = columns.response
        responses = None if name is None else hashes(table[name], f"response ({name})")
        lengths = None if columns.length is None else numbers(table[columns.length], "length")
        if lengths is not None:
            bad = ~(np.isfinite(lengths) & (lengths >= 0.0))
            refuse_rows(bad, table[columns.length], "length", *where, "finite numbers of at least 0 (length='' reads none)")
        scores = vectors(table, columns.scores, *where, width) if columns.scores else None
        if self.group_of is not None:
            codes, dictionary = self._in_blocks(codes, dictionary, steps, self.group_of)
        prompts_of_rows, groups_of_rows = groups.number(codes, dictionary, steps)
        if columns.step is not None:
            groups.mark(prompts_of_rows, rewards, steps, responses)
        if columns.trajectory is not None:
            self._trajectories.append(hashes(table[columns.trajectory], f"trajectory ({columns.trajectory})"))
        ends = np.flatnonzero(np.diff(groups_of_rows, append=-1))
        self.runs.update(np.diff(ends, prepend=-1).tolist())
        sizes = np.bincount(groups_of_rows, minlength=self._sizes.size)
        sizes[: self._sizes.size] += self._sizes
        self._sizes = sizes
        return SourceRows(groups_of_rows, rewards, None if columns.step is None else steps, lengths, responses, scores)

    def group_sizes(self) -> Integers:
        """Return how many rows each group has, those of all steps included."""
        return self._sizes[self._sizes > 0]

    def _in_blocks(self, codes: Integers, dictionary: list, steps: Integers, size: int) -> tuple[Integers, list]:
        """Return codes that tell blocks of rows of a prompt apart, and what they stand for."""
        import pandas as pd  # slow to import, and not always wanted

        keys = [f"{step}\x1f{dictionary[code]}" for step, code in zip(steps.tolist(), codes.tolist(), strict=True)]
        place = pd.Series(keys).groupby(keys, sort=False).cumcount().to_numpy()
        place = place + np.array([self._places[key] for key in keys])  # type: ignore[index]
        self._places.update(keys)  # type: ignore[arg-type]
        blocks = [(dictionary[code], int(block)) for code, block in zip(codes.tolist(), (place // size).tolist(), strict=True)]
        numbered, distinct = pd.factorize(pd.Series([f"{one} ({block + 1})" if block else str(one) for one, block in blocks]))
        return np.asarray(numbered, dtype=np.int64), list(distinct)


def _filled(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return a table with the columns of these names, empty where it has none."""
    for name in names:
        if name not in table.column_names:
            table = table.append_column(name, pa.nulls(table.num_rows, pa.string()))
    return table


def _prompts(table: pa.Table, names: Sequence[str], path: Path, before: Integers) -> tuple[Integers, list]:
    """Return the prompts of rows as codes and what they stand for."""
    parts = [ids(table[name], f"prompt ({name})") for name in names]
    for name, part in zip(names, parts, strict=True):
        if part.null_count:
            row = before[int(np.argmax(part.is_null().to_numpy(zero_copy_only=False)))]
            raise ValueError(f"prompt ({printable(name)}) must be given for every row; row {row} of {printable(path)} has none")
    one = parts[0]
    if len(parts) > 1:
        one = pc.binary_join_element_wise(*(part.dictionary_decode().cast(pa.string()) for part in parts), " / ")
        one = one.dictionary_encode()
    return one.indices.to_numpy(zero_copy_only=False).astype(np.int64), one.dictionary.to_pylist()


def _whole_steps(table: pa.Table, name: str | None, path: Path, before: Integers) -> Integers:
    """Return the steps of the rows, 0 where the log has none."""
    if name is None:
        return np.zeros(table.num_rows, dtype=np.int64)
    steps = numbers(table[name], f"step ({name})")
    refuse_rows(
        ~(np.abs(steps) < 2**53) | (steps != np.floor(steps)),
        table[name],
        "step",
        path,
        before,
        "whole numbers in every row (step='' reads none)",
    )
    return steps.astype(np.int64)


def _whole_trajectories(batches: list[SourceRows], trajectories: list[np.ndarray]) -> SourceRows:
    """Return one row a trajectory: the reward that all its rows have, or else their sum."""
    groups = np.concatenate([one.groups for one in batches])
    rewards = np.concatenate([one.rewards for one in batches])
    _, first, code = np.unique(
        np.stack([groups.astype(np.uint64), np.concatenate(trajectories)]), axis=1, return_index=True, return_inverse=True
    )
    code = code.ravel()
    low, high = np.full(first.size, np.inf), np.full(first.size, -np.inf)
    np.minimum.at(low, code, rewards)
    np.maximum.at(high, code, rewards)
    whole = np.where(low == high, low, np.bincount(code, weights=rewards))
    order = np.argsort(first)

    def of_first(name: str) -> np.ndarray | None:
        parts = [getattr(one, name) for one in batches]
        return None if parts[0] is None else np.concatenate(parts)[first][order]

    return SourceRows(groups[first][order], whole[order], of_first("steps"), None, None, of_first("scores"))
