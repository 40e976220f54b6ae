"""The report: what papers print and its verdict, what was found, the evidence of each theorem, and checks without power."""

from pathlib import Path
from types import ModuleType

import pandas as pd

from grpo_theory.evidence import Statement
from grpo_theory.harness.store import Verdicts, read_table
from grpo_theory.page.captions import caption_of
from grpo_theory.page.document import Page, anchor_of
from grpo_theory.page.printed import printed
from grpo_theory.page.report import HOW_TO_READ, add_made, add_numbers, add_rows, add_uninformative, origin, versions_of
from grpo_theory.page.theorem import add_list, add_printed, add_proofs, add_statement, proofs_named
from paper_figures.content.coverage_advice import RULE, advice, choices
from paper_figures.content.derivations import derivations
from paper_figures.content.findings import FINDINGS, Found, NotSaidError
from paper_figures.content.sections import LEAD, SYMBOLS, TABLE, Section, section_of, sections
from paper_figures.content.summaries import (
    about_runs,
    coverage_at_points,
    coverage_of_runs,
    group_sizes,
    undecided,
    who_wins,
)
from paper_figures.discovery import figures, figures_of, subject
from simulations.collection import catalogue, collection, studies
from simulations.sources import PAPERS


def write_report(verdicts: Verdicts, results: Path, out: Path) -> None:
    """Write the report from the verdicts and the tables that they were judged from, of all studies or of some."""
    page, claims = Page("What is true about GRPO"), verdicts.claims
    # Rows are chosen some thousand times, of which each would copy Arrow's texts: half a minute.
    texts = [name for name, kind in claims.dtypes.items() if isinstance(kind, pd.StringDtype)]
    verdicts = verdicts._replace(claims=claims.astype(dict.fromkeys(texts, object)))
    drawn = {name: figures()[name] for name in figures_of(verdicts.studies)}
    about = {name: subject(module) for name, module in drawn.items()}
    _add_opening(page, verdicts, results)
    _add_figures(page, {name: drawn[name] for name, statement in about.items() if statement == ""}, results, out)
    _add_reading(page, verdicts.claims)
    for section in sections():
        own = {name: drawn[name] for name, statement in about.items() if statement and section.holds(statement)}
        _add_section(page, section, verdicts, results, own, out)
    rest = {name: drawn[name] for name, statement in about.items() if statement is None}
    if rest:
        page.section("Further pictures", "pictures", "The rest")
        _add_figures(page, rest, results, out)
    add_uninformative(page, verdicts.claims)
    page.section("Statements that are not decided yet", "undecided", "The rest")
    left = undecided()
    if left.empty:
        page.paragraph("None: a study decides each.")
    else:
        page.table(left)
    page.section("Proofs", "proofs", "The rest")
    add_proofs(page, _judged(verdicts.claims), derivations())
    page.section("How this was made", "made", "The rest")
    page.paragraph(origin(verdicts, studies()))
    add_made(page, results, verdicts, studies())
    if len(drawn) < len(figures()):
        page.paragraph(f"Not drawn, because a table is missing: {', '.join(name for name in figures() if name not in drawn)}.")
    page.paragraph(versions_of(verdicts))
    page.write(out)


def _judged(claims: pd.DataFrame) -> list[Statement]:
    """Return the statements that have a verdict."""
    return [one for one in catalogue().values() if (claims["id"] == one.id).any()]


def _add_opening(page: Page, verdicts: Verdicts, results: Path) -> None:
    """Add what the papers print, a row each with its verdict, and what was found."""
    page.paragraph(f"{LEAD} {origin(verdicts, studies())}", "quiet")
    page.section("Is it true? Every printed statement", "printed")
    page.paragraph(TABLE)
    add_printed(page, printed(collection(), verdicts.claims, PAPERS), proofs_named(_judged(verdicts.claims)))
    page.section("What was found", "found")
    lines, unsaid, found = [], [], Found(verdicts, results)
    for finding in FINDINGS:
        try:
            lines.append((finding.says(found), section_of(finding.about).group, anchor_of(finding.about)))
        except NotSaidError as reason:
            unsaid.append(f"{section_of(finding.about).title}: {reason}")
    page.add("findings", lines=lines)
    if unsaid:
        page.paragraph(f"Left out, because this run does not say it: {'; '.join(unsaid)}.", "quiet")


def _add_reading(page: Page, claims: pd.DataFrame) -> None:
    """Add how many statements hold and fail, and how to read the rest."""
    page.add("heading", text="In numbers")
    add_numbers(page, claims, catalogue().values())
    page.add("heading", text="How to read it")
    page.paragraph(HOW_TO_READ)
    page.add("fold", summary="Symbols", text=SYMBOLS)


def _add_section(
    page: Page, section: Section, verdicts: Verdicts, results: Path, drawn: dict[str, ModuleType], out: Path
) -> None:
    """Add statements, pictures, tables and rows of one section, if anything of it was judged or drawn."""
    claims = verdicts.claims[verdicts.claims["id"].map(section.holds).astype(bool)]
    if claims.empty and not drawn:
        return
    page.section(section.title, section.anchor, section.group)
    if section.asks:
        page.paragraph(section.asks, "quiet")
    listed = []
    for whole, parts in section.statements():
        if whole.formula or len(parts) > 1:
            add_statement(page, whole, parts, claims)
        else:
            listed += [whole, *parts]
    add_list(page, listed, claims)
    _add_figures(page, drawn, results, out)
    _add_tables(page, section.anchor, results, verdicts.studies, claims)
    add_rows(page, claims)


def _add_figures(page: Page, drawn: dict[str, ModuleType], results: Path, out: Path) -> None:
    for name, module in drawn.items():
        tables = {table: read_table(results, table)[0] for table in module.TABLES}
        page.figure(out / "figures", name, caption_of(module, tables))


def _add_tables(page: Page, anchor: str, results: Path, names: tuple[str, ...], claims: pd.DataFrame) -> None:
    """Add the tables of a section that are read off those of its studies."""
    if anchor == "baseline" and "baselines" in names:
        page.table(
            who_wins(results), summary="Error of one group's gradient relative to the oracle's, simulated, problem by problem"
        )
    if anchor == "group-size" and "error_law" in names:
        page.table(group_sizes(results), summary="The constants of the error law and the best group size, problem by problem")
    if anchor != "intervals":
        return
    if len(claims):
        page.table(coverage_at_points(claims), summary="Coverage at single points, with many replications")
    if "coverage" in names:
        found = advice(read_table(results, "coverage")[0])
        page.add("heading", text="What to use on one batch")
        page.paragraph(RULE)
        page.table(choices(found))
        page.table(
            found.astype(object).where(found.notna(), "none bounded"), summary="All intervals, and what the rule says of them"
        )
    if "coverage_runs" in names:
        page.add("heading", text="On one training run")
        page.paragraph(about_runs(results))
        page.table(coverage_of_runs(results))
