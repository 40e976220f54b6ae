"""The options of commands that compute: what a user may give, and how it is written to be repeated.

This module imports nothing that takes long, because a command answers `--help` with it.
"""

import argparse
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from grpo_theory.harness.executors import executor_named


def add_workers(command: argparse.ArgumentParser) -> None:
    """Let a command be told who computes."""
    command.add_argument("--workers", type=_count, default=os.cpu_count() or 1, help="how many (default: as many as processors)")
    command.add_argument(
        "--executor",
        type=executor_named,
        default="threads",
        metavar="NAME",
        help="what the workers are: threads (default), processes, dask (processes that are replaced when they die), "
        "or dask://HOST:PORT (those of a cluster)",
    )


def add_run(command: argparse.ArgumentParser, quick: str) -> None:
    """Let a command be told what is computed; `quick` says what becomes of a quick run's results."""
    command.add_argument("--quick", action="store_true", help=f"fewer replications; {quick}")
    command.add_argument("--kernels", type=Path, action="append", default=[], metavar="FILE", help="register its estimators")
    command.add_argument("--seed", type=_seed, default=0)


def repeated(*, quick: bool, seed: int, results: Path | None, kernels: Sequence[Path] = (), folder: str = "--results") -> str:
    """Return the options that a command must repeat to be about the same results; the defaults are left out."""
    words = ["--quick"] if quick else []
    words += ["--seed", str(seed)] if seed else []
    words += [folder, str(results)] if results is not None else []
    words += [word for path in kernels for word in ("--kernels", str(path))]
    return shlex.join(words)


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
