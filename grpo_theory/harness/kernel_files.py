"""Files of kernels that a user gives: whatever is wrong with one is told in a line."""

from collections.abc import Sequence
from pathlib import Path

from grpo_theory.estimation import Estimator, SourceFile, estimators


class KernelFileError(Exception):
    """A file of kernels that cannot be used; the message says which and why."""


def load_kernels(paths: Sequence[Path]) -> list[SourceFile]:
    """Run files of kernels, and return them ready for other processes.

    Raises
    ------
    KernelFileError
        If one cannot be read, raises anything, registers no estimator, or has the name of an installed module.
    """
    return [_load(path) for path in paths]


def _load(path: Path) -> SourceFile:
    try:
        source = SourceFile.read(path)
        if source.hides_module():
            raise ImportError(f"there is an installed module {source.module!r}, give the file another name")
        before = dict(estimators())
        module = source.load()
        registered = any(before.get(name) is not one for name, one in estimators().items())
        if not registered and not any(isinstance(value, Estimator) for value in vars(module).values()):
            raise ValueError("it registers none")
    except (Exception, SystemExit) as error:  # a user's file may raise anything
        raise KernelFileError(
            f"--kernels must be a Python file that registers estimators, got {path}: {first_line(error)}"
        ) from None
    return source


def first_line(error: BaseException) -> str:
    """Return an error's kind and the first line of what it says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
