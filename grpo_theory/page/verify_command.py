"""`grpo-theory verify`: decides the statements of a user's own studies, and writes table, verdicts, figure and page.

What is slow to import is imported after the command line is understood.
"""

import argparse
from pathlib import Path

from grpo_theory.harness.interrupts import KEPT, ended, ending_at_once
from grpo_theory.harness.options import add_run, add_workers

HELP = "decide the statements of your own study, with its control"
DESCRIPTION = (
    "Decide the statements of your own study. A study is a Python file that states theorems, and functions under @gt.check(...), "
    "which return their two sides in a case; docs/own_study.md describes it. What is missing is computed. The command writes a "
    "table, claims.csv, a page report.html, and a figure if the file defines draw(table)."
)


def describe(verify: argparse.ArgumentParser) -> None:
    """Describe the subcommand and its options."""
    verify.description = DESCRIPTION
    verify.add_argument("studies", nargs="+", type=Path, metavar="MY_STUDY.py", help="judged together if there are several")
    add_workers(verify)
    add_run(verify, "if the study's cases(quick) makes a difference; results go to verified-quick")
    verify.add_argument("--out", type=Path, metavar="DIR", help="where all is written (default: verified, or verified-quick)")


def run(options: argparse.Namespace) -> int:
    """Verify, print what came out, and write the page; returns the exit status: 1 if a control has no power."""
    try:
        with ending_at_once(KEPT):
            from grpo_theory.page.verification import verify  # the library and its compiler
        return verify(options)
    except KeyboardInterrupt:
        return ended(KEPT)
