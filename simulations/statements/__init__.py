"""What the studies state, from the files beside this one: one for each paper, and for questions of ours one for each subject."""

from pathlib import Path
from typing import overload

from grpo_theory.evidence import Statement, read_statements

FILES = (
    *("demystifying", "tic_grpo", "normalization", "related", "frontier", "long_answers"),
    *("intervals", "estimators", "length", "division", "planner", "group_sizes"),
    *("climbed_objectives", "dynamics", "published_estimators", "certificates"),
)
STATEMENTS: dict[str, Statement] = {}
"""By id, in the order of the catalogue."""
for _name in FILES:
    STATEMENTS |= read_statements(Path(__file__).with_name(f"{_name}.toml"))


@overload
def stated(one: str, /) -> Statement: ...
@overload
def stated(one: str, /, *others: str) -> tuple[Statement, ...]: ...
def stated(one: str, /, *others: str) -> Statement | tuple[Statement, ...]:
    """Return the statement with an id, or those with several."""
    return tuple(STATEMENTS[name] for name in (one, *others)) if others else STATEMENTS[one]
