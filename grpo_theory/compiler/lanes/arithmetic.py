"""What is computed of lanes beside operators: a choice, a root, a sum over the lanes, and whether any is true."""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core.typing.templates import signature

from grpo_theory.compiler.lanes.lowering import call_intrinsic, lower, one_instruction, type_function
from grpo_theory.compiler.lanes.types import FLAGS, REALS, LanesType, shuffled
from grpo_theory.compiler.lanes.values import WIDTH, root, some, sum_lanes, where


def _find_where(mask: types.Type, yes: types.Type, no: types.Type) -> Any:
    kind = yes if isinstance(yes, LanesType) else no
    return signature(kind, mask, kind, kind) if isinstance(kind, LanesType) else None


type_function(where, _find_where)
lower(where, FLAGS, LanesType, LanesType)(one_instruction("select"))


type_function(root, lambda lanes: signature(lanes, lanes) if lanes == REALS else None)


@lower(root, REALS)
def _root(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[ir.Value]) -> ir.Value:
    return call_intrinsic(builder, f"llvm.sqrt.v{WIDTH}f64", values[0].type, values[0])


type_function(some, lambda mask: signature(types.boolean, mask))


@lower(some, FLAGS)
def _some(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[ir.Value]) -> ir.Value:
    # Thirty-two truth values are the bits of one number, which is compared with 0 once.
    bits = builder.bitcast(values[0], ir.IntType(WIDTH))
    return builder.icmp_unsigned("!=", bits, ir.Constant(ir.IntType(WIDTH), 0))


type_function(sum_lanes, lambda lanes: signature(types.float64, lanes) if lanes == REALS else None)


@lower(sum_lanes, REALS)
def _sum_lanes(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[ir.Value]) -> ir.Value:
    (vector,) = values
    # Halves are added to one another, in the same order as in plain Python: so the sum is the same to the last bit.
    while (half := vector.type.count // 2) > 0:
        vector = builder.fadd(*(shuffled(builder, vector, vector, range(first, first + half)) for first in (0, half)))
    return builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))
