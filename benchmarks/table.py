"""The table: one row a measurement, with the target where there is one."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One measurement.

    Attributes
    ----------
    name, value, target : str
    met : bool, optional
        None where there is no target or nothing was measured.
    """

    name: str
    value: str
    target: str = ""
    met: bool | None = None

    @property
    def verdict(self) -> str:
        """Whether the target is met, in a word."""
        return {True: "yes", False: "no", None: ""}[self.met]


def at_least(name: str, value: float, target: float, detail: str) -> Row:
    """Return the row of a ratio that should be large."""
    return Row(name, f"{value:.2f} ({detail})", f"at least {target:g}", value >= target)


def at_most(name: str, value: float, target: float, detail: str) -> Row:
    """Return the row of a number that should be small."""
    return Row(name, f"{value:.3g} ({detail})", f"at most {target:g}", value <= target)


def markdown(rows: Sequence[Row]) -> str:
    """Return the table, its columns aligned."""
    cells = [("name", "value", "target", "met"), *((row.name, row.value, row.target, row.verdict) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in cells]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)
