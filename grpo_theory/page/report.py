"""What any report of verdicts has, and the page of a user's own studies: verdicts, controls, figure, how to run it again."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from grpo_theory.evidence import LEVEL, PARTS, REFUTATIONS, Statement, decided
from grpo_theory.harness.collection import Collection as Studies
from grpo_theory.harness.store import read_run, read_table
from grpo_theory.harness.study import Study
from grpo_theory.harness.verdicts import Verdicts
from grpo_theory.page.document import Page
from grpo_theory.page.theorem import add_statement
from grpo_theory.page.wording import setting_name, standing, tally
from grpo_theory.validation import counted

SHOWN = ["id", "problem", "verdict", "estimate", "low", "high", "prediction", "margin", "replications", "facts"]
WEAK = ["id", "problem", "estimate", "prediction", "control", "control_estimate", "control_prediction", "needed"]
HOW_TO_READ = (
    "A verdict is read off an interval, or off an exact number where low and high are one. Confirmed: the whole interval "
    "agrees with the statement. Refuted: no part of it does. Inconclusive: it holds both, and more runs would tell. Every check "
    "is also made of something known to be wrong, its negative control. Where that is not refuted, the check has no power and "
    "confirms nothing; such checks have a table of their own. A refutation needs no such control. A statement with an "
    "assumption is judged where "
    "that holds. What a paper measured on its own model is reproduced here or it is not: another model refutes no measurement. "
    "Printed statements are kept as the papers print them; what we put in their place is marked as corrected, with its proof."
)


WHOSE = {"paper": "printed statement", "correction": "correction", "ours": "question"}
"""What statements are called when they are counted, by whose they are."""


def add_numbers(page: Page, claims: pd.DataFrame, statements: Iterable[Statement], names: Mapping[str, str] = WHOSE) -> None:
    """Add how many statements hold and fail, and how many controls were refuted."""
    judged = [one for one in statements if one.kind != PARTS and (claims["id"] == one.id).any()]
    standings = {one.id: standing(claims[claims["id"] == one.id]) for one in judged}
    counts = [(whose, [standings[one.id] for one in judged if one.whose == whose]) for whose in names]
    page.paragraph(
        f"{counted(len(claims), 'claim')} {'was' if len(claims) == 1 else 'were'} judged in "
        f"{counted(claims['problem'].nunique(), 'setting')}. "
        + " ".join(f"There {'is' if len(own) == 1 else 'are'} {tally(own, names[whose])}." for whose, own in counts if own)
        + f" A statement has a wrong verdict with probability at most {LEVEL:g}. {_controls(claims)}"
    )


def add_rows(page: Page, claims: pd.DataFrame) -> None:
    """Add the rows of evidence with power, behind a fold."""
    rows = decided(claims)
    if len(rows):
        shown = _named(rows[SHOWN].assign(facts=rows["facts"].fillna("")), {"problem": "setting", "replications": "runs"})
        page.table(shown, summary=f"The {counted(len(rows), 'row')} of evidence")


def add_powerless(page: Page, claims: pd.DataFrame, group: str = "The rest") -> None:
    """Add the checks that decide nothing: they refute nothing, and their negative control was not refuted."""
    page.section("Checks without power", "powerless", group)
    weak = claims.drop(index=decided(claims).index)
    if weak.empty:
        page.paragraph("None: every negative control was refuted where a statement is not.")
        return
    page.paragraph(
        "Something known to be wrong went through the same machinery and was not refuted. So these checks could not have failed, "
        "and nothing is concluded from them. The last column is the number of runs that would do, where it is known. An exact "
        "check makes no runs."
    )
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
        seconds = read_run(results, name).get("processor seconds", "not known")
        rows.append((name, studies[name].title, settings, ", ".join(map(str, counts)), facts["seed"], seconds))
    columns = ["study", "title", "settings", "replications a cell", "seed", "processor seconds"]
    page.table(pd.DataFrame(rows, columns=columns), summary="Settings, replications, seeds and times")


def versions_of(verdicts: Verdicts) -> str:
    """Return the versions of what the numbers were made with, as a sentence."""
    return "Versions: " + ", ".join(f"{name} {number}" for name, number in verdicts.versions.items()) + "."


def origin(verdicts: Verdicts, studies: Collection[str]) -> str:
    """Say what the verdicts were made from."""
    mode = "a quick run (fewer replications)" if verdicts.quick else "a full run"
    missing = [name for name in studies if name not in verdicts.studies]
    if not missing:
        every = "the one study" if len(studies) == 1 else f"all {len(studies)} studies"
        return f"Made from {mode} of {every} with seed {verdicts.seed}."
    return (
        f"Made from {mode} of {len(verdicts.studies)} of {len(studies)} studies with seed {verdicts.seed}: "
        f"{', '.join(verdicts.studies)}. Nothing is said here of the others: {', '.join(missing)}."
    )


def _controls(claims: pd.DataFrame) -> str:
    """Say how many checks have no power, and how many refutations no positive control guards."""
    weak = len(claims) - len(decided(claims))
    text = f"{counted(weak, 'check')} had no power, because the negative control was not refuted. " if weak else ""
    refutations = claims[claims["verdict"].isin(REFUTATIONS)]
    if refutations.empty:
        return f"{text}Nothing was refuted."
    sound = {
        (one.id.partition("/")[0], one.problem)
        for one in claims.itertuples()
        if one.whose == "correction" and one.verdict == "confirmed"
    }
    guarded = sum(bool(one.sound) or (one.id.partition("/")[0], one.problem) in sound for one in refutations.itertuples())
    return (
        f"{text}Of {counted(len(refutations), 'refutation')} {guarded} {'is' if guarded == 1 else 'are'} guarded: the same "
        "computation does not refute something that holds, or confirms a correction there."
    )


NAMES = {"paper": "statement", "correction": "correction", "ours": "question"}
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
    add_powerless(page, verdicts.claims, "The rest")
    page.section("How to read it", "reading", "The rest")
    add_numbers(page, verdicts.claims, studies.statements.values(), NAMES)
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
            near = f" Near enough is {one.margin.value:g}: {one.margin.because.rstrip('.')}." if one.margin else ""
            judged = f"judged as: {one.kind}.{near}" if one.kind != PARTS else "decided by its parts."
            page.paragraph(f"{one.id} is {judged}", "quiet")
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
