"""The types of which the signatures of compiled functions are made.

Of numba this uses the public types, and `numba.extending.typeof_impl` for records.
"""

import numba
from numba import types
from numba.extending import typeof_impl

F1, F2, F3 = numba.float64[::1], numba.float64[:, ::1], numba.float64[:, :, ::1]
F4, F5 = numba.float64[:, :, :, ::1], numba.float64[:, :, :, :, ::1]
I1, I2 = numba.int64[::1], numba.int64[:, ::1]
"""Arrays of float64 (F) and of int64 (I) with so many axes, contiguous in C's order."""


def readonly(array: types.Array) -> types.Array:
    """Return the type of an array that a function only reads: it takes arrays that are closed to writing as well as others."""
    return types.Array(array.dtype, array.ndim, array.layout, readonly=True)


READONLY_F1, READONLY_F2 = readonly(F1), readonly(F2)
READONLY_I1, READONLY_I2 = readonly(I1), readonly(I2)
"""The same, only read."""


def record_type(record: type, *fields: types.Type) -> types.NamedTuple:
    """Return the type of a named tuple whose fields have these types, for signatures of drivers.

    From then on every instance of `record` counts as being of this type, whatever is in it. By itself numba would look at each
    field, and would type a tuple whose fields are alike as another kind (`NamedUniTuple`), which no driver declares.
    So one record must not be registered with two lists of types, and whoever makes an instance answers for its fields.
    """
    kind = types.NamedTuple(fields, record)
    typeof_impl.register(record)(lambda value, context: kind)
    return kind
