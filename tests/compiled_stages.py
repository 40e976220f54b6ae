"""Stages compiled by themselves, as the drivers that they are a part of do not need them, and the types of what drivers take."""

from functools import cache

import numba
from numba import typeof

from grpo_theory.compiler import OPTIONS, FunctionValue


@cache
def compiled(stage):
    """Return a stage, or a function value, as a compiled function that Python can call."""
    return stage.dispatcher if isinstance(stage, FunctionValue) else numba.njit(**OPTIONS)(stage.py_func)


def check_types(value, declared):
    """Compare a record's class and its fields, and those of the records in it, with what is declared."""
    assert type(value) is getattr(declared, "instance_class", tuple)
    for number, (field, expected) in enumerate(zip(value, declared.types, strict=True)):
        if isinstance(field, tuple):
            check_types(field, expected)
        else:
            assert typeof(field) == expected, (type(value).__name__, number)
