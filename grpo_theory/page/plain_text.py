"""A section as plain text for a terminal."""

from textwrap import fill

from grpo_theory.page.section import Section

WIDTH = 100


def section_text(part: Section) -> str:
    """Return a section, lines of at most 100 characters but for tables and code."""
    lines = [part.title.upper()]
    lines += [fill(text, WIDTH, initial_indent="  ", subsequent_indent="  ") for text in part.paragraphs]
    lines += [f"    {line}" for line in part.code]
    if part.table:
        widths = [max(len(row[i]) for row in part.table) for i in range(len(part.table[0]))]
        lines += [""]
        lines += ["  " + "  ".join(_cell(i, row[i], widths[i]) for i in range(len(row))).rstrip() for row in part.table]
    return "\n".join(lines)


def _cell(column: int, text: str, width: int) -> str:
    """Return a cell of a table: the first column to the left, and words to the left everywhere."""
    numeric = text[:1].isdigit() or text[:1] in "+-"
    return text.rjust(width) if numeric and column > 0 else text.ljust(width)
