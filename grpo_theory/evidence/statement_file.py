"""Statements as data: a TOML file in which each is a table under its id."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grpo_theory.evidence.claim import PARTS, Margin, Statement
from grpo_theory.evidence.rules import KINDS
from grpo_theory.plain_text import plain

HEAD = {"paper": str, "derivations": str, "margins": dict}
"""What may stand above the statements: where the numbers and the sections are to be found, and margins by their names."""
KEYS: dict[str, Any] = {
    "says": str,
    "kind": str,
    "number": str,
    "section": int,
    "source": str,
    "assumptions": str,
    "margin": (str, dict),
    "whose": str,
    "measured": bool,
    "open": str,
    "text": str,
}
PLACES = ("number", "section", "source")


def read_statements(path: str | Path) -> dict[str, Statement]:
    r"""Read statements from a TOML file in which each is a table under its id.

    At the top ``paper`` names what the statements' ``number`` counts, and ``derivations`` what their ``section`` counts.
    The table ``margins`` holds margins that several statements share.  A statement has the keys ``says`` and ``kind``.
    Where they differ from the defaults it has ``number``, ``section`` or ``source``, and further keys.  These are
    ``assumptions``, ``margin``, ``whose``, ``measured``, ``open`` and ``text``.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    dict of str to Statement
        By id, in the order of the file.  What is said may hold LaTeX between dollars.  It is the formula, and the
        text is the same in plain characters.  The key ``text`` replaces these.

    Raises
    ------
    ValueError
        If the file is no TOML, or a table says what no statement has; the message names file, id and key.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from grpo_theory.evidence import read_statements
    >>> text = '''
    ... paper = "my notes"
    ... margins.small = {value = 0.02, because = "nobody sees 2%"}
    ... ["mine/error"]
    ... number = "Lemma 1"
    ... kind = "equality"
    ... margin = "small"
    ... says = 'The error is $\\frac{c_1}{B}+\\frac{c_2}{BG}$.'
    ... '''
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "mine.toml")
    ...     _ = path.write_text(text)
    ...     stated = read_statements(path)["mine/error"]
    >>> stated.source, stated.text
    ('my notes, Lemma 1', 'the error is c_1/B + c_2/(BG)')
    """
    path = Path(path)
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is no TOML: {error}") from None
    head = {key: tables.pop(key) for key in HEAD if key in tables}
    for key, value in head.items():
        if not isinstance(value, HEAD[key]):
            raise ValueError(f"{path}: {key} must be a {'table' if HEAD[key] is dict else 'text'}, got {value!r}")
    margins = {}
    for name, value in head.get("margins", {}).items():
        margins[name] = _margin(value, f"{path}, margins.{name}")
    return {name: _statement(name, table, head, margins, f"{path}, {name!r}") for name, table in tables.items()}


def _statement(name: str, table: Any, head: Mapping[str, Any], margins: Mapping[str, Margin], where: str) -> Statement:
    if not isinstance(table, dict):
        raise ValueError(f"{where} must be a table, or one of {', '.join(HEAD)}, got {table!r}")
    for key, value in table.items():
        if key not in KEYS:
            raise ValueError(f"{where}: no statement has the key {key!r}; it may have {', '.join(KEYS)}")
        if not isinstance(value, KEYS[key]) or (KEYS[key] is int and isinstance(value, bool)):
            raise ValueError(f"{where}: {key} cannot be {value!r}")
    words = {key: " ".join(value.split()) if isinstance(value, str) else value for key, value in table.items()}
    for key in ("says", "kind"):
        if not words.get(key):
            raise ValueError(f"{where} has no {key!r}")
    if words["kind"] not in (*KINDS, PARTS):
        raise ValueError(f"{where}: kind must be one of {', '.join((*KINDS, PARTS))}, got {words['kind']!r}")
    says, margin = words.pop("says"), words.pop("margin", None)
    if isinstance(margin, str) and margin not in margins:
        raise ValueError(
            f"{where}: margin must be one of {', '.join(margins) or 'those in [margins], of which there are none'}, "
            f"got {margin!r}"
        )
    try:
        text = words.pop("text", "") or plain(_as_clause(says))
    except IndexError:
        raise ValueError(f"{where}: {says!r} holds a formula that ends too early") from None
    source = _source(words, head, where)
    near = margins[margin] if isinstance(margin, str) else margin and _margin(margin, where)
    rest: dict[str, Any] = {key: value for key, value in words.items() if key not in PLACES}
    try:
        return Statement(name, source, text, formula="" if says == text else says, margin=near, **rest)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from None


def _source(words: Mapping[str, Any], head: Mapping[str, Any], where: str) -> str:
    """Return where a statement stands: in the paper, in one of its numbers, in a section of the derivations, or elsewhere."""
    given = [key for key in PLACES if key in words]
    if len(given) > 1:
        raise ValueError(f"{where} must have one of {', '.join(PLACES)}, got {' and '.join(given)}")
    if given == ["source"]:
        return words["source"]
    needed = "derivations" if given == ["section"] else "paper"
    if needed not in head:
        raise ValueError(f"{where} stands nowhere: give it a source, or the file a {needed!r} at its top")
    return ", ".join([head[needed], *(str(words[key]) for key in given)])


def _margin(table: Any, where: str) -> Margin:
    if not isinstance(table, dict) or set(table) - {"absolute"} != {"value", "because"}:
        raise ValueError(f"{where}: a margin must be {{value = ..., because = ...}}, got {table!r}")
    try:
        return Margin(**table)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _as_clause(says: str) -> str:
    """Return a sentence as a table has it, without a capital and a full stop; what is none is left as it is."""
    if not says.endswith((".", "?", "$$")):
        return says
    return re.sub(r"^[A-Z](?=[a-z]*\b(?! \d))", lambda found: found[0].lower(), says.removesuffix("."))
