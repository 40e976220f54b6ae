"""What the parts of a composition have in common: a function with facts, looked up by name and sent to other processes."""

import inspect
import operator
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from grpo_theory.compiler import FunctionValue, code_checksum
from grpo_theory.estimation.source import SourceFile
from grpo_theory.validation import check_name


class Part:
    """A dataclass with a function among its fields.

    A part is pickled with the file in which the function is defined, so that it reaches processes that have not imported it.
    """

    __dataclass_fields__: ClassVar[dict]
    function: Callable

    def is_same(self, other: "Part") -> bool:
        """Whether both are one part, though perhaps of a file that has been run again: see `is_same_function`."""
        facts = [{field.name: getattr(one, field.name) for field in fields(one)} for one in (self, other)]
        functions = [one.pop("function") for one in facts]
        return type(self) is type(other) and facts[0] == facts[1] and is_same_function(*functions)

    def __reduce__(self) -> tuple[Callable, tuple]:
        """Return how the part is made again of its function's file, the function's name in it, and the other fields."""
        facts = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "function"}
        facts = {name: dict(fact) if isinstance(fact, Mapping) else fact for name, fact in facts.items()}
        return _restore, (type(self), source_of(self.function), self.function.__qualname__, facts, _seal(self.function))


Kind = TypeVar("Kind", bound=Part)


@cache
def value_of(function: Callable, signature: Any) -> FunctionValue:
    """Return a part's function as a value for drivers; there is one for each function."""
    return FunctionValue(function, signature)


def find_part(argument: str, value: Any, named: Mapping[str, Kind], kind: type[Kind]) -> Kind:
    """Look up a part of a composition by its name; a part is returned as it is.

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
    """Whether two functions are the same: equal code, with all that it reaches, or the same place in a file that was run again.

    Two functions made by one run of a file share their code. They are the same only if the values that they enclose and name are
    the same, too.
    """
    origins = [(function.__module__, function.__qualname__) for function in (one, other)]
    again = origins[0] == origins[1] and one.__code__ is not other.__code__
    return one is other or again or code_checksum(one) == code_checksum(other)


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
    return SourceFile.of_module(Path(path), function.__module__)


def _seal(function: Callable) -> tuple[str | None, str]:
    """Return what tells a function of another process from this one: its checksum, and the Python whose byte code that is of."""
    return sys.implementation.cache_tag, code_checksum(function)


def _restore(
    kind: Callable[..., Kind], source: SourceFile, qualname: str, facts: dict[str, Any], seal: tuple[str | None, str]
) -> Kind:
    """Return the part of a pickle: its file is run if need be, and the function found in it by name.

    Raises
    ------
    ValueError
        If the function is not the one that was sent, because its file, or one that this imports, was edited in between.
    """
    module = source.load() if source.module != "__main__" else sys.modules["__main__"]
    named = operator.attrgetter(qualname)(module)
    function = named if inspect.isfunction(named) else named.advantage.function
    own = _seal(function)
    if own[0] == seal[0] and own != seal:
        raise ValueError(
            f"the function {qualname!r} of {source.path} must be the same in the process that sends it and the one that gets it. "
            "But its code, or a number that it uses, differs. Its file, or one that it imports, was edited after one of the two "
            "had imported it: start both anew"
        )
    return kind(function=function, **facts)
