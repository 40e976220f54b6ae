"""Studies that are judged together: those of a package, and the files of a user."""

import ast
import json
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial, wraps
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from traceback import walk_tb
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd

from grpo_theory.estimation import Estimator, SourceFile, estimators
from grpo_theory.evidence import PARTS, Claim, Statement
from grpo_theory.evidence.claim import WHOSE, check_margin
from grpo_theory.harness.interrupts import RefusedError
from grpo_theory.harness.options import nothing
from grpo_theory.harness.study import FORMS, Study, StudyError, stated_in, study_of, table_of


@dataclass(frozen=True)
class Collection:
    """Studies that are judged together, and the catalogue of what they state.

    Attributes
    ----------
    studies : Mapping of str to Study
        By name, in the order of their modules.
    statements : Mapping of str to Statement
        By id; a statement stands before its parts.
    program : str
        How its command is called.
    prepare : callable
        What a process that computes chunks of its studies may call first: it imports them.
    """

    studies: Mapping[str, Study]
    statements: Mapping[str, Statement]
    program: str
    prepare: Callable[[], object]

    @property
    def uninformative(self) -> dict[tuple[str, str], str]:
        """Why the control of a claim is known to survive, as its study says."""
        return {key: why for study in self.studies.values() for key, why in study.uninformative.items()}

    def parts_of(self, statement: Statement) -> tuple[Statement, ...]:
        """Return the statements into which one is split, by their ids."""
        return tuple(one for one in self.statements.values() if one.id.startswith(f"{statement.id}/"))

    def deciders(self) -> dict[str, tuple[str, ...]]:
        """Return the names of the studies that decide each statement; one that is split is decided where its parts are."""
        deciders: dict[str, tuple[str, ...]] = {}
        for study in self.studies.values():
            for name in study.decides:
                deciders[name] = (*deciders.get(name, ()), study.name)
        for statement in self.statements.values():
            if statement.kind == PARTS:
                names = (name for part in self.parts_of(statement) for name in deciders.get(part.id, ()))
                deciders[statement.id] = tuple(dict.fromkeys(names))
        return deciders


def in_order(statements: Mapping[str, Statement], families: tuple[str, ...] = ()) -> dict[str, Statement]:
    """Return statements by family and number, heads before their parts; of those the papers' come first, then corrections."""
    heads = list(dict.fromkeys(name.partition("/")[0] for name in statements))

    def key(one: Statement) -> tuple[int, int, bool, int]:
        head = one.id.partition("/")[0]
        family = head.rstrip("0123456789")
        known = family in families and family != head
        place = (families.index(family), int(head.removeprefix(family))) if known else (len(families), heads.index(head))
        return *place, one.id != head, WHOSE.index(one.whose)

    return {one.id: one for one in sorted(statements.values(), key=key)}


@cache
def collection_of(package: str) -> Collection:
    """Return the studies of a package, by the order of its modules, and all that its modules state.

    What several studies decide is stated in a module beside them that all of them import.  The package may order its statements.
    Its ``FAMILIES`` are the beginnings of their ids, in the order of the catalogue; others follow as they are found.
    """
    root = import_module(package)
    names = [one.name for one in walk_packages(root.__path__, f"{package}.")]
    modules = [import_module(name) for name in names if not name.endswith(".__main__")]
    studies = {study.name: study for module in modules if (study := study_of(module))}
    statements = {one.id: one for module in modules for one in stated_in(module)}
    catalogue = in_order(statements, getattr(root, "FAMILIES", ()))
    return Collection(studies, catalogue, f"python -m {package}", partial(collection_of, package))


def study_in(module: str) -> Study:
    """Return the study that a module defines."""
    study = study_of(import_module(module))
    assert study is not None
    return study


def load_kernels(paths: Sequence[Path]) -> list[SourceFile]:
    """Run files of kernels, and return them ready for other processes.

    Raises
    ------
    RefusedError
        If one cannot be read, raises anything, registers no estimator, or has the name of an installed module.
    """
    sources = []
    for path in paths:
        try:
            source = SourceFile.read(path)
            if source.hides_module():
                raise ImportError(f"there is an installed module {source.module!r}, give the file another name")
            before = dict(estimators())
            values = vars(source.load()).values()
            if estimators() == before and not any(isinstance(value, Estimator) for value in values):
                raise ValueError("it registers none")
            sources.append(source)
        except (Exception, SystemExit) as error:  # a user's file may raise anything
            wanted = "--kernels must be a Python file that registers estimators"
            raise RefusedError(f"{wanted}, got {path}: {first_line(error)}") from None
    return sources


def first_line(error: BaseException) -> str:
    """Return an error's kind and the first line of what it says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


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
    sources = _with_beside(path, {path.stem})
    for source in sources:
        if source.hides_module():
            raise StudyFileError(f"{source.path}: there is another module {source.module!r}, give the file another name")
    study = load_study((*kernels, *sources))
    if not study.statements:
        raise StudyFileError(f"{path} states nothing: put a Statement at its top level, and compare or claim it")
    for one in study.statements:  # what is wrong is found before anything is computed, and not when claims are made
        try:
            check_margin(one)
        except ValueError as error:
            raise StudyFileError(f"{path}: {error}") from None
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
    return Collection(studies, in_order(statements), "grpo-theory", nothing)


def load_study(sources: tuple[SourceFile, ...]) -> Study:
    """Return the study that the last of some files defines, which this process may not have seen before."""
    for source in sources:
        folder = Path(source.path).parent
        if folder.is_dir() and str(folder) not in sys.path:
            sys.path.append(str(folder))  # for packages in it, behind all that is installed; single files travel
        try:
            module = source.load()
        except (Exception, SystemExit) as error:  # a user's file may raise anything
            raise StudyFileError(f"{source.path} cannot be run: {_where(error, source.path)}") from None
    name = sources[-1].module
    try:
        study = study_of(module)
    except StudyError as error:
        raise StudyFileError(f"{sources[-1].path}: {error}") from None
    if study is None:
        raise StudyFileError(f"{sources[-1].path}: {FORMS}; {name} defines none of them")
    return _guarded(replace(study, name=name, module=name, sources=sources), module)


def draw_of(study: Study) -> Callable[[pd.DataFrame], Any] | None:
    """Return what draws the figure of a user's study from its table, and None if its file defines no ``draw``."""
    module = study.sources[-1].load()
    return _guard(study.name, module, "draw", module.draw) if callable(getattr(module, "draw", None)) else None


def _with_beside(path: Path, known: set[str]) -> list[SourceFile]:
    """Return a file, behind those in its folder that it imports, each after those that it needs itself."""
    try:
        source = SourceFile.read(path)
        tree = ast.parse(source.text)
    except SyntaxError as error:
        raise StudyFileError(f"{path} is not Python: {error.msg}{_at(error.lineno)}") from None
    except (OSError, ValueError) as error:  # bytes that are no text, or a zero among them
        raise StudyFileError(f"{path} cannot be read: {first_line(error)}") from None
    imported = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    imported += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level]
    found = []
    for name in (one.partition(".")[0] for one in imported):
        beside = path.with_name(f"{name}.py")
        if name not in known and beside.is_file():
            known.add(name)
            found += _with_beside(beside, known)
    return [*found, source]


def _guarded(study: Study, module: ModuleType) -> Study:
    """Return a study whose functions raise nothing but a StudyFileError, return what they must, and draw from `rng` alone."""

    def check_claims(made: list[Claim]) -> None:
        unknown = [one.statement.id for one in made if one.statement.id not in {stated.id for stated in study.statements}]
        if unknown:
            raise StudyError(f"claims(table) has a claim about {unknown[0]!r}, which its file does not state")

    name = next((name for name in ("compare", "simulate") if hasattr(module, name)), "a check")
    return replace(
        study,
        cells=_guard(study.name, module, "cells", study.cells, lambda made: [one.key for one in made]),
        compute=_guard(study.name, module, name, study.compute, json.dumps),
        table=_guard(study.name, module, "rows", study.table, lambda made: made and table_of(made)),
        claims=_guard(study.name, module, "claims", study.claims, check_claims),
    )


def _guard(
    study: str, module: ModuleType, name: str, function: Callable[..., Any], check: Callable[[Any], object] = nothing
) -> Callable[..., Any]:
    """Return a function of a user's that raises StudyFileError if it fails, or its result a check, or it draws from `np.random`.

    Whether it draws is seen by the generator's state before and after. A generator that is made without a seed cannot be seen.
    Python's `random` is not watched, because the threads of a cluster's worker draw their waiting times from it.
    """

    @wraps(function)
    def guarding(*arguments: Any) -> Any:
        try:
            before = _shared_state()
            made = function(*arguments)
            check(made)
            if _shared_state() != before:
                raise StudyError(
                    f"{name}() drew from np.random, whose numbers all of a program share, so they may differ from run to run. "
                    "Draw from the generator rng that simulate(settings, rng, chunk) and compare(settings, rng) are given"
                )
            return made
        except StudyError as error:
            raise StudyFileError(f"{study}: {error}") from None
        except (Exception, SystemExit) as error:  # a user's function may raise anything, and not all of it can be sent
            raise StudyFileError(f"{study}: {name}() has failed: {_where(error, str(module.__file__))}") from None

    return guarding


def _shared_state() -> bytes:
    """Return what tells states of any bit generator apart."""
    return pickle.dumps(np.random.get_state(legacy=False))  # noqa: NPY002 (what is looked for)


def _where(error: BaseException, path: str) -> str:
    """Return what an error says, and at which line of a file it was raised."""
    lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == path]
    return f"{first_line(error)}{_at(lines[-1] if lines else getattr(error, 'lineno', None))}"


def _at(line: int | None) -> str:
    return f" (line {line})" if line else ""
