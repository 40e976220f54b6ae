"""Fingerprints: what a chunk's result depends on, so that a change of code makes it be computed again.

A study depends on its file, and on what it imports of its own package. It depends on the library, too, but for what shows, runs
or judges results.  In a study's own file only the function that computes a chunk counts, with what it uses.
"""

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from grpo_theory.compiler import code_dependencies
from grpo_theory.estimation import Estimator, SourceFile
from grpo_theory.harness.study import Study

LIBRARY = "grpo_theory"
COUNTED = (".py", ".json", ".npz")
IDLE = ("checks/", "harness/", "live/", "page/", "plot/", "evidence/rules.py", "evidence/verdicts.py")
"""What of the library changes no number of a chunk: what shows, watches, runs and judges."""
RUNNING = ("harness/study.py", "harness/sides.py", "harness/forms.py", "harness/step_search.py", "harness/summary.py")
"""And of that, what makes a chunk of a study."""
SERVING = {"check", "rows", "run", "cache", "stated", "dict", "range", "tuple", "Margin"}
"""What is called so has no effect beyond the name that it gives a value to."""


def folder_of(package: str) -> Path:
    """Return the folder of a package, without importing it."""
    spec = find_spec(package)
    assert spec is not None
    return Path(str(spec.origin)).parent


@cache
def checkout_checksum(package: str = "", computing: bool = False) -> str:
    """Return a checksum of all files of the library and a package of studies, to tell machines apart, or of what computes."""
    digest = hashlib.sha256()
    for one in dict.fromkeys((LIBRARY, package or LIBRARY)):
        folder = folder_of(one)
        for path in sorted(path for path in folder.rglob("*") if path.suffix in (*COUNTED, ".toml")):
            name = path.relative_to(folder).as_posix()
            if not computing or name in RUNNING or not name.startswith(IDLE):
                digest.update(f"{one}/{name}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def study_fingerprint(study: Study, part: str = "") -> str:
    """Return a checksum of what a study's table depends on, or of one of its functions the chunks.

    Of the statements id and kind count, and for the table the margins, too: they are put to the evidence when it is judged.
    """
    code = _code(study.sources or study.module, part)
    counted = not part or ".margin" in (study.sources[-1].text if study.sources else _imported(study.module)[-1])
    facts = [(one.id, one.kind, counted and one.margin and one.margin.value) for one in study.statements]
    return hashlib.sha256(f"{checkout_checksum(computing=True)}\n{code}\n{facts}".encode()).hexdigest()


@cache
def _code(origin: str | tuple[SourceFile, ...], part: str) -> str:
    """Return a checksum of the code of a study and of what it imports beside the library."""
    if isinstance(origin, str):
        *others, own = _imported(origin)
    else:
        beside = [Path(origin[-1].path).with_name(name) for name in packages_beside(origin[-1])]
        others = [path.read_text(encoding="utf-8") for folder in beside for path in sorted(folder.rglob("*.py"))]
        *before, own = [source.text for source in origin]
        others += before
    forms = [ast.dump(reduced(own, part)), *(_read(text)[0] for text in others)]
    return hashlib.sha256("\n".join(forms).encode()).hexdigest()


@cache
def _read(text: str) -> tuple[str, tuple[str, ...]]:
    """Return code without comments and layout, and the names of what it imports from, and of what may be modules in it."""
    tree = ast.parse(text)
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names += [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
    return ast.dump(tree), tuple(names)


@cache
def _imported(module: str) -> tuple[str, ...]:
    """Return the texts of the files of its package that a module imports, directly or not, and its own as the last."""
    package = module.partition(".")[0]
    found = {module: Path(str(find_spec(module).origin)).read_text(encoding="utf-8")}  # type: ignore[union-attr]
    waiting = [*_read(found[module])[1]]
    while waiting:
        name = waiting.pop()
        path = folder_of(package).parent.joinpath(*name.split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if name not in found and name.split(".")[0] == package and path.is_file():
            found[name] = path.read_text(encoding="utf-8")
            waiting += _read(found[name])[1]
    own = found.pop(module)
    return (*(found[name] for name in sorted(found)), own)


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


def reduced(text: str, part: str = "") -> ast.Module:
    """Return the code of a study without its words, or of one of its functions without what serves only others.

    What has an effect of its own stays, such as an estimator that is registered. The list of cases does not count, because each
    case is a chunk that knows its settings.
    """
    tree = ast.parse(text)
    tree.body = [one for one in tree.body if not _is_words(one)]
    if not part:
        return tree
    named: dict[str, list[ast.stmt]] = {}
    for one in tree.body:
        for name in _names(one):
            named.setdefault(name, []).append(one)
    idle = {one for one in tree.body if _serves(one)}
    waiting, seen = {part} | {name for one in tree.body if one not in idle for name in _used(one)}, set()
    while waiting:
        name = waiting.pop()
        seen.add(name)
        for one in named.get(name, []):
            idle.discard(one)
            if name == part and isinstance(one, ast.FunctionDef):
                for decorator in one.decorator_list:
                    if isinstance(decorator, ast.Call):
                        decorator.keywords = [word for word in decorator.keywords if word.arg != "cases"]
            waiting |= _used(one) - seen
    tree.body = [one for one in tree.body if one not in idle]
    return tree


def _names(one: ast.stmt) -> list[str]:
    """Return the names to which a statement of a file gives a value."""
    if isinstance(one, ast.FunctionDef):
        return [one.name]
    targets = one.targets if isinstance(one, ast.Assign) else [one.target] if isinstance(one, ast.AnnAssign) else []
    return [
        node.id
        for target in targets
        for node in ast.walk(target)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]


def _used(tree: ast.AST) -> set[str]:
    """Return the names whose values a tree uses."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def _name(node: ast.expr) -> str:
    """Return the last name of a chain a.b.c."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_words(one: ast.stmt) -> bool:
    """Whether a statement of a file is a docstring, a remark below a constant, a reason, or makes nothing but statements."""
    if isinstance(one, ast.Expr):
        return isinstance(one.value, ast.Constant)
    if not isinstance(one, ast.Assign):
        return False
    made = one.value.elts if isinstance(one.value, ast.Tuple | ast.List) else [getattr(one.value, "elt", one.value)]
    is_statement = [isinstance(each, ast.Call) and (_name(each.func) == "Statement") for each in made]
    return "POWERLESS" in _names(one) or (bool(made) and all(is_statement))


def _serves(one: ast.stmt) -> bool:
    """Whether a statement of a file has no effect but for what uses its name: a function, check, run or constant."""
    if isinstance(one, ast.FunctionDef):
        return {_name(each.func if isinstance(each, ast.Call) else each) for each in one.decorator_list} <= SERVING
    called = {_name(node.func) for node in ast.walk(one) if isinstance(node, ast.Call)}
    return isinstance(one, ast.Assign | ast.AnnAssign) and bool(_names(one)) and called <= SERVING


def function_fingerprint(function: Callable) -> str:
    """Return a checksum of a function's code, of the functions that it calls, and of the constants that they name."""
    found = code_dependencies(function)
    forms = [function_form(called) for called in found.functions]
    return hashlib.sha256("\n".join([forms[0], *sorted(forms[1:]), repr(found.constants)]).encode()).hexdigest()[:16]


def function_form(function: Callable) -> str:
    """Return a function's code without comments and docstring, or, where it has no source, as at a prompt, its bytecode."""
    code = function.__code__
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(code))).body
    except (OSError, SyntaxError, ValueError):
        return repr((code.co_code, code.co_names, code.co_consts))
    if isinstance(tree, ast.FunctionDef):
        tree.body = [one for one in tree.body if not _is_words(one)] or [ast.Pass()]
    return ast.dump(tree)


def estimator_fingerprint(estimator: Estimator) -> str:
    """Return a checksum of an estimator's kernel, parameters and parts."""
    second = estimator.mismatch
    parts = (estimator.ratio, estimator.clip, estimator.aggregation, estimator.kl, second.ratio, second.bound)
    codes = [function_fingerprint(part.function) for part in parts] + [function_fingerprint(estimator.advantage.function)]
    widths = (estimator.clip.low, estimator.clip.high, estimator.aggregation.pool, estimator.aggregation.constant)
    bounds = (second.bound.low, second.bound.high)
    facts = (dict(estimator.advantage.parameters), widths, bounds, estimator.kl.place, codes)
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
