"""The way from a user's files to verdicts and a page."""

import argparse
import shlex
from concurrent.futures import BrokenExecutor
from pathlib import Path

from matplotlib.figure import Figure

from grpo_theory.evidence import PARTS, decided
from grpo_theory.harness.interrupts import RefusedError, exits_told
from grpo_theory.harness.options import repeated
from grpo_theory.harness.runner import run, say_lost
from grpo_theory.harness.store import CLAIMS, Store, Verdicts, judge_tables, read_table, say_power, write_verdicts
from grpo_theory.harness.study_file import Collection, StudyFileError, collect_files, draw_of, first_line, load_kernels
from grpo_theory.page.drawing import prepare, save
from grpo_theory.page.mathematics import FormulaError, typeset
from grpo_theory.page.report import write_study_report
from grpo_theory.page.wording import in_words
from grpo_theory.user_text import LONGEST_MESSAGE, printable


@exits_told()
def verify(options: argparse.Namespace) -> int:
    """Verify the studies that the options name; returns the exit status.

    Raises
    ------
    ValueError
        If something is wrong with a file or an option; the message is one line.
    """
    try:
        kernels = load_kernels(options.kernels)
        studies = collect_files(options.studies, kernels)
        for one in studies.statements.values():  # before anything is computed
            try:
                typeset(one.formula or one.text)
                typeset(one.margin.because if one.margin else "")
            except FormulaError as error:
                raise StudyFileError(f"the formula of {one.id}: {error}") from None
        root = options.out or Path("verified-quick" if options.quick else "verified")
        store = Store(root, options.seed, "--out")
        with store.locked():
            return _decide(studies, store, options)
    except RefusedError as error:
        raise ValueError(f"{error.reason}{': run the same command again' if error.remedy else ''}") from None
    except BrokenExecutor as error:
        return say_lost(error)


def _decide(studies: Collection, store: Store, options: argparse.Namespace) -> int:
    """Compute what is missing, judge, print, draw and write the page."""
    chosen = list(studies.studies.values())
    try:
        with options.executor(options.workers) as executor:
            list(run(chosen, store, executor, quick=options.quick))
    except StudyFileError as error:
        raise StudyFileError(f"{error}; what was finished is kept") from None
    except (TypeError, ValueError, ArithmeticError) as error:  # of what a user's functions return
        raise StudyFileError(f"no table can be made of what is computed, which is kept: {first_line(error)}") from None
    verdicts, _ = judge_tables(store.root, list(studies.studies), studies.studies)
    # The library's word for a statement that stands in its source is "paper"; a user's source may be his notes.
    verdicts.claims["whose"] = verdicts.claims["whose"].replace("paper", "source")
    write_verdicts(store.root, verdicts)
    _say(studies, verdicts)
    where = f": {store.root / CLAIMS}"
    status = say_power(verdicts.claims, studies.uninformative, quick=verdicts.quick, where=where)
    drawn, failed = _draw(studies, store.root)
    given = repeated(quick=options.quick, seed=options.seed, results=options.out, kernels=options.kernels, folder="--out")
    again = f"grpo-theory verify {shlex.join(map(str, options.studies))} {given}".rstrip()
    write_study_report(studies, verdicts, store.root, drawn, again)
    print(f"page: {store.root / 'report.html'}", flush=True)
    if failed:
        raise StudyFileError(f"{failed}; table, verdicts and page are kept, without the figure")
    return status


def _say(studies: Collection, verdicts: Verdicts) -> None:
    """Print what the statements claim, and what became of them."""
    for one in studies.statements.values():
        print(f"\n{printable(one.id)}: {printable(one.text, LONGEST_MESSAGE)}")
        print(f"  {one.kind}; {printable(one.source)}{f'; assumed: {printable(one.assumptions)}' if one.assumptions else ''}")
        if one.margin:
            print(f"  margin {one.margin.value:g}: {printable(one.margin.because)}")
        if one.kind != PARTS:
            own = verdicts.claims[verdicts.claims["id"] == one.id]
            print(f"  {printable(in_words(own), LONGEST_MESSAGE)}")
            if (decided(own)["needed"] > 0).any():
                ask = "Leave out --quick, or ask" if verdicts.quick else "Ask"
                print(f"  {ask} for more replications in its cases.")
    print()


def _draw(studies: Collection, root: Path) -> tuple[list[str], str]:
    """Draw the figures of the studies that define one; returns their names, and why one could not be drawn."""
    drawn, failed = [], ""
    prepare()
    for study in studies.studies.values():
        try:
            draw = draw_of(study)
            if draw is None:
                continue
            figure = draw(read_table(root, study.name)[0])
            if not isinstance(figure, Figure):
                raise StudyFileError(f"{study.name}: draw(table) must return a figure of matplotlib, got {type(figure).__name__}")
            (root / "figures").mkdir(exist_ok=True)
            save(figure, root / "figures", study.name)
            drawn.append(study.name)
        except StudyFileError as error:
            failed = failed or str(error)
        except (TypeError, ValueError, ArithmeticError) as error:  # when it is laid out, as of a formula that is none
            failed = failed or f"{study.name}: the figure cannot be written: {first_line(error)}"
    return drawn, failed
