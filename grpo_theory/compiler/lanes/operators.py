"""Operators between lanes: one instruction each, lane by lane."""

import operator
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import signature

from grpo_theory.compiler.lanes.lowering import type_function
from grpo_theory.compiler.lanes.types import BYTES, FLAGS, INTEGERS, REALS, SHORTS, SMALL, TALLIES, WORDS, LanesType


def _type_operator(symbol: Callable, result: LanesType | None = None) -> None:
    """Let an operator take lanes of one type, or such lanes and a number."""

    def find(*arguments: types.Type) -> Any:
        kind = next((argument for argument in arguments if isinstance(argument, LanesType)), None)
        return None if kind is None else signature(result or kind, *[kind] * len(arguments))

    type_function(symbol, find)


def _lower_operator(symbol: Callable, kinds: Sequence[LanesType], instruction: str) -> None:
    def lowered(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
        return getattr(builder, instruction)(*values)

    for kind in kinds:
        lower_builtin(symbol, kind, kind)(lowered)


def _lower_comparison(symbol: Callable, sign: str) -> None:
    def of_reals(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
        return builder.fcmp_ordered(sign, *values)

    def of_integers(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
        return builder.icmp_signed(sign, *values)

    def of_tallies(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
        return builder.icmp_unsigned(sign, *values)

    lower_builtin(symbol, REALS, REALS)(of_reals)
    for kind in (INTEGERS, SHORTS, SMALL, BYTES):
        lower_builtin(symbol, kind, kind)(of_integers)
    lower_builtin(symbol, TALLIES, TALLIES)(of_tallies)


_WHOLE = (INTEGERS, SHORTS, SMALL, TALLIES, WORDS)
for _symbol, _real, _whole in (
    (operator.add, "fadd", "add"),
    (operator.sub, "fsub", "sub"),
    (operator.mul, "fmul", "mul"),
):
    _type_operator(_symbol)
    _lower_operator(_symbol, [REALS], _real)
    _lower_operator(_symbol, _WHOLE, _whole)
for _symbol, _kinds, _instruction in (
    (operator.truediv, [REALS], "fdiv"),
    (operator.and_, _WHOLE, "and_"),
    (operator.or_, [WORDS], "or_"),
    (operator.xor, [WORDS], "xor"),
    (operator.lshift, _WHOLE, "shl"),
    (operator.rshift, [INTEGERS, SHORTS], "ashr"),
    (operator.rshift, [WORDS], "lshr"),
):
    _type_operator(_symbol)
    _lower_operator(_symbol, _kinds, _instruction)
for _symbol, _sign in ((operator.lt, "<"), (operator.le, "<="), (operator.gt, ">"), (operator.ge, ">="), (operator.eq, "==")):
    _type_operator(_symbol, FLAGS)
    _lower_comparison(_symbol, _sign)
