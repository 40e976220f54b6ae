"""The search for the worst case of an inequality: known maxima, violations, what users may get wrong."""

from functools import partial

import numpy as np
import pytest

import grpo_theory as gt

UNIT = [(0.0, 1.0)]


def parabola(x):
    return x[0] * (1.0 - x[0]), 0.25


def test_a_bound_that_is_attained():
    found = gt.worst_case(parabola, UNIT, rng=0)
    assert found.score == pytest.approx(1.0, abs=1e-12)
    assert found.parameters == pytest.approx([0.5], abs=1e-6)
    assert found.attained
    assert not found.violated
    assert found.agreeing == 8
    assert (found.left, found.right) == parabola(found.parameters)


def test_a_bound_that_is_violated_only_in_a_corner():
    """x y <= 0.9 fails on a hundredth of the square or less."""
    found = gt.worst_case(lambda x: (x[0] * x[1], 0.9), UNIT * 2, rng=1, starts=16, climbs=2)
    assert found.violated
    assert not found.attained
    assert found.score == pytest.approx(1.0 / 0.9, rel=1e-9)
    assert found.parameters == pytest.approx([1.0, 1.0])


def test_what_users_get_wrong_is_said(check_refused):
    given = partial(partial, gt.worst_case, rng=0)
    check_refused(
        (given("x", UNIT), "sides must be a function of the parameters that returns .left, right., got 'x'"),
        (given(parabola, [(0.0, np.inf)]), r"bounds must be finite, got inf at index \(0, 1\)"),
        (given(parabola, [(0.0, 1.0), (2.0, 1.0)]), r"no lowest above the highest, got \(2, 1\) for parameter 1"),
        (given(parabola, UNIT, compare="quotient"), "compare must be 'ratio' or 'difference', got 'quotient'"),
        (given(lambda x: (1.0, np.nan), UNIT), r"sides must return finite numbers, got \(1.0, nan\) at \[0\.\d+\]"),
        (given(lambda x: (1.0, -2.0), UNIT), r"a right side of at least 0 unless compare='difference', got \(1.0, -2.0\) at"),
        error=(TypeError, ValueError),
    )
