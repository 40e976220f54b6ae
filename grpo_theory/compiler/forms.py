"""Values as text, by which a constant of a compiled function is told from another in every process.

Of numba this uses only that its types have a `repr` that names them.
"""

import enum
import hashlib
import re
from collections.abc import Mapping
from types import CodeType
from typing import Any

import numpy as np
from numba import types

_DEEPEST = 16
"""Values that are nested more deeply than this may contain themselves, as a list can."""
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


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
