"""Stages compiled by themselves, as the drivers that they are a part of do not need them."""

from functools import cache

import numba

from grpo_theory.compilation import OPTIONS


@cache
def compiled(stage):
    """Return a stage as a function that Python can call."""
    return numba.njit(**OPTIONS)(stage.py_func)
