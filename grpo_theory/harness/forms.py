"""A module read as a study, in one of its two forms."""

import json
from collections.abc import Iterable, Mapping
from functools import partial
from inspect import signature
from math import isfinite, isnan
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd

from grpo_theory.evidence import Claim, Comparison, Evidence, Statement
from grpo_theory.harness.sides import Check, Run, StudyError, form
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings, Study
from grpo_theory.simulate.draw.streams import BEGUN

EXACT_FORM, SIMULATED_FORM = ("compare",), ("simulate", "rows", "claims")
FORMS = (
    "a study must define checks, @gt.check(...), or compare(settings), or "
    "simulate(settings, rng, chunk), rows(settings, results) and claims(table)"
)
SIDES = ("estimate", "prediction", "broken", "broken_prediction", "margin")
"""What is compared, and how near is near enough."""
YIELDS = "compare() must yield comparisons, STATEMENT.compare(...), or rows of data, as dicts"


def study_of(module: ModuleType) -> Study | None:
    """Return the study that a module defines, and None if it defines neither form; one that states nothing only tabulates.

    Raises
    ------
    StudyError
        If it defines a part of a form, or both.
    """
    defined = [name for name in (*EXACT_FORM, *SIMULATED_FORM) if callable(getattr(module, name, None))]
    parts = parts_of(module)
    if "compare" not in defined and "simulate" not in defined and not parts:
        return None
    wanted = () if parts else EXACT_FORM if "compare" in defined else SIMULATED_FORM
    name = module.__name__.rpartition(".")[2]
    defined = [one for one in defined if not (parts and one == "rows")]  # which is the decorator
    if defined != list(wanted):
        raise StudyError(f"{FORMS}; {name} defines {', '.join((*parts, *defined))}")
    statements = tuple(stated_in(module))
    if parts:
        functions = {"rows": None} | form(parts, {one.id: one for one in statements})
    else:
        functions = {"cells": getattr(module, "cells", _one_cell)}
        functions |= _exact_form(module, statements) if "compare" in defined else _simulated_form(module)
    return Study(
        name=name,
        title=(module.__doc__ or name).strip().partition("\n")[0].rstrip("."),
        module=module.__name__,
        statements=statements,
        powerless=getattr(module, "POWERLESS", {}),
        **functions,
    )


def parts_of(module: ModuleType) -> dict[str, Check | Run]:
    """Return the checks and runs of a module by the names of their functions; those of other modules are theirs."""
    own = [one for one in vars(module).values() if isinstance(one, Check | Run)]
    named = {(one.sides if isinstance(one, Check) else one.compute).__name__: one for one in own}
    return named if any(isinstance(one, Check) for one in own) else {}


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


def _one_cell(quick: bool) -> list[Cell]:
    return [Cell({})]


def _simulated_form(module: ModuleType) -> dict[str, Any]:
    def claims(table: pd.DataFrame) -> list[Claim]:
        return list(module.claims(table))  # which may be a generator

    return {"compute": module.simulate, "rows": module.rows, "claims": claims}


def _exact_form(module: ModuleType, statements: Iterable[Statement]) -> dict[str, Any]:
    by_id = {one.id: one for one in statements}
    draws = len(signature(module.compare).parameters) > 1

    def compute(settings: Settings, rng: np.random.Generator, chunk: int) -> list[dict[str, Any]]:
        compared = module.compare(settings, rng) if draws else module.compare(settings)
        if not isinstance(compared, Iterable):
            raise StudyError(f"{YIELDS}, got {type(compared).__name__}")
        found, begun = [], BEGUN.times
        for one in compared:
            found.append(_row(one, by_id))
            if isinstance(one, Comparison):
                if BEGUN.times > begun:
                    _check_error(one, by_id[one.statement])
                begun = BEGUN.times
        return found

    def claims(table: pd.DataFrame) -> list[Claim]:
        return [_claim(by_id[row["statement"]], row) for row in table.to_dict("records") if row["statement"]]

    return {"compute": compute, "rows": _rows, "claims": claims}


def _row(one: Comparison | Mapping[str, Any], by_id: Mapping[str, Statement]) -> dict[str, Any]:
    """Return a comparison, or a row of data, as a row of the table."""
    if isinstance(one, Mapping):
        return {"statement": "", **one}
    if not isinstance(one, Comparison):
        raise StudyError(f"{YIELDS}, got {type(one).__name__}")
    if one.statement not in by_id:
        raise StudyError(f"compare() yields a comparison of {one.statement!r}, which its file does not state")
    for side in SIDES:
        if not isfinite(getattr(one, side)):
            raise StudyError(f"{one.statement} on {one.setting}: {side} must be finite, got {getattr(one, side)}")
    row = one._asdict() | {"facts": json.dumps(dict(one.facts)) if one.facts else ""}
    columns = ("standard_error", "replications"), ("broken_error", "broken_draws"), ("sound_error", "sound_draws")
    for names, error in zip(columns, row.pop("errors"), strict=True):
        row |= dict(zip(names, error, strict=True))
    return row


def _check_error(one: Comparison, statement: Statement) -> None:
    """Raise if a comparison has no error although a simulation ran for it; what holds path by path needs none."""
    if one.errors[0][1] == 0 and statement.kind != "identity":
        raise StudyError(
            f"{one.statement} on {one.setting}: a simulation ran before this comparison, whose estimate has no error; give "
            "(estimate, standard error, number of draws) in place of the number, or simulate for figures after what is exact"
        )


def _rows(settings: Settings, results: list[Any]) -> Rows:
    """Return the rows of all chunks; what is not said is exact, and predicts nothing."""
    return [{"prediction": float("nan"), **EXACT} | row for result in results for row in result]


def _claim(statement: Statement, row: Mapping[str, Any]) -> Claim:
    margin = row["margin"]
    absolute = bool(statement.margin and statement.margin.absolute)
    near = partial(Evidence, margin=margin, absolute=absolute)
    own = near(row["estimate"], row["prediction"], row["standard_error"], replications=int(row["replications"]))
    control = near(row["broken"], row["broken_prediction"], row["broken_error"], replications=int(row["broken_draws"]))
    sound = None
    if not isnan(row["sound"]):
        sound = near(row["sound"], row["prediction"], row["sound_error"], replications=int(row["sound_draws"]))
    return Claim(statement, row["setting"], own, control, json.loads(row["facts"]) if row["facts"] else {}, sound)
