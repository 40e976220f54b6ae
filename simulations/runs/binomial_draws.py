"""Binomial numbers from bits: exact to 53 bits of their chance, at the expense of two bits or some seven per trial."""

import numpy as np

from grpo_theory.jit import kernel
from grpo_theory.simulate.draws import fill_words, next_word

_M1, _M2, _M4, _H = (np.uint64(word) for word in (0x5555555555555555, 0x3333333333333333, 0x0F0F0F0F0F0F0F0F, 0x0101010101010101))
_0, _1, _2, _4, _11, _56, _63 = (np.uint64(number) for number in (0, 1, 2, 4, 11, 56, 63))
_LAST = 1.0 - 2.0**-53


@kernel
def ones(word):
    """Return the number of ones among 64 bits: sums of neighbours of 2, 4 and 8 bits, and a product that adds the bytes up."""
    word = word - ((word >> _1) & _M1)
    word = (word & _M2) + ((word >> _2) & _M2)
    return ((((word + (word >> _4)) & _M4) * _H) >> _56) & np.uint64(0x7F)


@kernel
def below(state, count, bits):
    """Return how many of `count` uniforms are below a chance: their bits and the chance's are compared from the first one on.

    A uniform is decided at the first bit in which it differs from the chance. So half of those that are left are decided at each
    bit, and 53 bits are the law of `next_uniform`.
    """
    found, left = 0, count
    while left > 0 and bits != _0:
        high = 0
        for undrawn in range(left, 0, -64):
            high += int(ones(next_word(state) >> np.uint64(max(64 - undrawn, 0))))
        if bits >> _63:  # the chance's bit is 1: uniforms whose bit is 0 are below it
            found += left - high
            left = high
        else:
            left -= high
        bits <<= _1
    return found


@kernel
def coins(state, bits, words):
    """Return a word of which each bit is one with a chance: 64 uniforms are compared with it as in `below`, side by side."""
    undecided, found = ~_0, _0
    while undecided != _0 and bits != _0:
        fill_words(state, words)
        for k in range(words.size):
            ones_here = _0 - (bits >> _63)  # all ones where the chance's bit is 1
            found |= undecided & ~words[k, 0] & ones_here
            undecided &= ~(words[k, 0] ^ ones_here)
            bits <<= _1
    return found


@kernel
def binomials(state, counts, chance, taken):
    """Fill taken (C,) with binomial numbers of one chance: small ones are the ones of shared words of coins."""
    words = np.empty((8, 1), dtype=np.uint64)
    bits, word, have = np.uint64(min(chance, _LAST) * 9007199254740992.0) << _11, _0, 0
    for c in range(counts.size):
        left, taken[c] = counts[c], 0
        if left > 128:
            left, taken[c] = 0, below(state, left, bits)
        while left > 0:
            if have == 0:
                word, have = coins(state, bits, words), 64
            now = min(left, have)
            taken[c] += int(ones(word << np.uint64(64 - now)))
            word >>= np.uint64(now % 64)
            have -= now
            left -= now
