"""Which of several columns that may be rewards is taken: their total where it is one, and what is said of the others."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.samples import column_names as names
from grpo_theory.samples.column_choice import Reward, Rewards, choose_rewards
from grpo_theory.samples.column_names import Fields, last_words
from grpo_theory.samples.log_file import LogFile
from grpo_theory.samples.nested_rows import parts_of, value_at
from grpo_theory.user_text import listed, printable

ENOUGH = 4
"""So many responses for each part must be in the sample before a total is taken for the sum of its parts."""
EXACT = 1e-6
"""A total may differ from the weighted sum by this share of its range: logs are rounded."""


def reward_of(file: LogFile, asked: Reward) -> tuple[Rewards, tuple[str, ...]]:
    """Return where the rewards are, and a sentence on the other columns that may be rewards if the user named none.

    A column that was found by a word of its name, such as rm.accuracy, gives way to a total that is a weighted sum of it and of
    the columns beside it in all rows of the sample.
    """
    fields = file.row_fields
    found = choose_rewards(fields, asked)
    if asked is not None or found.counted is not None or len(found.weights) != 1 or not _by_a_word(found.first, fields):
        return found, ()
    parts, totals = _parts(found.first, fields), _totals(found.first, fields)
    for total in totals:
        weights = _weights(file, total, parts)
        if weights and weights.get(found.first):
            return replace(found, weights={total: 1.0}), (_said_of_total(total, weights),)
    others = [one for one in dict.fromkeys([*parts, *totals]) if one != found.first]
    return found, (_said_of_others(found.first, others),) if others else ()


def _by_a_word(path: str, fields: Fields) -> bool:
    """Return whether a reward was found by a word of its name: no name is recognised, and it is in no object of rewards."""
    within = set(last_words(path.rpartition(".")[0])) if "." in path else set()
    return path not in names.exact("reward", fields) and not within & {"reward", "rewards"} and fields[path].kind == "number"


def _parts(path: str, fields: Fields) -> list[str]:
    """Return the numbers beside a reward that may be rewards too: all in its object, those with a word of rewards at the top."""
    parent = path.rpartition(".")[0]
    beside = [one for one in fields if one.rpartition(".")[0] == parent and fields[one] == fields[path]]
    beside = [one for one in beside if not set(last_words(one)) & names.NO_REWARD and not set(last_words(one)) <= names.SUMS]
    words_of_rewards = {*names.REWARDING, "format"}
    return [one for one in beside if parent or set(last_words(one)) & words_of_rewards]


def _totals(path: str, fields: Fields) -> list[str]:
    """Return the numbers with the name of a total, in the object of a reward or in one that it lies in."""
    parent = path.rpartition(".")[0]
    like = [one for one in fields if set(last_words(one)) <= names.SUMS and fields[one] == fields[path]]
    return [one for one in like if f"{parent}.".startswith(f"{one.rpartition('.')[0]}.") or "." not in one]


def _weights(file: LogFile, total: str, parts: Sequence[str]) -> dict[str, float] | None:
    """Return the weights with which a total is the sum of two parts or more in all rows of the sample; None if it is not."""
    if len(parts) < 2:
        return None
    sums, columns = _values(file, total), [_values(file, one) for one in parts]
    if sums.size < ENOUGH * len(parts) or any(one.shape != sums.shape for one in columns) or np.ptp(sums) == 0.0:
        return None
    matrix = np.stack(columns, axis=1)
    if not (np.isfinite(matrix).all() and np.isfinite(sums).all()) or np.linalg.matrix_rank(matrix) < len(parts):
        return None
    weights = np.linalg.lstsq(matrix, sums, rcond=None)[0]
    if np.abs(matrix @ weights - sums).max() > EXACT * max(np.ptp(sums), 1.0):
        return None
    used = {one: round(float(w), 6) for one, w in zip(parts, weights, strict=True) if abs(w) > EXACT}
    return used if len(used) > 1 else None


def _values(file: LogFile, path: str) -> Array:
    """Return the numbers of a field in all rows of the sample; NaN where a row has none."""
    keys = parts_of(path, file.kinds)
    return np.array([one for row in file.sample for one in _flat(value_at(row, keys))], dtype=np.float64)


def _flat(value: Any) -> Iterator[float]:
    if isinstance(value, list):
        for one in value:
            yield from _flat(one)
    else:
        yield float(value) if isinstance(value, bool | int | float) else np.nan


def _said_of_total(total: str, weights: dict[str, float]) -> str:
    made = " + ".join(printable(one) if w == 1.0 else f"{w:g} * {printable(one)}" for one, w in weights.items())
    first = printable(next(iter(weights)))
    return (
        f"{printable(total)} is taken for the reward: in the first rows it is {made.replace('+ -', '- ')} "
        f"(--reward {first} takes that part alone)."
    )


def _said_of_others(taken: str, others: Sequence[str]) -> str:
    taken, other = printable(taken), printable(others[-1])
    return (
        f"{taken} is taken for the reward, and {listed(others)} may be {'one' if len(others) == 1 else 'rewards'} too: "
        f"--reward {other} takes another, --reward {taken}=1 --reward {other}=0.5 adds two up with weights."
    )
