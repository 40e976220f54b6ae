"""What the command line of the figures does: draws them, writes the report, and says in a line what is wrong."""

import argparse
import sys
from pathlib import Path

from grpo_theory.harness.interrupts import RefusedError
from grpo_theory.harness.options import repeated
from grpo_theory.harness.store import ORIGIN, read_facts, read_verdicts
from grpo_theory.page.drawing import draw, draw_all, prepare
from paper_figures.content.report import write_report
from paper_figures.discovery import figures, figures_of
from simulations.collection import studies


def obey(options: argparse.Namespace) -> int:
    """Do what the options say; returns the exit status."""
    if options.only is not None and options.only not in figures():
        print(f"--only must be one of {', '.join(figures())}, got {options.only!r}", file=sys.stderr)
        return 2
    suffix = "-quick" if options.quick else ""
    results = options.results or Path(f"results{suffix}")
    out = options.out or Path(f"report{suffix}")
    try:
        if options.only is not None:
            (out / "figures").mkdir(parents=True, exist_ok=True)
            prepare()
            draw(figures()[options.only].__name__, results, out / "figures")
            print(f"figure: {out / 'figures' / options.only}.png, and .svg")
        else:
            _report(results, out)
    except RefusedError as error:
        print(error.told(_given(options, results)), file=sys.stderr)
        return 2
    except OSError as error:
        print(f"--out must be a folder that can be written, got {out}: {error.strerror}", file=sys.stderr)
        return 2
    return 0


def _report(results: Path, out: Path) -> None:
    verdicts = read_verdicts(results, studies())
    drawn = {name: figures()[name].__name__ for name in figures_of(verdicts.studies)}
    (out / "figures").mkdir(parents=True, exist_ok=True)
    print(f"{len(drawn)} figures to draw", flush=True)
    for number, name in enumerate(draw_all(drawn, results, out / "figures"), start=1):
        print(f"{name}: {number} of {len(drawn)} figures", flush=True)
    write_report(verdicts, results, out)
    print(f"report: {out / 'report.html'}")


def _given(options: argparse.Namespace, results: Path) -> str:
    """Return the options with which the tables are made that are read here."""
    return repeated(quick=options.quick, seed=read_facts(results / ORIGIN).get("seed", 0), results=options.results)
