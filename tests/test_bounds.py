"""Lemma 6 and Lemma 14: against brute force over sequences, and against exact one-step expectations."""

from functools import cache
from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import grpo_theory as gt
from grpo_theory.exact import Region, largest_error, longest_estimate, region
from grpo_theory.theory import constant_step_bound, harmonic_step_bound, recursion_bound
from grpo_theory.theory.suboptimality import first_index, largest_sequence, printed_first_index, sequence_bound
from simulations.maximum import curvatures, maximum

SIZES = {"batch_size": 1, "group_size": 2}
BALL = Region(radius=1.0, reach=1.0, smoothness=2.0, pl=0.5, highest_gap=3.0, steepest_ray=-0.1)


@pytest.fixture(scope="module")
def conflict():
    problem, best, highest = maximum("conflict")
    return problem, best, highest, region(problem, best, radius=1.0, reach=6.0)


def test_no_point_of_a_dense_random_sample_beats_the_constants(conflict, seed):
    problem, best, highest, found = conflict
    rng = np.random.default_rng(seed(0))
    directions = rng.normal(size=(1500, 2))
    directions /= np.linalg.norm(directions, axis=1)[:, None]
    lengths = np.sqrt(rng.uniform(1e-4, 1.0, 1500))
    near, far = best + lengths[:, None] * directions, best + 7.0 * lengths[:, None] * directions
    power = np.array([gt.moments(problem, point).gradient_squared_norm for point in near])
    gaps = highest - gt.objective(problem, near)
    assert (power / (2.0 * gaps)).min() >= found.pl * (1 - 1e-6)
    assert (power / (2.0 * gaps)).min() <= found.pl * 1.05
    assert found.highest_gap * 0.95 <= gaps.max() <= found.highest_gap * (1 + 1e-9)
    points = (*far[:250], *near[:250])
    curvatures = [np.abs(np.linalg.eigvalsh(gt.hessian(problem, point))).max() for point in points]
    assert found.smoothness * 0.95 <= max(curvatures) <= found.smoothness * (1 + 1e-6)
    slopes = [(point - best) @ gt.moments(problem, point).gradient for point in points]
    assert max(slopes) <= 0.0
    assert found.steepest_ray < 0.0
    noise = largest_error(problem, best, "oracle", radius=1.0, **SIZES)
    errors = [gt.gradient_mse(problem, point, "oracle", **SIZES) for point in near[:300]]
    assert noise * 0.95 <= max(errors) <= noise * (1 + 1e-6)


def test_the_smoothness_is_that_of_where_a_step_may_end():
    """Around this maximiser curvature grows outwards: over the ball alone it is a quarter less."""
    problem, best, _ = maximum("kl-tabular")
    inner, reached, outer = (
        region(problem, best, radius=radius, reach=reach).smoothness for radius, reach in ((0.3, 1e-6), (0.3, 3.0), (3.3, 1e-6))
    )
    assert reached == pytest.approx(outer, rel=1e-6)
    assert reached > 1.2 * inner


def test_a_ball_with_a_higher_point_than_its_centre_has_no_constant():
    """A local maximiser, 0.035 lower than another one 1.7 away: the gap is negative there."""
    features = np.array([[0.5, -0.53, 2.56], [0.84, -4.29, 2.89], [1.3, 0.95, -0.7]])[:, :, None]
    bandit = gt.Bandit([[0.95, 0.05, 0.95], [0.05, 0.95, 0.05], [0.05, 0.95, 0.05]])
    problem = gt.Problem(bandit, gt.LinearSoftmax(features))
    best, lower = (gt.find_optimum(problem, [start]) for start in (-0.5, 1.3))
    assert abs(best - lower)[0] < 1.9
    assert gt.objective(problem, lower) < gt.objective(problem, best)
    assert region(problem, lower, radius=0.5, reach=0.1).pl > 0.0
    with pytest.raises(ValueError, match=r"radius must leave out points as high as the optimum, to rounding, got 1\.9"):
        region(problem, lower, radius=1.9, reach=0.1)


@cache
def within_a_step(name, step):
    """Return a problem, its maximiser and maximum, the bound on an estimate there, and the constants where a step can lead."""
    problem, best, highest = maximum(name)
    longest = longest_estimate(problem, best, radius=1.0)
    return problem, best, highest, longest, region(problem, best, radius=1.0, reach=step * longest)


@pytest.mark.parametrize("name", ["kl-tabular", "conflict", "kl-sequence"])
@pytest.mark.parametrize("estimator", ["rloo", "reinforce"])
def test_one_step_exactly(name, estimator, seed):
    """The one-step inequality and the longest estimate, by enumerating every batch of one prompt and two responses."""
    step = 0.4
    problem, best, highest, longest, found = within_a_step(name, step)
    _, directions = curvatures(name)
    noise = largest_error(problem, best, estimator, radius=1.0, **SIZES)
    rng = np.random.default_rng(seed(0))
    for _ in range(5):
        u = rng.normal(size=directions.shape[1])
        theta = best + directions @ (u * rng.uniform() / np.linalg.norm(u))
        point, scores = problem.at(theta), problem.policy.scores(theta)
        after, total = 0.0, 0.0
        for m, weight in enumerate(problem.bandit.prompt_weights):
            for i, p in enumerate(point.outcome_probabilities[m]):
                for j, q in enumerate(point.outcome_probabilities[m]):
                    z, w = point.rewards[m, [i, j]], scores[m, point.outcome_responses[[i, j]]]
                    advantages = z - z[::-1] if estimator == "rloo" else z
                    estimate = advantages @ w / 2.0
                    assert np.linalg.norm(estimate) <= longest * (1 + 1e-9)
                    moved = gt.objective(problem, theta + step * estimate)
                    after += weight * p * q * (highest - float(moved))
                    total += weight * p * q
        assert total == pytest.approx(1.0, abs=1e-12)
        before = highest - float(gt.objective(problem, theta))
        assert after <= recursion_bound(found, noise, [step], before)[0]
        assert after > recursion_bound(found, 0.0, [step], before)[0] - step * noise


def brute_force_sequences(a, b, c, highest, steps, rng):
    """Random sequences that satisfy the hypotheses of Lemma 14, with many zeros, and leave room for a next value."""
    n = np.arange(1, steps + 1)
    brackets, added = 1.0 - a / n + b / n**2, c / n**2
    paths = np.empty((100, steps))
    most = np.full(100, highest)
    for i in range(steps):
        if brackets[i] < 0.0:
            most = np.minimum(most, -added[i] / brackets[i])
        paths[:, i] = most * np.where(rng.uniform(size=100) < 0.5, 1.0, rng.uniform(size=100) * (rng.uniform(size=100) < 0.5))
        most = np.minimum(highest, np.maximum(brackets[i] * paths[:, i] + added[i], 0.0))
    return paths


def keeps_the_hypotheses(sequences, a, b, c, highest):
    """Whether a_{n+1} <= (1 - A/n + B/n^2) a_n + C/n^2 and 0 <= a_n <= highest along the last axis, up to rounding.

    A sequence that ends in 0 after a bracket that is not negative goes on for ever with zeros.
    """
    n = np.arange(1, sequences.shape[-1])
    most = (1.0 - a / n + b / n**2) * sequences[..., :-1] + c / n**2
    slack = 1e-12 * (1.0 + a + b) * highest
    return bool((sequences >= 0.0).all() and (sequences <= highest).all() and (sequences[..., 1:] <= most + slack).all())


@settings(max_examples=60, deadline=None)
@given(
    st.floats(1.05, 60.0),
    st.floats(0.0, 3.0),
    st.floats(0.01, 50.0),
    st.floats(0.1, 5.0),
    st.floats(0.1, 4.0),
    st.integers(0, 99),
)
def test_lemma_14_as_corrected_holds_for_every_sequence(a, share, c, highest, epsilon, key):
    b, n = share * a**2 / 4.0, np.arange(1, 200)
    largest = largest_sequence(a, b, c, highest, len(n))
    paths = brute_force_sequences(a, b, c, highest, len(n), np.random.default_rng(key))
    assert keeps_the_hypotheses(paths, a, b, c, highest)
    assert (paths <= largest * (1 + 1e-12)).all()
    assert (largest <= sequence_bound(a, c, highest, first_index(a, b, epsilon), n, epsilon) * (1 + 1e-9)).all()


def test_lemma_14_as_printed_fails_by_hand():
    """a_51 = 0.4, all else 0: admissible at every n, and 1.62 times the bound. After a_30 = 1 no a_31 >= 0 can follow."""
    a, b, c, epsilon = 100.0, 25.0, 1000.0, 0.25
    start = printed_first_index(a, b, epsilon)
    assert start == ceil(25 * 1.25 / (0.25 * 99)) + 1 == 3
    sequence = np.zeros(200)
    sequence[50] = 0.4
    assert keeps_the_hypotheses(sequence, a, b, c, 1.0)
    assert sequence[50] > 1.6 * sequence_bound(a, c, 1.0, start, 51, epsilon)
    assert sequence[50] <= sequence_bound(a, c, 1.0, first_index(a, b, epsilon), 51, epsilon)
    n = np.arange(1, 201)
    assert (largest_sequence(a, b, c, 1.0, 200) / sequence_bound(a, c, 1.0, start, n, epsilon)).argmax() == 50
    inadmissible = np.zeros(200)
    inadmissible[29] = 1.0
    assert keeps_the_hypotheses(inadmissible[:30], a, b, c, 1.0)
    assert not keeps_the_hypotheses(inadmissible, a, b, c, 1.0)


def test_the_explicit_bounds_are_above_the_iterated_one():
    noise, start = 0.7, 2.0
    step = 0.2
    n = np.arange(1, 301)
    iterated = recursion_bound(BALL, noise, np.full(300, step), start)
    rate = 2 * BALL.pl * step - BALL.smoothness * BALL.pl * step**2
    floor = BALL.smoothness * step**2 * noise / (4 * BALL.pl * step - 2 * BALL.smoothness * BALL.pl * step**2)
    # The geometric series ends, the bound's floor does not wait for it.
    np.testing.assert_allclose(constant_step_bound(BALL, noise, step, start, n), iterated + (1 - rate) ** n * floor, rtol=1e-12)
    for offset in (8, 50):
        steps = gt.Harmonic(2.0, offset).steps(2000)
        bound = harmonic_step_bound(BALL, noise, 2.0, np.arange(1, 2001), offset=offset)
        assert (bound >= recursion_bound(BALL, noise, steps, BALL.highest_gap)).all()
    # With much noise it is (1 + epsilon) C/((A - 1) m), with A = 2 mu beta, C = L beta^2 noise/2 and epsilon = 1.
    far = float(harmonic_step_bound(BALL, 70.0, 2.0, [99])[0])
    assert far == pytest.approx(2.0 * BALL.smoothness * 4.0 * 70.0 / 2.0 / (4.0 * BALL.pl - 1.0) / 100.0, rel=1e-12)


def test_messages(check_refused):
    check_refused(
        (lambda: constant_step_bound(BALL, 1.0, 0.3, 1.0, [1]), r"step must be below 1/\(2L\) = 0\.25, got 0\.3"),
        (lambda: harmonic_step_bound(BALL, 1.0, 1.0, [1]), r"step_scale must be above 1/\(2 mu\) = 1, got 1"),
        (lambda: recursion_bound(BALL, 1.0, [0.1, -0.1], 1.0), r"steps must be above 0, got -0\.1 at step 2"),
    )
