"""Off-policy updates of networks whose features are learned, against the package's exact laws."""

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.harness.sides import joined, study_of
from grpo_theory.harness.study import cell_seed
from simulations.training import learned_drift
from simulations.training.learned_drift import NETWORKS, LearnedPairs
from simulations.training.looks import LOOKED
from tests.made_up import judged


@pytest.fixture(scope="module")
def drifted():
    """A network on a tree, with two current policies and the two that sampled."""
    rng = np.random.default_rng(5)
    problem = NETWORKS["2 tokens, width 4"].problem(rng)
    theta, behaviour = problem.theta + 0.3 * rng.normal(size=(2, 2, problem.policy.dimension))
    return problem, theta, behaviour


def test_problems_have_rewards_of_either_kind_and_parameters_that_are_shared(drifted):
    problem, _, _ = drifted
    assert set(np.unique(problem.bandit.mean_reward)) == {0.1, 0.9}
    assert not problem.policy.is_linear
    gradients = gt.moments(problem, problem.theta).prompt_gradients
    assert np.abs(gradients @ gradients.T).min() > 0.0


def test_gradients_are_those_of_the_current_policies(drifted):
    problem, theta, behaviour = drifted
    expected = [gt.moments(problem, one).gradient for one in theta]
    np.testing.assert_allclose(LearnedPairs(problem, theta, behaviour).gradients(), expected, atol=1e-14)


@pytest.mark.parametrize("name", LOOKED)
def test_mean_updates_are_those_of_the_exact_law(drifted, name):
    """Responses of a group of two, drawn by the behaviour; the mean is the same at every group size."""
    problem, theta, behaviour = drifted
    bandit = gt.Bandit((problem.bandit.mean_reward > 0.5).astype(float))
    sure = gt.Problem(bandit, problem.policy, theta=problem.theta)
    found = LearnedPairs(sure, theta, behaviour).mean_updates(LOOKED[name])
    for one, now, old in zip(found, theta, behaviour, strict=True):
        law = gt.gradient_mean(sure, now, LOOKED[name], batch_size=1, group_size=2, behaviour=old)
        np.testing.assert_allclose(one, law, atol=1e-12)


def test_every_claim_of_the_study_is_made_and_its_control_has_power():
    case = learned_drift.cases(True)[0]
    cell = learned_drift.trained.cell(case)
    seed = cell_seed("learned_drift", cell, 0)
    found = [learned_drift.trained(np.random.default_rng(seed), chunk, **cell.settings) for chunk in range(cell.chunks)]
    verdicts = judged([learned_drift.pointing, learned_drift.ending], joined(found), case)
    assert set(verdicts.index) == set(study_of(learned_drift).decides)
    assert (verdicts["control"] == "refuted").all()
    assert (verdicts.loc["T14/ends, learned features", "replications"] == case["problems"]).all()
