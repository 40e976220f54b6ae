"""Compiled functions: how every one of the package's is made, and called.

Of numba this uses `njit` with its options; of `numba.core.dispatcher.Dispatcher` `compile`, `disable_compile`, `overloads`,
`py_func` and `_cache._cache_file`; and the `entry_point` of what was compiled.
"""

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, ClassVar

import numba
import numpy as np
from numba.core.dispatcher import Dispatcher

from grpo_theory.compiler.cache import SoundCacheFile, layouts, source_stamp, stamp_own_cache
from grpo_theory.compiler.dependencies import code_dependencies
from grpo_theory.compiler.economy import compiling_cheaply, uncached_silently
from grpo_theory.compiler.interrupts import interrupts_deferred
from grpo_theory.compiler.options import NO_ARRAYS, OPTIONS, WITHOUT_COMPILER


def compile_function(function: Callable, *signatures: Any, **more: Any) -> Any:
    """Compile with the package's options, and more; cached on disk where the function has a file that allows it."""
    if WITHOUT_COMPILER:
        return _as_compiled(function)
    if isinstance(function, Dispatcher):
        function = function.py_func
    options = OPTIONS | more
    try:
        dispatcher = numba.njit(function, cache=True, **options)
        found = code_dependencies(function)
        SoundCacheFile.adopt(dispatcher._cache._cache_file, (*source_stamp(found), *layouts(signatures)))
        for one in found.compiled:
            stamp_own_cache(one)
    except RuntimeError:
        # numba finds no folder for the machine code of a function that was typed at a prompt, or of a read-only installation
        # whose user has no cache folder. Then the function is compiled in every process.
        dispatcher = numba.njit(function, **options)
    for signature in signatures:
        with interrupts_deferred(), compiling_cheaply(), uncached_silently():
            dispatcher.compile(signature)
    # A call with arguments of other types is an error. numba would compile the function for them, silently and for seconds.
    dispatcher.disable_compile()
    return dispatcher


def _as_compiled(function: Callable) -> Callable:
    """Return what runs as plain Python in place of compiled code."""
    # The random generators multiply words of 64 bits that run over on purpose; numpy warns of that, and compiled code does not.
    return np.errstate(over="ignore")(function)


def compile_driver(function: Callable, signature: Any, **more: Any) -> Any:
    """Compile a function of one signature, and return its machine code as Python calls it, with the plain function as `py_func`.

    numba's dispatch would look at every argument first, to choose among machine codes, although there is only one here. That
    takes several microseconds: four fifths of a short call. This driver instead takes arguments for what the signature says. An
    array of another type would be read as if it were of the signature's. Only the library may therefore call a driver, with
    arrays of its own.
    """
    if WITHOUT_COMPILER:
        return _as_compiled(function)
    dispatcher = compile_function(function, signature, **more)
    # A partial of no arguments costs nothing at a call, and has attributes, which a built-in function cannot have.
    driver = partial(dispatcher.overloads[signature.args].entry_point)
    vars(driver).update(py_func=dispatcher.py_func, dispatcher=dispatcher)
    return driver


class Driver:
    """A function of one signature that Python calls as bare machine code, see `compile_driver`; it makes no arrays of its own.

    Attributes
    ----------
    function : callable
        The function as plain Python, the twin that the tests run.
    signature : numba signature
    """

    options: ClassVar[dict[str, Any]] = NO_ARRAYS

    def __init__(self, function: Callable, signature: Any) -> None:
        self.function = function
        self.signature = signature
        self.__doc__ = function.__doc__

    @cached_property
    def run(self) -> Any:
        """The machine code, compiled or read from the cache when it is first asked for."""
        return compile_driver(self.function, self.signature, **self.options)

    def compile(self) -> None:
        """Compile it now, as before the first thread starts."""
        _ = self.run

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.function.__qualname__})"


class AllocatingDriver(Driver):
    """A driver that makes arrays of its own, as one does that calls a user's kernel."""

    options: ClassVar[dict[str, Any]] = {}


def driver(signature: Any) -> Callable[[Callable], Driver]:
    """Make a function a `Driver` with this signature."""
    return lambda function: Driver(function, signature)


def allocating_driver(signature: Any) -> Callable[[Callable], Driver]:
    """Make a function an `AllocatingDriver` with this signature."""
    return lambda function: AllocatingDriver(function, signature)
