"""Which schema a log has, which of its files it reads, and which column is what; a log that fits none or two is refused."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from grpo_theory.logs import files
from grpo_theory.logs.expressions import columns_of, value
from grpo_theory.user_text import listed, printable
from grpo_theory.validation import shown

KEYS = ("prompt", "group", "rollout", "environment", "split", "run_id")
NUMBERS = ("step", "reward", "advantage", "length")
TOKENS = ("sampled", "behaviour", "trained", "mask")
"""Log-probabilities of the sampler, of the policy at the update's start, and of the one that is trained; tokens that count."""
ROLES = (*KEYS, *NUMBERS, *TOKENS, "truncated", "scores", "response")
ONLY = "the_only_number"
"""Stands in a schema for the one number that has no other meaning."""
PLACES = {"file", "row"}
"""Columns that every log has: where a row stands."""


@dataclass(frozen=True)
class Schema:
    """What the columns of a trainer's log mean (schemas.toml says what each field is)."""

    name: str
    about: str
    roles: Mapping[str, Sequence[str]]
    needs: Sequence[str] = ()
    lacks: Sequence[str] = ()
    files: Sequence[str] = ("*",)
    anew: bool = False

    def fits(self, head: pd.DataFrame) -> bool:
        """Return whether a file's first rows have what this schema needs."""
        return all(_filled(one, head) for one in self.needs) and not any(_filled(one, head) for one in self.lacks)


@cache
def schemas() -> dict[str, Schema]:
    """Return the declared schemas by name; `plain` is taken where no other fits.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> gt.logs.schemas()["verl"].needs
    ['input', 'score']
    """
    declared = tomllib.loads(Path(__file__).with_name("schemas.toml").read_text(encoding="utf-8"))
    every, found = declared.pop("every"), {}
    for name, table in declared.items():
        roles = {role: one if isinstance(one, list) else [one] for role, one in (every | table).items() if role in ROLES}
        found[name] = Schema(name, roles=roles, **{key: one for key, one in table.items() if key not in ROLES})
    return found


def _there(text: str, head: pd.DataFrame) -> bool:
    return ONLY in text or text in head or columns_of(text) <= {*head} | PLACES


def _filled(text: str, head: pd.DataFrame) -> bool:
    """Return whether an expression has a value in a file's first rows."""
    try:
        return _there(text, head) and (columns_of(text) <= PLACES or bool(value(text, head).notna().any()))
    except (ValueError, TypeError, AttributeError):
        return False


@dataclass(frozen=True, eq=False)
class Opened:
    """The files of a log that are read, by which schema, and the first rows of the first of them."""

    path: Path
    schema: Schema
    mine: Sequence[Path]
    others: Sequence[str]
    head: pd.DataFrame

    def checked(self, option: str, text: str) -> str:
        """Return an expression whose columns are there; a column's name that is no expression is put in backticks."""
        if text in self.head:
            return text if text.isidentifier() else f"`{text}`"
        if missing := sorted(columns_of(text) - {*self.head} - PLACES):
            found = listed(self.head, missing)
            raise ValueError(f"{option} must be of columns of the log, got {shown(missing[0])}; found {found}")
        return text

    def columns(self, given: Mapping[str, str], grouped: bool, require_reward: bool) -> dict[str, str]:
        """Return the expression of each role: the one that is given, or the schema's first whose columns are there."""
        chosen = {role: self.checked(f"--{role}", text) for role, text in given.items() if text}
        for role in self.schema.roles.keys() - given.keys():
            there = [one for one in self.schema.roles[role] if _there(one, self.head)]
            if text := next((one for one in there if ONLY in one or _filled(one, self.head)), next(iter(there), None)):
                chosen[role] = text.replace(ONLY, self._only_number()) if ONLY in text else text
        found = f"found the columns {listed(self.head)}"
        if "reward" not in chosen and require_reward:
            raise ValueError(f"reward must name a column: --reward COLUMN, or as in 'correct + 0.2 * format'; {found}")
        if not {"prompt", "group"} & chosen.keys() and not grouped and require_reward:
            told = "prompt must name the column that the responses to a prompt share: --prompt COLUMN, or --group-of N where each"
            raise ValueError(f"{told} N rows are a group; {found}")
        return {role: chosen[role] for role in ROLES if role in chosen}

    def _only_number(self) -> str:
        """Return the one number of a table of TRL without another meaning: a reward function has a column each."""
        used = {name for texts in self.schema.roles.values() for text in texts if ONLY not in text for name in columns_of(text)}
        numeric = []
        for name in [one for one in self.head if one not in used]:
            inside = self.head[name].astype(object).explode().dropna()
            if len(inside) and all(isinstance(one, int | float | np.number | np.bool_) for one in inside):
                numeric.append(name if name.isidentifier() else f"`{name}`")
        if len(numeric) != 1:
            weighted = printable(" + 0.5 * ".join(numeric[:2]) or "right + 0.5 * format")
            raise ValueError(
                f"reward must name a column, and {listed(numeric) or 'none'} may be a reward function: --reward COLUMN, or their "
                f"sum with the trainer's weights, as --reward '{weighted}'"
            )
        return numeric[0]


def opened(path: Path, named: str | None, pattern: str | None, given: Mapping[str, str]) -> Opened:
    """Return the only schema that fits a log, and its files; `plain` where none does.

    Raises
    ------
    ValueError
        If several fit, or the one that is named does not, or there is no file with rows.
    """
    if named is not None and named not in schemas():
        raise ValueError(f"schema must be one of {', '.join(schemas())}, got {shown(named)}")
    found = files.files_of(path, pattern)
    if not (full := [one for one in found if one.stat().st_size >= files.BLANK or one.read_bytes().strip()]):
        raise ValueError(f"path must be a log with rows, and '{printable(path)}' is empty")
    heads = {shape: files.head(one) for shape, one in {files.shape(one): one for one in reversed(full)}.items()}
    fits: dict[str, list[Path]] = {}
    for one in schemas().values():
        if one.name == "plain" or named not in (None, one.name):
            continue
        of = [file for file in full if one.fits(heads[files.shape(file)])]
        if path.is_dir() and not pattern:
            of = [file for file in of if any(fnmatchcase(files.place(file, path), wanted) for wanted in one.files)]
        fits |= {one.name: of} if of else {}
    if len(fits) > 1:
        told = f"the log fits {len(fits)} schemas, {' and '.join(fits)}: say which it is (--schema {next(iter(fits))}), or"
        raise ValueError(f"{told} which files are read (--files PATTERN)")
    if named not in (None, "plain") and not fits:
        needs = ", ".join(schemas()[named].needs)
        raise ValueError(f"no file has what the schema {named} needs ({needs}); found {listed(next(iter(heads.values()), ()))}")
    schema, mine = schemas()[next(iter(fits), "plain")], next(iter(fits.values()), [])
    if not fits:
        wanted = [text for text in given.values() if text] or schema.roles["reward"]
        able = {shape for shape, head in heads.items() if all(_there(text, head) for text in wanted)}
        mine = [one for one in full if files.shape(one) in able] or full[:1]
    others = [files.place(one, path) for one in found if one not in set(mine)]
    return Opened(path, schema, mine, others, heads[files.shape(mine[0])])
