"""Rows of a table, one for each lane, turned into columns of lanes in registers."""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import signature

from grpo_theory.compiler.lanes.lowering import data_of, lower, require_inside, size_of, steps, type_function, vector_at
from grpo_theory.compiler.lanes.types import BITS, INTEGERS, LLVM_TYPES, repeated, shuffled
from grpo_theory.compiler.lanes.values import PIECE, WIDTH, spread


def _interleave(builder: ir.IRBuilder, one: ir.Value, other: ir.Value) -> list[ir.Value]:
    """Return vectors of two pieces, in which the numbers of two such take turns: the first halves of pieces, and the second."""
    n, halves = one.type.count // 2, []
    for first in (0, n // 2):
        numbers = [lane for piece in (0, n) for i in range(n // 2) for lane in (piece + first + i, piece + first + i + 2 * n)]
        halves.append(shuffled(builder, one, other, numbers))
    return halves


def _turn(builder: ir.IRBuilder, rows: list[ir.Value]) -> list[ir.Value]:
    """Turn rows of n pieces, of n numbers each, into columns: in two blocks of n by n, the halves of the vectors, at once."""
    # As cards are shuffled: interleaving the first half of 2^k rows with the second, k times, turns rows into columns.
    for _ in range((len(rows) - 1).bit_length()):
        pairs = zip(rows[: len(rows) // 2], rows[len(rows) // 2 :], strict=True)
        rows = [vector for one, other in pairs for vector in _interleave(builder, one, other)]
    return rows


type_function(spread, lambda table, indices, columns: signature(types.none, table, indices, columns))


@lower(spread, types.Array, INTEGERS, types.Array)
def _spread(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[ir.Value]) -> None:
    kind, _, columns = sig.args
    data, shape = data_of(context, builder, kind, values[0])
    first_number, room = data_of(context, builder, columns, values[2])
    last = builder.sub(builder.mul(shape[1], ir.Constant(BITS, WIDTH)), ir.Constant(BITS, 1))
    require_inside(context, builder, room, ir.Constant(BITS, 0), last)
    n = PIECE // size_of(kind)
    piece, pair = ir.VectorType(LLVM_TYPES[kind.dtype], n), ir.VectorType(LLVM_TYPES[kind.dtype], 2 * n)
    # In memory, from where one instruction loads an index; to take one out of vector registers takes two or three.
    starts = cgutils.alloca_once_value(builder, builder.mul(values[1], repeated(builder, shape[1])))
    first_start = builder.bitcast(starts, BITS.as_pointer())
    with steps(builder, ir.Constant(BITS, WIDTH), 2 * n) as (lane, _):
        rows = []
        for j in range(2 * n):
            start = builder.load(builder.gep(first_start, [builder.add(lane, ir.Constant(BITS, j))]))
            require_inside(context, builder, shape, start, start)
            rows.append(builder.gep(data, [start]))
        with steps(builder, shape[1], n) as (first, _):
            pieces = [builder.load(vector_at(builder, row, first, piece), align=size_of(kind)) for row in rows]
            vectors = [shuffled(builder, *halves, range(2 * n)) for halves in zip(pieces[:n], pieces[n:], strict=True)]
            for k, column in enumerate(_turn(builder, vectors)):
                index = builder.mul(builder.add(first, ir.Constant(BITS, k)), ir.Constant(BITS, WIDTH))
                address = vector_at(builder, first_number, builder.add(index, lane), pair)
                builder.store(column, address, align=size_of(kind))
