"""The options of a command, written as a user would repeat them."""

import shlex
from collections.abc import Sequence
from pathlib import Path


def repeated(*, quick: bool, seed: int, results: Path | None, kernels: Sequence[Path] = ()) -> str:
    """Return the options that a command must repeat to be about the same results; the defaults are left out."""
    words = ["--quick"] if quick else []
    words += ["--seed", str(seed)] if seed else []
    words += ["--results", str(results)] if results is not None else []
    words += [word for path in kernels for word in ("--kernels", str(path))]
    return shlex.join(words)
