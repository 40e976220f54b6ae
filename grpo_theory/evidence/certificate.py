"""Certificates: an inequality between polynomials on a box, proved in exact arithmetic."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import comb, lcm, prod
from numbers import Rational
from typing import Any

import numpy as np
from numpy.polynomial.polynomial import polyder, polydiv

from grpo_theory.validation import as_count


@dataclass(frozen=True, eq=False)
class Polynomial:
    """A polynomial in several variables with rational coefficients: what `prove` passes to the function that it is given.

    It knows +, -, * and ** with polynomials, whole numbers and fractions.  Floats are refused.

    Attributes
    ----------
    terms : dict
        The coefficient of each term, by the exponents of the variables in it; at least one, which may be 0.

    Examples
    --------
    >>> from grpo_theory.evidence.certificate import Polynomial
    >>> p = Polynomial({(1,): 1})
    >>> (4 * p * (1 - p)).terms[2,]
    -4
    """

    terms: dict[tuple[int, ...], Any]

    def _terms_of(self, other: Any) -> dict[tuple[int, ...], Any]:
        if not isinstance(other, Polynomial | Rational):
            raise TypeError(f"a polynomial's constants must be exact, such as 3 or Fraction(1, 2), got {other!r}")
        return other.terms if isinstance(other, Polynomial) else {(0,) * len(next(iter(self.terms))): other}

    def __add__(self, other: Any) -> Polynomial:
        terms = self._terms_of(other)
        return Polynomial({key: self.terms.get(key, 0) + terms.get(key, 0) for key in {**self.terms, **terms}})

    def __mul__(self, other: Any) -> Polynomial:
        found: dict[tuple[int, ...], Any] = {}
        for (one, factor), (two, times) in product(self.terms.items(), self._terms_of(other).items()):
            key = tuple(map(int.__add__, one, two))
            found[key] = found.get(key, 0) + factor * times
        return Polynomial(found)

    def __sub__(self, other: Any) -> Polynomial:
        return self + -other

    def __rsub__(self, other: Any) -> Polynomial:
        return self * -1 + other

    def __neg__(self) -> Polynomial:
        return self * -1

    def __pow__(self, power: int) -> Any:
        return prod([self] * as_count("power", power, 0))

    __radd__, __rmul__ = __add__, __mul__


@dataclass(frozen=True)
class Certificate:
    """What came of the proof that a polynomial is nowhere negative on a box.

    Attributes
    ----------
    proved : bool
        Whether it holds on the whole box, by exact arithmetic.
    point : tuple of Fraction
        Where it fails; empty if no such point was found.
    value : Fraction
        The polynomial at the point, negative; 0 without one.
    pieces : int
        How many pieces of the box were looked at.

    Examples
    --------
    >>> from grpo_theory.evidence import prove
    >>> found = prove(lambda x: x[0] - x[1], [(0, 1), (0, 1)])
    >>> found.proved, [str(one) for one in found.point], str(found.value)
    (False, ['0', '1'], '-1')
    """

    proved: bool
    point: tuple[Fraction, ...]
    value: Fraction | int
    pieces: int


def prove(margin: Callable[[Sequence[Any]], Any], bounds: Sequence[tuple[Any, Any]], *, pieces: int = 10_000) -> Certificate:
    """Prove that a polynomial is at least 0 on a box, or find a point where it is below 0, in exact arithmetic.

    On a box a polynomial lies between the least and the greatest of its Bernstein coefficients.  So it is at least 0 where these
    are.  Where one is negative the box is halved, until all are at least 0 on each piece, or a corner has a negative value.

    A double zero inside a piece would keep some coefficients negative for ever.  With one variable such zeros are found
    and divided out beforehand, so every polynomial is decided.  With several variables they are harmless at places where
    the box is cut: its faces, and shares of a half, a quarter and so on.  Elsewhere the proof ends undecided.

    Parameters
    ----------
    margin : callable
        ``margin(x)`` returns right side less left side of an inequality, a polynomial of the variables x (n,).  It is called
        with polynomials, and with fractions; its constants are whole numbers or fractions.
    bounds : sequence of pairs, length n
        Lowest and highest value of each variable.  On the simplex of three probabilities these are ``a``, ``(1 - a) b`` and
        ``(1 - a) (1 - b)`` with a and b in (0, 1).
    pieces : int, default 10000
        How many pieces are looked at, at most.

    Returns
    -------
    Certificate
        Proved, or with a point that refutes it, or with neither: then it is undecided.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from grpo_theory.evidence import prove
    >>> prove(lambda x: Fraction(1, 27) - (2 * x[0] * (1 - x[0]) * (1 - 2 * x[0])) ** 2, [(0, 1)]).proved
    True
    """
    box = tuple((Fraction(low), Fraction(high)) for low, high in bounds)
    axes = range(len(box))
    units = [Polynomial({tuple(int(axis == own) for axis in axes): 1}) for own in axes]
    whole = 0 * units[0] + margin([low + (high - low) * unit for (low, high), unit in zip(box, units, strict=True)])
    terms = {key: value for key, value in whole.terms.items() if value} or {(0,) * len(box): 0}
    powers = np.zeros([1 + max(exponents) for exponents in zip(*terms, strict=True)], dtype=object)
    for exponents, value in terms.items():
        powers[exponents] = Fraction(value)
    table = _bernstein(powers)
    if len(box) == 1 and (table < 0).any():
        table = _bernstein(_without_squares(powers))
    queue = deque([(table, box)])
    for looked in range(1, as_count("pieces", pieces) + 1):
        table, box = queue.popleft()
        if (table < 0).any():
            for corner in product((0, 1), repeat=len(box)):
                point = tuple(ends[which] for ends, which in zip(box, corner, strict=True))
                if table[tuple(-which for which in corner)] < 0 and (value := margin(point)) < 0:
                    return Certificate(False, point, value, looked)
            axis = max(axes, key=lambda one: np.abs(np.diff(table, axis=one)).max(initial=0))
            n, middle = table.shape[axis] - 1, sum(box[axis]) / Fraction(2)
            # The coefficients on a half are means of the first ones; times 2^n all stay whole numbers.
            means = np.array([[comb(j, i) << n - j for i in range(n + 1)] for j in range(n + 1)], dtype=object)
            for matrix, ends in ((means, (box[axis][0], middle)), (means[::-1, ::-1], (middle, box[axis][1]))):
                queue.append((_along(matrix, table, axis), (*box[:axis], ends, *box[axis + 1 :])))
        if not queue:
            return Certificate(True, (), 0, looked)
    return Certificate(False, (), 0, pieces)


def _along(matrix: Any, table: Any, axis: int) -> Any:
    return np.moveaxis(np.tensordot(matrix, table, (1, axis)), 0, axis)


def _bernstein(powers: Any) -> Any:
    """Return the Bernstein coefficients on the unit cube, times a positive number that makes all of them whole."""
    for axis, size in enumerate(powers.shape):
        # x^i = sum_j [C(j, i)/C(n, i)] B_j(x)
        change = [[Fraction(comb(j, i), comb(size - 1, i)) for i in range(size)] for j in range(size)]
        powers = _along(np.array(change, dtype=object), powers, axis)
    whole = powers * lcm(*(value.denominator for value in powers.flat))
    return np.vectorize(int, otypes=[object])(whole)


def _without_squares(rest: Any) -> Any:
    """Return a polynomial of one variable over the greatest square in it, which has its sign wherever that is not 0."""
    while True:
        repeated = _common(rest, polyder(rest))
        square = _common(repeated, polydiv(rest, repeated)[0])  # each repeated zero once
        if len(square) == 1:
            return rest
        rest = polydiv(polydiv(rest, square)[0], square)[0]


def _common(one: Any, other: Any) -> Any:
    """Return the greatest common divisor of two polynomials, by Euclid."""
    while other.any():
        one, other = other / other[-1], polydiv(one, other)[1]
    return one / one[-1]
