"""Stages compiled by themselves, as the drivers that they are a part of do not need them."""

from functools import cache

import numba

from grpo_theory.compiler import OPTIONS, FunctionValue


@cache
def compiled(stage):
    """Return a stage, or a function value, as a compiled function that Python can call."""
    return stage.dispatcher if isinstance(stage, FunctionValue) else numba.njit(**OPTIONS)(stage.py_func)
