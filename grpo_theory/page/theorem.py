"""How a statement stands in the report: typeset, the verdict in words, its correction with a proof, and what we ask beside it."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pandas as pd

from grpo_theory.evidence import PARTS, Statement
from grpo_theory.page.document import Page, said
from grpo_theory.page.printed import Printed, place_of, searched
from grpo_theory.page.wording import in_words, standing, verdict

PRINTED = ("paper", "number", "statement", "verdict", "largest gap", "what holds instead", "proof", "study")
PROOF = re.compile(r"docs/derivations\.md, (\d+)")


def add_statement(page: Page, whole: Statement, parts: Sequence[Statement], claims: pd.DataFrame) -> None:
    """Add a statement with all that was found of it, and of its parts."""
    own = [one for one in (whole, *parts) if one.kind != PARTS]
    printed, corrections, ours = ([one for one in own if one.whose == whose] for whose in ("paper", "correction", "ours"))
    # The verdict of the whole is of what is printed where it is, or printed at all, or else of everything.
    there = [one for one in printed if place_of(one) == place_of(whole)]
    rows = claims[claims["id"].isin([one.id for one in there or printed or own])]
    standings = {one.id: standing(claims[claims["id"] == one.id]) for one in own}
    stands = all(standings[one.id] == "holds" for one in printed if not one.measured)
    asked = [standings[one.id] for one in ours]
    page.add(
        "statement",
        whole=_entry(whole, rows),
        printed=_shown(printed, claims, whole),
        title="Made sharp" if stands else "Corrected",
        corrections=_shown(corrections, claims, whole),
        summary=f"Asked beside it: {said('tally', standings=asked, noun='question')}." if asked and ours != own else "",
        asked=_shown(ours, claims, whole),
    )


def add_list(page: Page, statements: Sequence[Statement], claims: pd.DataFrame) -> None:
    """Add statements that need no typesetting, one after another."""
    if statements:
        page.add("statements", shown=_shown(statements, claims))


def add_proofs(page: Page, statements: Sequence[Statement], derivations: Mapping[int, tuple[str, str]]) -> None:
    """Add the derivations, titles and texts by their numbers, on which the statements rest, each behind a fold."""
    page.add("proofs", proofs=[(number, *derivations[number]) for number in proofs_named(statements)])


def proofs_named(statements: Sequence[Statement]) -> list[int]:
    """Return the numbers of the derivations on which statements rest."""
    return sorted({int(found[1]) for one in statements if (found := PROOF.fullmatch(one.source))})


def add_printed(page: Page, rows: Sequence[Printed], proofs: Collection[int]) -> None:
    """Add the table of what papers print, of which each row is found by the search; proofs are those that the page has."""
    shown = []
    for row in rows:
        paper = f"{row.name} ({row.paper})" if row.name else row.paper
        shown.append((row, paper, sorted({int(number) for number in PROOF.findall(row.sources)} & {*proofs})))
    page.add("printed", head=PRINTED, rows=shown)


def _entry(statement: Statement, rows: pd.DataFrame) -> dict[str, Any]:
    """Return a statement with what links and the search find it by, and the verdict that its rows have."""
    words = searched(statement.id, statement.source, statement.text)
    return {"statement": statement, "searched": words, "verdict": verdict(rows)}


def _shown(statements: Sequence[Statement], claims: pd.DataFrame, whole: Statement | None = None) -> list[dict[str, Any]]:
    """Return statements with their verdicts in words; a whole is not told again where it is its own part."""
    shown = []
    for one in statements:
        rows = claims[claims["id"] == one.id]
        words = in_words(rows)
        if rows.empty and one.open:
            words = f"Not decided: {one.open}."
        depth, cut = 0, len(words)
        for i, character in enumerate(words):  # the first clause ends at a semicolon or full stop that stands in no brackets
            depth += (character == "(") - (character == ")")
            if not depth and character in ";." and words[i + 1 : i + 2] in ("", " "):
                cut = i + 1
                break
        proof = PROOF.fullmatch(one.source)
        shown.append(
            _entry(one, rows)
            | {"standing": standing(rows), "first": words[:cut], "rest": words[cut:]}
            | {"is_whole": one == whole, "own_assumptions": whole is not None and one.assumptions != whole.assumptions}
            | {"proof": proof[1] if proof else ""}
        )
    return shown
