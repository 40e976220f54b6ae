"""Learning rates chosen by other runs than those that are judged, several times over."""

import numpy as np
import pytest

from simulations.runs.chosen_steps import choice_variance_of, chosen_steps, same_shares, trained_with_each
from simulations.runs.tuning import FOLDS, choice_variance, tuned, tuned_summary


def test_an_arm_is_tuned_budget_by_budget_on_other_runs_than_it_is_judged_on():
    rates, best = [1.0, 2.0, 4.0, 8.0, 16.0], {0: 4.0, 1: 8.0}
    asked = []

    def course(rate, budgets, runs, seed):
        asked.append((rate, budgets, runs, seed.spawn_key))
        losses = np.array([np.log(rate / best[c]) ** 2 for c in range(budgets)])
        noise = np.random.default_rng(seed).normal(scale=0.01, size=(runs, 2, 1))[:, :budgets]
        return 1.0 - losses[None, :, None] + noise

    found = tuned(course, 2, rates, (8, 40), np.random.SeedSequence(1))
    np.testing.assert_array_equal(found.chosen, [[2, 3]] * FOLDS)
    np.testing.assert_allclose(found.judged.mean(axis=0), 1.0, atol=0.01)
    judging = [one for one in asked if one[2] == 40]
    assert [one[:2] for one in judging] == [(4.0, 1), (8.0, 2)]
    assert {one[3] for one in judging}.isdisjoint(one[3] for one in asked if one[2] == 8)


def test_an_interval_counts_what_choosing_the_learning_rate_adds():
    """Runs of four shares, each moved by its choice: the variance between choices is found, and it does not average out."""
    rng = np.random.default_rng(5)
    runs, arms = 4 * 400, 200
    moved = np.repeat(rng.normal(0.0, 0.3, (FOLDS, arms)), runs // FOLDS, axis=0)
    noise = rng.normal(size=(runs, arms))
    assert choice_variance(noise) < 1e-3
    assert choice_variance(noise + moved) == pytest.approx(0.09, rel=0.25)
    exact = np.repeat([[0.0], [1.0], [2.0], [3.0]], 3, axis=0)
    assert choice_variance(exact) == pytest.approx(5.0 / 3.0, rel=1e-12)
    means = (noise + moved).mean(axis=0)
    counted = tuned_summary((noise + moved)[:, 0], 0.09)
    assert counted["standard_error"] == pytest.approx(np.std(means), rel=0.2)
    assert tuned_summary(noise[:, 0], 0.0)["standard_error"] < 0.3 * counted["standard_error"]


def test_steps_are_chosen_share_by_share_and_train_their_own_share_on_the_same_draws():
    steps = [1.0, 2.0, 4.0, 8.0, 16.0]
    best = np.repeat([2.0, 4.0, 4.0, 8.0], 3)
    tried = -(np.log(np.array(steps)[:, None] / best) ** 2)
    chosen = chosen_steps(steps, tried)
    np.testing.assert_allclose(chosen, [2.0, 4.0, 4.0, 8.0])
    asked = []

    def trained(step, runs, seed):
        asked.append((step, runs))
        return np.random.default_rng(seed).random(runs)

    seed = np.random.SeedSequence(3)
    found = trained_with_each(chosen, trained, 10, seed)
    assert asked == [(pytest.approx(step), runs) for step, runs in zip(chosen, (3, 3, 2, 2), strict=True)]
    fewer = trained_with_each(np.ones(4), trained, 6, seed)
    np.testing.assert_array_equal(same_shares(found, fewer), 0.0)
    assert len(same_shares(found, fewer)) == 6
    assert len(np.unique(found)) == 10


def test_what_a_choice_adds_is_pooled_over_arms_of_any_number_of_runs():
    exact = [np.repeat([0.0, 1.0, 2.0, 3.0], 3), np.repeat([0.0, 0.0, 0.0, 4.0], 2)]
    assert choice_variance_of(exact) == pytest.approx((5.0 / 3.0 + 4.0) / 2.0)
    assert choice_variance_of([]) == 0.0
    noise = np.random.default_rng(1).normal(size=(30, 400))
    assert choice_variance_of(list(noise)) < 2e-3
