"""Tallies: in how many words of an array each lane lies below a bound."""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core.typing.templates import signature

from grpo_theory.compiler.lanes.lowering import address_of, indices_of, lower, size_of, type_function
from grpo_theory.compiler.lanes.types import BYTE_TALLIES, BYTES, SMALL, TALLIES, LanesType, vector_of
from grpo_theory.compiler.lanes.values import WIDTH, as_those, tallies_of, tally_below

type_function(as_those, lambda words, lanes: signature(LanesType(words.dtype), words, lanes) if lanes == SMALL else None)


@lower(as_those, types.Array, SMALL)
def _as_those(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[ir.Value]) -> ir.Value:
    return builder.trunc(values[1], vector_of(sig.args[0].dtype)) if size_of(sig.args[0]) == 1 else values[1]


_TALLIES = {types.int16: TALLIES, types.int8: BYTE_TALLIES}

type_function(tallies_of, lambda words: signature(_TALLIES[words.dtype], words))


@lower(tallies_of, types.Array)
def _tallies_of(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[ir.Value]) -> ir.Value:
    return ir.Constant(vector_of(sig.return_type.dtype), [0] * WIDTH)


def _find_tally_below(tally: LanesType, bound: LanesType, words: types.Array, *index: types.Type) -> Any:
    return signature(_TALLIES[words.dtype], _TALLIES[words.dtype], LanesType(words.dtype), words, *index)


type_function(tally_below, _find_tally_below)


@lower(tally_below, TALLIES, SMALL, types.Array, types.VarArg(types.Integer))
@lower(tally_below, BYTE_TALLIES, BYTES, types.Array, types.VarArg(types.Integer))
def _tally_below(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[ir.Value]) -> ir.Value:
    (tally, bound, array, *index), (_, _, kind, *kinds) = values, sig.args
    address = address_of(context, builder, kind, array, indices_of(context, builder, kinds, index))
    below = builder.icmp_signed("<", builder.load(address, align=size_of(kind)), bound)
    # A comparison that is true is -1 as a signed number: to subtract it counts one more, and needs no choice.
    return builder.sub(tally, builder.sext(below, tally.type))
