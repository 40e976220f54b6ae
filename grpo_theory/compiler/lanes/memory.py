"""Lanes that lie side by side in memory: loads, stores, a number written many times, and a test of all numbers.

Each is written as one instruction on a vector. A loop over thirty-two numbers would be left for the compiler to turn into
vectors. The compiler does so only where it can show that no array reaches into another.
"""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import signature

from grpo_theory.compiler.lanes.lowering import (
    address_of,
    data_of,
    indices_of,
    lower,
    require_inside,
    size_of,
    steps,
    type_function,
    vector_at,
)
from grpo_theory.compiler.lanes.types import BITS, LanesType, repeated, vector_of
from grpo_theory.compiler.lanes.values import RUN, WIDTH, are_finite, load, repeat, store

type_function(load, lambda array, *index: signature(LanesType(array.dtype), array, *index))


@lower(load, types.Array, types.VarArg(types.Integer))
def _load(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[ir.Value]) -> ir.Value:
    kind, *rest = sig.args
    indices = indices_of(context, builder, rest, values[1:])
    # Of numbers it is known that they are aligned, and of vectors not: lanes may begin at any index.
    return builder.load(address_of(context, builder, kind, values[0], indices), align=size_of(kind))


type_function(store, lambda lanes, array, *index: signature(types.none, LanesType(array.dtype), array, *index))


@lower(store, LanesType, types.Array, types.VarArg(types.Integer))
def _store(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[ir.Value]) -> None:
    _, kind, *rest = sig.args
    indices = indices_of(context, builder, rest, values[2:])
    builder.store(values[0], address_of(context, builder, kind, values[1], indices), align=size_of(kind))


type_function(repeat, lambda number, array, i, j: signature(types.none, array.dtype, array, types.int64, types.int64))


@lower(repeat, types.Number, types.Array, types.Integer, types.Integer)
def _repeat_in_array(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[ir.Value]) -> None:
    kind = sig.args[1]
    data, shape = data_of(context, builder, kind, values[1])
    first = builder.add(builder.mul(values[2], shape[1]), values[3])
    require_inside(context, builder, shape, first, builder.add(first, ir.Constant(BITS, RUN - 1)))
    vector = repeated(builder, values[0], RUN)
    builder.store(vector, vector_at(builder, data, first, vector.type), align=size_of(kind))


type_function(are_finite, lambda array, size: signature(types.boolean, array, types.int64))


def _lies_outside(builder: ir.IRBuilder, numbers: ir.Value) -> ir.Value:
    """Say of numbers, one or a vector of them, which are infinite or not numbers."""
    # An ordered comparison is false for what is not a number; so "not inside" takes in nan as well as the infinities.
    limits = [ir.Constant(ir.DoubleType(), limit) for limit in (float("-inf"), float("inf"))]
    if isinstance(numbers.type, ir.VectorType):
        limits = [repeated(builder, limit, numbers.type.count) for limit in limits]
    inside = builder.and_(builder.fcmp_ordered(">", numbers, limits[0]), builder.fcmp_ordered("<", numbers, limits[1]))
    return builder.not_(inside)


@lower(are_finite, types.Array, types.Integer)
def _are_finite(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[ir.Value]) -> ir.Value:
    kind, size = sig.args[0], values[1]
    data, shape = data_of(context, builder, kind, values[0])
    require_inside(context, builder, shape, ir.Constant(BITS, 0), builder.sub(size, ir.Constant(BITS, 1)))
    # Whole vectors first, then the numbers that are left. The loop does not end early: an array that is not finite is an error,
    # and so rare that a test at every turn would only cost time.
    whole = builder.and_(size, ir.Constant(BITS, -WIDTH))
    outside_so_far = cgutils.alloca_once_value(builder, ir.Constant(ir.VectorType(ir.IntType(1), WIDTH), [0] * WIDTH))
    with steps(builder, whole, WIDTH) as (first, _):
        numbers = builder.load(vector_at(builder, data, first, vector_of(kind.dtype)), align=size_of(kind))
        outside = _lies_outside(builder, numbers)
        builder.store(builder.or_(builder.load(outside_so_far), outside), outside_so_far)
    bits = builder.bitcast(builder.load(outside_so_far), ir.IntType(WIDTH))
    last = cgutils.alloca_once_value(builder, builder.icmp_unsigned("!=", bits, ir.Constant(ir.IntType(WIDTH), 0)))
    with cgutils.for_range_slice(builder, whole, size, ir.Constant(BITS, 1), inc=True) as (index, _):
        outside = _lies_outside(builder, builder.load(builder.gep(data, [index])))
        builder.store(builder.or_(builder.load(last), outside), last)
    return builder.not_(builder.load(last))
