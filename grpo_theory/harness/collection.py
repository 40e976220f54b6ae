"""Studies that are judged together, and the catalogue of what they state."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pkgutil import walk_packages

from grpo_theory.evidence import PARTS, Statement
from grpo_theory.evidence.claim import WHOSE
from grpo_theory.harness.sides import stated_in, study_of
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
    program : str
        How its command is called.
    prepare : callable
        What a process that computes chunks of its studies may call first: it imports them.
    """

    studies: Mapping[str, Study]
    statements: Mapping[str, Statement]
    program: str
    prepare: Callable[[], object]

    @property
    def uninformative(self) -> dict[tuple[str, str], str]:
        """Why the control of a claim is known to survive, as its study says."""
        return {key: why for study in self.studies.values() for key, why in study.uninformative.items()}

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


def in_order(statements: Mapping[str, Statement], families: tuple[str, ...] = ()) -> dict[str, Statement]:
    """Return statements by family and number, heads before their parts; of those the papers' come first, then corrections."""
    heads = list(dict.fromkeys(name.partition("/")[0] for name in statements))

    def key(one: Statement) -> tuple[int, int, bool, int]:
        head = one.id.partition("/")[0]
        family = head.rstrip("0123456789")
        known = family in families and family != head
        place = (families.index(family), int(head.removeprefix(family))) if known else (len(families), heads.index(head))
        return *place, one.id != head, WHOSE.index(one.whose)

    return {one.id: one for one in sorted(statements.values(), key=key)}


@cache
def collection_of(package: str) -> Collection:
    """Return the studies of a package, by the order of its modules, and all that its modules state.

    What several studies decide is stated in a module beside them that all of them import.  The package may order its statements.
    Its ``FAMILIES`` are the beginnings of their ids, in the order of the catalogue; others follow as they are found.
    """
    root = import_module(package)
    names = [one.name for one in walk_packages(root.__path__, f"{package}.")]
    modules = [import_module(name) for name in names if not name.endswith(".__main__")]
    studies = {study.name: study for module in modules if (study := study_of(module))}
    statements = {one.id: one for module in modules for one in stated_in(module)}
    catalogue = in_order(statements, getattr(root, "FAMILIES", ()))
    return Collection(studies, catalogue, f"python -m {package}", partial(collection_of, package))


def study_in(module: str) -> Study:
    """Return the study that a module defines."""
    study = study_of(import_module(module))
    assert study is not None
    return study
