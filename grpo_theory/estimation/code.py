"""What a function consists of: a checksum of all that it reaches, whether it draws, and itself as plain Python throughout."""

import hashlib
import random
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

_LIBRARIES = frozenset({"numba", "llvmlite", "numpy", "scipy", *sys.stdlib_module_names})
"""Their functions are not entered: they are told by their names."""


def plain(value: Any) -> Any:
    """Return the Python function of what is compiled, and anything else as it is."""
    return getattr(value, "py_func", value)


def names_in(code: CodeType) -> set[str]:
    """Return the names that code uses, that of functions inside it included."""
    codes, names = [code], set[str]()
    for one in codes:  # the list grows while it is read
        names.update(one.co_names)
        codes += [constant for constant in one.co_consts if isinstance(constant, CodeType)]
    return names


def named_by(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield what a function's code names of its globals, and of the modules among them, what it encloses, and its defaults."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield name, cell.cell_contents
        except ValueError:  # nothing has been put into it so far
            continue
    yield from ((f"default {i}", value) for i, value in enumerate(function.__defaults__ or ()))
    yield from (function.__kwdefaults__ or {}).items()
    names, spaces = names_in(function.__code__), [function.__globals__]
    for space in spaces:  # and so does this one
        for name in sorted(names & space.keys()):
            if not isinstance(space[name], ModuleType):
                yield name, space[name]
            elif not any(vars(space[name]) is known for known in spaces):
                spaces.append(vars(space[name]))


def reached(function: Callable) -> tuple[list[FunctionType], list[tuple[str, Any]]]:
    """Return the functions of which a function consists, near and far, and the constants that they name, of no library."""
    functions, constants, waiting = list[FunctionType](), list[tuple[str, Any]](), [plain(function)]
    for called in waiting:  # the list grows while it is read
        if any(called is one for one in functions):
            continue
        functions.append(called)
        for name, value in named_by(called):
            inner = [plain(one) for one in (value if isinstance(value, tuple | list) else [value])]
            own = [one for one in inner if isinstance(one, FunctionType) and one.__module__.partition(".")[0] not in _LIBRARIES]
            waiting += own
            if not own:
                constants.append((name, value))
    return functions, constants


def form_of(value: Any) -> str:
    """Return a constant as text that is another whenever the value is, and the same in every process."""
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return f"{value.dtype}{value.shape}{hashlib.sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, Mapping):
        return str(sorted((form_of(key), form_of(one)) for key, one in value.items()))
    if isinstance(value, tuple | list | set | frozenset):
        inside = [form_of(one) for one in value]
        return f"{type(value).__name__}({sorted(inside) if isinstance(value, set | frozenset) else inside})"
    if isinstance(value, CodeType):
        names = value.co_names, value.co_freevars, value.co_varnames
        return f"{value.co_code!r}{value.co_exceptiontable!r}{names!r}{[form_of(one) for one in value.co_consts]}"
    if isinstance(value, type) or callable(value):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}{getattr(value, '_fields', '')}"
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def code_checksum(function: Callable) -> str:
    """Return a checksum of a function as it is in memory, with all that it reaches, whatever its file says by now.

    It is of byte code, and so it is another with another version of Python.
    """
    functions, constants = reached(function)
    codes = []
    for one in functions:  # what is said about it is no part of it
        constants_of = (None if one.__doc__ is not None and value == one.__doc__ else value for value in one.__code__.co_consts)
        codes.append(form_of(one.__code__.replace(co_consts=tuple(constants_of))))
    told = sorted({(name, form_of(value)) for name, value in constants})
    return hashlib.sha256(repr((codes[0], sorted(codes[1:]), told)).encode()).hexdigest()


def drawing(function: Callable) -> str | None:
    """Return by which function a function draws random numbers, near or far, or None."""
    for name, value in reached(function)[1]:
        owner = getattr(value, "__self__", None)
        if isinstance(owner, np.random.RandomState | random.Random):
            return f"{'np.random' if isinstance(owner, np.random.RandomState) else 'random'}.{name}"
    return None


@cache
def plain_python(function: Callable) -> Callable:
    """Return a function as plain Python throughout: what it calls that is compiled is plain in it too."""
    own = plain(function)
    if not isinstance(own, FunctionType):
        return own
    space = dict(own.__globals__)
    compiled = (name for name in names_in(own.__code__) & space.keys() if hasattr(space[name], "py_func"))
    space |= {name: plain_python(space[name]) for name in compiled}
    made = FunctionType(own.__code__, space, own.__name__, own.__defaults__, own.__closure__)
    made.__kwdefaults__ = own.__kwdefaults__
    return made
