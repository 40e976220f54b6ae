"""Studies and what they state, found in the modules of a package."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType

from grpo_theory.evidence import PARTS, Statement
from grpo_theory.harness.forms import stated_in, study_of
from grpo_theory.harness.study import Study


@dataclass(frozen=True)
class Collection:
    """Studies that are judged together, and the catalogue of what they state.

    Attributes
    ----------
    studies : Mapping of str to Study
        By name, in the order of their modules.
    statements : Mapping of str to Statement
        By id; a statement stands before its parts.
    powerless : Mapping
        Why the control of a claim is known to survive, by the statement's id and the setting, in which * stands for any text.
    program : str
        How its command is called.
    prepare : callable
        What a process that computes chunks of its studies may call first: it imports them.
    """

    studies: Mapping[str, Study]
    statements: Mapping[str, Statement]
    powerless: Mapping[tuple[str, str], str]
    program: str
    prepare: Callable[[], object]

    def parts_of(self, statement: Statement) -> tuple[Statement, ...]:
        """Return the statements into which one is split, by their ids."""
        return tuple(one for one in self.statements.values() if one.id.startswith(f"{statement.id}/"))

    def deciders(self) -> dict[str, tuple[str, ...]]:
        """Return the names of the studies that decide each statement; one that is split is decided where its parts are."""
        deciders: dict[str, tuple[str, ...]] = {}
        for study in self.studies.values():
            for name in study.decides:
                deciders[name] = (*deciders.get(name, ()), study.name)
        for statement in self.statements.values():
            if statement.kind == PARTS:
                names = (name for part in self.parts_of(statement) for name in deciders.get(part.id, ()))
                deciders[statement.id] = tuple(dict.fromkeys(names))
        return deciders


@cache
def collection_of(package: str) -> Collection:
    """Return the studies of a package, by the order of its modules, and all that its modules state.

    What several studies decide is stated in a module beside them that all of them import.  The package may order its statements:
    its ``FAMILIES`` are the beginnings of their ids, in the order of the catalogue; others follow as they are found.  Any module
    may say in ``POWERLESS`` why controls are known to survive.
    """
    modules = list(_modules(package))
    studies = {study.name: study for module in modules if (study := _study(module))}
    statements: dict[str, Statement] = {}
    for module in modules:
        statements |= {one.id: one for one in stated_in(module)}
    families = getattr(import_module(package), "FAMILIES", ())
    catalogue = {one.id: one for one in in_order(statements, families)}
    powerless = {key: why for module in modules for key, why in getattr(module, "POWERLESS", {}).items()}
    return Collection(studies, catalogue, powerless, f"python -m {package}", partial(collection_of, package))


def in_order(statements: Mapping[str, Statement], families: tuple[str, ...] = ()) -> list[Statement]:
    """Return statements by family and number, each before its parts, and else in the order given."""
    heads = list(dict.fromkeys(name.partition("/")[0] for name in statements))

    def key(item: tuple[int, Statement]) -> tuple[int, int, bool, int]:
        index, one = item
        head = one.id.partition("/")[0]
        family = head.rstrip("0123456789")
        number = head[len(family) :]
        if family in families and number:
            return families.index(family), int(number), one.id != head, index
        return len(families), heads.index(head), one.id != head, index

    return [one for _, one in sorted(enumerate(statements.values()), key=key)]


def study_in(module: str) -> Study:
    """Return the study that a module defines."""
    study = _study(import_module(module))
    if study is None:
        raise ValueError(f"module must define a study, got {module!r}")
    return study


def _modules(package: str) -> Iterator[ModuleType]:
    """Import the modules of a package and of its subpackages, in alphabetical order."""
    root = import_module(package)
    for one in walk_packages(root.__path__, f"{package}."):
        if not one.name.endswith(".__main__"):
            yield import_module(one.name)


def _study(module: ModuleType) -> Study | None:
    return getattr(module, "STUDY", None) or study_of(module)
