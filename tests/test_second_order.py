"""The second order of what noise costs the policy: against all runs of three steps, with the noise scaled down."""

from itertools import product

import numpy as np
import pytest
from enumeration import case, groups, prompts

import grpo_theory as gt
from grpo_theory.exact import gradient, hessian
from grpo_theory.exact.derivatives import hessians_in_logits
from grpo_theory.theory import leave_one_out_parts, noise_cost, training_law
from grpo_theory.theory.noise_cost import ThirdCumulant, leave_one_out_third_cumulant, logit_derivative, noise_in_logits

STEPS = np.array([1.5, 0.9, 1.2])
SIZES = np.array([3.0, 2.0, 5.0])
NODES = list(zip((-np.sqrt(3.0), 0.0, np.sqrt(3.0)), (1 / 6, 2 / 3, 1 / 6), strict=True))
"""Gauss and Hermite's: the moments of a normal up to the fifth."""


def shared(penalty):
    """Return three prompts with three responses on two features, unequal weights."""
    rng = np.random.default_rng(5)
    bandit = gt.Bandit(rng.uniform(0.1, 0.9, (3, 3)), [0.5, 0.2, 0.3])
    features, reference = rng.normal(size=(3, 3, 2)), rng.dirichlet(np.full(3, 3.0), size=3)
    kl = gt.KL(0.3, reference) if penalty else None
    return gt.Problem(bandit, gt.LinearSoftmax(features), kl, theta=rng.normal(size=2))


def expected_objective(problem, theta, steps, sizes, scale):
    """Return E J after steps whose noise has the leave-one-out covariance times scale^2, no skewness, no excess kurtosis."""
    if not len(steps):
        return float(gt.objective(problem, theta))
    weights = [sizes[0], 1.0, 1.0 / (sizes[0] - 1.0)]
    root = np.linalg.cholesky(np.tensordot(weights, np.array(leave_one_out_parts(problem, theta)), axes=1))
    ahead = theta + steps[0] * gradient(problem, theta)
    total = 0.0
    for nodes in product(NODES, repeat=len(theta)):
        x, chances = zip(*nodes, strict=True)
        then = ahead + steps[0] * scale * root @ np.array(x)
        total += np.prod(chances) * expected_objective(problem, then, steps[1:], sizes[1:], scale)
    return total


@pytest.mark.parametrize("penalty", [False, True])
def test_the_second_order_is_what_the_first_leaves_over(monkeypatch, penalty):
    """Halving normal noise divides what both orders leave over by 2^6, and with a second order 2% off by 2^4."""
    problem = shared(penalty)
    law = training_law(problem, problem.theta, STEPS, steps=3)
    monkeypatch.setattr(ThirdCumulant, "at", lambda self, sizes: np.zeros((len(sizes), 2, 2, 2)))
    first, second = 2.0 * law.loss(2, SIZES), 4.0 * law.second_order(2, SIZES)
    left = {}
    for scale in (0.1, 0.05):
        orders = np.array([scale**2, scale**4]) * [first, second]
        left[scale] = expected_objective(problem, problem.theta, STEPS, SIZES, scale) - law.objective + orders.sum()
    assert 50.0 < left[0.1] / left[0.05] < 80.0
    wrong = {scale: value + 0.02 * scale**4 * second for scale, value in left.items()}
    assert not 50.0 < wrong[0.1] / wrong[0.05] < 80.0


def noisy_steps(c, theta, step, size, scale):
    """Return every next iterate and its probability, B = 1, the estimate's deviation from its mean scaled."""
    tables, f = prompts(c.replace(theta=theta)), c.bandit.prompt_weights
    mean = sum(weight * table.gradient for weight, table in zip(f, tables, strict=True))
    for weight, table in zip(f, tables, strict=True):
        for rows, probability in zip(*groups(table, size), strict=True):
            rewards, scores = table.rewards[rows], table.scores[rows]
            estimate = (rewards - rewards.mean()) @ scores / (size - 1)
            yield theta + step * (mean + scale * (estimate - mean)), weight * probability


def test_skewness_enters_as_it_should(monkeypatch):
    """The part of E J(theta_2) that is odd in the noise, by enumeration of all groups, is the third cumulant's."""
    c, size = case("linear", "graded", "kl"), 2
    law = training_law(c.problem, c.theta, STEPS[:2], steps=2)

    def enumerated(scale):
        total = 0.0
        for first, probability in noisy_steps(c, c.theta, STEPS[0], size, scale):
            ends, weights = zip(*noisy_steps(c, first, STEPS[1], size, scale), strict=True)
            total += probability * (np.array(weights) @ gt.objective(c.problem, np.array(ends)))
        return total

    odd = {scale: (enumerated(scale) - enumerated(-scale)) / (2.0 * scale**3) for scale in (0.04, 0.02)}
    extrapolated = (4.0 * odd[0.02] - odd[0.04]) / 3.0
    whole = law.second_order(size, size)
    monkeypatch.setattr(ThirdCumulant, "at", lambda self, sizes: np.zeros((len(sizes), 3, 3, 3)))
    assert whole != pytest.approx(law.second_order(size, size), rel=0.01)
    assert law.second_order(size, size) - whole == pytest.approx(extrapolated, rel=1e-3)


@pytest.mark.parametrize(("policy", "rewards", "penalty"), [("linear", "graded", "kl"), ("tabular", "binary", "plain")])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_third_cumulant_is_that_of_all_groups(policy, rewards, penalty, size):
    c = case(policy, rewards, penalty)
    tables, f = prompts(c), c.bandit.prompt_weights
    mean = sum(weight * table.gradient for weight, table in zip(f, tables, strict=True))
    ends = list(noisy_steps(c, c.theta, 1.0, size, 1.0))
    deviations, weights = np.array([end for end, _ in ends]) - c.theta - mean, np.array([weight for _, weight in ends])
    exact = np.einsum("n,ni,nj,nk->ijk", weights, deviations, deviations, deviations)
    found = leave_one_out_third_cumulant(c.problem, c.theta)
    np.testing.assert_allclose(found.at(size), exact, atol=1e-14)
    assert np.abs(found.at(size + 1) - exact).max() > 1e-3 * np.abs(exact).max()


@pytest.mark.parametrize("name", ["linear", "kl-tabular", "kl-sequence"])
def test_forms_in_the_logits_are_those_of_theta(name):
    """The congruence of the forms is the Hessian, that of the noise the covariance; derivatives are differences of these."""
    problem = gt.gallery.problem(name)
    theta = problem.theta + 0.3
    policy, logits = problem.policy, problem.policy.logits(theta)
    np.testing.assert_allclose(
        policy.logit_map.congruence(hessians_in_logits(problem, logits)), hessian(problem, theta), atol=1e-14
    )
    parts, slope = leave_one_out_parts(problem, theta), gradient(problem, theta)
    for number, (form, part) in enumerate(zip(noise_in_logits(problem, logits), parts, strict=True)):
        own = np.outer(slope, slope) if number == 0 else 0.0
        np.testing.assert_allclose(policy.logit_map.congruence(form) - own, part, atol=1e-14)
    many = np.stack([logits, logits + 0.1])
    np.testing.assert_allclose(hessians_in_logits(problem, many)[1], hessians_in_logits(problem, logits + 0.1), atol=1e-15)
    here, h = noise_cost.LocalDerivatives(problem, theta), 1e-4
    direction = np.random.default_rng(1).normal(size=len(theta))
    difference = (hessian(problem, theta + h * direction) - hessian(problem, theta - h * direction)) / (2.0 * h)
    np.testing.assert_allclose(here.third @ direction, difference, atol=1e-5 * np.abs(difference).max())
    slopes = logit_derivative(lambda points: noise_in_logits(problem, points), logits, 2)
    np.testing.assert_allclose(slopes, here.noise_slopes)
