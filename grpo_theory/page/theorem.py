"""How a statement stands in the report: typeset, the verdict in words, its correction with a proof, and what we ask beside it."""

import html
import re
from collections.abc import Collection, Mapping, Sequence

import pandas as pd

from grpo_theory.evidence import PARTS, Statement
from grpo_theory.page.digest import cell
from grpo_theory.page.document import Page, anchor_of
from grpo_theory.page.mathematics import typeset
from grpo_theory.page.printed import ARXIV, Printed, place_of, searched
from grpo_theory.page.wording import SEE, in_words, standing, tally, verdict

PRINTED = ("paper", "number", "statement", "verdict", "largest gap", "what holds instead", "proof", "study")
MARKS = {
    "holds": ("✓", "holds"),
    "fails": ("✗", "fails"),
    "holds in part": ("◐", "in-part"),
    "is reproduced": ("✓", "holds"),
    "is not reproduced": ("○", "elsewhere"),
    "is reproduced in part": ("◐", "in-part"),
    "is inconclusive": ("?", "open"),
}


def add_statement(page: Page, whole: Statement, parts: Sequence[Statement], claims: pd.DataFrame) -> None:
    """Add a statement with all that was found of it, and of its parts."""
    own = [one for one in (whole, *parts) if one.kind != PARTS]
    kinds = {whose: [one for one in own if one.whose == whose] for whose in ("paper", "correction", "ours")}
    named = _named(whole, _deciding(whole, own, claims))
    page.block(
        f'<article class="statement"{named}><div class="source">{_id(whole)} {_source(whole)}</div>'
        f"<div>{typeset(_words(whole))}</div>{_assumed(whole)}",
        f"### {whole.id} ({whole.source})\n\n{_words(whole)}",
    )
    _add_parts(page, kinds["paper"], claims, whole)
    if kinds["correction"]:
        stands = all(standing(claims[claims["id"] == one.id]) == "holds" for one in kinds["paper"] if not one.measured)
        title = "Made sharp" if stands else "Corrected"
        page.block(f'<div class="correction"><h3>{title}</h3>', f"{title}:")
        _add_parts(page, kinds["correction"], claims, whole)
        page.block("</div>")
    if kinds["ours"] == own:  # there is nothing that they are beside
        _add_parts(page, own, claims, whole)
    elif kinds["ours"]:
        judged = [standing(claims[claims["id"] == one.id]) for one in kinds["ours"]]
        summary = f"Asked beside it: {tally(judged, 'question')}."
        page.block(f"<details><summary>{summary}</summary>", summary)
        _add_parts(page, kinds["ours"], claims, whole)
        page.block("</details>")
    page.block("</article>")


def add_list(page: Page, statements: Sequence[Statement], claims: pd.DataFrame) -> None:
    """Add statements that need no typesetting, one after another."""
    _add_parts(page, statements, claims)


def add_proofs(page: Page, statements: Sequence[Statement], derivations: Mapping[int, tuple[str, str]]) -> None:
    """Add the derivations, titles and texts by their numbers, on which the statements rest, each behind a fold."""
    numbers = proofs_named(statements)
    for number in numbers:
        title, text = derivations[number]
        summary = f"<summary>{number}. {html.escape(title)}</summary>"
        page.block(f'<details id="proof-{number}">{summary}<pre>{html.escape(text)}</pre></details>')
    page.markdown.append(f"In docs/derivations.md, sections {', '.join(map(str, numbers))}.")


def proofs_named(statements: Sequence[Statement]) -> list[int]:
    """Return the numbers of the derivations on which statements rest."""
    return sorted({number for one in statements if (number := _derivation(one))})


def _add_parts(page: Page, statements: Sequence[Statement], claims: pd.DataFrame, whole: Statement | None = None) -> None:
    if not statements:
        return
    page.block('<ul class="parts">')
    for one in statements:
        rows = claims[claims["id"] == one.id]
        (mark, look), words = MARKS[standing(rows)], in_words(rows)
        if rows.empty and one.open:
            words = f"Not decided: {one.open}."
        name, text = ("", "") if one == whole else (_named(one, rows), typeset(_words(one)))
        if whole and one.assumptions != whole.assumptions:
            text += _assumed(one)
        page.block(
            f'<li{name}><span class="mark {look}" title="{look}">{mark}</span>{text}'
            f"<div>{emphasised(words, look)}</div>{'' if one == whole else _id(one)} {_proof(one)}</li>",
            f"- {mark} {'' if one == whole else _words(one)} {words} ({one.id}; {one.source})",
        )
    page.block("</ul>")


def add_printed(page: Page, rows: Sequence[Printed], proofs: Collection[int]) -> None:
    """Add the table of what papers print, of which each row is found by the search; proofs are those that the page has."""
    body, lines = [], []
    for row in rows:
        paper = f"{row.name} ({row.paper})" if row.name else row.paper
        numbers = sorted({int(number) for number in re.findall(r"docs/derivations\.md, (\d+)", row.sources)} & {*proofs})
        cells = (
            f'<a href="{row.link}">{html.escape(paper)}</a>' if row.link else html.escape(paper),
            html.escape(row.number),
            f'{html.escape(row.text)} <a class="id" href="#{anchor_of(row.id)}">{html.escape(row.id)}</a>',
            f'<span class="{row.verdict.replace(" ", "-")}">{row.verdict}</span>',
            html.escape(row.gap),
            html.escape(row.instead),
            ", ".join(f'<a href="#proof-{number}">{number}</a>' for number in numbers),
            html.escape(", ".join(row.studies)),
        )
        found = _found(row.title, row.words, row.verdict)
        inner = "".join(f"<td>{code}</td>" for code in cells)
        body.append(f'<tr id="printed-{anchor_of(row.id)}"{found}>{inner}</tr>')
        shown = (paper, row.number, f"{row.text} ({row.id})", row.verdict, row.gap, row.instead)
        lines.append((*shown, ", ".join(map(str, numbers)), ", ".join(row.studies)))
    head = "".join(f"<th>{title}</th>" for title in PRINTED)
    page.block(
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>',
        "\n".join(f"| {' | '.join(map(cell, line))} |" for line in (PRINTED, ["---"] * len(PRINTED), *lines)),
    )


def _found(name: str, words: str, word: str) -> str:
    """Return the attributes that the search reads: how a hit is called, what it is found by, and its verdict."""
    return f' data-hit="{html.escape(name)}" data-words="{html.escape(words)}" data-verdict="{html.escape(word)}"'


def _named(statement: Statement, rows: pd.DataFrame) -> str:
    """Return the attributes by which links and the search find a statement, of which the rows have the verdict."""
    words = searched(statement.id, statement.source, statement.text)
    found = _found(statement.id, words, verdict(rows))
    return f' id="{anchor_of(statement.id)}" data-id="{html.escape(statement.id)}"{found}'


def _deciding(whole: Statement, own: Sequence[Statement], claims: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that decide a statement with its parts: those printed where it is, or printed at all, or else all."""
    stated = [one for one in own if one.whose == "paper"]
    there = [one for one in stated if place_of(one) == place_of(whole)]
    return claims[claims["id"].isin([one.id for one in there or stated or own])]


def emphasised(words: str, look: str) -> str:
    """Return the verdict with its first clause in bold, and a link to the checks without power where they are spoken of."""
    cut = _first_clause(words)
    rest = html.escape(words[cut:]).replace(SEE, f'<a href="#powerless">{SEE}</a>')
    return f'<span class="verdict {look}">{html.escape(words[:cut])}</span>{rest}'


def _first_clause(words: str) -> int:
    """Return where the first clause ends: at a semicolon or full stop that stands in no brackets."""
    depth = 0
    for i, character in enumerate(words):
        depth += (character == "(") - (character == ")")
        if not depth and character in ";." and words[i + 1 : i + 2] in ("", " "):
            return i + 1
    return len(words)


def _words(statement: Statement) -> str:
    """Return the statement's typeset form, or its plain text."""
    return statement.formula or statement.text[:1].upper() + statement.text[1:] + "."


def _assumed(statement: Statement) -> str:
    return f'<p class="quiet">Assumed: {html.escape(statement.assumptions)}.</p>' if statement.assumptions else ""


def _id(statement: Statement) -> str:
    return f'<a class="id" href="#{anchor_of(statement.id)}">{html.escape(statement.id)}</a>'


def _source(statement: Statement) -> str:
    """Return where the statement stands, with a link to the paper."""
    return ARXIV.sub(r'<a href="https://arxiv.org/abs/\1">\g<0></a>', html.escape(statement.source))


def _proof(statement: Statement) -> str:
    number = _derivation(statement)
    return f'<a href="#proof-{number}">proof: derivations, section {number}</a>' if number else ""


def _derivation(statement: Statement) -> int:
    found = re.fullmatch(r"docs/derivations\.md, (\d+)", statement.source)
    return int(found[1]) if found else 0
