"""Command line of the studies."""

import argparse
import os
import sys
from concurrent.futures import BrokenExecutor
from pathlib import Path

import pandas as pd
from tqdm import tqdm

from grpo_theory.estimation import SourceFile
from grpo_theory.evidence import judge
from simulations.claims import CATALOGUE, decided_by
from simulations.harness.discovery import studies
from simulations.harness.executors import EXECUTORS
from simulations.harness.runner import run
from simulations.harness.store import Store, StoreError, read_table, write_atomically


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def _seed(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"must not be negative, got {value}")
    return value


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    top = argparse.ArgumentParser(prog="python -m simulations", description="Run the studies and judge the papers' claims.")
    commands = top.add_subparsers(dest="command", required=True)
    listing = commands.add_parser("list", help="list the studies")
    listing.add_argument("--claims", action="store_true", help="list the claims instead, and which study decides them")
    for name, text in (("run", "compute what is missing"), ("verify", "compute what is missing, and judge the claims")):
        command = commands.add_parser(name, help=text)
        command.add_argument("studies", nargs="*", metavar="STUDY", help="all if omitted; see `list`")
        command.add_argument("--quick", action="store_true", help="fewer replications; results go to results-quick")
        command.add_argument(
            "--workers", type=_count, default=os.cpu_count() or 1, help="how many (default: as many as processors)"
        )
        command.add_argument("--executor", choices=EXECUTORS, default="threads", help="what the workers are (default: threads)")
        command.add_argument("--kernels", type=Path, action="append", default=[], metavar="FILE", help="register its estimators")
        command.add_argument("--seed", type=_seed, default=0)
        command.add_argument("--results", type=Path, help="folder of the results (default: results, or results-quick)")
    return top


def list_studies() -> None:
    """Print the studies."""
    for study in studies().values():
        print(f"{study.name:20s} {study.title}")


def list_claims() -> None:
    """Print the catalogue: who decides a statement, or why it is open."""
    deciders = decided_by(studies().values())
    for statement in CATALOGUE.values():
        where = ", ".join(deciders.get(statement.id, ())) if statement.decided else f"open: {statement.open}"
        print(f"{statement.id:22s} {statement.text}  [{statement.source}; {where}]")


def verify(names: list[str], store: Store) -> pd.DataFrame:
    """Judge the claims of the studies together, write claims.csv beside the tables, and say what came out."""
    claims = [claim for name in names for claim in studies()[name].claims(read_table(store.root, name)[0])]
    verdicts = judge(claims)
    write_atomically(store.root / "claims.csv", verdicts.to_csv(index=False).encode())
    counts = verdicts.groupby(["id", "verdict"], sort=False).size().unstack(fill_value=0)
    print(counts.to_string())
    powerless = verdicts[~verdicts["power"]]
    for row in powerless.itertuples():
        print(f"no power: {row.id} on {row.problem}: its negative control is {row.control}")
    print(f"{len(verdicts)} claims, {len(powerless)} without power: {store.root / 'claims.csv'}")
    return verdicts


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = parser().parse_args(arguments)
    if options.command == "list":
        (list_claims if options.claims else list_studies)()
        return 0
    names = options.studies or list(studies())
    unknown = [name for name in names if name not in studies()]
    if unknown:
        print(f"STUDY must be one of {', '.join(studies())}, got {unknown[0]!r}", file=sys.stderr)
        return 2
    kernels = []
    try:
        for path in options.kernels:
            kernels.append(SourceFile.read(path))
            kernels[-1].load()
    except (OSError, ImportError, SyntaxError, TypeError, ValueError, NameError) as error:
        print(f"--kernels must be a Python file that registers estimators, got {path}: {error}", file=sys.stderr)
        return 2
    root = options.results or Path("results-quick" if options.quick else "results")
    try:
        store = Store(root, options.seed)
        chosen = [studies()[name] for name in names]
        with EXECUTORS[options.executor](options.workers) as executor:
            for study, computed in run(chosen, store, executor, quick=options.quick, kernels=kernels):
                tqdm.write(f"{study.name}: {computed} chunks computed, table in {root / study.name}.parquet")
        if options.command == "verify":
            verify(names, store)
    except StoreError as error:
        print(error, file=sys.stderr)
        return 2
    except BrokenExecutor:
        print(
            "a worker has died, perhaps for want of memory: what was finished is kept, run the same command to go on",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        print("interrupted: what was finished is kept, run the same command to go on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
