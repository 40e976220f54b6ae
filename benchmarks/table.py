"""The table: one row a measurement, with the target where there is one, below the machine and the versions."""

import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from typing import NamedTuple

PACKAGES = ("grpo_theory", "numpy", "numba", "jax")


class Row(NamedTuple):
    """One measurement.

    Attributes
    ----------
    name : str
    number : float
    detail : str
        What the number comes from.
    least, most : float, optional
        The target: the number should be at least so high, or at most.
    """

    name: str
    number: float
    detail: str = ""
    least: float | None = None
    most: float | None = None

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """Name, value, target and verdict in words."""
        target = "" if self.least is None else f"at least {self.least:g}"
        if self.most is not None:
            target = f"at most {self.most:g}"
        digits = f"{self.number:.0f}" if self.number >= 1000.0 else f"{self.number:.3g}"
        met = (self.least is None or self.number >= self.least) and (self.most is None or self.number <= self.most)
        verdict = ("yes" if met else "no") if target else ""
        return self.name, f"{digits} ({self.detail})" if self.detail else digits, target, verdict


def circumstances() -> str:
    """Name the processors and the versions that the numbers depend on; no date, so that equal results are equal files."""
    versions = [f"{package} {version(package)}" if find_spec(package) else f"no {package}" for package in PACKAGES]
    return f"{os.cpu_count()} processors ({platform.machine()}), python {platform.python_version()}, {', '.join(versions)}"


def markdown(rows: Sequence[Row]) -> str:
    """Return the circumstances in a line, and the table of the rows, its columns aligned."""
    lines = [("name", "value", "target", "met"), *(row.cells for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines]
    table.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return f"{circumstances()}\n\n" + "\n".join(table) + "\n"
