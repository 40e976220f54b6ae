"""What the command line of the studies does: lists, runs, verdicts, and one line for each mistake."""

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import BrokenExecutor
from pathlib import Path

from grpo_theory.estimation import SourceFile
from grpo_theory.evidence import ESTIMATE
from grpo_theory.harness.interrupts import RefusedError, exits_told
from grpo_theory.harness.options import SHARDS, repeated
from grpo_theory.harness.runner import chunks_of, compute_chunks, merge, missing_in, run, say_lost, tell
from grpo_theory.harness.store import CHUNKS, CLAIMS, Store, judge_tables, say_power, write_verdicts
from grpo_theory.harness.study_file import Collection, first_line, load_kernels
from grpo_theory.user_text import LONGEST_MESSAGE, printable
from grpo_theory.validation import counted


@exits_told()
def obey(options: argparse.Namespace, collection: Collection) -> int:
    """Do what the options say to the studies of a collection; returns the exit status."""
    if options.command == "list":
        deciders = collection.deciders()
        for one in collection.statements.values() if options.claims else ():
            where = ", ".join(deciders.get(one.id, ())) if one.decided else f"open: {one.open}"
            print(f"{one.id:22s} {one.text}  [{one.source}; {where}]")
        for study in () if options.claims else collection.studies.values():
            print(f"{study.name:20s} {study.title}")
        return 0
    named = () if options.command == "merge" else options.studies
    names = list(dict.fromkeys(named)) or list(collection.studies)
    unknown = [name for name in names if name not in collection.studies]
    kernels: list[SourceFile] = []
    try:
        if unknown:
            raise RefusedError(f"STUDY must be one of {', '.join(collection.studies)}, got {unknown[0]!r}")
        # The cells that a user's kernels add are known once these are registered.
        kernels = load_kernels(options.kernels)
        root = options.results or Path("results-quick" if options.quick else "results")
        if options.command == "merge":
            return _merge(names, root, options, collection)
        return _compute(names, root, options, kernels, collection)
    except RefusedError as error:
        message = error.told(given(options), collection.program)
    except BrokenExecutor as error:
        return say_lost(error)
    except (TypeError, ValueError, ArithmeticError) as error:
        if not kernels:
            raise
        message = f"a study has failed with --kernels, what was finished is kept: {first_line(error)}"
    print(printable(message, LONGEST_MESSAGE), file=sys.stderr)
    return 2


def given(options: argparse.Namespace) -> str:
    """Return the options that a command must repeat to be about the same results."""
    return repeated(quick=options.quick, seed=options.seed, results=options.results, kernels=options.kernels)


def _compute(
    names: Sequence[str], root: Path, options: argparse.Namespace, kernels: Sequence[SourceFile], collection: Collection
) -> int:
    chosen = [collection.studies[name] for name in names]
    shard = options.shard if options.command == "run" else None
    number, parts = shard or (0, 1)
    store = Store(root / SHARDS / f"{number}-of-{parts}" if shard else root, options.seed)
    with store.locked():
        with options.executor(options.workers, collection.prepare) as executor:
            if shard:
                # Neighbours in the order of chunks cost alike, so that shards do.
                part = chunks_of(chosen, quick=options.quick)[number - 1 :: parts]
                missing = missing_in(part, store, Store(root, options.seed))
                tell(f"{len(missing)} of {len(part)} chunks to compute")
                computed = sum(1 for _ in compute_chunks(missing, store, executor, kernels))
                tell(f"{counted(computed, 'chunk')} computed, in {store.root}: `merge` brings the shards together")
            else:
                list(run(chosen, store, executor, quick=options.quick, kernels=kernels))
        return verify(names, root, options, collection) if options.command == "verify" else 0


def _merge(names: Sequence[str], root: Path, options: argparse.Namespace, collection: Collection) -> int:
    folders = options.folders or sorted(path for path in (root / SHARDS).glob("*-of-*") if path.is_dir())
    absent = [folder for folder in folders if not (folder / CHUNKS).is_dir()]
    if absent or not folders:
        found = absent[0] if absent else f"none, and none is in {root}"
        raise RefusedError(f"FOLDER must hold the chunks of a shard, got {found}")
    store = Store(root, options.seed)
    with store.locked():
        chosen = [collection.studies[name] for name in names]
        lacking = merge(chosen, store, [Store(folder, options.seed) for folder in folders], quick=options.quick)
    for name, number in lacking.items():
        print(f"{name}: {number} chunks are missing: run `{collection.program} run {name} {given(options)}`".rstrip())
    return 1 if lacking else 0


def verify(names: Sequence[str], root: Path, options: argparse.Namespace, collection: Collection) -> int:
    """Judge the claims together, write claims.csv beside the tables, and say what came out for the named studies.

    Returns the exit status: 1 if a check has no power and the collection does not say why.
    """
    tell("judging the claims")
    verdicts, left_out = judge_tables(root, names, collection.studies)
    write_verdicts(root, verdicts)
    named = verdicts.claims[verdicts.claims["study"].isin(names)]
    if len(named):
        print(named.groupby(["id", "verdict"], sort=False).size().unstack(fill_value=0).to_string())
    for name, part in named[named["verdict"] == ESTIMATE].groupby("id", sort=False):
        needed = f"; {part['needed'].max():,} replications could decide" if part["needed"].max() else ""
        print(f"estimate only: {name} in {counted(len(part), 'setting')}: its limits are wider than what is allowed{needed}")
    for name, reason in left_out.items():
        print(f"left out: {reason}: run `{collection.program} verify {' '.join([name, given(options)]).rstrip()}`")
    others = len(verdicts.claims) - len(named)
    together = f", judged together with {others} of other studies whose tables stand there" if others else ""
    return say_power(named, collection.uninformative, quick=options.quick, where=f"{together}: {root / CLAIMS}")
