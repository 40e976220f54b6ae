"""Theorem 7's bound: suprema over a ball against enumeration and random points, and verdicts that follow the evidence."""

import numpy as np

import grpo_theory as gt
from grpo_theory.exact import largest_error, region
from simulations.maximum import curvatures, maximum
from simulations.training import theorem_7

SETTINGS = theorem_7.cases(True)[0]


def test_suprema_are_those_of_enumerated_errors_and_above_all_points_of_the_ball():
    """The supremum of the sum is less than the sum of the suprema, which are attained at different points."""
    name, radius = SETTINGS["problem"], SETTINGS["radius"]
    constants, errors = theorem_7.suprema(name, radius)
    problem, best, _ = maximum(name)
    for size in (2, 6):
        enumerated = largest_error(problem, best, "rloo", radius=radius, batch_size=1, group_size=size)
        np.testing.assert_allclose(errors[theorem_7.GROUP_SIZES.index(size)], enumerated, rtol=1e-6)
    rng, directions = np.random.default_rng(1), curvatures(name)[1]
    sizes = np.array(theorem_7.GROUP_SIZES)
    for _ in range(200):
        u = rng.normal(size=directions.shape[1])
        law = gt.group_size_law(problem, best + directions @ (radius * rng.random() * u / np.linalg.norm(u)))
        assert (np.array([law.c1, law.c2, law.c3]) <= constants + 1e-12).all()
        assert (law.mse(1, sizes) <= errors + 1e-12).all()
    assert (errors < 0.99 * gt.GroupSizeLaw(*constants).mse(1, sizes)).all()


def test_the_bound_of_every_setting_is_least_where_its_noise_is():
    """Errors that are least by far at one group size decide all settings but those with one prompt a step alike."""
    problem, best, _ = maximum(SETTINGS["problem"])
    found = region(problem, best, radius=SETTINGS["radius"], reach=1e-6)
    errors = np.full(len(theorem_7.GROUP_SIZES), 1e3)
    errors[theorem_7.GROUP_SIZES.index(7)] = 1e-3
    least, single = theorem_7.minimisers(found, errors)
    assert set(least) == set(single) == {7}
    assert (len(least), len(single)) == (6, 2)
