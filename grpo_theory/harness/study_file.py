"""A study of a user's own: a file anywhere, which is read, sent to other processes, and of which a line tells what is wrong."""

import ast
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd

from grpo_theory.estimation import SourceFile
from grpo_theory.evidence import KINDS, PARTS, Claim, Statement
from grpo_theory.evidence.claim import WITH_MARGIN
from grpo_theory.harness.collection import Collection, in_order
from grpo_theory.harness.executors import nothing
from grpo_theory.harness.forms import EXACT_FORM, FORMS, SIMULATED_FORM, study_of
from grpo_theory.harness.global_draws import drawing_own
from grpo_theory.harness.kernel_files import first_line
from grpo_theory.harness.sides import StudyError
from grpo_theory.harness.study import Cell, Study, table_of
from grpo_theory.validation import ArgumentError


class StudyFileError(ValueError):
    """A user's file that is no study, or that has failed at work; the message says which file, where in it, and why."""


def read_study(path: Path, kernels: Sequence[SourceFile] = ()) -> Study:
    """Read a file as a study, with the files beside it that it imports.

    Parameters
    ----------
    path : Path
    kernels : sequence of SourceFile, default empty
        Files of kernels that its results may depend on.

    Raises
    ------
    StudyFileError
        If the file cannot be read or run, has the name of an installed module, defines no study or states nothing.  Also if it
        states without a margin what needs one.
    """
    own, imported = _read(path)
    beside = list(_beside(own, imported, {own.module}))
    for source in (*beside, own):
        if source.hides_module():
            raise StudyFileError(f"{source.path}: there is another module {source.module!r}, give the file another name")
    study = load_study((*kernels, *beside, own))
    if not study.statements:
        raise StudyFileError(f"{path} states nothing: put a Statement at its top level, and compare or claim it")
    for one in study.statements:
        if one.kind not in (*KINDS, PARTS):
            raise StudyFileError(f"{path}: kind must be one of {', '.join(KINDS)}, got {one.kind!r} for {one.id}")
        if one.kind in WITH_MARGIN and one.margin is None:  # found before anything is computed, and not when claims are made
            raise StudyFileError(
                f"{path}: a statement of kind {one.kind!r} needs a margin: give {one.id} margin=Margin(value, because), "
                "how near is near enough, and why"
            )
    return study


def collect_files(paths: Sequence[Path], kernels: Sequence[SourceFile] = ()) -> Collection:
    """Read files as studies that are judged together.

    Raises
    ------
    StudyFileError
        If one is no study, two have one name, or two state something else under one id.
    """
    studies: dict[str, Study] = {}
    statements: dict[str, Statement] = {}
    stated_by: dict[str, Path] = {}
    for path in dict.fromkeys(paths):
        study = read_study(path, kernels)
        if study.name in studies:
            raise StudyFileError(f"{path}: {studies[study.name].sources[-1].path} is a study of the same name, rename one file")
        for one in study.statements:
            if statements.setdefault(one.id, one) != one:
                raise StudyFileError(f"{path}: {stated_by[one.id]} states something else under the id {one.id!r}, rename one")
            stated_by.setdefault(one.id, path)
        studies[study.name] = study
    ordered = {one.id: one for one in in_order(statements)}
    return Collection(studies, ordered, "grpo-theory", nothing)


def load_study(sources: tuple[SourceFile, ...]) -> Study:
    """Return the study that the last of some files defines, which this process may not have seen before."""
    for source in sources:
        try:
            _make_importable(Path(source.path).parent)
            module = source.load()
        except (Exception, SystemExit) as error:  # a user's file may raise anything
            raise StudyFileError(f"{source.path} cannot be run: {_where(error, source.path)}") from None
    name = sources[-1].module
    try:
        study = study_of(module)
    except StudyError as error:
        raise StudyFileError(f"{sources[-1].path}: {error}") from None
    if study is None:
        defined = [one for one in (*EXACT_FORM, *SIMULATED_FORM) if callable(getattr(module, one, None))]
        raise StudyFileError(f"{sources[-1].path}: {FORMS}; {name} defines {', '.join(defined) or 'none of them'}")
    return _guarded(replace(study, name=name, module=name, sources=sources), module)


def draw_of(study: Study) -> Callable[[pd.DataFrame], Any] | None:
    """Return what draws the figure of a user's study from its table, and None if its file defines no ``draw``."""
    module = study.sources[-1].load()
    draw = getattr(module, "draw", None)
    return _guard(study.name, module, "draw", draw) if callable(draw) else None


def _read(path: Path) -> tuple[SourceFile, list[str]]:
    """Return a file and the first names of the modules that it imports."""
    try:
        source = SourceFile.read(path)
        return source, list(_imported(ast.parse(source.text)))
    except SyntaxError as error:
        raise StudyFileError(f"{path} is not Python: {error.msg}{_at(error.lineno)}") from None
    except ValueError as error:  # bytes that are no text, or a zero among them
        raise StudyFileError(f"{path} is not Python: {first_line(error)}") from None
    except OSError as error:
        raise StudyFileError(f"{path}: {error.strerror}") from None


def _beside(source: SourceFile, imported: Iterable[str], known: set[str]) -> Iterator[SourceFile]:
    """Yield the files in the folder of a file that it imports, each after those that it needs itself."""
    for name in imported:
        path = Path(source.path).with_name(f"{name}.py")
        if name not in known and path.is_file():
            known.add(name)
            needed, others = _read(path)
            yield from _beside(needed, others, known)
            yield needed


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


def _make_importable(folder: Path) -> None:
    """Let packages in a folder be imported, behind all that is installed; single files travel, and need no folder."""
    if folder.is_dir() and str(folder) not in sys.path:
        sys.path.append(str(folder))


def _guarded(study: Study, module: ModuleType) -> Study:
    """Return a study whose functions raise nothing but a StudyFileError, and return what they must."""

    def cells(quick: bool) -> Sequence[Cell]:
        made = list(study.cells(quick))
        for one in made:
            if not isinstance(one, Cell):
                raise StudyError(f"cells(quick) must list cells, Cell(settings), got {type(one).__name__}")
            json.dumps(dict(one.settings))
        return made

    def compute(settings: Mapping[str, Any], rng: np.random.Generator, chunk: int) -> Any:
        made = study.compute(settings, rng, chunk)
        try:
            json.dumps(made)
        except (TypeError, ValueError) as error:
            raise StudyError(f"what is computed must be numbers, texts, lists and dicts as JSON has them: {error}") from None
        return made

    def table(results: Iterable[tuple[Mapping[str, Any], list[Any]]], quick: bool) -> list[dict[str, Any]]:
        made = study.table(results, quick)
        if made:
            table_of(made)
        return made

    def claims(table: pd.DataFrame) -> list[Claim]:
        try:
            made = list(study.claims(table))
        except ValueError as error:
            raise _named(error, table) from error
        stated = {one.id for one in study.statements}
        for one in made:
            if not isinstance(one, Claim):
                raise StudyError(f"claims(table) must list claims, STATEMENT.claim(...), got {type(one).__name__}")
            if one.statement.id not in stated:
                raise StudyError(f"claims(table) has a claim about {one.statement.id!r}, which its file does not state")
        return made

    computing = next((name for name in ("compare", "simulate") if hasattr(module, name)), "a check")
    return replace(
        study,
        cells=_guard(study.name, module, "cells", drawing_own("cells", cells)),
        compute=_guard(study.name, module, computing, drawing_own(computing, compute)),
        tabulate=_guard(study.name, module, "rows", drawing_own("rows", table)),
        claims=_guard(study.name, module, "claims", drawing_own("claims", claims)),
    )


def _guard(study: str, module: ModuleType, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def guarding(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except StudyError as error:
            raise StudyFileError(f"{study}: {error}") from None
        except (Exception, SystemExit) as error:  # a user's function may raise anything, and not all of it can be sent
            raise StudyFileError(f"{study}: {name}() has failed: {_where(error, str(module.__file__))}{_hint(error)}") from None

    return guarding


def _named(error: ValueError, table: pd.DataFrame) -> ValueError:
    """Return an error with the row of the table that may have caused it: the first whose numbers are not finite."""
    odd = table[~np.isfinite(table[["estimate", "standard_error"]]).all(axis=1)]
    if odd.empty:
        return error
    first = odd.iloc[0].to_dict()
    return StudyError(
        f"claims() has failed: {first_line(error)}; the table has numbers that are not finite, first in the row {first}"
    )


def _where(error: BaseException, path: str) -> str:
    """Return what an error says, and at which line of a file it was raised."""
    lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == path]
    return f"{first_line(error)}{_at(lines[-1] if lines else getattr(error, 'lineno', None))}"


def _hint(error: BaseException) -> str:
    """Return where an estimator of one's own comes from, if the error is that none has a name."""
    unknown = isinstance(error, ArgumentError) and error.parts[0] == "estimator"
    return "; register your own with --kernels FILE, or import its file" if unknown else ""


def _at(line: int | None) -> str:
    return f" (line {line})" if line else ""
