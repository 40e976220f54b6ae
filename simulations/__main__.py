"""Command line of the studies: what is asked for; what does it is imported when it is known, because that takes seconds."""

import argparse
import sys
from pathlib import Path

from grpo_theory.harness.interrupts import KEPT, ended, ending_at_once, output_refused
from grpo_theory.harness.options import add_run, add_workers, shard
from grpo_theory.user_text import Parser


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    top = Parser(prog="python -m simulations", description="Run the studies and judge the papers' claims.")
    commands = top.add_subparsers(dest="command", required=True)
    listing = commands.add_parser("list", help="list the studies")
    listing.add_argument("--claims", action="store_true", help="list the claims instead, and which study decides them")

    run = commands.add_parser("run", help="compute what is missing")
    _add_work(run)
    run.add_argument("--shard", type=shard, metavar="I/N", help="only part I of N, as for a job of an array; then `merge`")

    judged = "compute what is missing, and judge the claims, together with those of tables that stand there already"
    _add_work(commands.add_parser("verify", help=judged))

    merge = commands.add_parser("merge", help="bring together what shards have computed, and build the tables that are complete")
    merge.add_argument(
        "folders", nargs="*", type=Path, metavar="FOLDER", help="of a shard (default: all that are in the results)"
    )
    _add_results(merge)
    return top


def _add_work(command: argparse.ArgumentParser) -> None:
    command.add_argument("studies", nargs="*", metavar="STUDY", help="all if omitted; see `list`")
    add_workers(command)
    _add_results(command)


def _add_results(command: argparse.ArgumentParser) -> None:
    add_run(command, "results go to results-quick")
    command.add_argument("--results", type=Path, help="folder of the results (default: results, or results-quick)")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = parser().parse_args(arguments)
    try:
        with ending_at_once(KEPT):
            if options.command != "list":
                print("reading the studies, which takes some seconds", flush=True)
            from grpo_theory.harness import command
            from simulations.collection import collection

            ours = collection()
        status = command.obey(options, ours)
        sys.stdout.flush()
        return status
    except OSError as error:
        return output_refused(error)
    except KeyboardInterrupt:
        return ended(KEPT)


if __name__ == "__main__":
    sys.exit(main())
