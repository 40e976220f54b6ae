"""Lanes: numbers of thirty-two runs, or replications, side by side as one value, which vector instructions work on at once.

In compiled code a value of lanes is a vector in registers, and operators work lane by lane. Nothing is left for a compiler to
find out: not that rows of arrays are apart, not that a loop may be turned into vectors. So code over lanes is written as if there
were one run, and what one line hands to the next need not pass through memory. In plain Python the same functions work on arrays
of thirty-two numbers, to the same bits; these twins are in `values`.

Lanes hold float64, int64, int32, int16 or int8 numbers, words of 64 bits (uint64), tallies (uint16 or uint8) or truth values.

Of numba this uses `numba.core.typing.templates` (`infer_global`, `AbstractTemplate`, `signature`), `numba.core.imputils`
(`lower_builtin`, `lower_cast`), `numba.core.cgutils`, `numba.core.typeconv` and `numba.extending` (`register_model`, `models`);
of llvmlite, `ir`.
"""

# These are imported for what they register: without them numba knows the functions below only as plain Python.
from grpo_theory.compiler.lanes import (  # noqa: F401
    arithmetic,
    conversions,
    lookup,
    memory,
    operators,
    tally,
    transposition,
)
from grpo_theory.compiler.lanes.values import (
    CACHE_LINE,
    PICKED,
    PIECE,
    RUN,
    WIDTH,
    add_at,
    are_finite,
    as_integer,
    as_real,
    as_short,
    as_tally,
    as_those,
    bits_of,
    from_bits,
    integers,
    lane_numbers,
    load,
    pick,
    reals,
    repeat,
    root,
    shorts,
    some,
    spread,
    store,
    sum_lanes,
    take,
    tallies,
    tallies_of,
    tally_below,
    turned,
    where,
    whole_rows,
    zeros,
)

__all__ = [
    "CACHE_LINE",
    "PICKED",
    "PIECE",
    "RUN",
    "WIDTH",
    "add_at",
    "are_finite",
    "as_integer",
    "as_real",
    "as_short",
    "as_tally",
    "as_those",
    "bits_of",
    "from_bits",
    "integers",
    "lane_numbers",
    "load",
    "pick",
    "reals",
    "repeat",
    "root",
    "shorts",
    "some",
    "spread",
    "store",
    "sum_lanes",
    "take",
    "tallies",
    "tallies_of",
    "tally_below",
    "turned",
    "where",
    "whole_rows",
    "zeros",
]
