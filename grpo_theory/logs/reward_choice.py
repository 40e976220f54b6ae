"""Which columns hold the rewards: those that are asked for, or recognised by their names, or a total by what it sums."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from grpo_theory.logs import column_names as names
from grpo_theory.logs.column_names import RECOGNISED, TRL, Fields, field_at, found, known, last_words, of_pieces, plain
from grpo_theory.logs.log_file import LogFile
from grpo_theory.logs.log_folder import words
from grpo_theory.logs.nested_rows import parts_of, value_at
from grpo_theory.user_text import listed, printable
from grpo_theory.validation import Array, shown

Reward = str | Sequence[str] | Mapping[str, float] | None

ENOUGH = 4
"""The number of responses for each part that the sample needs before a total is taken for the sum of its parts."""
EXACT = 1e-6
"""A total may differ from the weighted sum by this share of its range: logs are rounded."""


@dataclass(frozen=True)
class Counted:
    """Rows that stand for several responses: a column of successes, or of their share, and how many responses there are."""

    successes: str
    total: str | int
    rate: bool


@dataclass(frozen=True)
class Rewards:
    """Where the rewards are: the weights of paths, or counts; and the lists of objects that part a row into responses."""

    weights: dict[str, float | str]
    counted: Counted | None = None
    lists: tuple[str, ...] = ()

    @property
    def first(self) -> str:
        """The path that parts the rows."""
        return next(iter(self.weights)) if self.counted is None else self.counted.successes


def reward_of(file: LogFile, asked: Reward) -> tuple[Rewards, tuple[str, ...]]:
    """Return where the rewards are, and a sentence on the other columns that may be rewards if the user named none.

    A column that was found by a word of its name, such as rm.accuracy, may give way to a total. It does so if the total is a
    weighted sum of it and of the columns beside it in all rows of the sample.
    """
    fields = file.row_fields
    chosen = choose_rewards(fields, asked)
    if asked is not None or chosen.counted is not None or len(chosen.weights) != 1 or not _by_a_word(chosen.first, fields):
        return chosen, ()
    parts, totals = _parts(chosen.first, fields), _totals(chosen.first, fields)
    for total in totals:
        weights = _weights(file, total, parts)
        if weights and weights.get(chosen.first):
            return replace(chosen, weights={total: 1.0}), (_said_of_total(total, weights),)
    others = [one for one in dict.fromkeys([*parts, *totals]) if one != chosen.first]
    return chosen, (_said_of_others(chosen.first, others),) if others else ()


def choose_rewards(fields: Fields, reward: Reward) -> Rewards:
    """Return where the rewards are: as given, or as recognised where None is given."""
    if reward is None:
        return _recognised(fields)
    if isinstance(reward, str):
        counted = _counted_by_name(fields, reward)
        if counted is not None:
            return Rewards({}, counted)
        weights: dict[str, float] = {reward: 1.0}
    elif isinstance(reward, Mapping):
        weights = dict(reward)
    elif isinstance(reward, Sequence) and all(isinstance(name, str) for name in reward):
        if len(reward) == 1:
            return choose_rewards(fields, reward[0])
        weights = dict.fromkeys(reward, 1.0)
    else:
        raise TypeError(
            f"reward must be a column, a list of columns or their weights, got an object of type {type(reward).__name__}"
        )
    missing = [name for name in weights if not known(name, fields)]
    if missing or not weights:
        raise ValueError(
            f"reward must name columns of the log, got {listed(map(repr, missing)) or 'none'}; {found(fields, missing)}"
        )
    bad = [w for w in weights.values() if isinstance(w, bool) or not isinstance(w, int | float) or not abs(w) < float("inf")]
    if bad:
        raise ValueError(f"reward must give each column a finite weight, got {bad[0]!r}")
    return Rewards({name: float(w) for name, w in weights.items()}, None, field_at(next(iter(weights)), fields).lists)


def _counted_by_name(fields: Fields, reward: str) -> Counted | None:
    """Return what successes/total and rate@total ask for."""
    for sign in "/@":
        part, _, total = reward.rpartition(sign)
        if part and reward not in fields and part in fields and (total in fields or total.isdigit()):
            return Counted(part, int(total) if total not in fields else total, sign == "@")
    return None


def _recognised(fields: Fields) -> Rewards:
    for name in names.exact("reward", fields):
        if fields[name].kind != "other":
            return Rewards({name: 1.0})
        inside = _inside(name, fields)
        if inside:
            return inside
    counted = _counted(fields)
    if counted is not None:
        return Rewards({}, counted)
    if {plain(name) for name in fields} >= TRL and any(plain(name) in names.ADVANTAGES for name in fields):
        return _of_trl(fields)
    weighted = _weighted(fields)
    if weighted:
        return Rewards(dict(weighted), None, fields[next(iter(weighted))].lists)
    for path in sorted({path.rpartition(".")[0] for path in fields if "." in path}, key=lambda path: path.count(".")):
        within_it = _inside(path, fields) if plain(path.rpartition(".")[2]) in ("reward", "rewards") else None
        if within_it and not any(of_pieces(fields[one]) for one in within_it.weights):
            return within_it
    likely = _likely(fields)
    if len(likely) == 1:
        return Rewards({likely[0]: 1.0}, None, fields[likely[0]].lists)
    if likely:
        sums = [path for path in fields if set(last_words(path)) <= names.SUMS and fields[path].kind == "number"]
        raise ValueError(
            f"reward must name a column: {listed([*likely, *sums])} may be rewards. Choose one (reward={shown(likely[0])}, or "
            f"--reward {likely[0]}), or give those to be added up, with weights where they are not 1 "
            f"(--reward {likely[0]}=1 --reward {likely[1]}=0.5)"
        )
    pieces = [path for path in fields if fields[path].lists and {"reward", "rewards"} & set(last_words(path))]
    hint = f"; {pieces[0]} is of the pieces of a response: {pieces[0]}.sum adds them up" if pieces else ""
    solved = [path for path in fields if set(last_words(path)) & names.SUCCESSES and set(last_words(path)) & names.COUNTS]
    rates = [path for path in fields if set(last_words(path)) & names.RATES and set(last_words(path)) & names.RATED]
    hint = f"; {rates[0]}@N is a share of N responses, a number or a column" if rates and not hint else hint
    hint = f"; {solved[0]}/N is a number of successes of N, a number or a column" if solved and not hint else hint
    raise ValueError(f"reward must name the column of the rewards (--reward NAME); {found(fields, RECOGNISED['reward'])}{hint}")


def _inside(name: str, fields: Fields) -> Rewards | None:
    """Return the rewards within an object or a list of objects: its total, or scores with their weights, or its only number."""
    inside = {path: one for path, one in fields.items() if path.startswith(f"{name}.")}
    weights = _weighted(inside)
    if weights:
        return Rewards(dict(weights), None, fields[next(iter(weights))].lists)
    numbers = [path for path, one in inside.items() if one.kind in ("number", "list")]
    totals = [path for path in numbers if set(last_words(path)) & {"total", "overall", "final", "sum"}]
    one = totals[:1] or (numbers if len(numbers) == 1 else [])
    return Rewards({one[0]: 1.0}, None, fields[one[0]].lists) if one else None


def _weighted(fields: Fields) -> dict[str, str]:
    """Return scores with a weight beside each, at the least depth: rewards whose sum counts."""
    pairs = {
        path: f"{path.rpartition('.')[0]}.weight"
        for path, one in fields.items()
        if plain(path).endswith((".score", ".value", ".reward")) and not of_pieces(one)
    }
    pairs = {path: weight for path, weight in pairs.items() if weight in fields}
    least = min((len(fields[path].lists) for path in pairs), default=0)
    return {path: weight for path, weight in pairs.items() if len(fields[path].lists) == least}


def _counted(fields: Fields) -> Counted | None:
    """Return columns of successes, or their share, beside the number of responses."""
    at = {plain(path): path for path in fields if fields[path].kind == "number" and "." not in path}
    total = next((at[name] for name in names.TOTALS if name in at), None) or next(
        (path for path in at.values() if _only_counts(path)), None
    )
    if total is None:
        return None
    for path in at.values():
        own = set(last_words(path))
        if path != total and own & names.SUCCESSES and own & names.COUNTS:
            return Counted(path, total, rate=False)
    rates = [path for path in at.values() if set(last_words(path)) & names.RATES and set(last_words(path)) & names.RATED]
    return Counted(rates[0], total, rate=True) if rates else None


def _only_counts(path: str) -> bool:
    """Return whether a name is of a number of responses, and of nothing else."""
    own = set(last_words(path))
    return own <= names.TOTAL_WORDS | names.COUNTS and bool(own & {*names.TOTAL_WORDS, "total"})


def _of_trl(fields: Fields) -> Rewards:
    """Return the only reward function of a table of TRL's; raise ValueError if it may be any of several."""
    beside = {*TRL, *names.ADVANTAGES}
    functions = [path for path, one in fields.items() if one.kind in ("number", "list") and plain(path) not in beside]
    functions = [path for path in functions if "." not in path] or functions
    sure = [path for path in functions if not _no_reward(path)] if len(functions) > 1 else functions
    if len(sure) == 1:
        return Rewards({sure[0]: 1.0})
    if functions:
        which = sure or functions
        raise ValueError(
            f"reward must name a column: {listed(which)} may be reward functions of TRL, whose weights are not in its "
            f"log. Choose one (reward={shown(which[0])}), or give those to be added up, with weights where they are not 1 "
            f"(--reward {which[0]}=1 --reward {which[-1]}=0.5)"
        )
    raise ValueError(f"reward must name the column of the rewards (--reward NAME); {found(fields, RECOGNISED['reward'])}")


def _no_reward(path: str) -> bool:
    own = set(last_words(path))
    return bool(own & names.NO_REWARD) and "reward" not in own


def _likely(fields: Fields) -> list[str]:
    """Return the paths of the surest word for a reward, at the least depth: of responses, not of their pieces."""
    paths = [
        path for path, one in fields.items() if one.kind in ("number", "list") and not _no_reward(path) and not of_pieces(one)
    ]
    for word in names.REWARDING:
        like = [path for path in paths if word in last_words(path)]
        if like:
            depth = min((len(fields[path].lists), path.count(".")) for path in like)
            return [path for path in like if (len(fields[path].lists), path.count(".")) == depth]
    parents = {path.rpartition(".")[0] for path in paths if "." in path}
    return [path for path in paths if path.rpartition(".")[0] in parents and {"reward", "rewards"} & set(_parent_words(path))]


def _parent_words(path: str) -> list[str]:
    return words(path.rpartition(".")[0].rsplit(".", 1)[-1])


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
    """Return the weights with which a total is the sum of two parts or more in all rows of the sample, or None."""
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
    made, first = names.weighted_sum({printable(one): weight for one, weight in weights.items()}), printable(next(iter(weights)))
    return f"{printable(total)} is taken for the reward: in the first rows it is {made} (--reward {first} takes that part alone)."


def _said_of_others(taken: str, others: Sequence[str]) -> str:
    taken, other = printable(taken), printable(others[-1])
    return (
        f"{taken} is taken for the reward, and {listed(others)} may be {'one' if len(others) == 1 else 'rewards'} too: "
        f"--reward {other} takes another, --reward {taken}=1 --reward {other}=0.5 adds two up with weights."
    )
