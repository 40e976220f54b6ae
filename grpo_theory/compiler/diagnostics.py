"""What numba says of a function that does not compile, in one line.

Of numba this reads the text of its errors: "...Error: reason", the source line above a mark "^", and ">>>" before a call.
"""

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

_NAMED, _HEADING = re.compile(r"\w*Error: (.+)"), re.compile(r"(- )?(Failed in|Resolution failure|\w*Error:)")


def compilation_failure(error: Exception, function: Callable) -> tuple[str, str]:
    """Return the cause that numba names of why a function does not compile, and the function's line that it points at, or ""."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [found[1] for found in map(_NAMED.match, lines) if found]
    said = [line for line in named + lines if not _HEADING.match(line)]
    reason = said[0] if said else type(error).__name__
    if reason.endswith(":") and (shown := [line for line in lines if line.startswith(">>>")]):
        reason += shown[0].removeprefix(">>>")
    return reason, _pointed_at(lines, Path(function.__code__.co_filename).name)


def _pointed_at(lines: list[str], file: str) -> str:
    """Return the line above the first mark of a file, or nothing."""
    here = False
    for line, mark in pairwise(lines):
        if line.startswith("File "):
            here = f'{file}"' in line
        if here and mark == "^":
            return line
    return ""
