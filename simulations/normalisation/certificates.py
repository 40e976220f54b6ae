"""Sharp constants proved on whole classes of policies with 2, 3 or 4 responses, in exact arithmetic.

Each inequality is one between polynomials. Their variables are p or c = 1 - 2p, shares of responses, and rewards. Here the logits
are the parameters. Features of spectral norm X lengthen a gradient by X at most, and a Hessian by X^2.

The left side is 1 if no policy is above the bound. In the controls the constant is about a thousandth below a sharp one. The left
side is then how far a policy that is found lies above it.
"""

from fractions import Fraction
from functools import partial
from math import prod
from typing import Any

import numpy as np

from grpo_theory.evidence import prove
from grpo_theory.harness import check
from simulations.statements import stated

UNIT, HALF, QUARTER = (0, 1), Fraction(1, 2), Fraction(1, 4)
ROOT_OF_2 = Fraction(14142136, 10**7)
"""A little more than it."""


def simplex(x):
    """Return the probabilities that belong to a point of the unit cube, which has one coordinate less."""
    left = [prod(1 - one for one in x[:place]) for place in range(len(x) + 1)]
    return np.array([share * one for share, one in zip(left, [*x, 1], strict=True)], dtype=object)


def sides_of(k, right, x):
    """Return the policy given a correct response, and given a wrong one; the first responses are correct."""
    zeros = np.zeros(k, dtype=object)
    return np.r_[simplex(x[: right - 1]), zeros[right:]], np.r_[zeros[:right], simplex(x[right - 1 :])]


def compared(sides, box, power=1):
    """Return the margin of two sides, its box, and the ratio of the sides without the power that is in them."""
    return lambda x: sides(x)[1] - sides(x)[0], box, lambda x: float(np.divide(*sides(x))) ** (1 / power)


def slopes(k, times):
    """||grad p||^2 = V^2 ||pi+ - pi-||^2 against 2 V^2, whatever the number of correct responses."""
    for right in range(1, k):

        def sides(x, right=right):
            apart, variance = np.subtract(*sides_of(k, right, x[1:])), x[0] * (1 - x[0])
            return variance**2 * (apart @ apart), variance**2 * (2 * times**2)

        yield compared(sides, [UNIT] * (k - 1), 2)


def hessian(x, k, right):
    """Hess p/V in c = 1 - 2p and the shares."""
    plus, minus = sides_of(k, right, x[1:])
    spread = np.diag(plus) - np.outer(plus, plus) - np.diag(minus) + np.outer(minus, minus)
    return spread + np.outer(plus - minus, plus - minus) * x[0]


def curvatures(k, times, constant=None):
    """||Hess p||/V against max(1/2, 2|c|), without the 1/2 for two responses, or against a constant.

    The Hessian of 1 - p is minus that of p, so one sign is enough: bound + Hess p/V is to be positive semidefinite.  The bound
    stands before a projection, so that both have the null vector (1, ..., 1): the last row and column may be left out.  A
    symmetric matrix is positive semidefinite if the sums of products of its eigenvalues are at least 0.
    """
    edge, least = (QUARTER, HALF) if k > 2 else (Fraction(0), Fraction(0))
    bounds = [((-1, -edge), -2, 0), ((-edge, edge), 0, least), ((edge, 1), 2, 0)]
    bounds = bounds if constant is None else [((-1, 1), 0, constant)]
    unit = np.eye(k, dtype=int).astype(object) - np.full((k, k), Fraction(1, k))

    def most(x, steep, level):
        return times * (steep * x[0] + level)

    def products(x, right, steep, level, place):
        """The sum of all products of so many eigenvalues, by Faddeev and LeVerrier."""
        matrix = (unit * most(x, steep, level) + hessian(x, k, right))[:-1, :-1]
        rest = one = np.eye(k - 1, dtype=int).astype(object)
        for number in range(1, place):
            moved = matrix @ rest
            rest = one * (np.trace(moved) * Fraction(1, number)) - moved
        return np.trace(matrix @ rest) * Fraction(1, place)

    def ratio(x, right, steep, level):
        return np.abs(np.linalg.eigvalsh(hessian(x, k, right).astype(float))).max() / float(most(x, steep, level))

    for right in range(1, k):
        for ends, steep, level in bounds:
            case = {"right": right, "steep": steep, "level": level}
            for place in range(1, k):
                yield partial(products, **case, place=place), [ends, *[UNIT] * (k - 2)], partial(ratio, **case)


def smoothness(k, times):
    """V max(1/2, 2c) against 1/(3 sqrt 3), squared; for c below 0 p and 1 - p change places."""

    def sides(c, steep, level):
        return (QUARTER * (1 - c[0] ** 2) * (steep * c[0] + level)) ** 2, Fraction(1, 27) * times**2

    for steep, level in ((0, HALF), (2, 0)):
        yield compared(partial(sides, steep=steep, level=level), [UNIT], 2)


def ball(k, times, constant=Fraction(5873, 10_000)):
    """V' max(1/2, 2|1 - 2p'|) within the radius sqrt V against 0.5873 sqrt V, with the odds of p = t^2/(1 + t^2).

    The odds move by a factor of exp(y) at most, y = sqrt(2 V) times a share in (-1, 1). With N(y) = 120 + 60y + 12y^2 + y^3 this
    is at most N(y)/N(-y) for y > 0.
    """

    def sides(x, steep, level):
        t, whole = x[0], 1 + x[0] ** 2
        y = ROOT_OF_2 * x[1] * t  # times 1 + t^2
        up, down = (120 * whole**3 + sign * 60 * y * whole**2 + 12 * y**2 * whole + sign * y**3 for sign in (1, -1))
        odds, total = t**2 * up, t**2 * up + down
        bound = steep * (down - odds) + level * total
        return t * up * down * whole * bound, constant * times * total**3

    for steep, level in ((2, 0), (-2, 0), (0, HALF)):
        yield compared(partial(sides, steep=steep, level=level), [UNIT, (-1, 1)])


def vanishing(k, times, constant=Fraction(1, 8)):
    """||grad V||^6 against STD^4/8, with rewards -1 and 1 at the ends: a smaller range makes the left side smaller still."""

    def sides(x):
        pi, rewards = simplex(x[: k - 1]), np.array([-1, *x[k - 1 :], 1], dtype=object)
        above = rewards - pi @ rewards
        return ((pi * above) @ (pi * above)) ** 3, constant * times**6 * (pi @ above**2) ** 2

    yield compared(sides, [UNIT] * (k - 1) + [(-1, 1)] * (k - 2), 6)


def greatest(k, times):
    """GRPO's weights c_K against c_0 = (G - 1)/sqrt G, in x = 1/K and y = 1/(G - 1 - K): all group sizes at once."""

    def room(x):
        one, other = x
        return times**2 * (one + other) * (1 + one) * (1 + other) - one**2 * (1 + other) - other**2 * (1 + one)

    def sides(x):
        return 4 * (x[0] * x[1]) ** 2 * (1 + x[0]) * (1 + x[1]), room(x) ** 2

    yield compared(lambda x: (0 * x[0], room(x)), [UNIT] * 2)
    yield compared(sides, [UNIT] * 2, 2)


PRINTED = partial(curvatures, constant=4), partial(ball, constant=Fraction(5, 2)), partial(vanishing, constant=6**6)
INEQUALITIES: dict[str, tuple[Any, int, tuple[int, ...]]] = {
    "certificate/slope": (slopes, 999, (2, 3, 4)),
    "certificate/curvature": (curvatures, 999, (2, 3, 4)),
    "certificate/curvature, printed": (PRINTED[0], 499, (2, 3, 4)),
    "certificate/smoothness": (smoothness, 999, (0,)),
    "certificate/ball": (ball, 999, (0,)),
    "certificate/ball, printed": (PRINTED[1], 234, (0,)),
    "certificate/vanishing": (vanishing, 999, (2, 3)),
    "certificate/vanishing, printed": (PRINTED[2], 117, (2, 3)),
    "certificate/greatest": (greatest, 999, (0,)),
}
"""What proves each, how many thousandths of the constant are too few, and the numbers of responses; 0 means all."""


@check(
    *stated(*INEQUALITIES),
    cases=lambda quick: [
        {"name": name, "n_responses": k, "where": f"K = {k}" if k else "all sizes"}
        for name, (_, _, numbers) in INEQUALITIES.items()
        for k in numbers[: 2 if quick else None]
    ],
    broken={"broken": True},
    setting="{where}",
)
def certified(name, n_responses, broken=False):
    """The left side over the right: at most 1, or by how much it is above it somewhere."""
    inequalities, too_few, _ = INEQUALITIES[name]
    worst, pieces = [], 0
    for margin, box, ratio in inequalities(n_responses, Fraction(too_few if broken else 1000, 1000)):
        found = prove(margin, box)
        if not found.proved and not found.point:
            raise ArithmeticError(f"{name}, {n_responses} responses: undecided after {found.pieces} pieces")
        worst.append(ratio(found.point) if found.point else 1.0)
        pieces += found.pieces
    return {name: (max(worst), 1.0, {"pieces": pieces})}
