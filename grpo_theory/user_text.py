"""Text that users supply, as it may be shown: it moves no cursor, hides no word and fills no screen."""

import argparse
import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn

LONGEST = 200
"""So many characters of a name or value are shown."""
LONGEST_MESSAGE = 2000
FEW = 12
"""So many names are listed."""
NEAREST = 3
"""So many of them are the ones most like what was asked for."""
ALIKE = 0.6
"""How alike two names must be, by difflib's ratio, if letters do not decide: at a half, long names are near to everything."""
SHORTEST = 3
"""So many letters a name must have to be looked for inside others."""


def printable(text: object, longest: int | None = LONGEST) -> str:
    r"""Return a text as one line of characters that print.

    Other characters become escapes, as \x1b, so that a terminal obeys nothing that a file contains. The middle of a long text is
    left out. A path is kept whole, because it must be found.
    """
    whole = str(text)
    longest = None if isinstance(text, Path) else longest
    if longest is not None and len(whole) > longest:
        whole = f"{whole[: longest // 2]} ... {whole[-(longest // 2) :]}"
    if whole.isprintable():
        return whole
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


def distance(first: str, second: str) -> int:
    """Return how many letters must be added, left out, changed or swapped with their neighbour to make one word of another.

    This is the optimal string alignment distance, in which a swap counts once. So "gpro" is 1 from "grpo" and 2 from "gspo",
    between which difflib does not decide.
    """
    before, last = list(range(len(second) + 1)), list(range(len(second) + 1))
    for i, letter in enumerate(first, 1):
        now = [i]
        for j, other in enumerate(second, 1):
            least = min(last[j] + 1, now[j - 1] + 1, last[j - 1] + (letter != other))
            if i > 1 and j > 1 and (letter, first[i - 2]) == (second[j - 2], other):
                least = min(least, before[j - 2] + 1)
            now.append(least)
        before, last = last, now
    return last[-1]


def nearest(asked: str, names: Iterable[str]) -> list[str]:
    """Return the names that may be meant by an unknown one: the nearest by `distance`, else up to 3 that begin or end with it.

    Letters' case and what is no letter or digit do not count; a word may be off by a third of its letters. Two signs of
    addition at the end, as in REINFORCE++, stand for "plus_plus" if a name has these words.
    """
    names = list(names)
    if asked.endswith("++"):
        spelled = [name for name in names if _plain(f"{asked[:-2]}plusplus") in _plain(name)]
        if spelled:
            return spelled[:NEAREST]
        asked = asked[:-2]
    plain = {name: _plain(name) for name in names}
    word = _plain(asked)
    near = sorted((distance(word, one), name) for name, one in plain.items() if abs(len(one) - len(word)) <= len(word) // 3)
    if near and near[0][0] <= len(word) // 3:
        return [near[0][1]]
    parts = [name for name, one in plain.items() if len(word) >= SHORTEST and (one.startswith(word) or one.endswith(word))]
    alike = difflib.get_close_matches(word, list(plain.values()), n=1, cutoff=ALIKE)
    return parts[:NEAREST] or [name for name, one in plain.items() if one in alike][:1]


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def summary_table(title: str, rows: Iterable[tuple[str, object]]) -> str:
    """Return names and values under a title as statsmodels sets its summaries; numbers with four digits."""
    from statsmodels.iolib.table import SimpleTable  # slow to import, and not always wanted

    shown = [[name, f"{value:.4g}" if isinstance(value, float) else str(value)] for name, value in rows]
    return str(SimpleTable(shown, title=title, txt_fmt={"data_aligns": "lr"}).as_text())


class Parser(argparse.ArgumentParser):
    """A command line whose messages repeat what was given without obeying it."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and end with status 2."""
        super().error(printable(message, LONGEST_MESSAGE))
