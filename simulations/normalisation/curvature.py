"""N1, N2, N3: slope and curvature against reward variance, random policies and worst cases, exact.

Each bound is compared with the worst of random policies and, where they are small, of those that a search finds. In the controls
rewards are not 0 and 1, but so much larger that the bound should give way. Those of the closed forms have derivatives that are
taken with the softmax's denominator held fixed.
"""

import numpy as np

from grpo_theory.harness import check, rows
from grpo_theory.theory import GREATEST_LOCAL_CURVATURE, success_hessian
from simulations.normalisation.families import Family
from simulations.normalisation.policies import Policy, Unnormalised
from simulations.statements import stated
from simulations.worst_cases import worst_of

FAMILIES = ((2, 1), (3, 1), (3, 2), (5, 1), (5, 3), (10, 1), (10, 5))
"""Numbers of responses, and of correct ones."""
SOUGHT = 3
"""The most responses with which the worst case is sought; more add nothing to it, because it needs three."""


def steepness(here, near):
    """N2: ||grad p|| against X/2."""
    return here.slope, here.scale / 2.0


def sharp_steepness(here, near):
    """||grad p|| against sqrt(2) V X."""
    return here.slope, np.sqrt(2.0) * here.variance * here.scale


def curvature(here, near):
    """N1: ||Hess p|| against 4 X^2 V."""
    return here.curvature, 4.0 * here.variance * here.scale**2


def sharp_curvature(here, near):
    """||Hess p|| against X^2 V max(1/2, 2|1 - 2p|), without the 1/2 for two responses."""
    least = 0.5 if here.logits.size > 2 else 0.0
    return here.curvature, here.variance * max(least, 2.0 * abs(here.failure - here.success)) * here.scale**2


def local_curvature(here, near):
    """N3: ||Hess p|| within the radius against (5/2) X^2 sqrt(V)."""
    return near.curvature, 2.5 * np.sqrt(here.variance) * here.scale**2


def sharp_local_curvature(here, near):
    """The same against 0.587 X^2 sqrt(V)."""
    return near.curvature, GREATEST_LOCAL_CURVATURE * np.sqrt(here.variance) * here.scale**2


BOUNDS = {
    "N1": (curvature, 8.0),
    "N1/sharp": (sharp_curvature, 3.0),
    "N2": (steepness, 4.0),
    "N2/sharp": (sharp_steepness, 3.0),
    "N3": (local_curvature, 20.0),
    "N3/sharp": (sharp_local_curvature, 5.0),
}
"""The two sides of each, and how many times larger the rewards are in its control; slope and curvature are in proportion."""


def families(quick):
    """Each family, with fewer policies if quick."""
    return [{"n_responses": k, "n_correct": correct, "policies": 100 if quick else 1000} for k, correct in FAMILIES]


def bounds(quick):
    """Each bound on each family; a quick run searches only the smallest."""
    starts, climbs, most = (8, 1, 2) if quick else (128, 1, SOUGHT)
    return [
        {"bound": bound, **one, "starts": starts * (one["n_responses"] <= most), "climbs": climbs}
        for one in families(quick)
        for bound in BOUNDS
    ]


@check(
    *stated(*BOUNDS, "N1/several", "N2/several", "N3/several"),
    cases=bounds,
    broken={"starts": 0, "larger": True},
    setting="K = {n_responses}, {n_correct} correct",
)
def bounded(bound, n_responses, n_correct, policies, starts, climbs, rng, larger=False):
    """Left over right side of a bound at worst; the papers' are about one correct response."""
    family, (sides, factor) = Family(n_responses, n_correct), BOUNDS[bound]
    drawn = [sides(*family.draw(rng, Policy)) for _ in range(policies)]
    name = bound if n_correct == 1 or "/" in bound else f"{bound}/several"
    found, one, facts = worst_of(drawn, lambda x: sides(*family.at(x)), family.bounds(), rng, starts, climbs)
    return {name: (factor * found if larger else found, one, facts)}


@check(
    *stated("N1/Hessian", "N1/two responses"),
    cases=families,
    broken={"make": Unnormalised},
    setting="K = {n_responses}, {n_correct} correct",
)
def closed_forms(n_responses, n_correct, policies, rng, make=Policy):
    """Hessians against the closed form, and their norms for two responses, in units of X^2."""
    drawn = [Family(n_responses, n_correct).draw(rng, make)[0] for _ in range(policies)]
    closed = [success_hessian(one.probabilities, one.correct, one.features) for one in drawn]
    gaps = [np.abs(one.hessian - form).max() / one.scale**2 for one, form in zip(drawn, closed, strict=True)]
    sides = {"N1/Hessian": (gaps, 0.0)}
    if n_responses == 2:
        # ||Hess p|| = V |1 - 2p| ||x_1 - x_2||^2
        norms = [
            one.variance * abs(one.failure - one.success) * ((one.features[0] - one.features[1]) ** 2).sum() for one in drawn
        ]
        gaps = [abs(one.curvature - norm) / one.scale**2 for one, norm in zip(drawn, norms, strict=True)]
        sides["N1/two responses"] = gaps, 0.0
    return sides


@rows(cases=[{"n_responses": k, "n_correct": 1, "points": 400} for k in (2, 3, 5, 10)])
def curvatures(n_responses, n_correct, points, rng):
    """The curvature of random policies in units of X^2, and that within the radius, for the figure."""
    for _ in range(points):
        here, near = Family(n_responses, n_correct).draw(rng, Policy)
        for place, one in (("here", here), ("within the radius", near)):
            yield {"how": "point", "place": place, "estimate": one.curvature / one.scale**2, "variance": here.variance}
