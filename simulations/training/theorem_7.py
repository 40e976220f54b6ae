"""U9: the best group size by Theorem 7's bound, with suprema over a region as its constants, exactly.

In Lemma 6's bounds M is the largest error of the leave-one-out estimator over a ball around a maximiser. The bounds are minimised
over the whole group sizes at fixed budgets: BG responses a step, or nBG in all. The printed minimiser is sqrt(C3/C1) with C1 and
C3 the suprema of c1 and c3. It takes the supremum of the error for the sum of its parts' suprema, and c3/(BG^2) for c3/(BG(G-1)).

In the controls the supremum of c3 is too large, or there is one prompt per step, so that larger groups mean fewer steps.
"""

from functools import cache
from operator import attrgetter, methodcaller

import numpy as np

import grpo_theory as gt
from grpo_theory.exact import region
from grpo_theory.exact.maximiser import ERROR_POINTS, largest, net
from grpo_theory.harness import check
from grpo_theory.theory import constant_step_bound, harmonic_step_bound
from simulations.maximum import curvatures, maximum
from simulations.statements import stated
from simulations.training.grid import doubling

READINGS = stated("U9/bound/printed", "U9/bound/corrected", "U9/bound/universal")
SAME_SIZE = "with one prompt a step, too, the bound is least at the same whole group size there"
POWERLESS = {("U9/bound/universal", f"{name}, radius 2"): SAME_SIZE for name in ("conflict", "kl-linear")}

BALLS = (("conflict", 1.0), ("conflict", 2.0), ("kl-linear", 0.3), ("kl-linear", 1.0), ("kl-linear", 2.0), ("kl-tabular", 1.0))
QUICK_BALLS = 1
GROUP_SIZES = tuple(range(2, 13))
WRONG_C3 = 4.0
"""The control's supremum of c3 is this many times too large: it asks for twice the responses a prompt."""
STEP_BUDGETS, NUMBERS = (1024, 16384), (64, 1024)
RUN_BUDGETS, CONTROL_BUDGETS = (1 << 18, 1 << 24), (1 << 10, 1 << 24)


def cases(quick):
    """The balls; quick takes the first."""
    return [{"problem": problem, "radius": radius} for problem, radius in BALLS[: QUICK_BALLS if quick else None]]


@cache
def suprema(name, radius):
    """Return the suprema of c1, c2 and c3 over the ball, and those of B MSE at every group size."""
    problem, best, _ = maximum(name)
    directions = curvatures(name)[1]

    @cache
    def law_at(point):
        return gt.group_size_law(problem, best + directions @ np.frombuffer(point))

    def supremum(value):
        return largest(lambda points: np.array([float(value(law_at(point.tobytes()))) for point in points]), points, radius)

    points = net(directions.shape[1], radius, ERROR_POINTS)
    constants = [supremum(attrgetter(name)) for name in ("c1", "c2", "c3")]
    return np.array(constants), np.array([supremum(methodcaller("mse", 1, size)) for size in GROUP_SIZES])


def minimisers(ball, errors):
    """Return the whole group size of Lemma 6's least bound in every setting, and in those with one prompt a step."""
    step, beta = 0.02 / ball.smoothness, 1.0 / ball.pl

    def constant(noise, n):
        return float(constant_step_bound(ball, noise, step, ball.highest_gap, n))

    def harmonic(noise, n):
        return float(harmonic_step_bound(ball, noise, beta, n))

    each = list(zip(GROUP_SIZES, errors, strict=True))
    settings = [[constant(g * error / budget, n) for g, error in each] for budget, n in zip(STEP_BUDGETS, NUMBERS, strict=True)]
    for budget in RUN_BUDGETS:
        counts = doubling(budget // GROUP_SIZES[-1])
        settings += [
            [min(bound(n * g * error / budget, n) for n in counts) for g, error in each] for bound in (constant, harmonic)
        ]
    single = [[constant(error, budget // g) for g, error in each] for budget in CONTROL_BUDGETS]
    return tuple([GROUP_SIZES[int(np.argmin(values))] for values in some] for some in (settings, single))


@check(*READINGS, cases=cases, broken={"wrong": True}, setting="{problem}, radius {radius:g}")
def least(problem, radius, wrong=False):
    """Both readings of the law against the minimisers of the bounds, and whether the settings share a group size.

    A reading is judged in the setting in which it is farthest off. Broken: with a supremum of c3 that is too large, and with one
    prompt a step.
    """
    (c1, c2, c3), errors = suprema(problem, radius)
    sizes = np.array(GROUP_SIZES, dtype=np.float64)
    found, best, _ = maximum(problem)
    own, single = minimisers(region(found, best, radius=radius, reach=1e-6), errors)
    sums = c1 + c2 / sizes + c3 / (sizes * (sizes - 1.0))
    facts = {"sqrt(C3/C1)": float(np.sqrt(c3 / c1)), "largest error / sum of the suprema": float((errors / sums).min())}
    sides = {"U9/bound/universal": (max(some := single if wrong else own), min(some), {"settings": float(len(own))})}
    for name, below in (("U9/bound/printed", sizes), ("U9/bound/corrected", sizes - 1.0)):
        right, other = (GROUP_SIZES[int(np.argmin(c1 * sizes + factor * c3 / below))] for factor in (1.0, WRONG_C3))
        sides[name] = own[int(np.abs(np.array(own) - right).argmax())], other if wrong else right, facts
    return sides
