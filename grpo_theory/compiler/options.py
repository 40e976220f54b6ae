"""The options with which everything is compiled, and what numba's environment variables and the processor decide.

Of numba this reads `numba.config` (DISABLE_JIT, BOUNDSCHECK) and, from `numba.core.registry.cpu_target`, what the processor
can do.
"""

from typing import Any

import numba
from numba.core.registry import cpu_target

from grpo_theory.compiler.interrupts import interrupts_deferred

# numba registers the types and functions that it knows when the first function is compiled or loaded from the cache. That takes
# 0.14 s, where a first call of a simulator with a full cache takes 0.04 s. It is done here, so that the wait is part of the
# import. In all it then takes 0.05 s more, because what our own files register comes later.
with interrupts_deferred():
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()

# The tuple by which numba's caches tell machines apart: the triple, the processor's name, and what it can do.
PROCESSOR = frozenset(cpu_target.target_context.codegen().magic_tuple()[2].split(","))
"""What the processor that is compiled for can do, in LLVM's names, such as "+avx512f"."""

# `vars` because numba.config sets its names at run time, which type checkers do not see.
WITHOUT_COMPILER = bool(vars(numba.config)["DISABLE_JIT"])
"""NUMBA_DISABLE_JIT=1: everything runs as plain Python. This is slow, and is what one wants for debugging a kernel."""

CHECKS_BOUNDS = bool(vars(numba.config)["BOUNDSCHECK"])
"""NUMBA_BOUNDSCHECK=1: compiled code raises where an index is out of bounds."""

OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True, "no_cfunc_wrapper": True}
"""Options of all compiled functions. Division by zero gives inf or nan, as in numpy, and threads run at the same time. No second
entry point for C is made, because nobody would call it."""

NO_ARRAYS: dict[str, Any] = {"_nrt": False}
"""A further option for functions that allocate no arrays.

numba counts the references to an array at every view of it (`rows = table[i]`). In a loop over vectors of lanes that takes as
long as the arithmetic. Without the run time (NRT) that counts, a function cannot allocate, and a view costs nothing."""
