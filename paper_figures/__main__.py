"""Command line of the figures; what draws them is imported when it is needed, because that takes seconds."""

import argparse
import sys
from pathlib import Path

from grpo_theory.harness.interrupts import ended, ending_at_once, output_refused
from grpo_theory.user_text import Parser

INTERRUPTED = "interrupted: what was drawn is kept, run the same command to draw it all"


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    top = Parser(prog="python -m paper_figures", description="Draw the figures and write the report.")
    top.add_argument("--quick", action="store_true", help="read results-quick and write report-quick")
    top.add_argument("--only", metavar="NAME", help="one figure, and no report: named as its file in paper_figures")
    top.add_argument("--out", type=Path, help="folder of the report (default: report, or report-quick)")
    top.add_argument("--results", type=Path, help="folder of the tables (default: results, or results-quick)")
    return top


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = parser().parse_args(arguments)
    try:
        with ending_at_once(INTERRUPTED):
            print("reading the figures, which takes some seconds", flush=True)
            from paper_figures import command, discovery

            discovery.figures()
        status = command.obey(options)
        sys.stdout.flush()
        return status
    except OSError as error:
        return output_refused(error)
    except KeyboardInterrupt:
        return ended(INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())
