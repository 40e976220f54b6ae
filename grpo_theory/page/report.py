"""What any report of verdicts has, and the page of a user's own studies: verdicts, controls, figure, how to run it again."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from grpo_theory.evidence import LEVEL, PARTS, REFUTATIONS, Statement, decided
from grpo_theory.harness.store import RUNS, Verdicts, read_facts, read_table
from grpo_theory.harness.study import Study
from grpo_theory.harness.study_file import Collection as Studies
from grpo_theory.page.document import Page, said
from grpo_theory.page.theorem import add_statement
from grpo_theory.page.wording import setting_name, standing
from grpo_theory.validation import counted

SHOWN = ["id", "problem", "verdict", "estimate", "low", "high", "prediction", "margin", "replications", "facts"]
WEAK = ["id", "problem", "estimate", "prediction", "control", "control_estimate", "control_prediction", "needed"]
HOW_TO_READ = said("how_to_read")


def add_numbers(page: Page, claims: pd.DataFrame, statements: Iterable[Statement], printed: str = "printed statement") -> None:
    """Add how many statements hold and fail, how many checks have no power, and how many refutations are guarded."""
    standings: dict[str, list[str]] = {"paper": [], "correction": [], "ours": []}
    for one in statements:
        own = claims[claims["id"] == one.id]
        if one.kind != PARTS and len(own) and one.whose in standings:
            standings[one.whose].append(standing(own))
    nouns = zip(standings.values(), (printed, "correction", "question"), strict=True)
    refutations = claims[claims["verdict"].isin(REFUTATIONS)]
    corrected = claims[(claims["whose"] == "correction") & (claims["verdict"] == "confirmed")]
    sound = {(one.id.partition("/")[0], one.problem) for one in corrected.itertuples()}
    guarded = sum(bool(one.sound) or (one.id.partition("/")[0], one.problem) in sound for one in refutations.itertuples())
    page.paragraph(
        said(
            "numbers",
            claims=len(claims),
            settings=claims["problem"].nunique(),
            counts=[(own, noun) for own, noun in nouns if own],
            level=f"{LEVEL:g}",
            weak=len(claims) - len(decided(claims)),
            refutations=len(refutations),
            guarded=guarded,
        )
    )


def add_rows(page: Page, claims: pd.DataFrame) -> None:
    """Add the rows of evidence with power, behind a fold."""
    rows = decided(claims)
    if len(rows):
        shown = _named(rows[SHOWN].assign(facts=rows["facts"].fillna("")), {"problem": "setting", "replications": "runs"})
        # An exact number has no limits.
        shown[["low", "high"]] = shown[["low", "high"]].astype(object).mask(shown["runs"] == 0, "")
        page.table(shown, summary=f"The {counted(len(rows), 'row')} of evidence")


def add_uninformative(page: Page, claims: pd.DataFrame, group: str = "The rest") -> None:
    """Add the checks that decide nothing: they refute nothing, and their negative control was not refuted."""
    page.section("Checks without power", "uninformative", group)
    weak = claims.drop(index=decided(claims).index)
    if weak.empty:
        page.paragraph("None: every negative control was refuted where a statement is not.")
        return
    page.paragraph(said("uninformative"))
    runs = ["exact" if row.replications == 0 else int(row.needed) or "" for row in weak.itertuples()]
    names = {"problem": "setting", "control": "control's verdict", "needed": "runs needed"}
    page.table(_named(weak[WEAK].assign(needed=runs), names))


def add_made(page: Page, results: Path, verdicts: Verdicts, studies: Mapping[str, Study]) -> None:
    """Add the settings, replications, seeds and times of the studies."""
    rows = []
    for name in verdicts.studies:
        table, facts = read_table(results, name)
        sizes = {column: table[column].dropna() for column in ("batch_size", "group_size") if column in table}
        settings = json.dumps({column: sorted({int(size) for size in values}) for column, values in sizes.items()})
        counts = sorted(set(table["replications"])) if "replications" in table else ["exact"]
        seconds = read_facts(results / RUNS / f"{name}.json").get("processor seconds", "not known")
        rows.append((name, studies[name].title, settings, ", ".join(map(str, counts)), facts["seed"], seconds))
    columns = ["study", "title", "settings", "replications a cell", "seed", "processor seconds"]
    page.table(pd.DataFrame(rows, columns=columns), summary="Settings, replications, seeds and times")


def versions_of(verdicts: Verdicts) -> str:
    """Return the versions of what the numbers were made with, as a sentence."""
    return "Versions: " + ", ".join(f"{name} {number}" for name, number in verdicts.versions.items()) + "."


def origin(verdicts: Verdicts, studies: Collection[str]) -> str:
    """Say what the verdicts were made from."""
    return said("origin", quick=verdicts.quick, seed=verdicts.seed, named=verdicts.studies, every=list(studies))


CONTROLS = ["id", "problem", "kind", "estimate", "prediction", "control_estimate", "control_prediction", "control", "power"]


def write_study_report(studies: Studies, verdicts: Verdicts, results: Path, drawn: Sequence[str], again: str) -> None:
    """Write the page into the folder of the results.

    Parameters
    ----------
    studies : Studies
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
    add_uninformative(page, verdicts.claims, "The rest")
    page.section("How to read it", "reading", "The rest")
    add_numbers(page, verdicts.claims, studies.statements.values(), "statement")
    page.paragraph(HOW_TO_READ)
    page.section("How to run it again", "again", "The rest")
    page.add("code", text=again)
    add_made(page, results, verdicts, studies.studies)
    page.paragraph(versions_of(verdicts))
    page.write(results)


def _add_study(page: Page, study: Study, studies: Studies, claims: pd.DataFrame, results: Path, has_figure: bool) -> None:
    page.section(study.title, f"study-{study.name}", "Studies")
    own = claims[claims["study"] == study.name]
    stated = {one.id: one for one in study.statements}
    for whole in stated.values():
        if any(whole.id.startswith(f"{name}/") for name in stated):
            continue  # it is a part of another one
        parts = tuple(one for one in studies.parts_of(whole) if one.id in stated)
        add_statement(page, whole, parts, own)
        for one in (whole, *parts):
            page.paragraph(said("judged_as", one=one, by_parts=one.kind == PARTS), "quiet")
    if has_figure:
        page.figure(results / "figures", study.name, study.title)
    shown = own[CONTROLS].assign(power=own["power"].map({True: "yes", False: "no"}))
    names = {"problem": "setting", "control": "control's verdict", "power": "has the check power?"}
    page.table(_named(shown, names), summary="The claims and their controls")
    add_rows(page, own)


def _named(rows: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """Return rows of claims.csv with settings and heads of columns in words."""
    shown = rows.assign(problem=rows["problem"].map(setting_name))
    return shown.rename(columns=lambda name: names.get(name, name.replace("control_", "control's ")))
