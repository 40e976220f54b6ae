"""Lanes: numbers of thirty-two runs, or replications, side by side as one value, which vector instructions work on at once.

In compiled code a value of lanes is a vector in registers, and operators work lane by lane.  Nothing is left for a compiler to
find out: not that rows of arrays are apart, not that a loop may be turned into vectors.  So code over lanes is written as if
there were one run, and what one line hands to the next need not pass through memory.  In plain Python the same functions work
on arrays of thirty-two numbers, to the same bits.

Lanes hold float64, int64, int32, int16 or int8 numbers, words of 64 bits (uint64), tallies (uint16 or uint8) or truth values.
"""

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.core.imputils import lower_builtin, lower_cast
from numba.core.typeconv.castgraph import Conversion
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import models, register_model

from grpo_theory.compiler.options import CHECKS_BOUNDS, PROCESSOR

WIDTH = 32
"""The lanes of a value: several of a processor's vectors, because one alone would wait for its own results."""

PIECE = 16
"""The bytes of a row that `spread` reads at once."""

SHORTER = 32
"""The bytes of the second longest vectors, in which small numbers are compared."""

CACHE_LINE = 64
"""The bytes that caches hold at once: as many as the longest vectors have."""

RUN = 8
"""The numbers that `repeat` writes: one of the longest vectors."""

PICKED = 16 if {"+avx512f", "+avx512bw"} <= PROCESSOR else 0
"""The numbers that `pick` picks from, held in registers; 0 where the processor has no instruction for it."""


def zeros(*shape: int, dtype: Any = np.float64) -> np.ndarray:
    """Make an array of zeros whose vectors lie in one line of a cache each, which numpy's own seldom do."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.zeros(size + CACHE_LINE, dtype=np.uint8)
    first = -memory.__array_interface__["data"][0] % CACHE_LINE
    return memory[first : first + size].view(dtype).reshape(shape)


# ---- what they are in plain Python


def load(array: np.ndarray, *place: Any) -> np.ndarray:
    """Return the numbers of an array from a place on, along its last axis; the place has an index for each axis."""
    *row, first = place
    return array[tuple(row)][first : first + WIDTH].copy()


def store(lanes: Any, array: np.ndarray, *place: Any) -> None:
    """Write lanes to an array from a place on, along its last axis."""
    *row, first = place
    array[tuple(row)][first : first + WIDTH] = lanes


def take(array: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return the number of an array at each lane's place, counted through the array as if it had one axis."""
    return array.reshape(-1)[places]


def spread(table: np.ndarray, places: np.ndarray, columns: np.ndarray) -> None:
    """Write the row of a table (n, rows) at each lane's place down the lane's column, in columns (at least rows, WIDTH).

    Rows are as long as `whole_rows` makes them.  They are read in pieces and turned round in registers, which takes a fraction of
    the time of so many calls of `take`.
    """
    columns[: table.shape[1]] = table[places].T


def pick(columns: np.ndarray, column: int, places: np.ndarray) -> np.ndarray:
    """Return the number of a column at each lane's place: one of a table's that was turned by `turned`.

    Where `PICKED` is above 0, the column is in registers while one instruction picks for eight lanes or more.
    """
    return columns[column][places]


def turned(table: np.ndarray) -> np.ndarray:
    """Return a table (n, rows) for `pick`: its columns one after another, each filled up with zeros."""
    width = max(PICKED, CACHE_LINE // table.itemsize, len(table))
    return np.ascontiguousarray(np.pad(table.T, ((0, 0), (0, width - len(table)))))


def whole_rows(table: np.ndarray) -> np.ndarray:
    """Return a table (n, rows) for `spread`: with as many columns more, of zeros, as make its rows a multiple of 16 bytes."""
    more = -table.shape[1] % (PIECE // table.itemsize)
    return np.ascontiguousarray(np.pad(table, ((0, 0), (0, more))))


def repeat(number: Any, array: np.ndarray, i: int, j: int) -> None:
    """Write a number `RUN` times to an array (n, m) from a place on, past the ends of rows, and not past that of the array."""
    first = i * array.shape[1] + j
    array.reshape(-1)[first : first + RUN] = number


def are_finite(array: np.ndarray, size: int) -> bool:
    """Say whether the first numbers of an array, so many, are finite."""
    return bool(np.isfinite(array.reshape(-1)[:size]).all())


def add_at(array: np.ndarray, places: np.ndarray, lanes: np.ndarray) -> None:
    """Add lanes to an array at each lane's place, counted as for `take`; no two lanes have the same place."""
    array.reshape(-1)[places] += lanes


def where(mask: np.ndarray, yes: Any, no: Any) -> np.ndarray:
    """Return `yes` in the lanes where the mask is true, and `no` in the others."""
    return np.where(mask, yes, no)


def as_real(lanes: np.ndarray) -> np.ndarray:
    """Return float64 lanes."""
    return lanes.astype(np.float64)


def as_integer(lanes: np.ndarray) -> np.ndarray:
    """Return int64 lanes; of float64 lanes the whole part."""
    return lanes.astype(np.int64)


def as_short(lanes: np.ndarray) -> np.ndarray:
    """Return int32 lanes; of float64 lanes the whole part."""
    return lanes.astype(np.int32)


def as_tally(lanes: np.ndarray) -> np.ndarray:
    """Return uint16 lanes; 1 where truth values are true."""
    return lanes.astype(np.uint16)


def as_those(words: np.ndarray, lanes: np.ndarray) -> np.ndarray:
    """Return int16 lanes as numbers of the type that an array has, int16 or int8."""
    return lanes.astype(words.dtype)


def tallies_of(words: np.ndarray) -> np.ndarray:
    """Return tallies that are all 0, each of as many bits as the numbers of an array: int16 or int8."""
    return np.zeros(WIDTH, dtype=f"u{words.itemsize}")


def tally_below(found: np.ndarray, bound: np.ndarray, words: np.ndarray, *place: Any) -> np.ndarray:
    """Return tallies, one more where the lanes of an array from a place on are below others: all of int16, or all of int8."""
    return found + (load(words, *place) < bound)


def root(lanes: np.ndarray) -> np.ndarray:
    """Return the square roots of float64 lanes."""
    return np.sqrt(lanes)


def some(mask: np.ndarray) -> bool:
    """Say whether the mask is true in any lane."""
    return bool(mask.any())


def sum_lanes(lanes: np.ndarray) -> float:
    """Return the sum of float64 lanes: halves are added to one another until one number is left."""
    while len(lanes) > 1:
        lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
    return lanes[0]


def bits_of(lanes: np.ndarray) -> np.ndarray:
    """Return the bits of float64 lanes as int64 lanes."""
    return lanes.view(np.int64)


def from_bits(lanes: np.ndarray) -> np.ndarray:
    """Return float64 lanes from their bits."""
    return lanes.view(np.float64)


def reals(number: float) -> np.ndarray:
    """Return float64 lanes that are all one number."""
    return np.full(WIDTH, number, dtype=np.float64)


def integers(number: int) -> np.ndarray:
    """Return int64 lanes that are all one number."""
    return np.full(WIDTH, number, dtype=np.int64)


def shorts(number: int) -> np.ndarray:
    """Return int32 lanes that are all one number."""
    return np.full(WIDTH, number, dtype=np.int32)


def tallies(number: int) -> np.ndarray:
    """Return uint16 lanes that are all one number."""
    return np.full(WIDTH, number, dtype=np.uint16)


def lane_numbers() -> np.ndarray:
    """Return int64 lanes from 0 to 31."""
    return np.arange(WIDTH, dtype=np.int64)


# ---- their type in compiled code

_BITS = ir.IntType(64)
_LLVM: dict[Any, Any] = {
    types.float64: ir.DoubleType(),
    types.int64: _BITS,
    types.uint64: _BITS,
    types.int32: ir.IntType(32),
    types.int16: ir.IntType(16),
    types.uint16: ir.IntType(16),
    types.int8: ir.IntType(8),
    types.uint8: ir.IntType(8),
    types.boolean: ir.IntType(1),
}


class LanesType(types.Type):
    """The type of lanes that hold numbers of a type."""

    def __init__(self, dtype: types.Type) -> None:
        self.dtype = dtype
        super().__init__(f"Lanes({dtype})")

    def can_convert_from(self, typingctx: Any, other: types.Type) -> Conversion | None:
        """Say that a number stands for lanes that are all this number."""
        return Conversion.safe if isinstance(other, types.Number) else None


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: LanesType) -> None:
        super().__init__(manager, kind, _vector(kind.dtype))


def _vector(dtype: types.Type) -> ir.VectorType:
    return ir.VectorType(_LLVM[dtype], WIDTH)


REALS, INTEGERS, SHORTS = LanesType(types.float64), LanesType(types.int64), LanesType(types.int32)
SMALL, TALLIES = LanesType(types.int16), LanesType(types.uint16)
BYTES, BYTE_TALLIES = LanesType(types.int8), LanesType(types.uint8)
WORDS, FLAGS = LanesType(types.uint64), LanesType(types.boolean)


def _repeat(builder: ir.IRBuilder, number: ir.Value, times: int = WIDTH) -> ir.Value:
    """Return a vector that is one number in every lane."""
    vector = ir.VectorType(number.type, times)
    nothing, first = ir.Constant(vector, ir.Undefined), ir.Constant(ir.IntType(32), 0)
    alone = builder.insert_element(nothing, number, first)
    return builder.shuffle_vector(alone, nothing, ir.Constant(ir.VectorType(ir.IntType(32), times), [0] * times))


@lower_cast(types.Number, LanesType)
def _from_number(context: Any, builder: ir.IRBuilder, given: types.Type, wanted: LanesType, value: ir.Value) -> ir.Value:
    return _repeat(builder, context.cast(builder, value, given, wanted.dtype))


# ---- operators


def _type(function: Callable, find: Callable) -> None:
    """Let `find` say, of the types of a function's arguments, which signature it has, or None if they are not its own."""

    def generic(self: Any, arguments: Sequence[types.Type], keywords: Any) -> Any:
        return find(*arguments)

    infer_global(function)(type(f"Lanes_{function.__name__}", (AbstractTemplate,), {"key": function, "generic": generic}))


def _type_operator(symbol: Callable, result: LanesType | None = None) -> None:
    """Let an operator take lanes of one type, or such lanes and a number."""

    def find(*arguments: types.Type) -> Any:
        kind = next((argument for argument in arguments if isinstance(argument, LanesType)), None)
        return None if kind is None else signature(result or kind, *[kind] * len(arguments))

    _type(symbol, find)


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


# ---- functions


def _lower(function: Callable, *kinds: Any) -> Callable:
    """Lower a function of this module by what is decorated, which is given the builder, the types and the values."""

    def decorate(made: Callable) -> Callable:
        def lowered(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
            found = made(context, builder, signature, values)
            return context.get_dummy_value() if found is None else found

        lower_builtin(function, *kinds)(lowered)
        return made

    return decorate


def _data(context: Any, builder: ir.IRBuilder, kind: types.Array, array: ir.Value) -> tuple[ir.Value, list[ir.Value]]:
    """Return the first number of an array, and its shape."""
    found = context.make_array(kind)(context, builder, array)
    return found.data, cgutils.unpack_tuple(builder, found.shape, kind.ndim)


def _require(context: Any, builder: ir.IRBuilder, shape: Sequence[ir.Value], first: ir.Value, last: ir.Value) -> None:
    """Raise if the places from the first to the last do not lie in an array."""
    if CHECKS_BOUNDS:
        size = ir.Constant(_BITS, 1)
        for length in shape:
            size = builder.mul(size, length)
        outside = builder.or_(builder.icmp_signed("<", first, ir.Constant(_BITS, 0)), builder.icmp_signed(">=", last, size))
        with builder.if_then(outside, likely=False):
            context.call_conv.return_user_exc(builder, IndexError, ("lanes lie outside of their array",))


def _address(context: Any, builder: ir.IRBuilder, kind: types.Array, array: ir.Value, indices: Sequence[ir.Value]) -> ir.Value:
    """Return where lanes begin that an array has at these indices, as a vector's address."""
    data, shape = _data(context, builder, kind, array)
    place = indices[0]
    for length, index in zip(shape[1:], indices[1:], strict=True):
        place = builder.add(builder.mul(place, length), index)
    _require(context, builder, shape, place, builder.add(place, ir.Constant(_BITS, WIDTH - 1)))
    return builder.bitcast(builder.gep(data, [place]), _vector(kind.dtype).as_pointer())


def _indices(context: Any, builder: ir.IRBuilder, kinds: Sequence[types.Type], values: Sequence[ir.Value]) -> list[ir.Value]:
    return [context.cast(builder, value, kind, types.int64) for kind, value in zip(kinds, values, strict=True)]


def _size(kind: Any) -> int:
    return kind.dtype.bitwidth // 8


_type(load, lambda array, *place: signature(LanesType(array.dtype), array, *place))


@_lower(load, types.Array, types.VarArg(types.Integer))
def _load(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
    kind, *rest = signature.args
    indices = _indices(context, builder, rest, values[1:])
    return builder.load(_address(context, builder, kind, values[0], indices), align=_size(kind))


_type(store, lambda lanes, array, *place: signature(types.none, LanesType(array.dtype), array, *place))


@_lower(store, LanesType, types.Array, types.VarArg(types.Integer))
def _store(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> None:
    _, kind, *rest = signature.args
    indices = _indices(context, builder, rest, values[2:])
    builder.store(values[0], _address(context, builder, kind, values[1], indices), align=_size(kind))


def _each(
    context: Any, builder: ir.IRBuilder, kind: types.Array, array: ir.Value, places: ir.Value
) -> list[tuple[ir.Value, ir.Value]]:
    """Return the number and the address of each lane's place in an array."""
    data, shape = _data(context, builder, kind, array)
    found = []
    for j in range(WIDTH):
        lane = ir.Constant(ir.IntType(32), j)
        place = builder.extract_element(places, lane)
        _require(context, builder, shape, place, place)
        found.append((lane, builder.gep(data, [place])))
    return found


_type(take, lambda array, places: signature(LanesType(array.dtype), array, places))


def _gather(context: Any, builder: ir.IRBuilder, kind: types.Array, array: ir.Value, places: ir.Value) -> ir.Value:
    """Return the number at each lane's place in an array."""
    found = ir.Constant(_vector(kind.dtype), ir.Undefined)
    for lane, address in _each(context, builder, kind, array, places):
        found = builder.insert_element(found, builder.load(address), lane)
    return found


@_lower(take, types.Array, INTEGERS)
def _take(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
    return _gather(context, builder, signature.args[0], *values)


def _join(builder: ir.IRBuilder, vectors: list[ir.Value], length: int) -> list[ir.Value]:
    """Put vectors of one length end to end, until they have another."""
    while (own := vectors[0].type.count) < length:
        numbers = ir.Constant(ir.VectorType(ir.IntType(32), 2 * own), list(range(2 * own)))
        vectors = [builder.shuffle_vector(one, other, numbers) for one, other in zip(vectors[::2], vectors[1::2], strict=True)]
    return vectors


def _interleave(builder: ir.IRBuilder, one: ir.Value, other: ir.Value) -> list[ir.Value]:
    """Return vectors of two pieces, in which the numbers of two such take turns: the first halves of pieces, and the second."""
    n, kind = one.type.count // 2, ir.IntType(32)
    found = []
    for first in (0, n // 2):
        numbers = [place for piece in (0, n) for i in range(n // 2) for place in (piece + first + i, piece + first + i + 2 * n)]
        found.append(builder.shuffle_vector(one, other, ir.Constant(ir.VectorType(kind, 2 * n), numbers)))
    return found


def _turn(builder: ir.IRBuilder, rows: list[ir.Value]) -> list[ir.Value]:
    """Turn rows of n pieces, of n numbers each, into columns: in two blocks of n by n, the halves of the vectors, at once."""
    for _ in range((len(rows) - 1).bit_length()):
        pairs = zip(rows[: len(rows) // 2], rows[len(rows) // 2 :], strict=True)
        rows = [vector for one, other in pairs for vector in _interleave(builder, one, other)]
    return rows


_type(spread, lambda table, places, columns: signature(types.none, table, places, columns))


def _steps(builder: ir.IRBuilder, stop: ir.Value, step: int) -> Any:
    """Return a loop from 0 on."""
    return cgutils.for_range_slice(builder, ir.Constant(_BITS, 0), stop, ir.Constant(_BITS, step), inc=True)


def _in_memory(builder: ir.IRBuilder, vector: ir.Value) -> ir.Value:
    """Return the address of the first of a vector's numbers, in memory that the compiler does not look through.

    An index is loaded from there in one instruction; from a register it takes two or three.
    """
    memory = cgutils.alloca_once(builder, vector.type)
    builder.store(vector, memory)
    address = builder.bitcast(memory, vector.type.element.as_pointer())
    return builder.asm(ir.FunctionType(address.type, [address.type]), "", "=r,0", [address], False)


@_lower(spread, types.Array, INTEGERS, types.Array)
def _spread(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> None:
    kind, _, columns = signature.args
    data, shape = _data(context, builder, kind, values[0])
    found, room = _data(context, builder, columns, values[2])
    last = builder.sub(builder.mul(shape[1], ir.Constant(_BITS, WIDTH)), ir.Constant(_BITS, 1))
    _require(context, builder, room, ir.Constant(_BITS, 0), last)
    n = PIECE // _size(kind)
    piece, pair = ir.VectorType(_LLVM[kind.dtype], n), ir.VectorType(_LLVM[kind.dtype], 2 * n)
    ends = ir.Constant(ir.VectorType(ir.IntType(32), 2 * n), list(range(2 * n)))
    starts = _in_memory(builder, builder.mul(values[1], _repeat(builder, shape[1])))
    with _steps(builder, ir.Constant(_BITS, WIDTH), 2 * n) as (lane, _):
        rows = []
        for j in range(2 * n):
            start = builder.load(builder.gep(starts, [builder.add(lane, ir.Constant(_BITS, j))]))
            _require(context, builder, shape, start, start)
            rows.append(builder.gep(data, [start]))
        with _steps(builder, shape[1], n) as (first, _):
            places = [builder.bitcast(builder.gep(row, [first]), piece.as_pointer()) for row in rows]
            pieces = [builder.load(place, align=_size(kind)) for place in places]
            halves = zip(pieces[:n], pieces[n:], strict=True)
            vectors = [builder.shuffle_vector(one, other, ends) for one, other in halves]
            for k, column in enumerate(_turn(builder, vectors)):
                place = builder.mul(builder.add(first, ir.Constant(_BITS, k)), ir.Constant(_BITS, WIDTH))
                address = builder.bitcast(builder.gep(found, [builder.add(place, lane)]), pair.as_pointer())
                builder.store(column, address, align=_size(kind))


_type(pick, lambda columns, column, places: signature(LanesType(columns.dtype), columns, types.int64, places))


def _call(builder: ir.IRBuilder, name: str, result: ir.Type, *values: ir.Value) -> ir.Value:
    kind = ir.FunctionType(result, [value.type for value in values])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), values)


@_lower(pick, types.Array, types.Integer, INTEGERS)
def _pick(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
    kind, *_ = signature.args
    data, shape = _data(context, builder, kind, values[0])
    start, size = builder.mul(values[1], shape[1]), _size(kind)
    if not PICKED:
        return _gather(context, builder, kind, values[0], builder.add(values[2], _repeat(builder, start)))
    _require(context, builder, shape, start, builder.add(start, ir.Constant(_BITS, max(PICKED, CACHE_LINE // size) - 1)))
    n = CACHE_LINE // size
    part, numbers = ir.VectorType(_LLVM[kind.dtype], n), ir.VectorType(ir.IntType(8 * size), WIDTH)
    firsts = [builder.add(start, ir.Constant(_BITS, first)) for first in range(0, PICKED, n)]
    tables = [builder.load(builder.bitcast(builder.gep(data, [first]), part.as_pointer()), align=size) for first in firsts]
    places = values[2] if numbers == values[2].type else builder.trunc(values[2], numbers)
    found = []
    for lane in range(0, WIDTH, n):
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), n), list(range(lane, lane + n)))
        here = builder.shuffle_vector(places, places, lanes)
        name = "permvar.hi" if len(tables) == 1 else "vpermi2var.pd"
        found.append(_call(builder, f"llvm.x86.avx512.{name}.512", part, tables[0], here, *tables[1:]))
    return _join(builder, found, WIDTH)[0]


_type(repeat, lambda number, array, i, j: signature(types.none, array.dtype, array, types.int64, types.int64))


@_lower(repeat, types.Number, types.Array, types.Integer, types.Integer)
def _repeat_in_array(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> None:
    kind = signature.args[1]
    data, shape = _data(context, builder, kind, values[1])
    first = builder.add(builder.mul(values[2], shape[1]), values[3])
    _require(context, builder, shape, first, builder.add(first, ir.Constant(_BITS, RUN - 1)))
    vector = _repeat(builder, values[0], RUN)
    builder.store(vector, builder.bitcast(builder.gep(data, [first]), vector.type.as_pointer()), align=_size(kind))


_type(are_finite, lambda array, size: signature(types.boolean, array, types.int64))


def _lies_outside(builder: ir.IRBuilder, numbers: ir.Value) -> ir.Value:
    """Say of numbers, one or a vector of them, which are infinite or not numbers."""
    limits = [ir.Constant(ir.DoubleType(), limit) for limit in (float("-inf"), float("inf"))]
    if isinstance(numbers.type, ir.VectorType):
        limits = [_repeat(builder, limit, numbers.type.count) for limit in limits]
    inside = builder.and_(builder.fcmp_ordered(">", numbers, limits[0]), builder.fcmp_ordered("<", numbers, limits[1]))
    return builder.not_(inside)


@_lower(are_finite, types.Array, types.Integer)
def _are_finite(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
    kind, size = signature.args[0], values[1]
    data, shape = _data(context, builder, kind, values[0])
    _require(context, builder, shape, ir.Constant(_BITS, 0), builder.sub(size, ir.Constant(_BITS, 1)))
    whole = builder.and_(size, ir.Constant(_BITS, -WIDTH))
    found = cgutils.alloca_once_value(builder, ir.Constant(ir.VectorType(ir.IntType(1), WIDTH), [0] * WIDTH))
    with _steps(builder, whole, WIDTH) as (first, _):
        place = builder.bitcast(builder.gep(data, [first]), _vector(kind.dtype).as_pointer())
        outside = _lies_outside(builder, builder.load(place, align=_size(kind)))
        builder.store(builder.or_(builder.load(found), outside), found)
    bits = builder.bitcast(builder.load(found), ir.IntType(WIDTH))
    last = cgutils.alloca_once_value(builder, builder.icmp_unsigned("!=", bits, ir.Constant(ir.IntType(WIDTH), 0)))
    with cgutils.for_range_slice(builder, whole, size, ir.Constant(_BITS, 1), inc=True) as (place, _):
        outside = _lies_outside(builder, builder.load(builder.gep(data, [place])))
        builder.store(builder.or_(builder.load(last), outside), last)
    return builder.not_(builder.load(last))


_type(add_at, lambda array, places, lanes: signature(types.none, array, places, lanes))


@_lower(add_at, types.Array, INTEGERS, REALS)
def _add_at(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> None:
    for lane, address in _each(context, builder, signature.args[0], *values[:2]):
        builder.store(builder.fadd(builder.load(address), builder.extract_element(values[2], lane)), address)


def _find_where(mask: types.Type, yes: types.Type, no: types.Type) -> Any:
    kind = yes if isinstance(yes, LanesType) else no
    return signature(kind, mask, kind, kind) if isinstance(kind, LanesType) else None


_type(where, _find_where)


@_lower(where, FLAGS, LanesType, LanesType)
def _where(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
    return builder.select(*values)


def _convert(function: Callable, wanted: LanesType, instructions: dict[LanesType, str]) -> None:
    """Let a function turn lanes of some types into those of another, by an instruction for each."""
    _type(function, lambda lanes: signature(wanted, lanes) if lanes in instructions else None)
    for kind, instruction in instructions.items():

        def lowered(
            context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value], instruction: str = instruction
        ) -> ir.Value:
            return getattr(builder, instruction)(values[0], _vector(wanted.dtype))

        lower_builtin(function, kind)(lowered)


_convert(as_real, REALS, {INTEGERS: "sitofp", SHORTS: "sitofp", TALLIES: "uitofp", WORDS: "uitofp"})
_convert(as_integer, INTEGERS, {REALS: "fptosi", SHORTS: "sext", TALLIES: "zext", WORDS: "bitcast", FLAGS: "zext"})
_convert(as_short, SHORTS, {REALS: "fptosi", INTEGERS: "trunc", FLAGS: "zext"})
_convert(as_tally, TALLIES, {FLAGS: "zext", BYTE_TALLIES: "zext", TALLIES: "bitcast"})
_convert(bits_of, INTEGERS, {REALS: "bitcast"})
_convert(from_bits, REALS, {INTEGERS: "bitcast"})


def _fill(function: Callable, kind: LanesType) -> None:
    """Let a function return lanes that are all one number."""
    _type(function, lambda number: signature(kind, kind.dtype))
    _lower(function, kind.dtype)(lambda context, builder, signature, values: _repeat(builder, values[0]))


_fill(reals, REALS)
_fill(integers, INTEGERS)
_fill(shorts, SHORTS)
_fill(tallies, TALLIES)


_type(lane_numbers, lambda: signature(INTEGERS))


@_lower(lane_numbers)
def _lane_numbers(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
    return ir.Constant(_vector(types.int64), list(range(WIDTH)))


_type(root, lambda lanes: signature(lanes, lanes) if lanes == REALS else None)


@_lower(root, REALS)
def _root(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
    kind = ir.FunctionType(values[0].type, [values[0].type])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.sqrt.v{WIDTH}f64"), values)


_type(some, lambda mask: signature(types.boolean, mask))


@_lower(some, FLAGS)
def _some(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
    bits = builder.bitcast(values[0], ir.IntType(WIDTH))
    return builder.icmp_unsigned("!=", bits, ir.Constant(ir.IntType(WIDTH), 0))


_type(sum_lanes, lambda lanes: signature(types.float64, lanes) if lanes == REALS else None)


@_lower(sum_lanes, REALS)
def _sum_lanes(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
    (vector,) = values
    while (half := vector.type.count // 2) > 0:
        numbers = [ir.Constant(ir.VectorType(ir.IntType(32), half), list(range(first, first + half))) for first in (0, half)]
        vector = builder.fadd(*(builder.shuffle_vector(vector, vector, places) for places in numbers))
    return builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))


_type(as_those, lambda words, lanes: signature(LanesType(words.dtype), words, lanes) if lanes == SMALL else None)


@_lower(as_those, types.Array, SMALL)
def _as_those(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
    return builder.trunc(values[1], _vector(signature.args[0].dtype)) if _size(signature.args[0]) == 1 else values[1]


_TALLIES = {types.int16: TALLIES, types.int8: BYTE_TALLIES}

_type(tallies_of, lambda words: signature(_TALLIES[words.dtype], words))


@_lower(tallies_of, types.Array)
def _tallies_of(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
    return ir.Constant(_vector(signature.return_type.dtype), [0] * WIDTH)


def _find_tally_below(found: LanesType, bound: LanesType, words: types.Array, *place: types.Type) -> Any:
    return signature(_TALLIES[words.dtype], _TALLIES[words.dtype], LanesType(words.dtype), words, *place)


_type(tally_below, _find_tally_below)


@_lower(tally_below, TALLIES, SMALL, types.Array, types.VarArg(types.Integer))
@_lower(tally_below, BYTE_TALLIES, BYTES, types.Array, types.VarArg(types.Integer))
def _tally_below(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
    """Work on 32 bytes at a time: comparisons of the longest vectors take a detour by registers of truth values."""
    _, _, kind, *rest = signature.args
    n = SHORTER // _size(kind)
    part = ir.VectorType(_LLVM[kind.dtype], n)
    indices = _indices(context, builder, rest, values[3:])
    address = builder.bitcast(_address(context, builder, kind, values[2], indices), part.as_pointer())
    parts = []
    for h in range(WIDTH // n):
        words = builder.load(builder.gep(address, [ir.Constant(_BITS, h)]), align=_size(kind))
        numbers = ir.Constant(ir.VectorType(ir.IntType(32), n), list(range(h * n, (h + 1) * n)))
        found, bound = (builder.shuffle_vector(value, value, numbers) for value in values[:2])
        parts.append(builder.sub(found, builder.sext(builder.icmp_signed("<", words, bound), part)))
    return _join(builder, parts, WIDTH)[0]
