"""Theorem 7's bound: suprema over a ball against enumeration and random points, and verdicts that follow the evidence."""

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence import judge
from grpo_theory.exact import largest_error
from grpo_theory.harness.study import table_of
from simulations.maximum import curvatures, maximum
from simulations.training import theorem_7

SETTINGS = theorem_7.cells(True)[0].settings


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


def test_verdicts_follow_the_least_bound():
    settings = {"beta, BG = 1": 6, "beta/i, nBG = 1": 6, "B = 1, nBG = 1": 2, "B = 1, nBG = 9": 12}
    constants = {"C1": 1.0, "C2": 1.0, "C3": 25.0, "largest_share": 0.9}
    laws = {"printed": [5, 10], "corrected": [6, 11]}

    def verdicts(**changes):
        results = [{"least": settings | changes, "laws": laws, **constants}]
        found = judge(theorem_7.claims(table_of(theorem_7.rows(SETTINGS, results))))
        return dict(zip(found["id"].str.rpartition("/")[2], found["verdict"], strict=True))

    assert verdicts() == {"printed": "refuted", "corrected": "confirmed", "universal": "confirmed"}
    assert verdicts(**{"beta/i, nBG = 1": 5}) == {"printed": "refuted", "corrected": "refuted", "universal": "refuted"}
    assert verdicts(**{"B = 1, nBG = 9": 2})["universal"] == "no power"
