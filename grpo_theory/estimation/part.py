"""What the parts of a composition have in common: a function on tokens side by side, and how they are looked up by name."""

import difflib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

from grpo_theory.compilation import FunctionValue

Part = TypeVar("Part")


@cache
def value_of(function: Callable, signature: Any) -> FunctionValue:
    """Return a part's function as a value for drivers; there is one for each function."""
    return FunctionValue(function, signature)


def find_part(kind: str, value: Any, named: Mapping[str, Part], part: type[Part]) -> Part:
    """Return the part of that name; a part is returned as it is.

    Raises
    ------
    ValueError
        If there is none of that name; the message suggests the nearest.
    TypeError
        If it is neither a name nor a part.
    """
    if isinstance(value, part):
        return value
    if not isinstance(value, str):
        raise TypeError(f"{kind} must be a name or an instance of {part.__name__}, got {value!r}")
    if value not in named:
        near = difflib.get_close_matches(value, named, n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{kind} must be one of {', '.join(named)}, got {value!r}{hint}")
    return named[value]
