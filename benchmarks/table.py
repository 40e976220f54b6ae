"""The table: one row a measurement, with the target where there is one, below the machine and the versions."""

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("grpo-theory", "numpy", "numba", "jax")


@dataclass(frozen=True)
class Row:
    """One measurement.

    Attributes
    ----------
    name : str
    number : float, optional
        None where nothing was measured.
    detail : str
        What the number comes from, or why there is none.
    better : str
        Which numbers are better, "higher" or "lower"; empty for a number that is neither good nor bad.
    target : float, optional
        The number should be at least so high, or at most so low.
    """

    name: str
    number: float | None
    detail: str = ""
    better: str = ""
    target: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none or nothing was measured."""
        if self.number is None or self.target is None:
            return None
        return self.number >= self.target if self.better == "higher" else self.number <= self.target

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """Name, value, target and verdict in words."""
        detail = f" ({self.detail})" if self.detail else ""
        value = self.detail if self.number is None else f"{plain(self.number)}{detail}"
        sense = "at least" if self.better == "higher" else "at most"
        target = "" if self.target is None else f"{sense} {self.target:g}"
        return self.name, value, target, {True: "yes", False: "no", None: ""}[self.met]


def plain(number: float) -> str:
    """Return a number with three digits, or all the digits before its point."""
    return f"{number:.0f}" if abs(number) >= 1000.0 else f"{number:.3g}"


def at_least(name: str, number: float, target: float | None, detail: str) -> Row:
    """Return the row of a number that should be high."""
    return Row(name, number, detail, "higher", target)


def at_most(name: str, number: float, target: float | None, detail: str) -> Row:
    """Return the row of a number that should be low."""
    return Row(name, number, detail, "lower", target)


def circumstances() -> str:
    """Name the processors and the versions that the numbers depend on; no date, so that equal results are equal files."""
    versions = ", ".join([f"python {platform.python_version()}", *map(_installed, PACKAGES)])
    return f"{os.cpu_count()} processors ({platform.machine()}), {versions}"


def markdown(rows: Sequence[Row]) -> str:
    """Return the circumstances in a line, and the table of the rows, its columns aligned."""
    lines = [("name", "value", "target", "met"), *(row.cells for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines]
    table.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return f"{circumstances()}\n\n" + "\n".join(table) + "\n"


def _installed(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"no {package}"
