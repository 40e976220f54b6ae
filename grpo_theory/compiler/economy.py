"""What compiling costs: LLVM's level, the unrolling of loops, and Python's garbage collection while it works.

Of numba this sets `numba.config.OPT` and replaces `numba.core.codegen.create_pass_builder` (numba 0.62 and later), both only
while one of our functions is compiled. It holds `numba.core.compiler_lock.global_compiler_lock`, and silences a `NumbaWarning`.
Of llvmlite it uses `binding.create_pipeline_tuning_options` and `binding.create_pass_builder`.
"""

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import llvmlite.binding as llvm  # type: ignore[import-untyped]
import numba
from numba.core import codegen
from numba.core.compiler_lock import global_compiler_lock
from numba.core.errors import NumbaWarning

LEVEL = 1
"""The most that LLVM optimises what we compile.

Code over lanes consists of vectors as it is written. So LLVM's higher levels, which would find vectors in loops over numbers,
take half as long again and find nothing more."""


def pass_builder(machine: Any, opt: int, loop_vectorize: bool = False, slp_vectorize: bool = False, **more: Any) -> Any:
    """Stand in for numba's function of this signature, and switch off the unrolling of loops.

    Our loops turn a few times, over the groups of a batch or the responses of a prompt. Unrolled, such a loop has one body for
    eight turns at once and another for the rest. Only the second body runs, and a step then takes a tenth more time.

    Options that a later numba passes (`more`) are left as LLVM has them, which changes no result.
    """
    options = llvm.create_pipeline_tuning_options(opt)
    options.loop_vectorization, options.slp_vectorization, options.loop_unrolling = loop_vectorize, slp_vectorize, False
    return llvm.create_pass_builder(machine, options)


@contextmanager
def compiling_cheaply() -> Iterator[None]:
    """Compile without what costs time and gains nothing, and leave everything as it was found.

    numba takes the level and the unrolling from names of its own modules, for all that the process compiles. We set those names
    while we hold the lock that numba itself holds while it compiles. So nobody else's function is compiled with our options, and
    two threads cannot each restore what the other has set. The names are restored after an exception or an interrupt, too.
    """
    with global_compiler_lock:
        config, names, collects = vars(numba.config), vars(codegen), gc.isenabled()
        level, numbas = config["OPT"], names.get("create_pass_builder")
        try:
            # NUMBA_OPT may be below our level, for faster compilation or for debugging, and then stays. `type(level)` because
            # numba's value is an int of a class of its own, which also tells its reading of the environment from a user's number.
            config["OPT"] = type(level)(min(level, LEVEL))
            if numbas is not None:  # numba before 0.62 has no such name, and unrolls
                names["create_pass_builder"] = pass_builder
            # The compiler makes millions of small objects, hardly any of which are garbage; the collector would go through all
            # of them again and again.
            gc.disable()
            yield
        finally:
            config["OPT"] = level
            if numbas is not None:
                names["create_pass_builder"] = numbas
            if collects:
                gc.enable()


@contextmanager
def uncached_silently() -> Iterator[None]:
    """Compile what cannot be kept on disk without numba's warning.

    That is everything with NUMBA_OPT=0, and a kernel that names a large array. Both work, and are compiled in every process.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Cannot cache compiled function", NumbaWarning)
        yield
