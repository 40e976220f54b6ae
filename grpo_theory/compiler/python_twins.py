"""Compiled functions as plain Python, which checks every index and says where it fails.

Of numba this uses `numba.core.dispatcher.Dispatcher` and its `py_func`.
"""

from collections.abc import Callable, Mapping
from functools import cache
from types import CellType, FunctionType, ModuleType
from typing import Any

from numba.core.dispatcher import Dispatcher

from grpo_theory.compiler.dependencies import names_in


@cache
def plain_python(function: Callable) -> Callable:
    """Return a function as plain Python throughout: what it calls that is compiled is plain in it too, wherever it is named."""
    if isinstance(function, Dispatcher):
        return plain_python(function.py_func)
    if not isinstance(function, FunctionType):
        return function
    names = names_in(function.__code__)
    own = {**function.__globals__, **_plain_among(names, function.__globals__)}
    cells = tuple(map(_plain_cell, function.__closure__ or ()))
    made = FunctionType(function.__code__, own, function.__name__, function.__defaults__, cells or None)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _plain_among(names: set[str], space: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of these names in a module's space is compiled, or a module that names such, as plain Python."""
    found: dict[str, Any] = {}
    for name in names & space.keys():
        value = space[name]
        if isinstance(value, Dispatcher):
            found[name] = plain_python(value)
        elif isinstance(value, ModuleType) and (inner := _plain_among(names - {name}, vars(value))):
            found[name] = ModuleType(value.__name__)
            vars(found[name]).update(vars(value) | inner)
    return found


def _plain_cell(cell: CellType) -> CellType:
    """Return the cell of a closure, or one of a plain function in its place."""
    try:
        value = cell.cell_contents
    except ValueError:  # nothing has been put into it so far
        return cell
    return CellType(plain_python(value)) if isinstance(value, Dispatcher) else cell
