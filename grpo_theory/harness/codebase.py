"""The code of a project, and which of its modules one depends on.

A name that a package merely re-exports counts as one of the module that defines it, and so does ``gt.name``.  So an edit
somewhere else in the library keeps results.
"""

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, wraps
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from grpo_theory.harness.normal_form import LIBRARY, CodeReading, project_aliases, read


def _remembered(method: Callable) -> Callable:
    """Remember what a method returns, for as long as its object lives."""

    @wraps(method)
    def remembering(self: "Codebase", *arguments: Any) -> Any:
        key = (method.__name__, *arguments)
        if key not in self.memory:
            self.memory[key] = method(self, *arguments)
        return self.memory[key]

    return remembering


class Codebase:
    """The library, and the packages and files of studies beside it.

    Parameters
    ----------
    packages : sequence of str
        Packages of studies, and of what they share.
    texts : Mapping of str to str, default empty
        What files that belong to no package say, by the names under which they are run.
    """

    def __init__(self, packages: Sequence[str] = (), texts: Mapping[str, str] | None = None) -> None:
        self.packages = tuple(packages)
        self.texts = dict(texts or {})
        self.memory: dict[Any, Any] = {}

    @cached_property
    def own(self) -> frozenset[str]:
        """The names with which the modules of the project begin."""
        return frozenset((LIBRARY, *self.packages, *self.texts))

    def dependencies(self, module: str) -> list[str]:
        """Return the modules of the project that a module depends on, itself included, in alphabetical order."""
        waiting, seen = [(module, True)], set()
        while waiting:
            name, study = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting += [(found, False) for found in self._imported(name, study) if found not in seen]
        return sorted(seen)

    @_remembered
    def text(self, module: str) -> str:
        """Return what the file of a module says."""
        return self.texts[module] if module in self.texts else self.file(module).read_text(encoding="utf-8")

    def file(self, module: str) -> Path:
        """Return the file of a module.

        Raises
        ------
        ValueError
            If the project has no such module.
        """
        path = self._find(module)
        if path is None:
            raise ValueError(f"module must be one of the project, got {module!r}")
        return path

    @_remembered
    def _find(self, module: str) -> Path | None:
        """Return the file of a module, and None if there is none; looked for in its folder, because an import runs code."""
        top, *inner = module.split(".")
        spec = find_spec(top)
        if spec is None or spec.origin is None:
            return None
        if not inner:
            return Path(spec.origin)
        place = Path(spec.origin).parent.joinpath(*inner)
        return next((path for path in (place / "__init__.py", place.with_suffix(".py")) if path.is_file()), None)

    def _is_module(self, name: str) -> bool:
        return name in self.texts or self._find(name) is not None

    def _is_package(self, module: str) -> bool:
        return module not in self.texts and self.file(module).name == "__init__.py"

    @_remembered
    def _read(self, module: str, study: bool = False) -> CodeReading:
        """Read a module; of a package's face, the stub that lists what it offers."""
        if module in self.texts:
            return read(self.texts[module], self.own, study)
        path = self.file(module)
        stub = path.with_suffix(".pyi")
        return read((stub if stub.is_file() else path).read_text(encoding="utf-8"), self.own, study)

    @_remembered
    def _imported(self, module: str, study: bool) -> frozenset[str]:
        """Return the modules of the project that a module imports names from."""
        return frozenset(self._imports(module, study))

    def _imports(self, module: str, study: bool) -> Iterator[str]:
        """Yield the modules of the project that a module imports names from, packages' faces seen through."""
        reading = self._read(module, study)
        for node in reading.imports:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name not in (LIBRARY, *self.packages) and alias.name.split(".")[0] in self.own:
                        yield alias.name
            else:
                package = self._absolute(module, node)
                if package.split(".")[0] in self.own:
                    for alias in node.names:
                        yield from self._origins(package, alias.name)
        aliases = project_aliases(reading.imports, self.own)
        for first, *names in reading.chains:
            yield from self._follow(aliases[first], names)

    def _absolute(self, module: str, node: ast.ImportFrom) -> str:
        """Return the module that a statement imports from."""
        if node.level == 0:
            return node.module or ""
        package = module if self._is_package(module) else module.rpartition(".")[0]
        base = package.rsplit(".", node.level - 1)[0] if node.level > 1 else package
        return f"{base}.{node.module}" if node.module else base

    def _follow(self, package: str, names: Sequence[str]) -> Iterator[str]:
        """Yield the modules behind package.name.name..."""
        origins = sorted(self._origins(package, names[0]))
        if len(names) > 1 and len(origins) == 1 and self._is_package(origins[0]):
            yield from self._follow(origins[0], names[1:])
        else:
            yield from origins

    @_remembered
    def _origins(self, package: str, name: str) -> frozenset[str]:
        """Return the module that defines what `from package import name` binds, and modules that the package runs besides."""
        if self._is_module(f"{package}.{name}"):
            return frozenset({f"{package}.{name}"})
        if not self._is_package(package):
            return frozenset({package})
        origins: set[str] = set()
        defined = True
        for node in self._read(package).imports:
            if not isinstance(node, ast.ImportFrom):
                continue
            origin = self._absolute(package, node)
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    defined = False
                    origins |= self._origins(origin, alias.name)
                elif origin == package and package not in (LIBRARY, *self.packages):
                    origins |= self._origins(origin, alias.name)
        return frozenset(origins | {package} if defined else origins)
