"""Columns as expressions over a log's columns: `info.reward`, `content[0]`, `correct + 0.2 * format`, `last(advantages)`."""

import ast
import json
import operator
import re
from collections.abc import Callable
from contextlib import suppress
from functools import reduce
from itertools import repeat
from typing import Any

import numpy as np
import pandas as pd

from grpo_theory.user_text import listed, printable

BACKTICKS = re.compile(r"`([^`]+)`")


class RowError(ValueError):
    """A value that cannot be read, with the index of its row."""

    def __init__(self, what: str, row: object) -> None:
        super().__init__(what)
        self.row = row


SIGNS: dict[type, Callable] = {
    **{ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt},
    **{ast.GtE: operator.ge, ast.In: lambda one, of: one.isin(of), ast.NotIn: lambda one, of: ~one.isin(of)},
    **{ast.And: operator.and_, ast.Or: operator.or_, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv},
}


def parsed(text: str) -> ast.AST:
    """Return the tree of an expression, in which `column('reward/acc')` stands for a name in backticks."""
    try:
        return ast.parse(BACKTICKS.sub(lambda name: f"column({name[1]!r})", text).strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        example = "an expression is a column, info.reward, 'correct + 0.2 * format' or \"split == 'train'\""
        raise ValueError(f"'{printable(text)}' cannot be read: {example}; other names stand in `backticks`") from None


def columns_of(text: str) -> set[str]:
    """Return the columns that an expression reads."""
    nodes = list(ast.walk(parsed(text)))
    called = [one.func for one in nodes if isinstance(one, ast.Call)]
    known = {one.id for one in nodes if isinstance(one, ast.Name) and one not in called}
    return known | {*BACKTICKS.findall(text)} | {"file" for one in called if ast.unparse(one) == "in_path"}


def value(text: str, rows: pd.DataFrame) -> pd.Series:
    """Return the value of an expression in each row.

    Raises
    ------
    ValueError
        If the text is no expression, or calls what there is not, or a value is not of the kind that a function takes.
    """
    found = _value(parsed(text), rows)
    return found if isinstance(found, pd.Series) else pd.Series([found] * len(rows), index=rows.index)


def _value(node: ast.AST, rows: pd.DataFrame) -> Any:
    match node:
        case ast.Constant(constant):
            return constant
        case ast.Name(name) | ast.Call(ast.Name("column"), [ast.Constant(name)]):
            return rows[name]
        case ast.Attribute(of, place) | ast.Subscript(of, ast.Constant(place)):
            return _inside(_value(of, rows), place)
        case ast.Subscript(of, ast.UnaryOp(ast.USub(), ast.Constant(int(place)))):
            return _inside(_value(of, rows), -place)
        case ast.Call(ast.Name("in_path"), [ast.Constant(str(pattern))]):
            groups = 0
            with suppress(re.error):
                groups = re.compile(pattern).groups
            if not groups:
                raise ValueError("needs a pattern with one group in parentheses, as 'step_([0-9]+)'")
            found = [(at := re.search(pattern, str(one))) and at[1] for one in rows["file"].cat.categories]
            return pd.Series(np.array(found, dtype=object)[rows["file"].cat.codes], index=rows.index)
        case ast.Call(ast.Name("round"), [of, *digits]):
            return numbers(_value(of, rows)).round(*map(ast.literal_eval, digits))
        case ast.Call(ast.Name(name), arguments) if name in FUNCTIONS:
            return each_row(FUNCTIONS[name], *(_value(one, rows) for one in arguments))
        case ast.BinOp(left, ast.Add(), right):
            one, other = numbers(_value(left, rows)), numbers(_value(right, rows))
            # As in TRL, a reward function that returned None counts as 0 beside one that returned a number.
            both = isinstance(one, pd.Series) and isinstance(other, pd.Series)
            return one.add(other, fill_value=0.0) if both else one + other
        case ast.BinOp(left, sign, right) if type(sign) in SIGNS:
            return SIGNS[type(sign)](numbers(_value(left, rows)), numbers(_value(right, rows)))
        case ast.UnaryOp(ast.USub(), of):
            return -numbers(_value(of, rows))
        case ast.UnaryOp(ast.Not(), of):
            return ~truth(_value(of, rows))
        case ast.Tuple(parts) | ast.List(parts):
            inside = [_value(one, rows) for one in parts]
            return each_row(lambda *of: list(of), *inside) if any(isinstance(one, pd.Series) for one in inside) else inside
        case ast.Compare(left, [sign], [right]) if type(sign) in SIGNS:
            one, other, compare = _value(left, rows), _value(right, rows), SIGNS[type(sign)]
            try:
                return compare(one, other)
            except (TypeError, ValueError, NotImplementedError):  # texts beside numbers
                return compare(one.map(str), other) if isinstance(other, str | list) else compare(numbers(one), numbers(other))
        case ast.BoolOp(joint, parts):
            return reduce(SIGNS[type(joint)], (truth(_value(one, rows)) for one in parts))
    known = ", ".join(sorted([*FUNCTIONS, "in_path", "round"]))
    raise ValueError(f"'{printable(ast.unparse(node))}' cannot be read; there are + - * /, comparisons, and, or, not, {known}")


def truth(values: pd.Series) -> pd.Series:
    """Return where a column is true; what is missing is not."""
    return values.astype(object).map(lambda one: one is not None and one is not pd.NA and one == one and bool(one)).astype(bool)


def numbers(values: Any) -> Any:
    """Return a column as numbers, None as NaN; ValueError names a value that is none."""
    if not isinstance(values, pd.Series):
        return float(values)
    try:
        return pd.Series(pd.to_numeric(values).to_numpy(dtype=float, na_value=np.nan), index=values.index)
    except (TypeError, ValueError, NotImplementedError, OverflowError):
        return each_row(_number, values).astype(float)


def _number(one: Any) -> float:
    try:
        return np.nan if one is None or one is pd.NA else float(one)
    except (TypeError, ValueError, OverflowError):
        what = f"must be numbers, and one is '{printable(one, 40)}'"
    if isinstance(one, list | np.ndarray):
        what = "holds lists: last(...) or total(...) of it is one number, each(...) makes a response of each entry"
    if isinstance(one, dict):
        what = f"holds objects with the fields {listed(one)}: name one, as in reward.score"
    raise ValueError(what)


def each_row(function: Callable, *columns: Any) -> pd.Series:
    """Return what a function makes of each row's values; constants are the same in each row."""
    known = [one for one in columns if isinstance(one, pd.Series)]
    if not known:
        raise ValueError("an expression must have a column in it")
    found: list = []
    try:
        for of in zip(*(one if isinstance(one, pd.Series) else repeat(one) for one in columns), strict=False):
            found.append(function(*of))
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        raise RowError(str(error), known[0].index[len(found)]) from None
    return pd.Series(found, index=known[0].index, dtype=object)


def _inside(values: pd.Series, place: Any) -> pd.Series:
    """Return a field of objects, or of all objects of lists, or an entry of lists."""
    if hasattr(values, "struct") and place in values.struct.dtypes.index:
        return values.struct.field(place)
    return each_row(lambda one: _entry(one, place), values)


def _entry(one: Any, place: Any) -> Any:
    if isinstance(one, dict):
        return one.get(place)
    if not isinstance(one, list | np.ndarray):
        return None
    if isinstance(place, str):
        return [_entry(inside, place) for inside in one]
    return one[place] if -len(one) <= place < len(one) else None


def entries(one: Any) -> list:
    """Return a list, also where a CSV holds it as text; nothing is an empty one, and a number a list of one."""
    if isinstance(one, str):
        try:
            one = json.loads(one)
        except ValueError:
            raise ValueError(f"must be lists, and one is '{printable(one)}'") from None
    missing = one is None or one is pd.NA or (isinstance(one, float) and np.isnan(one))
    return [] if missing else list(one) if isinstance(one, list | np.ndarray) else [one]


def successes(right: Any, of: Any) -> list | None:
    """Return the rewards of a prompt of which only the number of successes is logged; each is a row."""
    try:
        right, of = float(right), float(of)
        count = round(right)
        whole = of == int(of) and 0 <= count <= of and abs(count - right) <= 1e-6 * max(1.0, of)
    except (TypeError, ValueError, OverflowError):
        return None
    if not whole:
        raise ValueError(f"must be a whole number of successes, of so many responses or fewer, and one is {right:g} of {of:g}")
    return [1.0] * count + [0.0] * int(of - count) or None


def weighted(rewards: Any) -> float | None:
    """Return the sum of scores times weights: {correct: {score, weight}, ...}."""
    parts = [one for one in (rewards or {}).values() if one and one.get("score") is not None]
    return float(sum(one["score"] * one.get("weight", 1.0) for one in parts)) if parts else None


def opening(messages: Any) -> list:
    """Return a conversation before the first answer: what was asked."""
    roles = [one.get("role") for one in entries(messages)]
    return list(entries(messages)[: roles.index("assistant") if "assistant" in roles else None])


def total(values: Any) -> float | None:
    """Return the sum of a list, None of an empty one."""
    found = [one for one in entries(values) if one is not None]
    return float(sum(found)) if found else None


FUNCTIONS: dict[str, Callable] = {
    "each": lambda values: entries(values) or None,  # each entry of a list becomes a row of its own
    "last": lambda values: (entries(values) or [None])[-1],  # an advantage that is written at each token is 0 at the prompt's
    "size": lambda values: len(entries(values)),
    **{"total": total, "successes": successes, "weighted": weighted, "opening": opening},
}
"""What an expression may call, by name, beside `round` and `in_path`: each makes a value of those of a row."""
