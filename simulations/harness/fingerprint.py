"""Fingerprints of code and data: what a study's results depend on, comments and docstrings aside.

A study depends on the modules that it imports, directly or not.  A name that a package merely hands on counts for the module
that defines it, and ``gt.name`` for the module behind that name; so an edit somewhere else in the library keeps the chunks.
A data file belongs to the modules beside it that name it.
"""

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from grpo_theory.compiler import code_dependencies
from grpo_theory.estimation import Estimator

PROJECT = ("grpo_theory", "simulations")
CATALOGUE = "simulations.claims"
"""What is stated does not change what is computed."""
DATA = (".json", ".npz")
"""The endings of files of data, which stand beside the module that reads them and have the name that it calls them by."""


@cache
def checkout_checksum() -> str:
    """Return a checksum of all files of code and data of the project, by which one machine knows another's checkout."""
    digest = hashlib.sha256()
    for package in PROJECT:
        folder = _file(package).parent
        for path in sorted(path for path in folder.rglob("*") if path.suffix in (".py", *DATA)):
            digest.update(f"{package}/{path.relative_to(folder).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


@cache
def module_fingerprint(module: str) -> str:
    """Return a checksum of the code of a module and of all modules of the project that it depends on, and of their data."""
    digest = hashlib.sha256()
    for name in dependencies(module):
        text = _file(name).read_text(encoding="utf-8")
        digest.update(f"{name}:{_read(text).checksum}\n".encode())
        for path in _data_files(_file(name).parent):
            if _names(text, path.stem):
                digest.update(f"{path.name}:{_checksum(path)}\n".encode())
    return digest.hexdigest()


def function_fingerprint(function: Callable) -> str:
    """Return a checksum of a function's code, of the functions that it calls, and of the constants that they name."""
    found = code_dependencies(function)
    forms = [_function_form(called) for called in found.functions]
    return hashlib.sha256("\n".join([forms[0], *sorted(forms[1:]), repr(found.constants)]).encode()).hexdigest()[:16]


def estimator_fingerprint(estimator: Estimator) -> str:
    """Return a checksum of an estimator's kernel, parameters and parts."""
    parts = (estimator.ratio, estimator.clip, estimator.aggregation, estimator.kl)
    codes = [function_fingerprint(part.function) for part in parts] + [function_fingerprint(estimator.advantage.function)]
    widths = (estimator.clip.low, estimator.clip.high, estimator.aggregation.pool, estimator.aggregation.constant)
    facts = (dict(estimator.advantage.parameters), widths, estimator.kl.place, codes)
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def dependencies(module: str) -> list[str]:
    """Return the modules of the project that a module depends on, itself included, in alphabetical order."""
    waiting, seen = [module], set()
    while waiting:
        name = waiting.pop()
        if name not in seen and not name.startswith(CATALOGUE):
            seen.add(name)
            waiting += [found for found in _imported(name) if found not in seen]
    return sorted(seen)


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


class _Reading(NamedTuple):
    """A checksum of a text's normal form, its imports, and the chains a.b.c in it that begin at a package of the project."""

    checksum: str
    imports: tuple[ast.Import | ast.ImportFrom, ...]
    chains: tuple[tuple[str, ...], ...]


@cache
def _read(text: str) -> _Reading:
    """Read a text once; its tree is not kept, because the garbage collector would look at every node of it again and again."""
    tree = ast.parse(text)
    imports = tuple(node for node in _statements(tree) if isinstance(node, ast.Import | ast.ImportFrom))
    aliases = _aliases(imports)
    chains = {_dotted(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)} if aliases else ()
    checksum = hashlib.sha256(_normal_form(tree).encode()).hexdigest()
    return _Reading(checksum, imports, tuple(chain for chain in sorted(chains) if chain and chain[0] in aliases))


def _aliases(imports: Iterable[ast.Import | ast.ImportFrom]) -> dict[str, str]:
    """Return what a text calls the packages of the project."""
    names = (alias for node in imports if isinstance(node, ast.Import) for alias in node.names)
    return {alias.asname or alias.name: alias.name for alias in names if alias.name in PROJECT}


def _function_form(function: Callable) -> str:
    """Return a function's code in its normal form, or, where it has no source, as at a prompt, its bytecode."""
    code = function.__code__
    try:
        return _normal_form(ast.parse(textwrap.dedent(inspect.getsource(code))))
    except (OSError, SyntaxError):
        return repr((code.co_code, code.co_names, code.co_consts))


def _normal_form(tree: ast.Module) -> str:
    """Return code without comments, docstrings and layout; the remarks that stand below constants are docstrings too."""
    for node in _statements(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [one for one in body if not _is_remark(one)] or [ast.Pass()]  # type: ignore[attr-defined]
    return ast.dump(tree, annotate_fields=False)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a module or statement and the statements within it; expressions, which are most of a tree, are not entered."""
    yield node
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        block = getattr(node, name, None)
        for inner in block if isinstance(block, list) else ():
            yield from _statements(inner)


def _is_remark(statement: ast.stmt) -> bool:
    """Whether a statement is nothing but a string."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


@cache
def _find(module: str) -> Path | None:
    """Return the file of a module, and None if there is none; looked for in its folder, because an import runs code."""
    top, *inner = module.split(".")
    spec = find_spec(top)
    if spec is None or spec.origin is None:
        return None
    if not inner:
        return Path(spec.origin)
    place = Path(spec.origin).parent.joinpath(*inner)
    return next((path for path in (place / "__init__.py", place.with_suffix(".py")) if path.is_file()), None)


def _file(module: str) -> Path:
    path = _find(module)
    if path is None:
        raise ValueError(f"module must be one of the project, got {module!r}")
    return path


@cache
def _read_module(module: str) -> _Reading:
    """Read a module; of a package's face, the stub that lists what it offers."""
    path = _file(module)
    stub = path.with_suffix(".pyi")
    return _read((stub if stub.is_file() else path).read_text(encoding="utf-8"))


@cache
def _imported(module: str) -> frozenset[str]:
    """Return the modules of the project that a module imports names from."""
    return frozenset(_imports(module))


def _imports(module: str) -> Iterator[str]:
    """Yield the modules of the project that a module imports names from, packages' faces seen through."""
    reading = _read_module(module)
    for node in reading.imports:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name not in PROJECT and alias.name.split(".")[0] in PROJECT:
                    yield alias.name
        else:
            package = _absolute(module, node)
            if package.split(".")[0] in PROJECT:
                for alias in node.names:
                    yield from _origins(package, alias.name)
    aliases = _aliases(reading.imports)
    for first, *names in reading.chains:
        yield from _follow(aliases[first], names)


def _absolute(module: str, node: ast.ImportFrom) -> str:
    """Return the module that a statement imports from."""
    if node.level == 0:
        return node.module or ""
    package = module if _file(module).name == "__init__.py" else module.rpartition(".")[0]
    base = package.rsplit(".", node.level - 1)[0] if node.level > 1 else package
    return f"{base}.{node.module}" if node.module else base


def _dotted(node: ast.expr) -> tuple[str, ...]:
    """Return the names of a chain a.b.c."""
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute):
        head = _dotted(node.value)
        return (*head, node.attr) if head else ()
    return ()


def _follow(package: str, names: Sequence[str]) -> Iterator[str]:
    """Yield the modules behind package.name.name..."""
    found = sorted(_origins(package, names[0]))
    if len(names) > 1 and len(found) == 1 and _file(found[0]).name == "__init__.py":
        yield from _follow(found[0], names[1:])
    else:
        yield from found


@cache
def _origins(package: str, name: str) -> frozenset[str]:
    """Return the module that defines what `from package import name` binds, and modules that the package runs besides."""
    if _find(f"{package}.{name}"):
        return frozenset({f"{package}.{name}"})
    if _file(package).name != "__init__.py":
        return frozenset({package})
    found: set[str] = set()
    defined = True
    for node in _read_module(package).imports:
        if not isinstance(node, ast.ImportFrom):
            continue
        origin = _absolute(package, node)
        for alias in node.names:
            if (alias.asname or alias.name) == name:
                defined = False
                found |= _origins(origin, alias.name)
            elif origin == package and package not in PROJECT:
                found |= _origins(origin, alias.name)
    return frozenset(found | {package} if defined else found)
