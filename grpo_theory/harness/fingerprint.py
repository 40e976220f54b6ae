"""Fingerprints of code and data: what a study's results depend on, comments, docstrings and the words of statements aside.

A study depends on the modules that it imports, directly or not.  A data file belongs to the modules beside it that name it.
"""

import ast
import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from grpo_theory.compiler import code_dependencies
from grpo_theory.estimation import Estimator, SourceFile
from grpo_theory.harness.codebase import Codebase
from grpo_theory.harness.normal_form import LIBRARY, function_form, read
from grpo_theory.harness.study import Study

DATA = (".json", ".npz")
"""The endings of data files, which lie beside the module that reads them and have the name that it calls them by."""


@cache
def checkout_checksum(package: str = "") -> str:
    """Return a checksum of all files of code and data of the library and a package of studies, to tell machines apart."""
    digest, code = hashlib.sha256(), Codebase((package,) if package else ())
    for one in (LIBRARY, *code.packages):
        folder = code.file(one).parent
        for path in sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".toml", *DATA)):
            digest.update(f"{one}/{path.relative_to(folder).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def study_fingerprint(study: Study, part: str = "") -> str:
    """Return a checksum of the code that a study depends on, of its data, and of what counts of its statements, if in files.

    Of one of its checks and runs, the margins do not count: they are put to the evidence when it is judged.
    """
    code = files_fingerprint(study.sources, part) if study.sources else module_fingerprint(study.module, part)
    facts = [(one.id, one.kind, one.margin and one.margin.value) for one in study.statements if not part]
    return hashlib.sha256(f"{code}\n{facts}".encode()).hexdigest()


@cache
def module_fingerprint(module: str, part: str = "") -> str:
    """Return a checksum of the code of a module and of all modules of the project that it depends on, and of their data."""
    return _checksum_of(module, _codebase(module.split(".")[0]), part)


@cache
def files_fingerprint(sources: Sequence[SourceFile], part: str = "") -> str:
    """Return a checksum of the code of a user's study: of its file, the last, of those that it needs, and of the library's."""
    own = {source.module: source.text for source in sources}
    code = Codebase(packages_beside(sources[-1]), own)
    checksums = [_checksum_of(source.module, code, part if source is sources[-1] else "") for source in sources]
    return hashlib.sha256("".join(checksums).encode()).hexdigest()


def packages_beside(source: SourceFile) -> tuple[str, ...]:
    """Return the packages that stand in the folder of a file, from which it may import."""
    folder = Path(source.path).parent
    faces = sorted(folder.glob("*/__init__.py"))
    return tuple(face.parent.name for face in faces if _is_imported_as(face, face.parent.name))


def _is_imported_as(face: Path, name: str) -> bool:
    """Whether a package is what its name imports, and not an installed one of that name."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve() == face.resolve()


def function_fingerprint(function: Callable) -> str:
    """Return a checksum of a function's code, of the functions that it calls, and of the constants that they name."""
    found = code_dependencies(function)
    forms = [function_form(called) for called in found.functions]
    return hashlib.sha256("\n".join([forms[0], *sorted(forms[1:]), repr(found.constants)]).encode()).hexdigest()[:16]


def estimator_fingerprint(estimator: Estimator) -> str:
    """Return a checksum of an estimator's kernel, parameters and parts."""
    second = estimator.mismatch
    parts = (estimator.ratio, estimator.clip, estimator.aggregation, estimator.kl, second.ratio, second.bound)
    codes = [function_fingerprint(part.function) for part in parts] + [function_fingerprint(estimator.advantage.function)]
    widths = (estimator.clip.low, estimator.clip.high, estimator.aggregation.pool, estimator.aggregation.constant)
    bounds = (second.bound.low, second.bound.high)
    facts = (dict(estimator.advantage.parameters), widths, bounds, estimator.kl.place, codes)
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def dependencies(module: str) -> list[str]:
    """Return the modules of the project that a module depends on, itself included, in alphabetical order."""
    return _codebase(module.split(".")[0]).dependencies(module)


@cache
def _codebase(package: str) -> Codebase:
    """Return the code of the library and of a package of studies."""
    return Codebase((package,))


def _checksum_of(module: str, code: Codebase, part: str = "") -> str:
    digest = hashlib.sha256()
    for name in code.dependencies(module):
        text = code.text(name)
        digest.update(f"{name}:{read(text, code.own, name == module, part if name == module else '').checksum}\n".encode())
        for path in _data_of(name, code):
            digest.update(f"{path.name}:{_checksum(path)}\n".encode())
    return digest.hexdigest()


def _data_of(module: str, code: Codebase) -> Iterator[Path]:
    """Yield the files of data that a module of a package names; of what a user's own file reads, only its user can know."""
    if module not in code.texts:
        yield from (path for path in _data_files(code.file(module).parent) if _names(code.text(module), path.stem))


@cache
def _data_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in DATA)


@cache
def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@cache
def _names(text: str, data: str) -> bool:
    """Whether a module has the name of a set of data as one of its strings."""
    return any(isinstance(node, ast.Constant) and node.value == data for node in ast.walk(ast.parse(text)))
