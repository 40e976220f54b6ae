"""Everything that a compiled function reaches: functions, near and far, and the constants that they name or enclose.

Machine code on disk, results on disk and a function in another process are old where any of it is another.
"""

import enum
import hashlib
import random
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.core.registry import cpu_target

_LIBRARIES = frozenset({"numba", "llvmlite", "numpy", "scipy", *sys.stdlib_module_names})
"""Their functions are not entered: their versions are facts of the machine code, and of a chunk."""
_DEEPEST = 16
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class Reliances(NamedTuple):
    """What a compiled function consists of.

    Attributes
    ----------
    functions : list of callable
        The function, and the functions that it calls, near and far, as plain Python: those that are compiled in any of numba's
        ways, and those by which something else is compiled (`overload`).
    constants : list of (name, value)
        What they name or enclose besides, wherever from, as text, in alphabetical order.
    compiled : list
        The objects of numba among what they name.
    draws : list of str
        The functions among those that draw random numbers.
    """

    functions: list[Callable]
    constants: list[tuple[str, str]]
    compiled: list[Any]
    draws: list[str]


def reliances(function: Callable) -> Reliances:
    """Return what a compiled function consists of, near and far."""
    cpu_target.typing_context.refresh()
    constants: set[tuple[str, str]] = set()
    waiting, found = [function], Reliances([], [], [], [])
    known: set[int] = set()
    while waiting:
        called = waiting.pop()
        if id(called) in known:
            continue
        known.add(id(called))
        found.functions.append(called)
        for name, value in _named(called):
            functions = list(_functions_behind(value))
            waiting += functions
            if isinstance(getattr(value, "__self__", None), np.random.RandomState | random.Random):
                found.draws.append(f"{_module_of_draws(value)}.{name}")
            if not functions or isinstance(value, tuple | list):
                constants.add((name, form_of(value)))
            elif not isinstance(value, FunctionType):
                found.compiled.append(value)
    return found._replace(constants=sorted(constants))


def _module_of_draws(function: Any) -> str:
    return "np.random" if isinstance(function.__self__, np.random.RandomState) else "random"


def code_checksum(function: Callable) -> str:
    """Return a checksum of a function as it is in memory, with all that it reaches, whatever its file says by now.

    It is of byte code, and so it is another with another version of Python.
    """
    found = reliances(function)
    forms = [form_of(one.__code__, one.__doc__) for one in found.functions]
    return hashlib.sha256(repr((forms[0], sorted(forms[1:]), found.constants)).encode()).hexdigest()


def names_in(code: CodeType) -> set[str]:
    """Return the names that code uses, that of functions inside it included."""
    codes, names = [code], set[str]()
    for one in codes:  # the list grows while it is read
        names.update(one.co_names)
        codes += [constant for constant in one.co_consts if isinstance(constant, CodeType)]
    return names


def _named(function: Callable) -> Iterator[tuple[str, Any]]:
    """Yield what a function's code names of its globals, and of the modules among them, what it encloses, and its defaults."""
    names = names_in(function.__code__)
    yield from _enclosed(function)
    yield from ((f"default {i}", value) for i, value in enumerate(function.__defaults__ or ()))
    yield from (function.__kwdefaults__ or {}).items()
    spaces = [function.__globals__]
    for space in spaces:  # and so does this one
        for name in sorted(names & space.keys()):
            value = space[name]
            if not isinstance(value, ModuleType):
                yield name, value
            elif not any(vars(value) is known for known in spaces):
                spaces.append(vars(value))


def _enclosed(function: Callable) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield name, cell.cell_contents
        except ValueError:  # nothing has been put into it so far
            continue


def _functions_behind(value: Any) -> Iterator[Callable]:
    """Yield the functions of which compiled code for a value consists: of what numba has compiled, that which it wraps."""
    if isinstance(value, tuple | list):
        for one in value:
            yield from _functions_behind(one)
    elif callable(value) and not isinstance(value, type):
        inner = value if isinstance(value, FunctionType) else getattr(value, "__wrapped__", None)
        if isinstance(inner, FunctionType) and _is_entered(inner):
            yield inner
        overloaded = cpu_target.typing_context._lookup_global(value)
        for template in getattr(overloaded, "templates", ()):
            yield from _by_user(template)


def _is_entered(function: Callable) -> bool:
    return str(function.__module__).partition(".")[0] not in _LIBRARIES


def _by_user(template: Any) -> Iterator[Callable]:
    """Yield the function of a template that is not numba's own, or the function that it hands on, of `register_jitable`."""
    made = getattr(template, "_overload_func", None)
    if isinstance(made, FunctionType):
        handed_on = [value for _, value in _enclosed(made)] if made.__name__ == "ov_wrap" else []
        yield from (one for one in (made, *handed_on) if isinstance(one, FunctionType) and _is_entered(one))


def form_of(value: Any, docstring: str | None = None, depth: int = 0) -> str:
    """Return a value as text that is another whenever the value is, and the same in every process.

    Of what numba takes for no constant the class is told, and no more.
    """

    def inside(values: Any) -> str:
        return ", ".join(form_of(one, docstring, depth + 1) for one in values)

    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if depth > _DEEPEST:
        return f"{kind} {getattr(value, '__module__', '')}.{getattr(value, '__name__', '')}"
    match value:
        case enum.Enum():
            return f"{kind}.{value.name}({inside([value.value])})"
        case np.ndarray() if value.dtype.hasobject:
            return f"{kind}{value.shape}({inside(value.ravel().tolist())})"
        case np.ndarray() | np.generic():
            return f"{kind}{value.dtype.descr}{value.shape}{hashlib.sha256(value.tobytes()).hexdigest()}"
        case None | bool() | int() | float() | complex() | str() | bytes() | np.dtype() | types.Type():
            return f"{kind}({_ADDRESS.sub('', repr(value))})"
        case tuple() | list():
            return f"{kind}({inside(value)})"
        case set() | frozenset():
            return f"{kind}({sorted(form_of(one, docstring, depth + 1) for one in value)})"
        case Mapping():
            return f"{kind}({sorted((form_of(key), form_of(one, docstring, depth + 1)) for key, one in value.items())})"
        case CodeType():
            constants = [one for one in value.co_consts if one is None or one != docstring]
            parts = value.co_code, value.co_exceptiontable, value.co_names, value.co_freevars, value.co_varnames
            return f"code({parts!r}, {inside(constants)})"
        case type():
            members = list(value) if issubclass(value, enum.Enum) else getattr(value, "_fields", ())
            return f"{value.__module__}.{value.__qualname__}({inside(members)})"
    return f"{kind} {getattr(value, '__module__', '')}.{getattr(value, '__name__', '')}"
