"""The array types that signatures name, and arrays that nobody can write."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cached_property, wraps
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
Number = Any
"""A float, or an array of floats where many are asked for at once."""


Value = TypeVar("Value")


def read_only(value: Value) -> Value:
    """Return an array that is ours, with what it is a view of, or a record or tuple of such arrays, closed to writing."""
    if isinstance(value, np.ndarray):
        value.setflags(write=False)
        read_only(value.base)
    elif isinstance(value, tuple):
        for one in value:
            read_only(one)
    elif is_dataclass(value):
        for one in fields(value):
            read_only(getattr(value, one.name))
    return value


def kept(array: np.ndarray) -> np.ndarray:
    """Return an array as a record keeps it, closed to writing: a copy, unless nobody can write it as it is."""
    open_to_writing = array.flags.writeable or (array.base is not None and getattr(array.base, "flags", array.flags).writeable)
    return read_only(array.copy() if open_to_writing else array)


class cached_array(cached_property[Value]):  # noqa: N801  # a decorator, named as its parent
    """A cached property that is an array or a record of arrays: closed to writing, because others read it after."""

    def __init__(self, function: Callable[[Any], Value]) -> None:
        super().__init__(wraps(function)(lambda instance: read_only(function(instance))))
