"""What a study is: a file, whose head states theorems and whose body computes what decides them.

What is stated is each `Statement` at the top level of the file, alone, in a tuple or in a dict.  The file has functions of three
sorts.  A `check` of a theorem returns the two sides of statements in one case, on what holds, what is wrong and what is sound.  A
`run` is a computation that several checks read, such as training runs.  Functions under `rows` yield rows of data for figures.
Two older forms are read as well: see `study_of`.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from functools import partial
from inspect import Parameter, signature
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd

from grpo_theory.estimation import SourceFile
from grpo_theory.evidence import PARTS, Claim, Comparison, Evidence, Share, Statement
from grpo_theory.evidence.reading import BoundedMean, two_sides
from grpo_theory.simulate.draws import BEGUN

Settings = Mapping[str, Any]
Rows = list[dict[str, Any]]

COLUMNS = ("prediction", "estimate", "standard_error", "replications")
"""The columns that every table has, after those that say what a row is of; NaN where there is no prediction."""
EXACT = {"standard_error": 0.0, "replications": 0}
"""The last two of them in a row that is computed and not simulated."""
PART = "of"
"""The setting that says which function of a study computes a cell."""


@dataclass(frozen=True)
class Cell:
    """One setting of a study.

    Attributes
    ----------
    settings : Mapping
        JSON-able; whatever the chunks' results depend on.
    chunks : int
        The number of chunks into which the cell's work is split.
    shared : bool
        Whether all chunks are handed generators that draw the same.  Chunks of replications need this, because they number their
        blocks on from one chunk to the next, and so do arms on the same draws.  Else each chunk has a seed of its own.
    code : str
        A checksum of the user's code that the results depend on; it names no seed, so an edited kernel sees the same draws.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> cell = gt.harness.Cell({"problem": "tabular", "group_size": 8}, chunks=4)
    >>> cell.settings["group_size"], cell.chunks
    (8, 4)
    """

    settings: Settings
    chunks: int = 1
    code: str = ""
    shared: bool = False

    @property
    def key(self) -> str:
        """The settings in canonical form."""
        return json.dumps(dict(self.settings), sort_keys=True)


@dataclass(frozen=True)
class Study:
    """A study, as plain functions of data.

    Attributes
    ----------
    name : str
        The name of its file.
    title : str
        The first line of the file's docstring: what it decides.
    module : str
        The module that it was read from.
    cells : callable
        ``cells(quick)`` lists the cells.
    compute : callable
        ``compute(settings, rng, chunk)`` is a pure function with a JSON-able result. The generator is the chunk's own,
        unless the cell says that its chunks share one seed.
    table : callable
        ``table(results, quick)`` makes all rows of the table, from (settings, results of the chunks in order) of all cells.
    claims : callable
        ``claims(table)`` reads the claims off the table.
    statements : tuple of Statement
        What its file states: those that its claims are about, and the heads of those that are split.
    uninformative : Mapping
        Why the control of a claim is known to survive, by the statement's id and the setting, in which * stands for any text.
    sources : tuple of SourceFile
        Of a user's study the files that travel with its chunks: what it needs, and then its own.
    """

    name: str
    title: str
    module: str
    cells: Callable[[bool], Sequence[Cell]]
    compute: Callable[[Settings, np.random.Generator, int], Any]
    table: Callable[[Iterable[tuple[Settings, list[Any]]], bool], Rows]
    claims: Callable[[pd.DataFrame], list[Claim]]
    statements: tuple[Statement, ...] = ()
    uninformative: Mapping[tuple[str, str], str] = field(default_factory=dict)
    sources: tuple[SourceFile, ...] = ()

    @property
    def decides(self) -> tuple[str, ...]:
        """The ids of the statements that its claims are about."""
        return tuple(one.id for one in self.statements if one.kind != PARTS and one.decided)


def cell_seed(study: str, cell: Cell, seed: int) -> np.random.SeedSequence:
    """Return the seed of a cell: keyed by the study's name and the cell's settings, not by their places in a list."""
    # Without the function that computes them: the same case has the same draws, whatever looks at it.
    case = json.dumps({name: value for name, value in cell.settings.items() if name != PART}, sort_keys=True)
    return np.random.SeedSequence(seed, spawn_key=(zlib.crc32(study.encode()), zlib.crc32(case.encode())))


def chunk_generator(study: str, cell: Cell, seed: int, chunk: int) -> np.random.Generator:
    """Return the generator that a chunk is handed.

    Its seed is the chunk's own, so that no study can forget to make one.  If the chunk is alone, or the chunks share a seed, it
    is the cell's.
    """
    whole = cell_seed(study, cell, seed)
    return np.random.default_rng(whole if cell.shared or cell.chunks == 1 else whole.spawn(cell.chunks)[chunk])


def table_of(rows: Rows) -> pd.DataFrame:
    """Return the rows as a table whose last columns are `COLUMNS`.

    Raises
    ------
    ValueError
        If a row lacks one of them, or there is no row.
    """
    for row in rows:
        missing = [name for name in COLUMNS if name not in row]
        if missing:
            raise ValueError(f"rows must have the columns {', '.join(COLUMNS)}, and one lacks {missing[0]}: {row}")
    if not rows:
        raise ValueError("a table must have rows, and there is none")
    table = pd.DataFrame(rows)
    return table[[name for name in table if name not in COLUMNS] + list(COLUMNS)]


Case = Mapping[str, Any]
Cases = Iterable[Case] | Callable[[bool], Iterable[Case]]
LIMITS = {one.__name__: one for one in (Evidence, Share, BoundedMean)}
FORMS = (
    "a study must define checks, @gt.check(...), or compare(settings), or "
    "simulate(settings, rng, chunk), rows(settings, results) and claims(table)"
)


class StudyError(ValueError):
    """A file that is no study although it begins as one; the message says what is missing."""


@dataclass(frozen=True)
class Run:
    """A computation of its own that checks read: see `run`."""

    compute: Callable[..., Any]
    portions: Mapping[str, int] = field(default_factory=dict)
    shared: bool = False
    dealt: Callable[..., tuple[Case, int]] | None = None

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Compute it, as the plain function."""
        return self.compute(*arguments, **options)

    def cell(self, case: Case) -> Cell:
        """Return the cell of a case: what of it the function takes, dealt out in portions."""
        asked, chunks = (_taken(self.compute, case), 1) if self.dealt is None else self.dealt(**case)
        settings = dict(asked)
        for name, size in self.portions.items():
            settings[name], chunks = min(case[name], size), -(-case[name] // size)
        return Cell({PART: self.compute.__name__, **settings}, chunks, shared=self.shared)


@dataclass(frozen=True)
class Check:
    """A function that decides statements, or yields rows for figures if it has none, and its cases: see `check` and `rows`."""

    statements: tuple[Statement, ...]
    sides: Callable[..., Any]
    cases: Cases
    broken: tuple[Case, ...] = ()
    sound: tuple[Case, ...] = ()
    of: Run | None = None
    each: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    setting: str | Callable[..., str] = ""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Return the two sides, as the plain function."""
        return self.sides(*arguments, **options)

    def listed(self, quick: bool) -> list[Case]:
        """List the cases."""
        return list(self.cases(quick) if callable(self.cases) else self.cases)

    def variants(self, case: Case) -> list[tuple[str, Case]]:
        """Return the case itself, and as it is where something is known to be wrong, or known to hold."""
        changes = [("own", {}), *(("broken", one) for one in self.broken), *(("sound", one) for one in self.sound)]
        return [(role, {**case, **change}) for role, change in changes]

    def arms(self, case: Case, variant: Case) -> dict[Any, Cell]:
        """Return the cells of a run that are read together, by the values of its arms.

        What only a broken or sound case has, and the run does not name, is for the reader and not for the run.
        """
        if self.of is None:
            return {(): Cell({PART: self.sides.__name__, **case})}
        named = signature(self.of.compute).parameters
        asked = {name: value for name, value in variant.items() if name in case or name in named}
        found = {}
        for values in product(*self.each.values()):
            arm = dict(zip(self.each, values, strict=True))
            found[values[0] if len(values) == 1 else values] = self.of.cell({**asked, **arm})
        return found

    def cells(self, quick: bool) -> Iterator[Cell]:
        """Yield the cells that it needs: one a case, or those of the run that it reads."""
        for case in self.listed(quick):
            for _, variant in self.variants(case):
                yield from self.arms(case, variant).values()

    def found(self, case: Case, variant: Case, by_cell: Mapping[str, Any]) -> dict[str, Any]:
        """Return the results of the run that it reads, by arm if it reads several."""
        found = {arm: by_cell[cell.key] for arm, cell in self.arms(case, variant).items()}
        return {"found": found if self.each else found[()]}

    def rows(self, case: Case, given: Callable[[Case], Mapping[str, Any]]) -> Rows:
        """Return the rows of a case; `given` returns what the function gets beside it: a generator, or the run's results.

        Raises
        ------
        StudyError
            If a side has no error although a simulation ran for it, or nothing broken was computed for a statement.
        """
        if not self.statements:
            made = self.sides(**_taken(self.sides, case, **given(case)))
            return [{"statement": "", **case, "prediction": float("nan"), **EXACT, **row} for row in made]
        if callable(self.setting):
            label = self.setting(**case)
        else:
            named = (value if isinstance(value, str) else f"{name} = {value}" for name, value in case.items())
            label = self.setting.format_map(case) or ", ".join(named) or "all"
        known = {one.id: one for one in self.statements}
        found: dict[str, dict[str, tuple[Evidence, Mapping[str, float]]]] = {name: {} for name in known}
        for role, variant in self.variants(case):
            begun = BEGUN.times
            made = self.sides(**_taken(self.sides, variant, **given(variant)))
            # A dict has the sides by id, and lacks those that do not apply.
            by_id = made if isinstance(made, Mapping) else {} if made is None else {self.statements[0].id: made}
            for name, sides in by_id.items():
                if name not in known:
                    raise StudyError(f"{self.sides.__name__}() returns sides of {name!r}, which it does not check")
                if sides is not None:
                    evidence, facts = two_sides(known[name], sides)
                    _check_error(known[name], label, evidence, begun)
                    found[name].setdefault(role, (evidence, facts))
        rows: Rows = []
        for name, by_role in found.items():
            if "own" in by_role:
                if "broken" not in by_role:
                    raise StudyError(f"{name} on {label}: no broken case gave its sides, so nothing could be refuted")
                (own, facts), (control, _), (sound, _) = by_role["own"], by_role["broken"], by_role.get("sound", (None, {}))
                rows.append({**case, **row_of(Claim(known[name], label, own, control, facts, sound))})
        return rows


def _check_error(one: Statement, setting: str, evidence: Evidence, begun: int) -> None:
    """Raise if a side has no error although a simulation ran for it; what holds path by path needs none."""
    if BEGUN.times > begun and evidence.replications == 0 and one.kind != "identity":
        raise StudyError(
            f"{one.id} on {setting}: a simulation ran for this side, which has no error: give "
            "(estimate, standard error, number of draws) in place of the number"
        )


def row_of(claim: Claim) -> dict[str, Any]:
    """Return a claim as a row of the table, from which `claim_of` makes it again."""
    own, control = claim.evidence, claim.control
    roles = {"own": own, "broken": control} | ({"sound": claim.sound} if claim.sound else {})
    return {
        "statement": claim.statement.id,
        "setting": claim.setting,
        "broken": control.estimate,
        "broken_prediction": control.prediction,
        "facts": json.dumps({name: float(value) for name, value in claim.facts.items()}) if claim.facts else "",
        "evidence": json.dumps({role: [type(one).__name__, asdict(one)] for role, one in roles.items()}),
        "prediction": own.prediction,
        "estimate": own.estimate,
        "standard_error": own.standard_error,
        "replications": own.replications,
    }


def claim_of(statement: Statement, row: Mapping[str, Any]) -> Claim:
    """Return the claim that a row makes."""
    found = {role: statement.within(LIMITS[name](**numbers)) for role, (name, numbers) in json.loads(row["evidence"]).items()}
    facts = json.loads(row["facts"]) if row["facts"] else {}
    return Claim(statement, row["setting"], found["own"], found["broken"], facts, found.get("sound"))


def check(
    *statements: Statement,
    cases: Cases = ({},),
    broken: Case | Sequence[Case] = (),
    sound: Case | Sequence[Case] = (),
    of: Run | None = None,
    each: Mapping[str, Sequence[Any]] | None = None,
    setting: str | Callable[..., str] = "",
) -> Callable[[Callable[..., Any]], Check]:
    """Make a function of a case the check of one statement, or of several.

    The function takes what it needs of a case by name.  It returns (left, right), of several statements a dict of these by id.  A
    side is a number, an array whose worst place counts, or, where draws were made, (estimate, standard error, number of draws).
    In place of both it may return an `Evidence`, whose limits are its own, and with facts beside, (left, right, facts).

    Parameters
    ----------
    *statements : Statement
    cases : iterable of dict, or callable
        ``cases(quick)`` lists them. Each is computed by itself, and again only if its function has changed.
    broken, sound : dict, or sequence of dict
        Changes to a case. With the first the statement is known to be wrong, and the same function must refute it. With the other
        it is known to hold, and must not be refuted. Of several changes the first counts that gives a statement's sides.
    of : Run, optional
        The run whose results the function gets as ``found``. One that takes ``rng`` draws itself.
    each : dict of sequences, optional
        The arms of the run that are read together: ``found`` is then a dict by arm.
    setting : str or callable, optional
        What a case is called: ``"{problem} (G = {group_size})"``.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> law = gt.Statement("X1", "example", "without the own reward the mean update is the gradient", "identity")
    >>> @gt.check(law, cases=[{"problem": "tabular"}], broken={"kernel": "dr_grpo"})
    ... def unbiased(problem, kernel="rloo"):
    ...     problem = gt.gallery.problem(problem)
    ...     mean = gt.gradient_mean(problem, problem.theta, kernel, batch_size=1, group_size=4)
    ...     return mean, gt.exact.gradient(problem, problem.theta)
    >>> [row["setting"] for row in unbiased.rows({"problem": "tabular"}, lambda case: {})]
    ['tabular']
    """
    wrong, right = ((one,) if isinstance(one, Mapping) else tuple(one) for one in (broken, sound))

    def checked(sides: Callable[..., Any]) -> Check:
        named = {*signature(sides).parameters, *(signature(of.compute).parameters if of else ()), *(each or {})}
        for change in (*wrong, *right):
            if not _takes_all(of.compute if of else sides) and not set(change) <= named:
                raise StudyError(f"{sides.__name__}() takes no {', '.join(sorted(set(change) - named))}: a case cannot change it")
        return Check(statements, sides, cases, wrong, right, of, each or {}, setting)

    return checked


def rows(
    *, cases: Cases = ({},), of: Run | None = None, each: Mapping[str, Sequence[Any]] | None = None
) -> Callable[[Callable[..., Any]], Check]:
    """Make a function of a case the rows of data that a figure shows: it yields dicts, to which the case is added.

    Examples
    --------
    >>> from grpo_theory.harness import rows
    >>> @rows(cases=[{"size": 2}])
    ... def squares(size):
    ...     yield {"estimate": size**2}
    >>> squares.rows({"size": 2}, lambda case: {})[0]["estimate"]
    4
    """
    return check(cases=cases, of=of, each=each)


def run(
    *, shared: bool = False, dealt: Callable[..., tuple[Case, int]] | None = None, **portions: int
) -> Callable[[Callable[..., Any]], Run]:
    """Make a function of a case a computation of its own, which checks read with ``of=``.

    It takes what it needs of their cases by name, and may take ``rng`` and ``chunk``.  It returns a dict of arrays, whose first
    axis goes over replications: those of several chunks are put end to end.

    Parameters
    ----------
    shared : bool, default False
        Whether all chunks get generators that draw the same, see `Cell`.
    dealt : callable, optional
        ``dealt(**case)`` returns the settings that the function gets, and the number of chunks. It is for several arms on the
        same draws, a chunk each.
    **portions : int
        ``run(runs=2048)`` computes a case of 10,240 runs in five chunks.

    Examples
    --------
    >>> from grpo_theory.harness import run
    >>> @run(runs=2)
    ... def drawn(runs, rng):
    ...     return {"x": rng.normal(size=runs)}
    >>> drawn.cell({"runs": 6, "other": 1}).chunks
    3
    """
    return lambda compute: Run(compute, portions, shared, dealt)


def joined(chunks: Sequence[Any]) -> Any:
    """Return the results of chunks as one: arrays end to end, within dicts as they are nested."""
    if isinstance(chunks[0], Mapping):
        return {name: joined([chunk[name] for chunk in chunks if name in chunk]) for name in chunks[0]}
    return np.concatenate([np.atleast_1d(chunk) for chunk in chunks])


def plain(result: Any) -> Any:
    """Return a result as JSON has it."""
    return json.loads(json.dumps(result, default=lambda one: one.tolist()))


def _takes_all(function: Callable[..., Any]) -> bool:
    return any(one.kind is Parameter.VAR_KEYWORD for one in signature(function).parameters.values())


def _taken(function: Callable[..., Any], case: Case, **beside: Any) -> dict[str, Any]:
    """Return what of a case a function takes, all of it if it ends with ``**case``, and what it names of what is beside."""
    wanted = signature(function).parameters
    own = {name: value for name, value in case.items() if name in wanted or _takes_all(function)}
    return own | {name: value for name, value in beside.items() if name in wanted}


def study_of(module: ModuleType) -> Study | None:
    """Return the study that a module defines, and None if it defines none; one that states nothing only tabulates.

    Before there were checks a file defined ``compare(settings)`` or ``compare(settings, rng)``.  It yields `Statement.compare`
    for each statement and setting, and rows of data.  Or a file defined ``simulate(settings, rng, chunk)``, which computes a
    chunk, ``rows(settings, results)``, which makes rows of what the chunks of a cell returned, and ``claims(table)``.  With
    either it may define ``cells(quick)``; else there is one cell.

    Raises
    ------
    StudyError
        If it defines a part of a form, or several.
    """
    found = [one for one in vars(module).values() if isinstance(one, Check | Run)]
    parts = {(one.sides if isinstance(one, Check) else one.compute).__name__: one for one in found}
    parts = parts if any(isinstance(one, Check) for one in parts.values()) else {}
    old = [name for name in ("compare", "simulate", "rows", "claims") if callable(getattr(module, name, None))]
    if parts and "rows" in old:
        old.remove("rows")  # which is the decorator
    if not parts and "compare" not in old and "simulate" not in old:
        return None
    name = module.__name__.rpartition(".")[2]
    if old not in ([[]] if parts else [["compare"], ["simulate", "rows", "claims"]]):
        raise StudyError(f"{FORMS}; {name} defines {', '.join((*parts, *old))}")
    statements = {one.id: one for one in stated_in(module)}
    functions = _of_checks(parts) if parts else _of_functions(module, statements, compares=old == ["compare"])

    def claims(table: pd.DataFrame) -> list[Claim]:
        stated = table[table["statement"] != ""].to_dict("records")
        return [claim_of(statements[row["statement"]], row) for row in stated if isinstance(row.get("evidence"), str)]

    title = (module.__doc__ or name).strip().partition("\n")[0].rstrip(".")
    known: dict[str, Any] = {"statements": tuple(statements.values()), "uninformative": getattr(module, "POWERLESS", {})}
    return Study(name, title, module.__name__, **{"claims": claims, **functions}, **known)


def stated_in(module: ModuleType) -> Iterable[Statement]:
    """Yield the statements at the top level of a module, each once, in the order in which they stand there.

    Raises
    ------
    StudyError
        If two have one id.
    """
    seen: dict[str, Statement] = {}
    for value in vars(module).values():
        value = value.statements if isinstance(value, Check) else value
        group = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple | list) else (value,)
        for one in group:
            if isinstance(one, Statement) and seen.setdefault(one.id, one) != one:
                raise StudyError(f"two statements of {module.__name__} have the id {one.id!r}")
    yield from seen.values()


def _of_checks(parts: Mapping[str, Run | Check]) -> dict[str, Any]:
    """Return the functions of a study that is made of checks: its cells, what computes a chunk, and its table."""
    checks = [one for one in parts.values() if isinstance(one, Check)]

    def cells(quick: bool) -> list[Cell]:
        found: dict[str, Cell] = {}
        for cell in (cell for one in checks for cell in one.cells(quick)):
            if found.setdefault(cell.key, cell).chunks != cell.chunks:
                raise StudyError(
                    f"{cell.settings[PART]}() is asked for {cell.key} in {cell.chunks} chunks and in others: name them apart"
                )
        return list(found.values())

    def compute(settings: Settings, rng: np.random.Generator, chunk: int) -> Any:
        case = {name: value for name, value in settings.items() if name != PART}
        one = parts[settings[PART]]
        if isinstance(one, Run):
            return plain(one.compute(**_taken(one.compute, case, rng=rng, chunk=chunk)))
        return plain(one.rows(case, lambda variant: {"rng": deepcopy(rng)}))

    def table(results: Iterable[tuple[Settings, list[Any]]], quick: bool) -> Rows:
        by_cell: dict[str, Any] = {}
        for settings, chunks in results:
            by_cell[Cell(settings).key] = joined(chunks) if isinstance(parts[settings[PART]], Run) else chunks[0]
        made: Rows = []
        for one in checks:
            for case in one.listed(quick):
                if one.of is None:
                    made += by_cell[one.arms(case, case)[()].key]
                else:
                    made += plain(one.rows(case, partial(one.found, case, by_cell=by_cell)))
        return made

    return {"cells": cells, "compute": compute, "table": table}


def _of_functions(module: ModuleType, statements: Mapping[str, Statement], *, compares: bool) -> dict[str, Any]:
    """Return the functions of a study in one of the older forms."""

    def compared(settings: Settings, rng: np.random.Generator, chunk: int) -> Rows:
        found, begun = [], BEGUN.times
        for one in module.compare(*(settings, rng)[: len(signature(module.compare).parameters)]):
            if isinstance(one, Mapping):
                found.append({"statement": "", "prediction": float("nan"), **EXACT, **one})
                continue
            if not isinstance(one, Comparison):
                raise StudyError("compare() must yield comparisons, STATEMENT.compare(...), or rows of data, as dicts")
            if one.statement.id not in statements:
                raise StudyError(f"compare() yields a comparison of {one.statement.id!r}, which its file does not state")
            _check_error(one.statement, one.setting, one.evidence, begun)
            found.append(row_of(one))
            begun = BEGUN.times
        return found

    rows_of = (lambda settings, chunks: [row for chunk in chunks for row in chunk]) if compares else module.rows
    functions = {
        "cells": getattr(module, "cells", lambda quick: [Cell({})]),
        "compute": compared if compares else module.simulate,
        "table": lambda results, quick: [row for one in results for row in rows_of(*one)],
    }
    return functions if compares else functions | {"claims": lambda table: list(module.claims(table))}
