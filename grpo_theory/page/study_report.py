"""The page of a user's own studies: each statement with its verdict and control, the figure, and how to run it again."""

import html
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from grpo_theory.evidence import PARTS, Statement
from grpo_theory.harness.collection import Collection
from grpo_theory.harness.study import Study
from grpo_theory.harness.verdicts import Verdicts
from grpo_theory.page.document import Page
from grpo_theory.page.report import HOW_TO_READ, add_made, add_numbers, add_powerless, add_rows, origin, versions_of
from grpo_theory.page.theorem import add_statement
from grpo_theory.page.wording import setting_name

NAMES = {"paper": "statement", "correction": "correction", "ours": "question"}
CONTROLS = ["id", "problem", "kind", "estimate", "prediction", "control_estimate", "control_prediction", "control", "power"]


def write_study_report(studies: Collection, verdicts: Verdicts, results: Path, drawn: Sequence[str], again: str) -> None:
    """Write the page into the folder of the results.

    Parameters
    ----------
    studies : Collection
    verdicts : Verdicts
    results : Path
    drawn : sequence of str
        The studies whose figures are in the folder ``figures`` there.
    again : str
        The command that does the same once more.
    """
    only = next(iter(studies.studies.values()))
    page = Page(only.title if len(studies.studies) == 1 else "Statements and their verdicts")
    page.paragraph(origin(verdicts, studies.studies), "quiet")
    for study in studies.studies.values():
        _add_study(page, study, studies, verdicts.claims, results, study.name in drawn)
    add_powerless(page, verdicts.claims, "The rest")
    page.section("How to read it", "reading", "The rest")
    add_numbers(page, verdicts.claims, studies.statements.values(), NAMES)
    page.paragraph(HOW_TO_READ)
    page.section("How to run it again", "again", "The rest")
    page.block(f"<pre>{html.escape(again)}</pre>", f"    {again}")
    add_made(page, results, verdicts, studies.studies)
    page.paragraph(versions_of(verdicts))
    page.write(results)


def _add_study(page: Page, study: Study, studies: Collection, claims: pd.DataFrame, results: Path, has_figure: bool) -> None:
    page.section(study.title, f"study-{study.name}", "Studies")
    own = claims[claims["study"] == study.name]
    stated = {one.id: one for one in study.statements}
    for whole in (one for one in stated.values() if not _is_part(one, stated)):
        parts = tuple(one for one in studies.parts_of(whole) if one.id in stated)
        add_statement(page, whole, parts, own)
        for one in (whole, *parts):
            page.paragraph(_how_it_is_judged(one), "quiet")
    if has_figure:
        page.figure(results / "figures", study.name, study.title)
    controls = own[CONTROLS].assign(problem=own["problem"].map(setting_name))
    controls["power"] = controls["power"].map({True: "yes", False: "no"})
    names = {"problem": "setting", "control": "control's verdict", "power": "has the check power?"}
    page.table(
        controls.rename(columns=lambda name: names.get(name, name.replace("control_", "control's "))),
        summary="The claims and their controls",
    )
    add_rows(page, own)


def _is_part(statement: Statement, stated: dict[str, Statement]) -> bool:
    return any(statement.id.startswith(f"{name}/") for name in stated)


def _how_it_is_judged(statement: Statement) -> str:
    """Say of what kind a statement is, and how near is near enough."""
    if statement.kind == PARTS:
        return f"{statement.id} is decided by its parts."
    margin = statement.margin
    near = f" Near enough is {margin.value:g}: {margin.because.rstrip('.')}." if margin else ""
    return f"{statement.id} is judged as: {statement.kind}.{near}"
