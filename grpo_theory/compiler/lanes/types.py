"""The type of lanes in compiled code: a vector of LLVM's, which stays in registers.

A vector of thirty-two doubles is four of the longest registers. LLVM cuts it into as many as the processor has.
"""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core.imputils import lower_cast
from numba.core.typeconv.castgraph import Conversion
from numba.extending import models, register_model

from grpo_theory.compiler.lanes.values import WIDTH

BITS = ir.IntType(64)
LLVM_TYPES: dict[Any, Any] = {
    types.float64: ir.DoubleType(),
    types.int64: BITS,
    types.uint64: BITS,
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
        super().__init__(manager, kind, vector_of(kind.dtype))


def vector_of(dtype: types.Type) -> ir.VectorType:
    """Return the vector that lanes of a type are."""
    return ir.VectorType(LLVM_TYPES[dtype], WIDTH)


REALS, INTEGERS, SHORTS = LanesType(types.float64), LanesType(types.int64), LanesType(types.int32)
SMALL, TALLIES = LanesType(types.int16), LanesType(types.uint16)
BYTES, BYTE_TALLIES = LanesType(types.int8), LanesType(types.uint8)
WORDS, FLAGS = LanesType(types.uint64), LanesType(types.boolean)


def shuffled(builder: ir.IRBuilder, one: ir.Value, other: ir.Value, lanes: Sequence[int]) -> ir.Value:
    """Return a vector of some lanes of two vectors; the second's are numbered after the first's."""
    return builder.shuffle_vector(one, other, ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), list(lanes)))


def repeated(builder: ir.IRBuilder, number: ir.Value, times: int = WIDTH) -> ir.Value:
    """Return a vector that is one number in every lane."""
    vector = ir.VectorType(number.type, times)
    nothing, first = ir.Constant(vector, ir.Undefined), ir.Constant(ir.IntType(32), 0)
    alone = builder.insert_element(nothing, number, first)
    return shuffled(builder, alone, nothing, [0] * times)


@lower_cast(types.Number, LanesType)
def _from_number(context: Any, builder: ir.IRBuilder, given: types.Type, wanted: LanesType, value: ir.Value) -> ir.Value:
    return repeated(builder, context.cast(builder, value, given, wanted.dtype))
