"""Command line of the figures: draws them all, and writes the report."""

import argparse
import sys
from pathlib import Path

from paper_figures.harness.discovery import figures
from paper_figures.harness.drawing import draw, draw_all, prepare
from paper_figures.harness.report import write_report
from simulations.harness.store import StoreError


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    top = argparse.ArgumentParser(prog="python -m paper_figures", description="Draw the figures and write the report.")
    top.add_argument("--quick", action="store_true", help="read results-quick and write report-quick")
    top.add_argument("--only", metavar="NAME", help=f"one figure, and no report: {', '.join(figures())}")
    top.add_argument("--out", type=Path, help="folder of the report (default: report, or report-quick)")
    top.add_argument("--results", type=Path, help="folder of the tables (default: results, or results-quick)")
    return top


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = parser().parse_args(arguments)
    if options.only is not None and options.only not in figures():
        print(f"--only must be one of {', '.join(figures())}, got {options.only!r}", file=sys.stderr)
        return 2
    suffix = "-quick" if options.quick else ""
    results = options.results or Path(f"results{suffix}")
    out = options.out or Path(f"report{suffix}")
    try:
        (out / "figures").mkdir(parents=True, exist_ok=True)
        if options.only is not None:
            prepare()
            draw(options.only, results, out / "figures")
        else:
            draw_all(results, out / "figures")
            write_report(results, out)
            print(f"report: {out / 'report.html'}")
    except StoreError as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"--out must be a folder that can be written, got {out}: {error.strerror}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
