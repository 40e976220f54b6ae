"""The first rows of a log, and the columns that say which rows belong together."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from grpo_theory.arrays import Array, Flags, Integers
from grpo_theory.samples import column_names as names
from grpo_theory.samples.column_names import Fields, last_words, plain
from grpo_theory.samples.column_values import ids, numbers
from grpo_theory.samples.log_fields import ROW
from grpo_theory.samples.log_folder import EVALUATION, words

SURVEYED = 2**16
"""So many rows are looked at."""
FILE = "file"
"""The column of a file's place among the files."""


class Witnesses(NamedTuple):
    """Columns that say which rows belong together, each surest first."""

    prompts: tuple[str, ...]
    texts: tuple[str, ...]
    responses: tuple[str, ...]
    groups: tuple[str, ...]
    trajectories: tuple[str, ...]
    turns: tuple[str, ...]
    advantages: tuple[str, ...]
    splits: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(dict.fromkeys(name for part in self for name in part))


def witnesses(fields: Fields, many: bool) -> Witnesses:
    """Return the columns that say which rows belong together; `many` where a row holds several responses."""
    short = {path: one for path, one in fields.items() if path != FILE}
    prompts = [*names.exact("prompt", short), *names.prompt_ids(short), *names.prompt_texts(short), *names.group_ids(short)]
    weak = [path for name in names.WEAK for path in short if plain(path) == name]
    texts = names.prompt_texts(short)
    at_top = [path for path in short if not short[path].lists]
    return Witnesses(
        tuple(dict.fromkeys((*prompts, *weak, *((ROW,) if many else ())))),
        tuple(dict.fromkeys([*names.exact("prompt", {path: short[path] for path in texts if path in short}), *texts]))[:2],
        tuple(names.exact("response", short)),
        tuple(names.group_ids(short)[:2]),
        tuple(names.named_like(names.TRAJECTORIES, names.IDS, short)[:2]),
        tuple(path for path in at_top if set(last_words(path)) & names.TURNS)[:1],
        tuple(path for path in at_top if plain(path) in names.ADVANTAGES and short[path].kind == "number")[:1],
        tuple(path for path in at_top if _may_split(path)),
    )


def _may_split(path: str) -> bool:
    own = set(words(path))
    return bool(own) and (own <= {*names.SPLITS, "data", "dataset"} or own <= {*names.EVALUATING, "is", "do"})


def is_evaluation(column: str, value: str) -> bool:
    """Return whether a value of a column says that a row is not of training."""
    if set(words(column)) & names.EVALUATING:
        return value.lower() in ("true", "1", "1.0")
    return bool(EVALUATION & set(words(value)))


@dataclass(eq=False)
class Survey:
    """The first rows: codes (n,) of each column's values, and the rewards.

    Attributes
    ----------
    codes : dict of str to ndarray
    texts : dict of str to list
        What the codes stand for.
    rewards, advantages : ndarray, shape (n,), or None
    """

    codes: dict[str, Integers]
    texts: dict[str, list[str]]
    rewards: Array
    advantages: Array | None
    remarks: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        tables: Iterator[pa.Table],
        columns: Sequence[str],
        advantage: str | None,
        rewards: Callable[[pa.Table], Array],
    ) -> "Survey":
        """Look at tables until there are enough rows."""
        import pandas as pd  # slow to import, and not always wanted

        seen: dict[str, list[np.ndarray]] = {name: [] for name in columns}
        found: list[Array] = []
        logged: list[Array] = []
        for table in tables:
            for name in columns:
                encoded = ids(table[name], name)
                values = np.array([_text(one) for one in encoded.dictionary.to_pylist()] + [""], dtype=object)
                place = encoded.indices.fill_null(len(values) - 1).to_numpy(zero_copy_only=False)
                seen[name].append(values[place])
            found.append(rewards(table))
            if advantage is not None:
                logged.append(numbers(table[advantage], advantage))
            if sum(map(len, found)) >= SURVEYED:
                break
        factors = {name: pd.factorize(np.concatenate(parts)) for name, parts in seen.items() if parts}
        codes = {name: np.asarray(code, dtype=np.int64) for name, (code, _) in factors.items()}
        texts = {name: list(values) for name, (_, values) in factors.items()}
        return cls(codes, texts, np.concatenate(found), np.concatenate(logged) if logged else None)

    def keep(self, rows: Flags) -> "Survey":
        """Return the survey of some of its rows."""
        codes = {name: one[rows] for name, one in self.codes.items()}
        return Survey(codes, self.texts, self.rewards[rows], None if self.advantages is None else self.advantages[rows])

    def joint(self, *columns: str | None) -> Integers:
        """Return codes of the rows by several columns together, from 0."""
        joint = np.zeros(self.rewards.size, dtype=np.int64)
        for name in columns:
            if name is not None:
                joint = np.unique(joint * (int(self.codes[name].max()) + 1) + self.codes[name], return_inverse=True)[1]
        return joint

    def count(self, *columns: str | None) -> int:
        """Return how many different values columns have together."""
        return int(np.unique(self.joint(*columns)).size)

    def given(self, column: str) -> bool:
        """Return whether a column has a value in every row."""
        return "" not in self.texts[column]

    def refines(self, step: str | None, first: str, second: str) -> bool:
        """Return whether at a step one value of `first` has several of `second`."""
        return self.count(step, first, second) > self.count(step, first)


def _text(value: object) -> str:
    return "" if value is None else str(int(value) if isinstance(value, float) and value.is_integer() else value)
