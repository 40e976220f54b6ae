"""What any report of verdicts has: how to read it, the rows of evidence, the checks without power, and how it was made."""

import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import pandas as pd

from grpo_theory.evidence import LEVEL, PARTS, REFUTATIONS, Statement, decided
from grpo_theory.harness.store import read_run, read_table
from grpo_theory.harness.study import Study
from grpo_theory.harness.verdicts import Verdicts
from grpo_theory.page.document import Page
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
        shown = rows[SHOWN].assign(problem=rows["problem"].map(setting_name), facts=rows["facts"].fillna(""))
        page.table(
            shown.rename(columns={"problem": "setting", "replications": "runs"}),
            summary=f"The {counted(len(rows), 'row')} of evidence",
        )


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
    shown = weak[WEAK].assign(problem=weak["problem"].map(setting_name), needed=runs)
    names = {"problem": "setting", "control": "control's verdict", "needed": "runs needed"}
    page.table(shown.rename(columns=lambda name: names.get(name, name.replace("_", "'s "))))


def add_made(page: Page, results: Path, verdicts: Verdicts, studies: Mapping[str, Study]) -> None:
    """Add the settings, replications, seeds and times of the studies."""
    page.table(how_made(results, verdicts.studies, studies), summary="Settings, replications, seeds and times")


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


def how_made(results: Path, names: Iterable[str], studies: Mapping[str, Study]) -> pd.DataFrame:
    """Return settings, replications, seed and time of each study."""
    rows = []
    for name in names:
        table, facts = read_table(results, name)
        seconds = read_run(results, name).get("processor seconds", "not known")
        sizes = {column: table[column].dropna() for column in ("batch_size", "group_size") if column in table}
        settings = {column: sorted({int(size) for size in values}) for column, values in sizes.items()}
        counts = sorted(set(table["replications"])) if "replications" in table else ["exact"]
        text = ", ".join(map(str, counts))
        rows.append((name, studies[name].title, json.dumps(settings), text, facts["seed"], seconds))
    columns = ["study", "title", "settings", "replications a cell", "seed", "processor seconds"]
    return pd.DataFrame(rows, columns=columns)


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
