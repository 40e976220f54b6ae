"""Exponential and logarithm of lanes as polynomials, whose bits are the same on every machine."""

from decimal import Context

import numpy as np

from grpo_theory.compiler import stage
from grpo_theory.compiler.lanes import as_real, bits_of, from_bits, pick, turned, where

LOWEST = -708.0
"""Below it an exponential would not be a normal number: it is taken there."""
_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_ROUND = 6755399441055744.0  # 1.5 * 2^52: adding it rounds to an integer, which the low bits then hold
_HALF_ROOT = 4604544271217802189  # the bits of 1/sqrt(2)
_FRACTION = (1 << 52) - 1
SIXTEENTHS = 16
_DECIMALS = Context(prec=40)
POWERS = turned(np.array([[float(_DECIMALS.power(2, _DECIMALS.divide(j, SIXTEENTHS)))] for j in range(SIXTEENTHS)]))
"""2^(j/16), rounded from forty digits: libm does not promise the last bits."""


@stage
def exponential(x):
    """Return exp(x) for x up to 709, within 2 units in the last place, and exp(-708) for x below -708.

    The argument is split as ``x = (n + j/16) ln 2 + r`` with |r| at most (ln 2)/32.  For exp(r) - 1 its Taylor polynomial of
    degree 7 is used, whose remainder is below 2e-18.  The factor 2^(j/16) is picked from a table.
    """
    x = where(x < LOWEST, LOWEST, x)
    shifted = x * (SIXTEENTHS * _LOG2_E) + _ROUND
    k, bits = shifted - _ROUND, bits_of(shifted)
    r = (x - k * (_LN2_HIGH / SIXTEENTHS)) - k * (_LN2_LOW / SIXTEENTHS)
    square = r * r
    low, middle = 0.5 + 0.16666666666666666 * r, 0.041666666666666664 + 0.008333333333333333 * r
    high = 0.001388888888888889 + 0.0001984126984126984 * r
    power = pick(POWERS, 0, bits & (SIXTEENTHS - 1))
    y = power + power * (r + square * (low + square * (middle + square * high)))
    return y * from_bits(((bits >> 4) + 1023) << 52)


@stage
def logarithm(x):
    """Return log(x) of a positive normal number, within 2 units in the last place.

    x = 2^n f with f in [1/sqrt 2, sqrt 2), and log f = 2 artanh((f - 1)/(f + 1)) by its series.
    """
    bits = bits_of(x) - _HALF_ROOT
    n = as_real(bits >> 52)
    f = from_bits((bits & _FRACTION) + _HALF_ROOT)
    s = (f - 1.0) / (f + 1.0)
    z = s * s
    square = z * z
    fourth = square * square
    low = (0.6666666666666666 + 0.4 * z) + square * (0.2857142857142857 + 0.2222222222222222 * z)
    middle = (0.18181818181818182 + 0.15384615384615385 * z) + square * (0.13333333333333333 + 0.11764705882352941 * z)
    p = low + fourth * (middle + fourth * (0.10526315789473684 + 0.09523809523809523 * z))
    return n * _LN2_HIGH + (n * _LN2_LOW + (s * z * p + 2.0 * s))
