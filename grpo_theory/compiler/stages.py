"""Functions that are compiled as parts of whatever compiled function calls them.

Of numba this subclasses `numba.core.registry.CPUDispatcher` and uses the options `forceinline`, `no_cpython_wrapper` and
`_nrt` of `njit`.
"""

from collections.abc import Callable
from typing import Any

from numba.core.registry import CPUDispatcher

from grpo_theory.compiler.options import NO_ARRAYS, OPTIONS, WITHOUT_COMPILER


class Stage(CPUDispatcher):
    """A function that is compiled as a part of whatever compiled function calls it, without a wrapper for Python.

    To compile the wrapper, which unpacks Python objects, often takes longer than to compile the function.
    """

    def __call__(self, *arguments: Any) -> Any:
        """Run as plain Python, because there is nothing compiled that Python could call."""
        return self.py_func(*arguments)


def stage(function: Callable) -> Any:
    """Mark a function as one stage of a driver: it is compiled as a part of whatever calls it, and makes no arrays.

    LLVM puts its code in the place of every call (`forceinline`). By itself, LLVM leaves some calls in a training step. Each of
    these passes its vectors of lanes through memory, and a step then takes a tenth longer (numba 0.68).
    """
    return _as_stage(function, forceinline=True, **NO_ARRAYS)


def allocating_stage(function: Callable) -> Any:
    """Mark a stage that makes arrays of its own; it must not be called at every turn of a hot loop."""
    return _as_stage(function)


def _as_stage(function: Callable, **more: Any) -> Any:
    if WITHOUT_COMPILER:
        return function
    # `njit` makes dispatchers of numba's own class, so the one of ours is made as `njit` would: that adds the option `nopython`.
    return Stage(function, targetoptions=OPTIONS | {"nopython": True, "no_cpython_wrapper": True} | more)
