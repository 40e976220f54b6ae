"""One number of an array for each lane: from memory, or from registers where the processor can pick from them."""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core.typing.templates import signature

from grpo_theory.compiler.lanes.lowering import (
    call_intrinsic,
    data_of,
    lower,
    require_inside,
    size_of,
    type_function,
    vector_at,
)
from grpo_theory.compiler.lanes.types import BITS, INTEGERS, LLVM_TYPES, REALS, LanesType, repeated, shuffled, vector_of
from grpo_theory.compiler.lanes.values import CACHE_LINE, PICKED, WIDTH, add_at, pick, take


def _each(
    context: Any, builder: ir.IRBuilder, kind: types.Array, array: ir.Value, indices: ir.Value
) -> list[tuple[ir.Value, ir.Value]]:
    """Return the number of each lane, and the address of the number at its index in an array."""
    data, shape = data_of(context, builder, kind, array)
    addresses = []
    for j in range(WIDTH):
        lane = ir.Constant(ir.IntType(32), j)
        index = builder.extract_element(indices, lane)
        require_inside(context, builder, shape, index, index)
        addresses.append((lane, builder.gep(data, [index])))
    return addresses


type_function(take, lambda array, indices: signature(LanesType(array.dtype), array, indices))


def gathered(context: Any, builder: ir.IRBuilder, kind: types.Array, array: ir.Value, indices: ir.Value) -> ir.Value:
    """Return the number at each lane's index in an array."""
    vector = ir.Constant(vector_of(kind.dtype), ir.Undefined)
    for lane, address in _each(context, builder, kind, array, indices):
        vector = builder.insert_element(vector, builder.load(address), lane)
    return vector


@lower(take, types.Array, INTEGERS)
def _take(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[ir.Value]) -> ir.Value:
    return gathered(context, builder, sig.args[0], *values)


type_function(add_at, lambda array, indices, lanes: signature(types.none, array, indices, lanes))


@lower(add_at, types.Array, INTEGERS, REALS)
def _add_at(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[ir.Value]) -> None:
    # One after the other: were two indices equal, the second addition would still see the first.
    for lane, address in _each(context, builder, sig.args[0], *values[:2]):
        builder.store(builder.fadd(builder.load(address), builder.extract_element(values[2], lane)), address)


type_function(pick, lambda columns, column, indices: signature(LanesType(columns.dtype), columns, types.int64, indices))


@lower(pick, types.Array, types.Integer, INTEGERS)
def _pick(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[ir.Value]) -> ir.Value:
    kind, *_ = sig.args
    data, shape = data_of(context, builder, kind, values[0])
    start, size = builder.mul(values[1], shape[1]), size_of(kind)
    if not PICKED:
        return gathered(context, builder, kind, values[0], builder.add(values[2], repeated(builder, start)))
    require_inside(context, builder, shape, start, builder.add(start, ir.Constant(BITS, max(PICKED, CACHE_LINE // size) - 1)))
    n = CACHE_LINE // size
    part, numbers = ir.VectorType(LLVM_TYPES[kind.dtype], n), ir.VectorType(ir.IntType(8 * size), WIDTH)
    firsts = [builder.add(start, ir.Constant(BITS, first)) for first in range(0, PICKED, n)]
    tables = [builder.load(vector_at(builder, data, first, part), align=size) for first in firsts]
    # The instruction takes indices as wide as the numbers are, and looks at their lowest bits only.
    indices = values[2] if numbers == values[2].type else builder.trunc(values[2], numbers)
    picked = []
    for lane in range(0, WIDTH, n):
        here = shuffled(builder, indices, indices, range(lane, lane + n))
        # Thirty-two numbers of 16 bits fill one register; sixteen doubles fill two, and another instruction picks from both.
        name = "permvar.hi" if len(tables) == 1 else "vpermi2var.pd"
        picked.append(call_intrinsic(builder, f"llvm.x86.avx512.{name}.512", part, tables[0], here, *tables[1:]))
    while len(picked) > 1:
        picked = [shuffled(builder, *pair, range(2 * pair[0].type.count)) for pair in zip(picked[::2], picked[1::2], strict=True)]
    return picked[0]
