"""How the package compiles: decorators that own the options of numba's njit, and the folder in which machine code is kept.

Numba keeps machine code beside a function's file, and does not see that a file which this one imports was edited.  So the code is
kept in a folder named by all sources that kernels are in or may import, and what is older is deleted.
"""

import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ABOVE = "evidence harness laboratory intervals plan checks live logs page plot language_model"
"""Rooms that no kernel imports: pages and plans are edited without compiling anew."""


def cache_folder(package: Path, chosen: str | None) -> Path:
    """Return the folder for machine code of these sources, in the package's cache or one that the user has chosen.

    A copy of the package that a process of this one runs has the same folder, in which Numba tells files apart by their paths.
    """
    sources = [path for path in sorted(package.rglob("*.py")) if path.relative_to(package).parts[0] not in ABOVE.split()]
    told = "\n".join(f"{path.relative_to(package)} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in sources)
    parent = Path(chosen) if chosen else package / "__pycache__"
    if parent.name.startswith("kernels-"):  # of a process that started this one
        parent = parent.parent
    folder = parent / f"kernels-{hashlib.sha256(told.encode()).hexdigest()[:16]}"
    for old in parent.glob("kernels-*"):
        if old != folder:
            shutil.rmtree(old, ignore_errors=True)
    return folder


if "numba" not in sys.modules:  # which reads this once
    os.environ["NUMBA_CACHE_DIR"] = str(cache_folder(Path(__file__).parent, os.environ.get("NUMBA_CACHE_DIR")))

import numpy as np  # noqa: E402
from numba import cfunc, njit  # noqa: E402
from numba import types as types  # noqa: E402

PLAIN = os.environ.get("NUMBA_DISABLE_JIT", "0") != "0"
if PLAIN:
    np.seterr(over="ignore")  # random words are sums modulo 2^64, of which plain Python warns

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
kernel = njit(cache=True, fastmath={"contract", "nsz"}, **_OPTIONS)
"""Divisions by zero give infinities, threads run side by side, and products may be fused; sums keep their order."""
inlined = njit(cache=True, fastmath={"contract", "nsz"}, inline="always", **_OPTIONS)
"""The same, written into the kernels that call it.

A kernel that calls another counts references to each array that it holds, two atomic operations a time, because the other might
raise an error. So what is called at each step of a simulation calls nothing.
"""
summing_kernel = njit(cache=True, fastmath={"contract", "nsz", "reassoc"}, **_OPTIONS)
"""The same, but sums may be made in any order, which is what vectors of one long sum need."""


@lru_cache
def compiled(function: Callable, signature: Any = None, **options: Any) -> Any:
    """Return a user's function compiled, for a signature or for what comes; one without a file is not kept on disk."""
    make: Any = njit if signature is None else partial(njit, signature)
    if hasattr(function, "py_func"):
        return function
    try:
        return make(cache=True, **_OPTIONS, **options)(function)
    except RuntimeError:  # a function typed at a prompt has no file beside which anything could be kept
        return make(**_OPTIONS, **options)(function)


@lru_cache
def pointed(function: Callable, *arguments: Any) -> Any:
    """Return a user's function for arguments of these types, as kernels take one; where nothing is compiled, as it is.

    Kernels that take it are not compiled anew: Numba's wrapper address protocol.
    """
    own, signature = getattr(function, "py_func", function), types.void(*arguments)
    if PLAIN:
        return own
    try:
        code = cfunc(signature, cache=True, **_OPTIONS)(own)
    except RuntimeError:  # as for `compiled`
        code = cfunc(signature, **_OPTIONS)(own)
    return SimpleNamespace(_numba_type_=types.FunctionType(signature), __wrapper_address__=partial(getattr, code, "address"))
