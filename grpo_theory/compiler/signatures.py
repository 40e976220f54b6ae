"""The types of which the signatures of compiled functions are made: numba's public ones."""

import numba
from numba import types

F1, F2, F3 = numba.float64[::1], numba.float64[:, ::1], numba.float64[:, :, ::1]
F4, F5 = numba.float64[:, :, :, ::1], numba.float64[:, :, :, :, ::1]
I1, I2 = numba.int64[::1], numba.int64[:, ::1]
"""Arrays of float64 (F) and of int64 (I) with so many axes, contiguous in C's order."""


def readonly(array: types.Array) -> types.Array:
    """Return the type of an array that a function only reads: it takes arrays that are closed to writing as well as others."""
    return types.Array(array.dtype, array.ndim, array.layout, readonly=True)


READONLY_F1, READONLY_F2, READONLY_F3 = readonly(F1), readonly(F2), readonly(F3)
READONLY_I1, READONLY_I2 = readonly(I1), readonly(I2)
"""The same, only read."""


def record_type(record: type, *fields: types.Type) -> types.NamedTuple:
    """Return the type of a named tuple whose fields have these types, for signatures of drivers.

    Where numba's dispatch looks at an instance, it types one whose fields are alike as another kind (`NamedUniTuple`), and so
    refuses it. Drivers are called without dispatch.
    """
    return types.NamedTuple(fields, record)
