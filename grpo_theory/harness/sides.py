"""A check of a theorem: one function of a case that returns its two sides, on what holds, what is wrong and what is sound.

A study is a file with functions of three sorts.  A `check` returns the two sides of statements in one case.  A `run` is a
computation that several checks read, such as training runs.  Functions under `rows` yield rows of data for figures.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from functools import partial
from inspect import signature
from itertools import product
from typing import Any

import numpy as np

from grpo_theory.evidence import Claim, Evidence, Share, Statement
from grpo_theory.evidence.reading import BoundedMean, two_sides
from grpo_theory.harness.study import EXACT, PART, Cell, Rows
from grpo_theory.simulate.draw.streams import BEGUN

Case = Mapping[str, Any]
Cases = Iterable[Case] | Callable[[bool], Iterable[Case]]
LIMITS = {one.__name__: one for one in (Evidence, Share, BoundedMean)}


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

    def variants(self, case: Case) -> Iterator[tuple[str, Case]]:
        """Yield the case itself, and as it is where something is known to be wrong, or known to hold."""
        yield "own", case
        yield from (("broken", {**case, **change}) for change in self.broken)
        yield from (("sound", {**case, **change}) for change in self.sound)

    def arms(self, case: Case, variant: Case) -> dict[Any, Case]:
        """Return what of a run is read together, by the values of its arms.

        What only a broken or sound case has, and the run does not name, is for the reader and not for the run.
        """
        named = signature(self.of.compute).parameters if self.of else {}
        asked = {name: value for name, value in variant.items() if name in case or name in named}
        combined = [dict(zip(self.each, values, strict=True)) for values in product(*self.each.values())]
        return {next(iter(arm.values())) if len(arm) == 1 else tuple(arm.values()): {**asked, **arm} for arm in combined}

    def cells(self, quick: bool) -> Iterator[Cell]:
        """Yield the cells that it needs: one a case, or those of the run that it reads."""
        for case in self.listed(quick):
            if self.of is None:
                yield Cell({PART: self.sides.__name__, **case})
            else:
                for _, variant in self.variants(case):
                    yield from map(self.of.cell, self.arms(case, variant).values())

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
        found: dict[str, dict[str, Evidence]] = {one.id: {} for one in self.statements}
        facts: dict[str, Mapping[str, float]] = {}
        for role, variant in self.variants(case):
            begun = BEGUN.times
            made = self.sides(**_taken(self.sides, variant, **given(variant)))
            for one, sides in self._by_statement(made):
                evidence, beside = two_sides(one, sides)
                if BEGUN.times > begun and evidence.replications == 0 and one.kind != "identity":
                    raise StudyError(
                        f"{one.id} on {self.label(case)}: a simulation ran in {self.sides.__name__}(), whose side has no error: "
                        "return (estimate, standard error, number of draws) in place of the number"
                    )
                found[one.id].setdefault(role, evidence)
                facts.setdefault(one.id, beside)
        return [self._row(one, case, found[one.id], facts[one.id]) for one in self.statements if "own" in found[one.id]]

    def _by_statement(self, made: Any) -> Iterator[tuple[Statement, Any]]:
        """Yield the sides by statement: a dict has them by id, and lacks those that do not apply."""
        by_id = made if isinstance(made, Mapping) else {} if made is None else {self.statements[0].id: made}
        unknown = [name for name in by_id if name not in {one.id for one in self.statements}]
        if unknown:
            raise StudyError(f"{self.sides.__name__}() returns sides of {unknown[0]!r}, which it does not check")
        yield from ((one, by_id[one.id]) for one in self.statements if by_id.get(one.id) is not None)

    def _row(self, one: Statement, case: Case, found: Mapping[str, Evidence], facts: Mapping[str, float]) -> dict[str, Any]:
        if "broken" not in found:
            raise StudyError(f"{one.id} on {self.label(case)}: no broken case gave its sides, so nothing could be refuted")
        own, control = found["own"], found["broken"]
        as_data = {role: [type(each).__name__, asdict(each)] for role, each in found.items()}
        return {
            **case,
            "statement": one.id,
            "setting": self.label(case),
            "broken": control.estimate,
            "broken_prediction": control.prediction,
            "facts": json.dumps({name: float(value) for name, value in facts.items()}) if facts else "",
            "evidence": json.dumps(as_data),
            "prediction": own.prediction,
            "estimate": own.estimate,
            "standard_error": own.standard_error,
            "replications": own.replications,
        }

    def label(self, case: Case) -> str:
        """Return what a case is called in verdicts."""
        if callable(self.setting):
            return self.setting(**case)
        if self.setting:
            return self.setting.format_map(case)
        return ", ".join(value if isinstance(value, str) else f"{name} = {value}" for name, value in case.items()) or "all"


def claim_of(statement: Statement, row: Mapping[str, Any]) -> Claim:
    """Return the claim that a row of a check makes."""
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
        known = {*signature(sides).parameters, *(signature(of.compute).parameters if of else ()), *(each or {})}
        whole = any(one.kind is one.VAR_KEYWORD for one in signature(of.compute if of else sides).parameters.values())
        for change in (*wrong, *right):
            if not whole and not set(change) <= known:
                raise StudyError(f"{sides.__name__}() takes no {', '.join(sorted(set(change) - known))}: a case cannot change it")
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
    if isinstance(result, Mapping):
        return {name: plain(value) for name, value in result.items()}
    if isinstance(result, np.ndarray | np.generic):
        return result.tolist()
    return [plain(one) for one in result] if isinstance(result, list | tuple) else result


def form(parts: Mapping[str, Run | Check], statements: Mapping[str, Statement]) -> dict[str, Any]:
    """Return the functions of a study that is made of checks: its cells, what computes a chunk, its rows and its claims."""
    checks = [one for one in parts.values() if isinstance(one, Check)]

    def cells(quick: bool) -> list[Cell]:
        found: dict[str, Cell] = {}
        for cell in (cell for one in checks for cell in one.cells(quick)):
            if found.setdefault(cell.key, cell).chunks != cell.chunks:
                raise StudyError(
                    f"{cell.settings[PART]}() is asked for {cell.key} in {cell.chunks} chunks and in others: name them apart"
                )
        return list(found.values())

    def compute(settings: Case, rng: np.random.Generator, chunk: int) -> Any:
        case = {name: value for name, value in settings.items() if name != PART}
        one = parts[settings[PART]]
        if isinstance(one, Run):
            return plain(one.compute(**_taken(one.compute, case, rng=rng, chunk=chunk)))
        return plain(one.rows(case, lambda variant: {"rng": deepcopy(rng)}))

    def tabulate(results: Iterable[tuple[Case, list[Any]]], quick: bool) -> Rows:
        by_cell: dict[str, Any] = {}
        for settings, chunks in results:
            by_cell[Cell(settings).key] = joined(chunks) if isinstance(parts[settings[PART]], Run) else chunks[0]
        table: Rows = []
        for one in checks:
            for case in one.listed(quick):
                if one.of is None:
                    table += by_cell[Cell({PART: one.sides.__name__, **case}).key]
                else:
                    table += plain(one.rows(case, partial(_found, one, case, by_cell)))
        return table

    def claims(table: Any) -> list[Claim]:
        stated = table[table["statement"] != ""].to_dict("records")
        return [claim_of(statements[row["statement"]], row) for row in stated if isinstance(row.get("evidence"), str)]

    return {"cells": cells, "compute": compute, "tabulate": tabulate, "claims": claims}


def _found(one: Check, case: Case, by_cell: Mapping[str, Any], variant: Case) -> dict[str, Any]:
    """Return the results of the run that a check reads, by arm if it reads several."""
    of = one.of
    assert of is not None
    found = {arm: by_cell[of.cell(asked).key] for arm, asked in one.arms(case, variant).items()}
    return {"found": found if one.each else found[()]}


def _taken(function: Callable[..., Any], case: Case, **beside: Any) -> dict[str, Any]:
    """Return what of a case a function takes, all of it if it ends with ``**case``, and what it names of what is beside."""
    wanted = signature(function).parameters
    whole = any(one.kind is one.VAR_KEYWORD for one in wanted.values())
    named = {name: value for name, value in beside.items() if name in wanted}
    return {name: value for name, value in case.items() if whole or name in wanted} | named
