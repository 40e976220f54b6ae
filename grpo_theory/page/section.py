"""A section of what is shown to people, as plain text for a terminal too, and numbers in words."""

from dataclasses import dataclass
from textwrap import fill

import numpy as np

from grpo_theory.user_text import printable

WIDTH = 100


@dataclass(frozen=True)
class Section:
    """A heading, paragraphs, and a table or lines of code, either of which may be empty; of characters that print.

    Attributes
    ----------
    title : str
    paragraphs : tuple of str
    table : tuple of rows
        The first row is the header; cells are strings.
    code : tuple of str
        Lines to be shown as they are.
    """

    title: str
    paragraphs: tuple[str, ...]
    table: tuple[tuple[str, ...], ...] = ()
    code: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("paragraphs", "code"):
            object.__setattr__(self, name, _printable(getattr(self, name)))
        object.__setattr__(self, "title", printable(self.title, None))
        object.__setattr__(self, "table", tuple(map(_printable, self.table)))


def _printable(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(printable(text, None) for text in texts)


def percent(share: float, signed: bool = False) -> str:
    """Return a share in percent, with as many digits as a reader needs."""
    if not np.isfinite(share):
        return "no limit"
    whole = abs(100.0 * share - round(100.0 * share)) < 0.05
    digits = 0 if abs(share) >= 0.0995 or whole else 1
    return f"{100.0 * share:{'+' if signed else ''},.{digits}f}%".replace("-0%", "0%").replace("+0%", "0%")


def number(value: float) -> str:
    """Return a number with three digits, without needless ones, and as people write it: powers of ten stand far out alone."""
    rounded = float(f"{value:.3g}") if abs(value) < 1000 else value
    if not (rounded == 0.0 or 1e-9 <= abs(rounded) < 1e15):
        return f"{rounded:.3g}"
    return f"{rounded:,.0f}" if abs(rounded) >= 1000 else np.format_float_positional(rounded + 0.0, trim="-")


def interval_text(low: float, high: float, signed: bool = False) -> str:
    """Return limits in percent."""
    if not np.isfinite(high):
        return f"{percent(low, signed)} or more"
    return f"{percent(low, signed)} to {percent(high, signed)}"


def level_text(level: float) -> str:
    """Return a confidence level in percent."""
    return f"{100.0 * level:g}%"


def option(argument: str) -> str:
    """Return the command's option for an argument of the library: --min-prompts for min_prompts."""
    return f"--{argument.replace('_', '-')}"


def section_text(part: Section) -> str:
    """Return a section, lines of at most 100 characters but for tables and code."""
    lines = [part.title.upper()]
    lines += [fill(text, WIDTH, initial_indent="  ", subsequent_indent="  ") for text in part.paragraphs]
    lines += [f"    {line}" for line in part.code]
    if part.table:
        lines += ["", *table_lines(part.table)]
    return "\n".join(lines)


def table_lines(rows: tuple[tuple[str, ...], ...]) -> list[str]:
    """Return the lines of a table: the first column to the left, and words to the left everywhere."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        right = [i > 0 and (text[:1].isdigit() or text[:1] in "+-") for i, text in enumerate(row)]
        cells = (text.rjust(n) if is_right else text.ljust(n) for text, n, is_right in zip(row, widths, right, strict=True))
        lines.append(f"  {'  '.join(cells)}".rstrip())
    return lines
