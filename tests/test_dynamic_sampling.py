"""Predictions for dropped and redrawn groups against the enumeration of all groups, and the loops that draw them."""

from itertools import product

import numpy as np
import pytest

import grpo_theory as gt
from simulations.gradient import dynamic_sampling


def enumerated(name, group_size):
    """Return mean, mean square and probability of mixed groups' contributions along the plain update, prompt by prompt."""
    problem = gt.gallery.problem(name)
    point = problem.at(problem.theta)
    mean = gt.gradient_mean(problem, problem.theta, "rloo", batch_size=1, group_size=group_size)
    slopes = point.covectors @ problem.policy.logits(mean / (mean @ mean))[:, :, None]
    found = np.zeros((problem.bandit.n_prompts, 3))
    for m, law in enumerate(point.outcome_probabilities):
        for outcomes in product(range(law.size), repeat=group_size):
            z, w = point.rewards[m, list(outcomes)], slopes[m, point.outcome_responses[list(outcomes)], 0]
            if np.ptp(z) > 0.0:
                added = np.mean((z - (z.sum() - z) / (group_size - 1)) * w)
                found[m] += law[list(outcomes)].prod() * np.array([added, added**2, 1.0])
    return problem.bandit.prompt_weights, *found.T


@pytest.mark.parametrize(("name", "group_size"), [("two-arms", 2), ("two-arms", 4), ("mixed", 2)])
def test_predictions_by_enumeration(name, group_size):
    weights, means, squares, mixed = enumerated(name, group_size)
    predicted, _ = dynamic_sampling.predict(name, group_size, batch_size=4)
    predicted = {one.partition("/")[2]: value for one, value in predicted.items()}
    share = weights @ mixed
    assert predicted["redrawn"] == pytest.approx(weights @ means / share, rel=1e-12)
    assert predicted["noise"] == pytest.approx(weights @ squares / share, rel=1e-12)
    assert predicted["rollouts"] == pytest.approx(1.0 / share, rel=1e-12)
    assert predicted["same prompt"] == pytest.approx(weights @ (means / mixed), rel=1e-12)


def test_outcomes_are_drawn_from_their_law():
    """Exact binomial errors at one prompt of unequal outcomes; the last outcome is reached too."""
    (point, _, _), n = dynamic_sampling.tables("mixed", 2), 1 << 16
    _, rewards = dynamic_sampling.draw("mixed", np.full(n, 3), 2, np.random.default_rng(0))
    p = point.moments.value[3]
    share = 2.0 * p * (1.0 - p)
    assert abs((np.ptp(rewards, axis=1) > 0.0).mean() - share) < 4.9 * np.sqrt(share * (1.0 - share) / n)
    assert abs((rewards.min(axis=1) < 1.0).mean() - (1.0 - p**2)) < 4.9 * np.sqrt(p**2 * (1.0 - p**2) / n)
