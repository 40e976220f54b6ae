"""New results against old ones, row by row."""

from benchmarks.results import Results
from benchmarks.table import Row, markdown, plain

NOISE = 0.1
"""A row is worse if its number is so much worse, relatively."""


def is_worse(old: Row, new: Row) -> bool:
    """Whether a row got worse by more than the noise, as far as it has a better and a worse."""
    if old.number is None or new.number is None or not new.better:
        return False
    before, now = (old.number, new.number) if new.better == "lower" else (new.number, old.number)
    return now > (1.0 + NOISE) * before


def comparison(old: Results, new: Results) -> str:
    """Return a table with old and new number, ratio and verdict of each row, and a line that says how many are worse."""
    before = {row.name: row for row in old.rows}
    after = {row.name: row for row in new.rows}
    lines, worse = [], []
    for name in [*after, *(name for name in before if name not in after)]:
        one, other = before.get(name), after.get(name)
        verdict = "" if one and other else "new" if other else "gone"
        if one and other and is_worse(one, other):
            verdict = "worse"
            worse.append(name)
        lines.append((name, _number(one), _number(other), _ratio(one, other), verdict))
    table = markdown(("name", "old", "new", "new / old", "verdict"), lines)
    many = f"{len(worse)} of {len(before.keys() & after.keys())} rows are worse by more than {NOISE:.0%}"
    listed = "".join(f"\n- {name}" for name in worse)
    elsewhere = (
        "" if old.circumstances == new.circumstances else "The circumstances differ: ratios of times may mean nothing.\n\n"
    )
    return f"{elsewhere}{table}\n\n{many}{':' if worse else ''}{listed}\n"


def _number(row: Row | None) -> str:
    return "" if row is None or row.number is None else plain(row.number)


def _ratio(old: Row | None, new: Row | None) -> str:
    if old is None or new is None or not old.number or new.number is None:
        return ""
    return f"{new.number / old.number:.2f}"
