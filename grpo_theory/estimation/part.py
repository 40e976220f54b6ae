"""What the parts of a composition have in common: a function with facts, looked up by name and sent to other processes."""

import inspect
import operator
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from grpo_theory.estimation.source import SourceFile
from grpo_theory.first_class import FunctionValue
from grpo_theory.validation import check_name


class Part:
    """A dataclass with a function among its fields.

    A part is pickled with the file in which the function is defined, so that it reaches processes that have not imported it.
    """

    __dataclass_fields__: ClassVar[dict]
    function: Callable

    def is_same(self, other: "Part") -> bool:
        """Whether both are one part, though perhaps of a file that has been run again: functions count by place or by code."""
        facts = [{field.name: getattr(one, field.name) for field in fields(one)} for one in (self, other)]
        functions = [one.pop("function") for one in facts]
        return type(self) is type(other) and facts[0] == facts[1] and is_same_function(*functions)

    def __reduce__(self) -> tuple[Callable, tuple]:
        """Return how the part is made again of its function's file, the function's name in it, and the other fields."""
        facts = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "function"}
        facts = {name: dict(fact) if isinstance(fact, Mapping) else fact for name, fact in facts.items()}
        return _restore, (type(self), source_of(self.function), self.function.__qualname__, facts)


Kind = TypeVar("Kind", bound=Part)


@cache
def value_of(function: Callable, signature: Any) -> FunctionValue:
    """Return a part's function as a value for drivers; there is one for each function."""
    return FunctionValue(function, signature)


def find_part(argument: str, value: Any, named: Mapping[str, Kind], kind: type[Kind]) -> Kind:
    """Return the part of that name; a part is returned as it is.

    Raises
    ------
    ValueError
        If there is none of that name; the message suggests the nearest.
    TypeError
        If it is neither a name nor a part.
    """
    if isinstance(value, kind):
        return value
    if not isinstance(value, str):
        raise TypeError(f"{argument} must be a name or an instance of {kind.__name__}, got {value!r}")
    check_name(argument, value, named)
    return named[value]


def is_same_function(one: Callable, other: Callable) -> bool:
    """Whether both are one function: the same place in a module, or the same code."""
    origins = [(function.__module__, function.__qualname__) for function in (one, other)]
    codes = [(function.__code__.co_code, function.__code__.co_consts) for function in (one, other)]
    return origins[0] == origins[1] or codes[0] == codes[1]


def source_of(function: Callable) -> SourceFile:
    """Return the file in which a function is defined.

    Raises
    ------
    TypeError
        If there is none, as for a function typed at a prompt, or the function has no name at the top level of it.
    """
    path = inspect.getsourcefile(function)
    if path is None or not Path(path).is_file() or "<" in function.__qualname__:
        raise TypeError(
            f"the function {function.__qualname__!r} must be defined at the top level of a file to be sent to another process"
        )
    return SourceFile.read(Path(path), function.__module__)


def _restore(kind: Callable[..., Kind], source: SourceFile, qualname: str, facts: dict[str, Any]) -> Kind:
    """Return the part of a pickle: its file is run if need be, and the function found in it by name."""
    module = source.load() if source.module != "__main__" else sys.modules["__main__"]
    found = operator.attrgetter(qualname)(module)
    return kind(function=found if inspect.isfunction(found) else found.advantage.function, **facts)
