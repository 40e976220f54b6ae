"""How a function over lanes is given a signature and instructions, and how it finds its numbers in an array."""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import AbstractTemplate, infer_global

from grpo_theory.compiler.lanes.types import BITS, vector_of
from grpo_theory.compiler.lanes.values import WIDTH
from grpo_theory.compiler.options import CHECKS_BOUNDS


def type_function(function: Callable, find: Callable) -> None:
    """Let `find` say, of the types of a function's arguments, which signature it has, or None if they are not its own."""

    def generic(self: Any, arguments: Sequence[types.Type], keywords: Any) -> Any:
        return find(*arguments)

    infer_global(function)(type(f"Lanes_{function.__name__}", (AbstractTemplate,), {"key": function, "generic": generic}))


def lower(function: Callable, *kinds: Any) -> Callable:
    """Lower a function or an operator for some types by what is decorated, which is given the builder, types and values."""

    def decorate(made: Callable) -> Callable:
        def lowered(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[ir.Value]) -> ir.Value:
            value = made(context, builder, sig, values)
            return context.get_dummy_value() if value is None else value  # numba wants a value of functions that return none, too

        lower_builtin(function, *kinds)(lowered)
        return made

    return decorate


def one_instruction(name: str, *more: Any, first: tuple = ()) -> Callable:
    """Return what lowers a function to one instruction, a method of LLVM's builder, with more arguments for that."""
    return lambda context, builder, sig, values: getattr(builder, name)(*first, *values, *more)


def data_of(context: Any, builder: ir.IRBuilder, kind: types.Array, array: ir.Value) -> tuple[ir.Value, list[ir.Value]]:
    """Return the first number of an array, and its shape."""
    header = context.make_array(kind)(context, builder, array)
    return header.data, cgutils.unpack_tuple(builder, header.shape, kind.ndim)


def require_inside(context: Any, builder: ir.IRBuilder, shape: Sequence[ir.Value], first: ir.Value, last: ir.Value) -> None:
    """Raise if the indices from the first to the last do not lie in an array."""
    # Only with NUMBA_BOUNDSCHECK=1, as numba does for its own indices: a test at every load would take longer than the load.
    if CHECKS_BOUNDS:
        size = ir.Constant(BITS, 1)
        for length in shape:
            size = builder.mul(size, length)
        outside = builder.or_(builder.icmp_signed("<", first, ir.Constant(BITS, 0)), builder.icmp_signed(">=", last, size))
        with builder.if_then(outside, likely=False):
            context.call_conv.return_user_exc(builder, IndexError, ("lanes lie outside of their array",))


def vector_at(builder: ir.IRBuilder, data: ir.Value, index: ir.Value, vector: ir.VectorType) -> ir.Value:
    """Return the address of the vector that begins at an index of some numbers."""
    return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())


def address_of(context: Any, builder: ir.IRBuilder, kind: types.Array, array: ir.Value, indices: Sequence[ir.Value]) -> ir.Value:
    """Return where lanes begin that an array has at these indices, as a vector's address."""
    data, shape = data_of(context, builder, kind, array)
    flat = indices[0]
    for length, own in zip(shape[1:], indices[1:], strict=True):
        flat = builder.add(builder.mul(flat, length), own)
    require_inside(context, builder, shape, flat, builder.add(flat, ir.Constant(BITS, WIDTH - 1)))
    return vector_at(builder, data, flat, vector_of(kind.dtype))


def indices_of(context: Any, builder: ir.IRBuilder, kinds: Sequence[types.Type], values: Sequence[ir.Value]) -> list[ir.Value]:
    """Return indices of any integer type as 64 bits."""
    return [context.cast(builder, value, kind, types.int64) for kind, value in zip(kinds, values, strict=True)]


def size_of(kind: Any) -> int:
    """Return the bytes of a number of an array, or of lanes."""
    return kind.dtype.bitwidth // 8


def steps(builder: ir.IRBuilder, stop: ir.Value, step: int) -> Any:
    """Return a loop from 0 on."""
    return cgutils.for_range_slice(builder, ir.Constant(BITS, 0), stop, ir.Constant(BITS, step), inc=True)


def call_intrinsic(builder: ir.IRBuilder, name: str, result: ir.Type, *values: ir.Value) -> ir.Value:
    """Call what LLVM knows under a name: one instruction of the processor."""
    kind = ir.FunctionType(result, [value.type for value in values])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), values)
