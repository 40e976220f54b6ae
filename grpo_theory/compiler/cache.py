"""Machine code on disk: files with checksums, which are old as soon as anything is that the code relies on.

Of numba this subclasses `numba.core.caching.IndexDataCacheFile`: its attributes `_source_stamp`, `_version`, `_index_path`, and
its methods `_load_index`, `_load_data`, `_data_path`, `_dump` and `load`. Of others' functions it uses `Cache` (a dispatcher's
`_cache`, `_cache_hits` and `recompile`).
"""

import hashlib
import pickle
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numba
from numba import types
from numba.core.caching import Cache, IndexDataCacheFile

from grpo_theory.compiler.dependencies import CodeDependencies, code_dependencies


class DamagedCacheWarning(RuntimeWarning):
    """A file of machine code was damaged; it has been deleted, and is made anew."""


class SoundCacheFile(IndexDataCacheFile):
    """numba's files of machine code, with checksums: what is damaged is deleted and compiled anew."""

    @classmethod
    def adopt(cls, file: IndexDataCacheFile, stamp: tuple) -> None:
        """Make a file of numba's one with checksums, and with a stamp of ours."""
        # A dispatcher makes its file itself, and numba has no way to hand it one of another class or with another stamp.  The
        # version stands at the head of an index: so numba does not read a file of ours at the same path, nor we one of numba's.
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


def layouts(signatures: Iterable[Any]) -> Iterator[tuple]:
    """Yield the records among the arguments of signatures, field by field: numba's own key has their types, not their names."""
    for signature in signatures:
        for kind in getattr(signature, "args", ()):
            if isinstance(kind, types.NamedTuple):
                yield kind.instance_class.__qualname__, *kind.fields


def source_stamp(found: CodeDependencies) -> tuple:
    """Return time and size of the files of a function and of what it relies on, their modules, and the values of the constants.

    numba's own stamp is of the function's file alone, so an edit in an imported file would leave old machine code in use.  What
    it keeps refers to modules by their names, so a file that was imported under another name is compiled anew.
    """
    modules = sorted({called.__module__ for called in found.functions})
    files = {called.__code__.co_filename for called in found.functions} | set(map(str, _OWN_FILES))
    facts = ((path, path.stat()) for path in sorted(map(Path, files)) if path.exists())
    return (*tuple((str(path), fact.st_mtime, fact.st_size) for path, fact in facts), *modules, *found.constants)


_OWN_FILES = sorted(Path(__file__).parent.rglob("*.py"))
"""What lanes and first-class functions are compiled to, and with which options, is said in this folder, in files that no compiled
function names."""


def stamp_own_cache(compiled: Any) -> None:
    """See that what a user compiles with a cache of its own is no older than what it relies on, either.

    What has been read from there by the stamp of numba is compiled anew.
    """
    dispatcher = getattr(compiled, "_dispatcher", compiled)  # of a ufunc
    own = getattr(dispatcher, "_cache", None) or getattr(dispatcher, "cache", None)
    if not isinstance(own, Cache):
        return
    stamp = source_stamp(code_dependencies(dispatcher.py_func))
    if own._cache_file._source_stamp != stamp:
        SoundCacheFile.adopt(own._cache_file, stamp)
        if sum(getattr(dispatcher, "_cache_hits", {}).values()):
            dispatcher.recompile()
