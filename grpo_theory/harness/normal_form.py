"""The normal form of code: what of a text can change a number, without comments, docstrings, layout and the words of statements.

Of a statement, only its id, its kind and the value of its margin count.  The rest of ``Statement(...)`` is words: it may be
rewritten, and results stay fresh.  So may what serves these words alone: constants of a study's own file, and names that it
imports.
"""

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from typing import NamedTuple

LIBRARY = "grpo_theory"
KEPT = {"Statement": {0: "id", 3: "kind", 6: "margin"}, "Margin": {0: "value"}}
"""Of what is called so: the arguments that count, by their position and name."""

SERVING = {"check", "rows", "run", "cache", "Statement", "Margin", "stated", "dict", "range", "tuple"}
"""What is called so has no effect beyond the name that it gives a value to."""
REASONS = "POWERLESS"
"""Why controls are known to survive: words, too."""

Import = ast.Import | ast.ImportFrom


class CodeReading(NamedTuple):
    """What is read off a text once.

    Attributes
    ----------
    checksum : str
        Of its normal form.
    imports : tuple of ast.Import or ast.ImportFrom
    chains : tuple of tuple of str
        The chains a.b.c in it that begin with the name of a package of the project.
    """

    checksum: str
    imports: tuple[Import, ...]
    chains: tuple[tuple[str, ...], ...]


@cache
def read(text: str, own: Collection[str], study: bool = False, part: str = "") -> CodeReading:
    """Read a text; its tree is not kept, because the garbage collector would look at every node of it again and again.

    Parameters
    ----------
    text : str
    own : collection of str
        The packages of the project.
    study : bool, default False
        Whether it is the text of a study, from which nothing imports a constant.
    part : str, default ""
        The check or run of a study that is asked for: the others, where it does not name them, do not count.
    """
    tree = ast.parse(text)
    if part:
        tree.body = _without_other_parts(tree.body, part)
    if any(mark in text for mark in (*KEPT, REASONS)):
        tree = _without_words(tree, study)
    imports = _imports(tree)
    aliases = project_aliases(imports, own)
    chains = {dotted(node) for node in _nodes(tree) if isinstance(node, ast.Attribute)} if aliases else ()
    checksum = hashlib.sha256(_normal_form(tree).encode()).hexdigest()
    return CodeReading(checksum, imports, tuple(chain for chain in sorted(chains) if chain and chain[0] in aliases))


def project_aliases(imports: Iterable[Import], own: Collection[str]) -> dict[str, str]:
    """Return what a text calls the packages of the project."""
    names = (alias for node in imports if isinstance(node, ast.Import) for alias in node.names)
    return {alias.asname or alias.name: alias.name for alias in names if alias.name in own}


def dotted(node: ast.expr) -> tuple[str, ...]:
    """Return the names of a chain a.b.c."""
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute):
        head = dotted(node.value)
        return (*head, node.attr) if head else ()
    return ()


def function_form(function: Callable) -> str:
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


def _imports(tree: ast.Module) -> tuple[Import, ...]:
    return tuple(node for node in _statements(tree) if isinstance(node, Import))


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a module or statement and the statements within it; expressions, which are most of a tree, are not entered."""
    yield node
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        block = getattr(node, name, None)
        for inner in block if isinstance(block, list) else ():
            yield from _statements(inner)


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and the nodes within it, each before its parts are looked up.

    So whoever takes parts out of a node does not meet them.  `ast.walk` looks them up first, and takes longer.
    """
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for name in node._fields:
            part = getattr(node, name, None)
            if isinstance(part, list):
                waiting += [one for one in part if isinstance(one, ast.AST)]
            elif isinstance(part, ast.AST):
                waiting.append(part)


def _without_other_parts(body: list[ast.stmt], part: str) -> list[ast.stmt]:
    """Return a study without its other checks and runs, and without the functions, constants and statements that serve them.

    What has an effect of its own stays, such as an estimator that is registered. The list of cases does not count, because each
    case is a chunk that knows its settings.
    """
    named = {name: one for one in body for name in ([one.name] if isinstance(one, ast.FunctionDef) else _assigned(one))}
    idle, waiting = {one for one in body if _serves(one)}, {part}
    waiting |= {name for one in body if one not in idle and one not in named.values() for name in _used(one)}
    waiting |= {name for name, one in named.items() if one not in idle}
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        seen.add(name)
        if name in named:
            one = named[name]
            idle.discard(one)
            for decorator in getattr(one, "decorator_list", []) if name == part else []:
                if isinstance(decorator, ast.Call):
                    decorator.keywords = [word for word in decorator.keywords if word.arg != "cases"]
            waiting |= _used(one) - seen
    return [one for one in body if one not in idle]


def _serves(one: ast.stmt) -> bool:
    """Whether a statement of a study has no effect but for what uses its name: a function, check, run or constant."""
    if isinstance(one, ast.FunctionDef):
        calls = [each.func if isinstance(each, ast.Call) else each for each in one.decorator_list]
    elif isinstance(one, ast.Assign | ast.AnnAssign):
        calls = [each.func for each in ast.walk(one) if isinstance(each, ast.Call)]
    else:
        return False
    return {(dotted(each) or ("",))[-1] for each in calls} <= SERVING


def _is_remark(statement: ast.stmt) -> bool:
    """Whether a statement is nothing but a string."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


class _Words:
    """The words in a text's statements and margins: all of their arguments but those that count."""

    def __init__(self, imports: Iterable[Import]) -> None:
        self.modules = project_aliases(imports, (LIBRARY,))
        froms = (node for node in imports if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == LIBRARY)
        self.names = {one.asname or one.name: one.name for node in froms for one in node.names if one.name in KEPT}

    def take(self, call: ast.Call) -> list[ast.expr]:
        """Take the words out of a call, if it makes a statement or margin, and return them."""
        kept = KEPT.get(self._called(call.func))
        starred = any(isinstance(one, ast.Starred) for one in call.args) or any(one.arg is None for one in call.keywords)
        if kept is None or starred:
            return []
        named = [ast.keyword(kept.get(i), value) for i, value in enumerate(call.args)] + call.keywords
        call.args, call.keywords = [], sorted((one for one in named if one.arg in kept.values()), key=lambda one: str(one.arg))
        return [one.value for one in named if one.arg not in kept.values()]

    def _called(self, function: ast.expr) -> str:
        """Return which of `KEPT` a function is, if any."""
        chain = dotted(function)
        if len(chain) == 1:
            return self.names.get(chain[0], "")
        return chain[-1] if chain and chain[0] in self.modules else ""


def _without_words(tree: ast.Module, study: bool) -> ast.Module:
    """Return a text without the words of its statements and reasons, and without what served these words alone."""
    words: list[ast.AST] = [one for one in tree.body if REASONS in _assigned(one)]
    tree.body = [one for one in tree.body if one not in words]
    found = _Words(_imports(tree))
    # Each call loses its words before `_nodes` comes to its arguments: what stands inside words is not taken a second time.
    words += [word for node in _nodes(tree) if isinstance(node, ast.Call) for word in found.take(node)]
    served = {name for word in words for name in _used(word)}
    uses = {one: _used(one) for one in tree.body}
    # Of the names that were used by what has been taken out, those are idle that nothing left uses.
    while idle := served.difference(*uses.values()):
        left = {kept: used for one, used in uses.items() if (kept := _less(one, idle, study)) is not None}
        served = {name for one, used in uses.items() if one not in left for name in used}
        uses = left
    tree.body = list(uses)
    return tree


def _assigned(statement: ast.stmt) -> list[str]:
    """Return the names to which a statement gives a value."""
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    else:
        targets = [statement.target] if isinstance(statement, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _used(tree: ast.AST) -> set[str]:
    """Return the names whose values a tree uses."""
    return {node.id for node in _nodes(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def _less(statement: ast.stmt, idle: set[str], study: bool) -> ast.stmt | None:
    """Return a statement without the names that nothing uses any more that is not words, and None if nothing is left of it."""
    if isinstance(statement, ast.ImportFrom):
        names = [alias for alias in statement.names if (alias.asname or alias.name) not in idle]
        return ast.ImportFrom(statement.module, names, statement.level) if names else None
    if study and isinstance(statement, ast.Assign) and not any(isinstance(one, ast.Call) for one in ast.walk(statement.value)):
        return None if len(statement.targets) == 1 and set(_assigned(statement)) & idle else statement
    return statement
