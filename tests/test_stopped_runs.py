"""Whole runs of groups that stop by their own rewards: the plain trainer against exact laws, and against the compiled one."""

import numpy as np
import pandas as pd
import pytest

import grpo_theory as gt
from grpo_theory.harness.sides import study_of
from simulations.runs import stopped_runs
from simulations.runs.allocation import BATCH, GROUP
from simulations.runs.stopped_runs import RULES, SPENT, Rule, covectors, first_mixed_sizes, halved_sizes, successes
from simulations.runs.worlds import World


def binary(success):
    """Return a problem of two answers, each prompt with logits of its own."""
    success = np.array(success)
    theta = np.log(np.stack([success, 1.0 - success], axis=1)).ravel()
    bandit = gt.Bandit(np.tile([1.0, 0.0], (len(success), 1)))
    return gt.Problem(bandit, gt.TabularSoftmax(len(success), 2), theta=theta)


def assert_mean(problem, rule, expected, runs=40_000):
    """The mean of estimates is what is expected, |z| < 4.9 in every logit, and it is not the gradient."""
    probabilities = np.broadcast_to(problem.policy.probabilities(problem.theta), (1, runs, *problem.bandit.mean_reward.shape))
    found = covectors(probabilities, problem.bandit.mean_reward > 0.5, rule, np.random.default_rng(7)).reshape(runs, -1)
    error = found.std(axis=0, ddof=1) / np.sqrt(runs)
    assert (np.abs(found.mean(axis=0) - expected) < 4.9 * error).all()
    plain = gt.moments(problem, problem.theta).gradient
    assert (np.abs(found.mean(axis=0) - plain) > 4.9 * error).any()


def test_groups_that_stop_when_mixed_have_the_exact_mean_where_the_budget_does_not_cut_them():
    problem = binary([0.3, 0.05])
    rule = Rule(4, 16, first_mixed_sizes)
    assert_mean(problem, rule, gt.exact.first_mixed_groups(problem, problem.theta, low=2, high=16).mean)


def test_groups_by_halving_have_the_exact_mean():
    """Four groups of one prompt are four prompts that are alike: which goes on does not depend on the prompt."""
    four = binary([0.2] * 4)
    slope = gt.exact.halved_groups(four, four.theta, low=4, rounds=2).slopes.mean()
    one = binary([0.2])
    assert_mean(one, RULES["halving"]._replace(groups=4), slope * gt.moments(one, one.theta).gradient, runs=160_000)


def test_a_group_takes_what_it_needs_to_be_mixed_and_the_budget_cuts_the_last():
    rewards = np.array([[1, 1, 0, 0], [0, 1, 1, 1], [0, 0, 0, 0]], dtype=bool)
    np.testing.assert_array_equal(first_mixed_sizes(rewards[None]), [[3, 2, 4]])
    sizes = first_mixed_sizes(np.zeros((1, 40, 5), dtype=bool))
    assert sizes.sum() == SPENT
    np.testing.assert_array_equal(sizes[0], [5] * 25 + [3] + [0] * 14)


def test_halving_goes_on_with_those_nearest_to_a_half_and_spends_what_others_spend():
    rewards = np.zeros((1, 4, 16), dtype=bool)
    rewards[0, 1, :2] = rewards[0, 3, :1] = True
    np.testing.assert_array_equal(halved_sizes(rewards), [[4, 16, 4, 8]])
    random = np.random.default_rng(1).random((50, 16, 16)) < 0.2
    np.testing.assert_array_equal(halved_sizes(random).sum(axis=1), SPENT)


def test_runs_of_equal_sizes_are_those_of_the_compiled_trainer():
    problem = World(prompts=6, answers=4, dimension=8, held_out=0).problem()
    _, ours = successes(problem, RULES["equal"], [4.0, 8.0], [4, 8], np.random.default_rng(3), 2000)
    how = {"batch_size": BATCH, "group_size": GROUP, "steps": 8, "checkpoints": [4, 8], "replications": 2000, "rng": 4}
    theirs = gt.simulate_training(problem, problem.theta, "rloo", gt.Constant(8.0), **how).objectives
    error = np.hypot(ours.std(axis=0), theirs.std(axis=0)) / np.sqrt(2000)
    assert (np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) < 4.9 * error).all()
    assert (error < 0.01).all(), "a point of success would be seen"
    np.testing.assert_allclose(ours.std(axis=0), theirs.std(axis=0), rtol=0.1)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_runs_at_a_step_do_not_depend_on_the_others(rule):
    """All steps have the same random words."""
    problem = World(prompts=6, answers=4, dimension=8, held_out=0).problem()
    both = successes(problem, rule, [4.0, 8.0], [2, 4], np.random.default_rng(3), 5)
    alone = successes(problem, rule, [8.0], [2, 4], np.random.default_rng(3), 5)
    np.testing.assert_allclose(both[1:], alone, rtol=1e-12)


def test_a_quick_run_yields_claims_about_what_it_states():
    study = study_of(stopped_runs)
    (cell,) = study.cells(True)
    results = [study.compute(cell.settings, np.random.default_rng(1), chunk) for chunk in range(cell.chunks)]
    claims = study.claims(pd.DataFrame(study.table([(cell.settings, results)], quick=True)))
    assert [claim.statement.id for claim in claims] == 2 * list(stopped_runs.STATED.values())


def test_sides_are_leads_of_equal_sizes_and_controls_are_stopped_early():
    """Success known without error, one step best: equal sizes have 0.4 and 0.6, others 0.1 less."""
    ends = np.array([[0.3, 0.5], [0.4, 0.6]])[:, None] * np.ones((2, 6, 2))
    start = np.geomspace(0.5, 1e-3, 32).mean()
    for updates, early in ((16, 0.4 - start), (64, 0.3)):
        for is_early, expected in ((False, 0.1), (True, early)):
            sides = stopped_runs.equal_ahead({"success": np.stack([ends, ends - 0.1, ends - 0.1])}, "tabular", updates, is_early)
            assert [own.estimate for own, _ in sides.values()] == pytest.approx(2 * [expected])
