"""Proofs of polynomial inequalities: true ones, ones that fail by a thousandth, and the polynomials of the study."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit

import grpo_theory as gt
from grpo_theory.evidence import prove
from grpo_theory.evidence.certificate import Polynomial
from grpo_theory.theory import curvature_bound, success_gradient, success_hessian
from simulations.normalisation import certificates

ONE = Fraction(1)
SHARP = {
    "double zeros at irrational places": (lambda x: Fraction(1, 27) - (2 * x[0] * (1 - x[0]) * (1 - 2 * x[0])) ** 2, 1),
    "zeros of order 1, 2 and 4": (lambda x: x[0] * (x[0] - Fraction(1, 3)) ** 4 * (3 * x[0] - 2) ** 2 * (2 - x[0]), 1),
    "a maximum where the square is cut": (lambda x: 1 - 16 * x[0] * (1 - x[0]) * x[1] * (1 - x[1]), 2),
    "zero on a face": (lambda x: x[0] * (1 + x[1] - x[0] * x[1]), 2),
    "zero on an edge of the simplex": (lambda x: x[0] * (1 - x[0]) ** 2 * x[1] * (1 - x[1]) + 0 * x[2], 3),
    "negative only near a corner": (lambda x: Fraction(1, 4) - (1 - x[0]) ** 2 * (1 - x[1]) ** 2 * Fraction(1, 4), 2),
    "nothing": (lambda x: 0, 2),
}
"""Polynomials that are at least 0 and reach it, and of how many variables."""


@pytest.mark.parametrize("name", SHARP)
def test_what_holds_is_proved_and_what_fails_by_a_thousandth_is_refuted_at_a_point(name):
    margin, size = SHARP[name]
    assert prove(margin, [(0, 1)] * size).proved
    below = prove(lambda x: margin(x) - Fraction(1, 1000), [(0, 1)] * size)
    assert not below.proved
    assert all(0 <= one <= 1 for one in below.point)
    assert below.value == margin(below.point) - Fraction(1, 1000) < 0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.fractions(-1, 2, max_denominator=12), min_size=1, max_size=7), st.fractions(-1, 1, max_denominator=5))
def test_a_polynomial_of_one_variable_is_always_decided(zeros, lowest):
    """Its sign between its zeros says what the answer must be."""

    def margin(x):
        return np.prod([x[0] - zero for zero in zeros])

    inside = sorted({lowest, Fraction(2), *(zero for zero in zeros if lowest < zero < 2)})
    holds = all(margin([(low + high) / 2]) >= 0 for low, high in pairwise(inside))
    found = prove(margin, [(lowest, 2)])
    assert found.proved == holds
    assert holds or (margin(found.point) == found.value < 0 and lowest <= found.point[0] <= 2)


def test_a_zero_along_a_slanting_line_stays_undecided():
    found = prove(lambda x: (x[0] - x[1]) ** 2, [(0, 1), (0, 1)], pieces=50)
    assert (found.proved, found.point, found.pieces) == (False, (), 50)


def test_what_is_no_exact_polynomial_is_refused():
    for wrong, message in ((lambda x: 0.5 - x[0], "must be exact"), (lambda x: x[0] ** -1, "power must be")):
        with pytest.raises((TypeError, ValueError), match=message):
            prove(wrong, [(0, 1)])
    one = Polynomial({(1,): 1})
    assert (-((1 - one) ** 2) + 1).terms == {(0,): 0, (1,): 2, (2,): -1}


def point(size, rng):
    return [Fraction(int(one), 1000) for one in rng.integers(1, 1000, size)]


@pytest.mark.parametrize(("k", "right"), [(2, 1), (3, 1), (4, 2), (4, 3)])
def test_slopes_and_curvatures_of_the_study_are_those_of_the_library(k, right):
    rng = np.random.default_rng(k)
    p, *shares = point(k - 1, rng)
    plus, minus = (side.astype(float) for side in certificates.sides_of(k, right, shares))
    pi = float(p) * plus + float(1 - p) * minus
    correct, variance = np.arange(k) < right, float(p * (1 - p))
    hessian = success_hessian(pi, correct, np.eye(k))
    np.testing.assert_allclose(variance * certificates.hessian([1 - 2 * p, *shares], k, right).astype(float), hessian, atol=1e-14)
    margin, _, ratio = list(certificates.slopes(k, ONE))[right - 1]
    slope = np.linalg.norm(success_gradient(pi, correct, np.eye(k)))
    assert ratio([p, *shares]) == pytest.approx(slope / (np.sqrt(2.0) * variance))
    assert float(margin([p, *shares])) == pytest.approx(2.0 * variance**2 - slope**2, abs=1e-12)


@pytest.mark.parametrize(("k", "times"), [(3, "1/3"), (3, "2/3"), (4, "1/3"), (4, "3/4")])
def test_sums_of_products_are_negative_just_where_a_policy_is_above_the_bound(k, times):
    """With a constant that is too small for some policies, and not for others."""
    rng, seen = np.random.default_rng(0), set()
    inequalities = list(certificates.curvatures(k, Fraction(times), constant=Fraction(1)))
    for _ in range(20):
        c, *shares = 2 * point(1, rng)[0] - 1, *point(k - 2, rng)
        for right in range(1, k):
            both = certificates.hessian([c, *shares], k, right).astype(float)
            holds = np.linalg.eigvalsh(both).min() >= -float(Fraction(times))
            mine = inequalities[(right - 1) * (k - 1) : right * (k - 1)]
            assert all(margin([c, *shares]) >= 0 for margin, _, _ in mine) == holds
            assert mine[0][2]([c, *shares]) == pytest.approx(np.abs(np.linalg.eigvalsh(both)).max() / float(Fraction(times)))
            seen.add(bool(holds))
    assert seen == {True, False}


def test_the_other_inequalities_of_the_study_are_about_the_right_numbers():
    rng = np.random.default_rng(1)
    t, share = point(2, rng)
    p = float(t**2 / (1 + t**2))
    spread = np.sqrt(p * (1 - p))
    moved = expit(logit(p) + np.sqrt(2.0) * spread * float(share))
    ratios = [ratio([t, share]) for _, _, ratio in certificates.ball(0, ONE, constant=ONE)]
    assert max(ratios) == pytest.approx(curvature_bound(moved, 3) / spread, rel=1e-6)
    ratios = [ratio([Fraction(1, 5)]) for _, _, ratio in certificates.smoothness(0, ONE)]
    assert max(ratios) == pytest.approx(curvature_bound(0.4, 3) / gt.theory.GREATEST_CURVATURE)
    a, b, y = point(3, rng)
    pi, rewards = certificates.simplex([a, b]).astype(float), np.array([-1.0, float(y), 1.0])
    problem = gt.Problem(gt.Bandit.from_law([-1.0, float(y), 1.0], np.eye(3)[None]), gt.TabularSoftmax(1, 3), theta=np.log(pi))
    deviation = np.sqrt(pi @ (rewards - pi @ rewards) ** 2)
    ((_, _, ratio),) = certificates.vanishing(3, ONE)
    slope = np.linalg.norm(gt.exact.gradient(problem, problem.theta))
    assert ratio([a, b, y]) == pytest.approx(np.sqrt(2.0) * slope / deviation ** (2 / 3))


@pytest.mark.parametrize("size", [4, 9])
def test_the_weights_of_the_study_are_those_of_the_kernel(size):
    bare = gt.estimation.find("openrlhf_group_norm").with_parameters(epsilon=0.0)
    weights = gt.theory.finite_group_objective(bare, size).coefficients
    for successes in range(1, size - 1):
        x = Fraction(1, successes), Fraction(1, size - 1 - successes)
        for times in (ONE, Fraction(int(weights[successes] / weights[0] * 1000), 1000)):
            margins = [margin(x) for margin, _, _ in certificates.greatest(0, times)]
            assert (min(margins) >= 0) == (weights[successes] <= float(times) * weights[0])


def test_an_inequality_that_is_undecided_is_no_claim(monkeypatch):
    never = [certificates.compared(lambda x: (0 * x[0], (x[0] - x[1]) ** 2), [(0, 1)] * 2)]
    monkeypatch.setitem(certificates.INEQUALITIES, "certificate/slope", (lambda k, times: never, 999, (2,)))
    with pytest.raises(ArithmeticError, match="undecided"):
        certificates.certified.sides("certificate/slope", 2)
