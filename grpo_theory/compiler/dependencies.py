"""Everything that a compiled function reaches: functions, near and far, and the constants that they name or enclose.

Machine code on disk, results on disk and a function in another process are old where any of it is another.

Of numba this asks `numba.core.registry.cpu_target` for the templates of a function (`typing_context._lookup_global`), and reads
their `_overload_func`.
"""

import hashlib
import random
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np
from numba.core.registry import cpu_target

from grpo_theory.compiler.forms import form_of

_LIBRARIES = frozenset({"numba", "llvmlite", "numpy", "scipy", *sys.stdlib_module_names})
"""Their functions are not entered: their versions are facts of the machine code, and of a chunk."""


class CodeDependencies(NamedTuple):
    """What a compiled function consists of.

    Attributes
    ----------
    functions : list of callable
        The function, and the functions that it calls, near and far, as plain Python. They include those that are compiled in any
        of numba's ways, and those by which something else is compiled (`overload`).
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


def code_dependencies(function: Callable) -> CodeDependencies:
    """Return what a compiled function consists of, near and far."""
    cpu_target.typing_context.refresh()  # what users overload is registered at the next compilation, and would be missed before
    constants: set[tuple[str, str]] = set()
    waiting, found = [function], CodeDependencies([], [], [], [])
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
                module = "np.random" if isinstance(value.__self__, np.random.RandomState) else "random"
                found.draws.append(f"{module}.{name}")
            if not functions or isinstance(value, tuple | list):
                constants.add((name, form_of(value)))
            elif not isinstance(value, FunctionType):
                found.compiled.append(value)
    return found._replace(constants=sorted(constants))


def code_checksum(function: Callable) -> str:
    """Return a checksum of a function as it is in memory, with all that it reaches, whatever its file says by now.

    It is of byte code, and so it is another with another version of Python.
    """
    found = code_dependencies(function)
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
    # `register_jitable` overloads a function by an `ov_wrap` that returns it (numba 0.61 to 0.68): the wrapper names nothing.
    made = getattr(template, "_overload_func", None)
    if isinstance(made, FunctionType):
        handed_on = [value for _, value in _enclosed(made)] if made.__name__ == "ov_wrap" else []
        yield from (one for one in (made, *handed_on) if isinstance(one, FunctionType) and _is_entered(one))
