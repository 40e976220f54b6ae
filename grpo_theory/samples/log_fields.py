"""Fields of nested rows: paths through objects and lists, and the responses that a row holds in lists."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from grpo_theory.user_text import printable

SUMMARIES: dict[str, Callable[[list[float]], float]] = {"sum": math.fsum, "mean": fmean, "min": min, "max": max}
"""What the last part of a path may make of a list of numbers."""
BUT_LAST = ":-1"
"""The part of a path that takes a list without its last."""
DEEPEST_FIELD = 6
"""Fields that lie deeper in a row are not looked for."""
ROW = "row"
"""The column that numbers the rows of the file, and the lists in them that hold several responses."""


class Field(NamedTuple):
    """What a path leads to: number, list (of numbers), text, texts, messages or other; and the lists of objects on the way."""

    kind: str
    lists: tuple[str, ...] = ()


def fields_of(records: Sequence[Mapping[str, Any]], inside: bool = True) -> dict[str, Field]:
    """Return the fields of rows by their paths: those at the top first, those within objects and lists of objects behind them."""
    found: dict[str, Field] = {}
    level: list[tuple[str, tuple[str, ...], list[Mapping[str, Any]]]] = [("", (), list(records))]
    for _ in range(DEEPEST_FIELD if inside else 1):
        below = []
        for prefix, lists, rows in level:
            for key in dict.fromkeys(key for row in rows for key in row):
                path, values = f"{prefix}{key}", [row[key] for row in rows if row.get(key) is not None]
                if values and isinstance(key, str):
                    found[path] = Field(_kind(values), lists)
                    objects, many = _objects(values)
                    if objects:
                        below.append((f"{path}.", (*lists, path) if many else lists, objects))
        level = below
    return found


def _objects(values: list[Any]) -> tuple[list[Mapping[str, Any]], bool]:
    """Return the objects that values are, or are lists of."""
    if all(isinstance(one, dict) for one in values):
        return values, False
    if all(isinstance(one, list) and all(isinstance(part, dict) for part in one) for one in values):
        return [part for one in values for part in one], True
    return [], False


def _kind(values: list[Any]) -> str:
    if all(isinstance(one, bool | int | float) for one in values):
        return "number"
    if all(isinstance(one, str) for one in values):
        return "text"
    if all(isinstance(one, list) for one in values):
        if any(values) and all(message(part) for one in values for part in one):
            return "messages"
        parts = [part for one in values for part in one if part is not None]
        while parts and all(isinstance(part, list) for part in parts):
            parts = [one for part in parts for one in part if one is not None]
        if parts and all(isinstance(part, bool | int | float) for part in parts):
            return "list"
        if parts and all(isinstance(part, str) for part in parts):
            return "texts"
    return "other"


def parts_of(path: str, known: Mapping[str, Any]) -> list[str]:
    """Return the parts of a path; a dot within the name of a column at the top parts nothing."""
    head = next((key for key in sorted(known, key=len, reverse=True) if path == key or path.startswith(f"{key}.")), None)
    if head is None:
        return path.split(".")
    return [head, *(path[len(head) + 1 :].split(".") if len(path) > len(head) else [])]


def value_at(value: Any, parts: Sequence[str]) -> Any:
    """Return what a path leads to; a list of objects on the way gives a list of what is in each."""
    for place, part in enumerate(parts):
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list):
            rest = parts[place:]
            if len(rest) > 1 and _takes(rest[-1]) and not _takes(part):
                return _taken([value_at(one, rest[:-1]) for one in value], rest[-1])
            if not _takes(part):
                return [value_at(one, rest) for one in value]
            value = _taken(value, part)
        else:
            return None
    return value


def _takes(part: str) -> bool:
    """Return whether a part of a path takes something of a list."""
    return part == BUT_LAST or part in SUMMARIES or part.lstrip("-").isdigit()


def _taken(value: list[Any], part: str) -> Any:
    """Return what a part of a path takes of a list; a summary, of the innermost lists."""
    if part == BUT_LAST:
        return value[:-1]
    if part in SUMMARIES:
        if value and all(isinstance(one, list) for one in value):
            return [_taken(one, part) for one in value]
        numbers = [one for one in value if isinstance(one, bool | int | float)]
        return SUMMARIES[part](numbers) if numbers else None
    index = int(part)
    return value[index] if -len(value) <= index < len(value) else None


def follows(values: Sequence[Any], rewards: Sequence[Any]) -> int:
    """Return through how many levels the lists of a field are as long as those of the rewards, in all rows."""
    level = 0
    while rewards and any(one is not None for one in values) and all(isinstance(one, list) for one in rewards):
        pairs = list(zip(values, rewards, strict=True))
        if any(one is not None and (not isinstance(one, list) or len(one) != len(other)) for one, other in pairs):
            break
        if any(message(part) for one in values if one is not None for part in one):
            break
        pairs = [(part, other) for one, own in pairs if one is not None for part, other in zip(one, own, strict=True)]
        level, values, rewards = level + 1, [one for one, _ in pairs], [other for _, other in pairs]
    return level


def message(value: Any) -> bool:
    """Return whether a value is a message of a conversation."""
    return isinstance(value, dict) and "role" in value and "content" in value


def spread(values: Mapping[str, Any], reward: str, levels: Mapping[str, int], row: str) -> Iterator[dict[str, Any]]:
    """Yield one row per response from values whose reward is lists: lists beside it go along, all else is repeated.

    Parameters
    ----------
    values : mapping
        By path.
    reward : str
        The path whose lists part the row.
    levels : mapping of str to int
        Through how many levels each field goes along.
    row : str
        The number of the row, to which the places in all lists but the innermost are added.
    """
    rewards = values[reward]
    if not isinstance(rewards, list):
        yield {**values, ROW: row}
        return
    innermost = not any(isinstance(one, list) for one in rewards)
    along = [path for path, level in levels.items() if level > 0 and values[path] is not None]
    for path in along:
        if not isinstance(values[path], list) or len(values[path]) != len(rewards):
            held = len(values[path]) if isinstance(values[path], list) else 1
            raise ValueError(
                f"row {row} has {held} of {printable(path)} beside {len(rewards)} of {printable(reward)}: lists that belong "
                "together must be of equal length"
            )
    fewer = {path: level - 1 for path, level in levels.items()}
    for place, one in enumerate(rewards):
        part = {**values, **{path: values[path][place] for path in along}, reward: one}
        yield from spread(part, reward, fewer, row if innermost else f"{row}.{place + 1}")
