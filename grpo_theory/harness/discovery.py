"""Studies and what they state, found in the modules of a package."""

from collections.abc import Iterator
from functools import cache, partial
from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType

from grpo_theory.evidence import Statement
from grpo_theory.harness.collection import Collection, in_order
from grpo_theory.harness.forms import stated_in, study_of
from grpo_theory.harness.study import Study


@cache
def collection_of(package: str) -> Collection:
    """Return the studies of a package, by the order of its modules, and all that its modules state.

    What several studies decide is stated in a module beside them that all of them import.  The package may order its statements.
    Its ``FAMILIES`` are the beginnings of their ids, in the order of the catalogue; others follow as they are found.
    """
    modules = list(_modules(package))
    studies = {study.name: study for module in modules if (study := study_of(module))}
    statements: dict[str, Statement] = {}
    for module in modules:
        statements |= {one.id: one for one in stated_in(module)}
    families = getattr(import_module(package), "FAMILIES", ())
    catalogue = {one.id: one for one in in_order(statements, families)}
    return Collection(studies, catalogue, f"python -m {package}", partial(collection_of, package))


def study_in(module: str) -> Study:
    """Return the study that a module defines."""
    study = study_of(import_module(module))
    if study is None:
        raise ValueError(f"module must define a study, got {module!r}")
    return study


def _modules(package: str) -> Iterator[ModuleType]:
    """Import the modules of a package and of its subpackages, in alphabetical order."""
    root = import_module(package)
    for one in walk_packages(root.__path__, f"{package}."):
        if not one.name.endswith(".__main__"):
            yield import_module(one.name)
