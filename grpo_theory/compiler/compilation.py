"""Every option with which the package compiles, in one place."""

import gc
import hashlib
import pickle
import signal
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from types import CellType, FunctionType, ModuleType
from typing import Any

import llvmlite.binding as llvm  # type: ignore[import-untyped]
import numba
import numpy as np
from numba import types
from numba.core import codegen
from numba.core.caching import Cache, IndexDataCacheFile
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from numba.core.errors import NumbaWarning
from numba.core.registry import CPUDispatcher, cpu_target
from numba.extending import typeof_impl

from grpo_theory.compiler.reliances import Reliances, names_in, reliances


@contextmanager
def interrupts_late() -> Iterator[None]:
    """Let an interrupt come when this is over: one that comes while the compiler calls back would be lost."""
    if threading.current_thread() is not threading.main_thread() or not callable(signal.getsignal(signal.SIGINT)):
        yield
        return
    came: list[tuple] = []
    previous = signal.signal(signal.SIGINT, lambda *arguments: came.append(arguments))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
        if came and callable(previous):
            previous(*came[0])


# numba loads its tables of types at the first compiled function, which takes ten times as long as loading the function:
# that belongs to the import.
with interrupts_late():
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()

PROCESSOR = frozenset(cpu_target.target_context.codegen().magic_tuple()[2].split(","))
"""What the processor that is compiled for can do, as LLVM names it."""

LEVEL = 1
"""The most that LLVM optimises what we compile.  Code over lanes is made of vectors as it is written, so that higher levels take
half as long again and find nothing more."""


def pass_builder(machine: Any, opt: int, loop_vectorize: bool = False, slp_vectorize: bool = False, **more: Any) -> Any:
    """Make what numba makes, but for the unrolling of loops, and for options of later numbas, which are left as LLVM has them.

    Ours turn a few times, over the groups of a batch or the responses of a prompt; with a body for many turns at once, and
    another for the rest, a step takes a tenth more time.
    """
    options = llvm.create_pipeline_tuning_options(opt)
    options.loop_vectorization, options.slp_vectorization, options.loop_unrolling = loop_vectorize, slp_vectorize, False
    return llvm.create_pass_builder(machine, options)


@contextmanager
def frugally() -> Iterator[None]:
    """Compile without what costs time and gives nothing: high levels, unrolling, collections of garbage that is hardly any."""
    with global_compiler_lock:
        config, names, collects = vars(numba.config), vars(codegen), gc.isenabled()
        level, numbas = config["OPT"], names.get("create_pass_builder")
        config["OPT"] = type(level)(min(level, LEVEL))
        if numbas is not None:  # numba before 0.62 has none
            names["create_pass_builder"] = pass_builder
        gc.disable()
        try:
            yield
        finally:
            config["OPT"] = level
            if numbas is not None:
                names["create_pass_builder"] = numbas
            if collects:
                gc.enable()


@contextmanager
def uncached_silently() -> Iterator[None]:
    """Compile what cannot be kept on disk without a word: machine code with NUMBA_OPT=0, or of a large array that is named."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Cannot cache compiled function", NumbaWarning)
        yield


WITHOUT_COMPILER = bool(vars(numba.config)["DISABLE_JIT"])
"""NUMBA_DISABLE_JIT=1: everything runs as plain Python, slowly, as people who debug a kernel want it."""

CHECKS_BOUNDS = bool(vars(numba.config)["BOUNDSCHECK"])
"""NUMBA_BOUNDSCHECK=1: compiled code raises where an index is out of bounds."""

F1, F2, F3 = numba.float64[::1], numba.float64[:, ::1], numba.float64[:, :, ::1]
F4, F5 = numba.float64[:, :, :, ::1], numba.float64[:, :, :, :, ::1]
I1, I2 = numba.int64[::1], numba.int64[:, ::1]
KEPT_F1, KEPT_F2, KEPT_I1, KEPT_I2 = (types.Array(own.dtype, own.ndim, "C", readonly=True) for own in (F1, F2, I1, I2))
"""Arrays that are only read, which may be closed to writing, as those that records keep are."""


def record_type(record: type, *fields: types.Type) -> types.NamedTuple:
    """Return the type of a named tuple with fields of these types, for signatures of drivers.

    Dispatch takes the tuple at its word: looking at each of its fields takes longer than a short call.
    """
    found = types.NamedTuple(fields, record)
    typeof_impl.register(record)(lambda value, context: found)
    return found


OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True, "no_cfunc_wrapper": True}
"""As everything is compiled."""
NO_ARRAYS: dict[str, Any] = {"_nrt": False}
"""More, for what makes no arrays: nobody counts the references to them, which takes longer than work on a vector of lanes."""


class Stage(CPUDispatcher):
    """A function that is compiled as a part of whatever compiled function calls it, without a wrapper for Python."""

    def __call__(self, *arguments: Any) -> Any:
        """Run as plain Python, because there is nothing compiled that Python could call."""
        return self.py_func(*arguments)


def stage(function: Callable) -> Any:
    """Mark a function as one stage of a driver: it is compiled as a part of whatever calls it, and makes no arrays."""
    return _as_stage(function, forceinline=True, **NO_ARRAYS)


def allocating_stage(function: Callable) -> Any:
    """Mark a stage that makes arrays of its own; it must not be called at every turn of a hot loop."""
    return _as_stage(function)


def _as_stage(function: Callable, **more: Any) -> Any:
    if WITHOUT_COMPILER:
        return function
    return Stage(function, targetoptions=OPTIONS | {"nopython": True, "no_cpython_wrapper": True} | more)


paragraph = numba.njit(inline="always", **NO_ARRAYS, **OPTIONS)
"""Mark a function that calls stages, and is read into the text of whatever calls it: it is not compiled by itself before."""


class DamagedCacheWarning(RuntimeWarning):
    """A file of machine code was damaged; it has been deleted, and is made anew."""


class SoundCacheFile(IndexDataCacheFile):
    """numba's files of machine code, with checksums: what is damaged is deleted and compiled anew."""

    @classmethod
    def adopt(cls, file: IndexDataCacheFile, stamp: tuple) -> None:
        """Make a file of numba's one with checksums, and with a stamp of ours."""
        file.__class__, file._source_stamp, file._version = cls, stamp, f"{numba.__version__} with checksums"

    def _load_index(self) -> dict:
        try:
            with Path(self._index_path).open("rb") as file:
                if pickle.load(file) == self._version:
                    _checked(file.read())
            return dict(super()._load_index())
        except FileNotFoundError:
            return {}
        except OSError:
            raise
        except Exception as error:  # whatever a pickle of other bytes may raise
            self._delete(self._index_path, error)
            return {}

    def load(self, key: Any) -> Any:
        """Load what was kept for a key, or None, so that it is compiled, if nothing was or that is damaged."""
        try:
            return super().load(key)
        except Exception as error:
            self._delete(self._data_path(self._load_index()[key]), error)
            return None

    def _load_data(self, name: str) -> Any:
        return pickle.loads(_checked(Path(self._data_path(name)).read_bytes()))

    def _dump(self, value: Any) -> bytes:
        data: bytes = super()._dump(value)
        return data + hashlib.sha256(data).digest()  # after a pickle, where numba's own reading of the index stops before it

    def _delete(self, path: str, error: Exception) -> None:
        warnings.warn(
            f"the file {path} of compiled code was damaged ({error}): it has been deleted, and is compiled anew",
            DamagedCacheWarning,
            stacklevel=2,
        )
        Path(path).unlink(missing_ok=True)


def _checked(data: bytes) -> bytes:
    """Return data without the checksum behind them; raise unless it is theirs."""
    body, checksum = data[:-32], data[-32:]
    if hashlib.sha256(body).digest() != checksum:
        raise ValueError("its checksum is not that of what is in it")
    return body


def compile_function(function: Callable, *signatures: Any, **more: Any) -> Any:
    """Compile with the package's options, and more; cached on disk where the function has a file that allows it."""
    if WITHOUT_COMPILER:
        return _as_compiled(function)
    if isinstance(function, Dispatcher):
        function = function.py_func
    options = OPTIONS | more
    try:
        dispatcher = numba.njit(function, cache=True, **options)
        found = reliances(function)
        SoundCacheFile.adopt(dispatcher._cache._cache_file, (*source_stamp(found), *layouts(signatures)))
        for one in found.compiled:
            _stamp_own_cache(one)
    except RuntimeError:  # numba: no locator for a function typed at a prompt, or a read-only installation
        dispatcher = numba.njit(function, **options)
    for signature in signatures:
        with interrupts_late(), frugally(), uncached_silently():
            dispatcher.compile(signature)
    dispatcher.disable_compile()
    return dispatcher


def _as_compiled(function: Callable) -> Callable:
    """Return what runs as plain Python in place of compiled code, whose words of 64 bits run over without a warning."""
    return np.errstate(over="ignore")(function)


def compile_driver(function: Callable, signature: Any, **more: Any) -> Any:
    """Compile a function of one signature, and return its machine code as Python calls it, with the plain function as `py_func`.

    numba's dispatch would look at every argument first, which takes several microseconds: four fifths of a short call.  So
    arguments are taken for what the signature says.  Records are by their class, and drivers make their arrays themselves.
    """
    if WITHOUT_COMPILER:
        return _as_compiled(function)
    dispatcher = compile_function(function, signature, **more)
    driver = partial(dispatcher.overloads[signature.args].entry_point)
    vars(driver).update(py_func=dispatcher.py_func, dispatcher=dispatcher)
    return driver


def layouts(signatures: Iterable[Any]) -> Iterator[tuple]:
    """Yield the records among the arguments of signatures, field by field: numba's own key has their types, not their names."""
    for signature in signatures:
        for kind in getattr(signature, "args", ()):
            if isinstance(kind, types.NamedTuple):
                yield kind.instance_class.__qualname__, *kind.fields


def source_stamp(found: Reliances) -> tuple:
    """Return time and size of the files of a function and of what it relies on, their modules, and the values of the constants.

    numba's own stamp is of the function's file alone, so an edit in an imported file would leave old machine code in use.  What
    it keeps refers to modules by their names, so a file that was imported under another name is compiled anew.
    """
    modules = sorted({called.__module__ for called in found.functions})
    files = {called.__code__.co_filename for called in found.functions} | set(map(str, _OWN_FILES))
    facts = ((path, path.stat()) for path in sorted(map(Path, files)) if path.exists())
    return (*tuple((str(path), fact.st_mtime, fact.st_size) for path, fact in facts), *modules, *found.constants)


_OWN_FILES = [Path(__file__).with_name(f"{name}.py") for name in ("compilation", "first_class", "reliances")]


def _stamp_own_cache(compiled: Any) -> None:
    """See that what a user compiles with a cache of its own is no older than what it relies on, either.

    What has been read from there by the stamp of numba is compiled anew.
    """
    dispatcher = getattr(compiled, "_dispatcher", compiled)  # of a ufunc
    own = getattr(dispatcher, "_cache", None) or getattr(dispatcher, "cache", None)
    if not isinstance(own, Cache):
        return
    stamp = source_stamp(reliances(dispatcher.py_func))
    if own._cache_file._source_stamp != stamp:
        SoundCacheFile.adopt(own._cache_file, stamp)
        if sum(getattr(dispatcher, "_cache_hits", {}).values()):
            dispatcher.recompile()


@cache
def plain(function: Callable) -> Callable:
    """Return a function as plain Python throughout: what it calls that is compiled is plain in it too, wherever it is named."""
    if isinstance(function, Dispatcher):
        return plain(function.py_func)
    if not isinstance(function, FunctionType):
        return function
    names = names_in(function.__code__)
    own = {**function.__globals__, **_plain_among(names, function.__globals__)}
    cells = tuple(map(_plain_cell, function.__closure__ or ()))
    made = FunctionType(function.__code__, own, function.__name__, function.__defaults__, cells or None)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _plain_among(names: set[str], space: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of these names in a module's space is compiled, or a module that names such, as plain Python."""
    found: dict[str, Any] = {}
    for name in names & space.keys():
        value = space[name]
        if isinstance(value, Dispatcher):
            found[name] = plain(value)
        elif isinstance(value, ModuleType) and (inner := _plain_among(names - {name}, vars(value))):
            found[name] = ModuleType(value.__name__)
            vars(found[name]).update(vars(value) | inner)
    return found


def _plain_cell(cell: CellType) -> CellType:
    """Return the cell of a closure, or one of a plain function in its place."""
    try:
        value = cell.cell_contents
    except ValueError:  # nothing has been put into it so far
        return cell
    return CellType(plain(value)) if isinstance(value, Dispatcher) else cell
