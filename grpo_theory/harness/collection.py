"""Studies that are judged together, and the catalogue of what they state."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from grpo_theory.evidence import PARTS, Statement
from grpo_theory.evidence.claim import WHOSE
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
    def powerless(self) -> dict[tuple[str, str], str]:
        """Why the control of a claim is known to survive, as its study says."""
        return {key: why for study in self.studies.values() for key, why in study.powerless.items()}

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


def in_order(statements: Mapping[str, Statement], families: tuple[str, ...] = ()) -> list[Statement]:
    """Return statements by family and number, heads before their parts; of those the papers' come first, then corrections."""
    heads = list(dict.fromkeys(name.partition("/")[0] for name in statements))

    def key(item: tuple[int, Statement]) -> tuple[int, int, bool, int, int]:
        index, one = item
        head = one.id.partition("/")[0]
        family = head.rstrip("0123456789")
        number = head[len(family) :]
        if family in families and number:
            return families.index(family), int(number), one.id != head, WHOSE.index(one.whose), index
        return len(families), heads.index(head), one.id != head, WHOSE.index(one.whose), index

    return [one for _, one in sorted(enumerate(statements.values()), key=key)]
