"""Exponential and logarithm of lanes as polynomials, whose bits are the same on every machine."""

from grpo_theory.compilation import stage
from grpo_theory.lanes import as_real, bits_of, from_bits, where

LOWEST = -708.0
"""Below it an exponential would not be a normal number: it is taken there."""
_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_ROUND = 6755399441055744.0  # 1.5 * 2^52: adding it rounds to an integer, which the low bits then hold
_HALF_ROOT = 4604544271217802189  # the bits of 1/sqrt(2)
_FRACTION = (1 << 52) - 1


@stage
def exponential(x):
    """Return exp(x) for x up to 709, within 2 units in the last place, and exp(-708) for x below -708.

    x = n ln 2 + r with |r| at most (ln 2)/2, and exp(r) is its Taylor polynomial of degree 13, whose remainder is below 5e-18;
    its terms are added in pairs (Estrin), because a product that waits for the one before it leaves the processor idle.
    """
    x = where(x < LOWEST, LOWEST, x)
    shifted = x * _LOG2_E + _ROUND
    n = shifted - _ROUND
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW
    square = r * r
    fourth = square * square
    low = (0.5 + 0.16666666666666666 * r) + square * (0.041666666666666664 + 0.008333333333333333 * r)
    middle = (0.001388888888888889 + 0.0001984126984126984 * r) + square * (2.48015873015873e-05 + 2.7557319223985893e-06 * r)
    high = (2.755731922398589e-07 + 2.505210838544172e-08 * r) + square * (2.08767569878681e-09 + 1.6059043836821613e-10 * r)
    p = 1.0 + (r + square * (low + fourth * (middle + fourth * high)))
    return p * from_bits((bits_of(shifted) + 1023) << 52)


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
