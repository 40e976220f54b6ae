"""The catalogue of claims: every statement as data; studies refer to it, and report, README and tests derive from it."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from grpo_theory.evidence import Claim, Evidence, Statement
from grpo_theory.harness.study import Study
from simulations.claims import n, package, planner, practice, r, t, u
from simulations.claims.typeset import TYPESET
from simulations.claims.u import PARTS as PARTS

CATALOGUE: Mapping[str, Statement] = MappingProxyType(
    {statement.id: statement for module in (u, t, n, r, practice, package, planner) for statement in module.STATEMENTS}
)


for _one in CATALOGUE.values():
    object.__setattr__(_one, "formula", TYPESET.get(_one.id, ""))  # until each stands in the file of its study


def claim(statement: str, setting: str, *evidence: Evidence, facts: Mapping[str, float] | None = None) -> Claim:
    """Return a claim about a statement of the catalogue, by its id: the evidence for it, then that for its control."""
    own, control = evidence
    return Claim(CATALOGUE[statement], setting, own, control, facts or {})


def parts_of(statement: Statement) -> tuple[Statement, ...]:
    """Return the statements into which one is split, by their ids."""
    return tuple(one for one in CATALOGUE.values() if one.id.startswith(f"{statement.id}/"))


def decided_by(studies: Iterable[Any]) -> dict[str, tuple[str, ...]]:
    """Return the names of the studies that decide each statement; one that is split is decided where its parts are."""
    deciders: dict[str, tuple[str, ...]] = {}
    for study in studies:
        for name in study.decides:
            deciders[name] = (*deciders.get(name, ()), study.name)
    for statement in CATALOGUE.values():
        if statement.kind == PARTS:
            names = (name for part in parts_of(statement) for name in deciders.get(part.id, ()))
            deciders[statement.id] = tuple(dict.fromkeys(names))
    return deciders


def unconverted(name: str, title: str, cells: Any, compute: Any, rows: Any, claims: Any, decides: tuple[str, ...] = ()) -> Study:
    """Return a study whose file has not yet the form of one."""
    stated = tuple(CATALOGUE[one] for one in decides)
    return Study(name, title, cells.__module__, cells, compute, rows, claims, stated)
