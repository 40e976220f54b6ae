"""Operators between lanes: one instruction each, lane by lane."""

import operator
from collections.abc import Callable, Sequence
from typing import Any

from numba import types
from numba.core.typing.templates import signature

from grpo_theory.compiler.lanes.lowering import lower, one_instruction, type_function
from grpo_theory.compiler.lanes.types import BYTES, FLAGS, INTEGERS, REALS, SHORTS, SMALL, TALLIES, WORDS, LanesType


def _type_operator(symbol: Callable, result: LanesType | None = None) -> None:
    """Let an operator take lanes of one type, or such lanes and a number."""

    def find(*arguments: types.Type) -> Any:
        kind = next((argument for argument in arguments if isinstance(argument, LanesType)), None)
        return None if kind is None else signature(result or kind, *[kind] * len(arguments))

    type_function(symbol, find)


_COMPARISONS = {REALS: "fcmp_ordered", **dict.fromkeys((INTEGERS, SHORTS, SMALL, BYTES), "icmp_signed"), TALLIES: "icmp_unsigned"}
_WHOLE = (INTEGERS, SHORTS, SMALL, TALLIES, WORDS)
_INSTRUCTIONS: tuple[tuple[Callable, Sequence[LanesType], str], ...] = (
    (operator.add, [REALS], "fadd"),
    (operator.add, _WHOLE, "add"),
    (operator.sub, [REALS], "fsub"),
    (operator.sub, _WHOLE, "sub"),
    (operator.mul, [REALS], "fmul"),
    (operator.mul, _WHOLE, "mul"),
    (operator.truediv, [REALS], "fdiv"),
    (operator.and_, _WHOLE, "and_"),
    (operator.or_, [WORDS], "or_"),
    (operator.xor, [WORDS], "xor"),
    (operator.lshift, _WHOLE, "shl"),
    (operator.rshift, [INTEGERS, SHORTS], "ashr"),
    (operator.rshift, [WORDS], "lshr"),
)
for _symbol in dict.fromkeys(symbol for symbol, _, _ in _INSTRUCTIONS):
    _type_operator(_symbol)
for _symbol, _kinds, _name in _INSTRUCTIONS:
    for _kind in _kinds:
        lower(_symbol, _kind, _kind)(one_instruction(_name))
for _symbol, _sign in ((operator.lt, "<"), (operator.le, "<="), (operator.gt, ">"), (operator.ge, ">="), (operator.eq, "==")):
    _type_operator(_symbol, FLAGS)
    for _kind, _name in _COMPARISONS.items():
        lower(_symbol, _kind, _kind)(one_instruction(_name, first=(_sign,)))
