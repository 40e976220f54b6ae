"""Guaranteed gains of one step: against exact gains, exact Hessians, and two answers written out."""

import numpy as np
import pytest
from scipy.special import expit

import grpo_theory as gt
from grpo_theory.theory import divided_gain_constant, plain_gain_constant

RNG = np.random.default_rng(3)


def draws(count):
    """Yield problems of one prompt with features of spectral norm 1, and a point."""
    for number in range(count):
        answers = 2 + number % 5
        features = RNG.normal(size=(1, answers, answers + 1))
        features /= np.linalg.norm(features[0], 2)
        yield gt.Problem(gt.Bandit(np.eye(answers)[:1]), gt.LinearSoftmax(features)), 6.0 * RNG.normal(size=answers + 1)


@pytest.mark.parametrize("step", [0.3, 1.0, 1.7, 3.0])
def test_gains_are_at_least_the_guarantee(step):
    plain, divided = plain_gain_constant(step), divided_gain_constant(step)
    for problem, theta in draws(200):
        before = gt.moments(problem, theta)
        p, gradient, square = before.value[0], before.gradient, before.gradient @ before.gradient
        for constant, divisor in ((plain, 1.0), (divided, np.sqrt(p * (1.0 - p)))):
            after = gt.moments(problem, theta + step * gradient / divisor).value[0]
            assert after - p >= constant * square / divisor - 1e-15


@pytest.mark.parametrize("step", [0.5, 1.7])
def test_two_answers_come_near_to_the_guarantee(step):
    """The log odds of two tabular answers move by ``2 s V`` or ``2 s sqrt V`` exactly: the guarantee is not far below the
    truth."""
    u = np.linspace(-12.0, 12.0, 4001)
    variance = expit(u) * expit(-u)
    for constant, divisor in ((plain_gain_constant(step), 1.0), (divided_gain_constant(step), np.sqrt(variance))):
        gain = expit(u + 2.0 * step * variance / divisor) - expit(u)
        least = (gain * divisor / (2.0 * variance**2)).min()
        assert constant <= least <= 1.3 * constant


def test_the_printed_constants_are_below_and_the_best_plain_step_is_as_derived():
    assert plain_gain_constant(1.0) > 0.5
    assert divided_gain_constant(0.5) > 3.0 / 16.0
    best = 3.0 * np.sqrt(3.0)
    assert plain_gain_constant(best) == pytest.approx(best / 2.0, rel=1e-6)
    assert plain_gain_constant(2.0 * best) == pytest.approx(0.0, abs=1e-4)
    assert divided_gain_constant(3.5) < 0.0
