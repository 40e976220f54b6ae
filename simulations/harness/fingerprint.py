"""Fingerprints of code: what a study's results depend on, comments and docstrings aside.

A study depends on the modules that it imports, directly or not.  A name that a package merely hands on counts for the module
that defines it, and ``gt.name`` for the module behind that name; so an edit somewhere else in the library keeps the chunks.
"""

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from grpo_theory.compilation import reliances
from grpo_theory.estimation import Estimator

PROJECT = ("grpo_theory", "simulations")
CATALOGUE = "simulations.claims"
"""What is stated does not change what is computed."""


@cache
def checkout_checksum() -> str:
    """Return a checksum of all files of code of the project as they are, by which one machine knows another's checkout."""
    digest = hashlib.sha256()
    for package in PROJECT:
        folder = _file(package).parent
        for path in sorted(folder.rglob("*.py")):
            digest.update(f"{package}/{path.relative_to(folder).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


@cache
def module_fingerprint(module: str) -> str:
    """Return a checksum of the code of a module and of all modules of the project that it depends on."""
    digest = hashlib.sha256()
    for name in dependencies(module):
        digest.update(f"{name}:{_code(name)}\n".encode())
    return digest.hexdigest()


def function_fingerprint(function: Callable) -> str:
    """Return a checksum of a function's code, of the compiled functions that it calls, and of the constants that they name."""
    functions, constants = reliances(function)
    forms = [_function_form(called) for called in functions]
    return hashlib.sha256("\n".join([forms[0], *sorted(forms[1:]), repr(constants)]).encode()).hexdigest()[:16]


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
def _code(module: str) -> str:
    """Return a checksum of one module's own code."""
    return hashlib.sha256(_normal_form(_file(module).read_text(encoding="utf-8")).encode()).hexdigest()


def _function_form(function: Callable) -> str:
    """Return a function's code in its normal form, or, where it has no source, as at a prompt, its bytecode."""
    code = function.__code__
    try:
        return _normal_form(textwrap.dedent(inspect.getsource(code)))
    except (OSError, SyntaxError):
        return repr((code.co_code, code.co_names, code.co_consts))


def _normal_form(text: str) -> str:
    """Return code without comments, docstrings and layout; the remarks that stand below constants are docstrings too."""
    tree = _parse(text)
    for node in _statements(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [one for one in body if not _is_remark(one)] or [ast.Pass()]  # type: ignore[attr-defined]
    return ast.dump(tree, annotate_fields=False)


_parse = cache(ast.parse)
"""A text is read for its normal form and for its imports."""


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
def _file(module: str) -> Path:
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise ValueError(f"module must be one of the project, got {module!r}")
    return Path(spec.origin)


@cache
def _tree(module: str) -> ast.Module:
    """Return the syntax tree of a module; of the package's face, that of the stub that lists what it offers."""
    path = _file(module)
    stub = path.with_suffix(".pyi")
    return _parse((stub if stub.is_file() else path).read_text(encoding="utf-8"))


@cache
def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


@cache
def _imported(module: str) -> frozenset[str]:
    """Return the modules of the project that a module imports names from."""
    return frozenset(_imports(module))


def _imports(module: str) -> Iterator[str]:
    """Yield the modules of the project that a module imports names from, packages' faces seen through."""
    tree = _tree(module)
    aliases = {}
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in PROJECT:
                    aliases[alias.asname or alias.name] = alias.name
                elif alias.name.split(".")[0] in PROJECT:
                    yield alias.name
        elif isinstance(node, ast.ImportFrom):
            package = _absolute(module, node)
            if package.split(".")[0] in PROJECT:
                for alias in node.names:
                    yield from _origins(package, alias.name)
    for node in ast.walk(tree) if aliases else ():
        if isinstance(node, ast.Attribute):
            path = _dotted(node)
            if path and path[0] in aliases:
                yield from _follow(aliases[path[0]], path[1:])


def _absolute(module: str, node: ast.ImportFrom) -> str:
    """Return the module that a statement imports from."""
    if node.level == 0:
        return node.module or ""
    package = module if _file(module).name == "__init__.py" else module.rpartition(".")[0]
    base = package.rsplit(".", node.level - 1)[0] if node.level > 1 else package
    return f"{base}.{node.module}" if node.module else base


def _dotted(node: ast.expr) -> list[str]:
    """Return the names of a chain a.b.c."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        head = _dotted(node.value)
        return [*head, node.attr] if head else []
    return []


def _follow(package: str, names: list[str]) -> Iterator[str]:
    """Yield the modules behind package.name.name..."""
    found = list(_origins(package, names[0]))
    if len(names) > 1 and len(found) == 1 and _file(found[0]).name == "__init__.py":
        yield from _follow(found[0], names[1:])
    else:
        yield from found


def _origins(package: str, name: str) -> Iterator[str]:
    """Yield the module that defines what `from package import name` binds, and modules that the package runs besides."""
    if _is_module(f"{package}.{name}"):
        yield f"{package}.{name}"
        return
    if _file(package).name != "__init__.py":
        yield package
        return
    defined = True
    for node in _tree(package).body:
        if not isinstance(node, ast.ImportFrom):
            continue
        origin = _absolute(package, node)
        for alias in node.names:
            if (alias.asname or alias.name) == name:
                defined = False
                yield from _origins(origin, alias.name)
            elif origin == package and package not in PROJECT:
                yield from _origins(origin, alias.name)
    if defined:
        yield package
