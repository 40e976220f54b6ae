"""Text that users supply, as it may be shown: it moves no cursor, hides no word and fills no screen.  And records, as JSON."""

import argparse
import difflib
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn

LONGEST = 200
"""So many characters of a name or value are shown."""
LONGEST_MESSAGE = 2000
FEW = 12
"""So many names are listed."""
NEAREST = 3
"""So many of them are the ones most like what was asked for."""


def printable(text: object, longest: int | None = LONGEST) -> str:
    r"""Return a text as one line of characters that print.

    Other characters become escapes, as \x1b, so that a terminal obeys nothing that a file contains. The middle of a long text is
    left out. A path is kept whole, because it must be found.
    """
    whole = str(text)
    if longest is not None and not isinstance(text, Path) and len(whole) > longest:
        whole = f"{whole[: longest // 2]} ... {whole[-(longest // 2) :]}"
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in whole)


def listed(names: Iterable[str], asked: Sequence[str] = ()) -> str:
    """Return names for a message: all if they are few, else those nearest to what was asked for, the first, and how many more."""
    known = list(dict.fromkeys(names))
    if len(known) <= FEW:
        return ", ".join(map(printable, known))
    plain = {name.strip().lower(): name for name in reversed(known)}
    near = [plain[found] for one in asked for found in difflib.get_close_matches(str(one).strip().lower(), plain, n=NEAREST)]
    chosen = list(dict.fromkeys([*near[:FEW], *known]))[:FEW]
    return f"{', '.join(map(printable, chosen))} and {len(known) - len(chosen):,} more"


class Parser(argparse.ArgumentParser):
    """A command line whose messages repeat what was given without obeying it."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and end with status 2."""
        super().error(printable(message, LONGEST_MESSAGE))


def json_value(value: Any) -> Any:
    """Return a value as JSON can hold it: records by their fields, arrays as lists, and None for what is not finite."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    elif is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, dict):
        named = ((f"{key:g}" if isinstance(key, float) else key, part) for key, part in value.items())
        return {key: json_value(part) for key, part in named if not callable(part)}
    if isinstance(value, list | tuple):
        return [json_value(part) for part in value]
    if hasattr(value, "tolist"):
        return json_value(value.tolist())
    return None if isinstance(value, float) and not isfinite(value) else value
