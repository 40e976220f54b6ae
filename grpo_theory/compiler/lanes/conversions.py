"""Lanes made of a number, and of lanes of another type."""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core.typing.templates import signature

from grpo_theory.compiler.lanes.lowering import lower, one_instruction, type_function
from grpo_theory.compiler.lanes.types import (
    BYTE_TALLIES,
    FLAGS,
    INTEGERS,
    REALS,
    SHORTS,
    TALLIES,
    WORDS,
    LanesType,
    repeated,
    vector_of,
)
from grpo_theory.compiler.lanes.values import (
    WIDTH,
    as_integer,
    as_real,
    as_short,
    as_tally,
    bits_of,
    from_bits,
    integers,
    lane_numbers,
    reals,
    shorts,
    tallies,
)


def _convert(function: Callable, wanted: LanesType, instructions: dict[LanesType, str]) -> None:
    """Let a function turn lanes of some types into those of another, by an instruction for each."""
    type_function(function, lambda lanes: signature(wanted, lanes) if lanes in instructions else None)
    for kind, instruction in instructions.items():
        lower(function, kind)(one_instruction(instruction, vector_of(wanted.dtype)))


_convert(as_real, REALS, {INTEGERS: "sitofp", SHORTS: "sitofp", TALLIES: "uitofp", WORDS: "uitofp"})
_convert(as_integer, INTEGERS, {REALS: "fptosi", SHORTS: "sext", TALLIES: "zext", WORDS: "bitcast", FLAGS: "zext"})
_convert(as_short, SHORTS, {REALS: "fptosi", INTEGERS: "trunc", FLAGS: "zext"})
_convert(as_tally, TALLIES, {FLAGS: "zext", BYTE_TALLIES: "zext", TALLIES: "bitcast"})
_convert(bits_of, INTEGERS, {REALS: "bitcast"})
_convert(from_bits, REALS, {INTEGERS: "bitcast"})


def _fill(function: Callable, kind: LanesType) -> None:
    """Let a function return lanes that are all one number."""
    type_function(function, lambda number: signature(kind, kind.dtype))
    lower(function, kind.dtype)(lambda context, builder, sig, values: repeated(builder, values[0]))


_fill(reals, REALS)
_fill(integers, INTEGERS)
_fill(shorts, SHORTS)
_fill(tallies, TALLIES)


type_function(lane_numbers, lambda: signature(INTEGERS))


@lower(lane_numbers)
def _lane_numbers(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[ir.Value]) -> ir.Value:
    return ir.Constant(vector_of(types.int64), list(range(WIDTH)))
