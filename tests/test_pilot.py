"""Pilot samples: their law, their scores, and the isometric coordinates of a softmax head."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chisquare

import grpo_theory as gt


def head(seed, m=7, width=4, k=3):
    rng = np.random.default_rng(seed)
    policy = gt.SoftmaxHead(rng.normal(size=(m, width)), k)
    bandit = gt.Bandit(rng.uniform(0.1, 0.9, (m, k)))
    return gt.Problem(bandit, policy, theta=rng.normal(size=policy.dimension), name="head")


@pytest.mark.parametrize("name", ["graded", "sequence-shared"])
def test_the_joint_law_of_prompt_response_and_reward(name, seed):
    """Counts of every (score, reward) against the table; a table with the policy's weights reversed is refuted."""
    problem, n = gt.gallery.problem(name), 40_000
    table, block = problem.at(problem.theta), gt.Pilot(1, 1).sample(problem, seed(1), n)
    scores = problem.policy.scores(problem.theta)[:, table.outcome_responses]
    same = (scores[None] == block.scores[:, 0, 0][:, None, None]).all(axis=-1) & (table.rewards == block.rewards)
    assert (same.sum(axis=(1, 2)) == 1).all()
    probabilities = (problem.bandit.prompt_weights[:, None] * table.outcome_probabilities).ravel()
    counts = same.sum(axis=0).ravel()
    assert chisquare(counts, n * probabilities).pvalue > 1e-5
    assert chisquare(counts, n * probabilities[::-1]).pvalue < 1e-12


@pytest.mark.parametrize(
    "problem",
    [replace(gt.gallery.problem("kl-linear"), theta=np.array([0.9, -0.6, 1.2])), gt.gallery.problem("sequence-shared"), head(3)],
    ids=lambda p: p.name,
)
def test_the_error_of_an_estimate_computed_from_pilots_is_the_exact_one(problem, seed):
    """With weights of the prompts, with a penalty in the reward, and in isometric coordinates, which know no direction."""
    exact = gt.gradient_law(problem, problem.theta, "rloo", batch_size=4, group_size=4)
    gradient, r = gt.moments(problem, problem.theta).gradient, gt.Pilot(4, 4).sample(problem, seed(2), 20_000)
    advantages = (r.rewards - r.rewards.mean(axis=-1, keepdims=True)) / 3.0
    power = (np.einsum("rbg,rbgj->rj", advantages, r.scores / 4.0) ** 2).sum(axis=1)
    error = power.std(ddof=1) / np.sqrt(len(power))
    assert abs(power.mean() - (exact.mse + gradient @ gradient)) < 4.9 * error
    assert abs(power.mean() - exact.mse) > 4.9 * error  # power: without the squared norm of the gradient


def test_scores_along_directions_and_in_isometric_coordinates_are_those_in_full():
    """The same draws; 10 of 7 prompts, so that some are drawn twice."""
    problem = gt.gallery.problem("tabular")
    directions = np.random.default_rng(0).normal(size=(3, problem.policy.dimension))
    full, along = (gt.Pilot(5, 3, which).sample(problem, 4, 20) for which in (None, directions))
    np.testing.assert_array_equal(full.rewards, along.rewards)
    np.testing.assert_allclose(along.scores, full.scores @ directions.T, rtol=0, atol=1e-13)
    problem = head(5)
    features = np.einsum("kl,mh->mklh", np.eye(3), problem.policy.logit_map.hidden).reshape(7, 3, -1)
    twin = replace(problem, policy=gt.LinearSoftmax(features))
    short, full = (gt.Pilot(10, 3).sample(one, 6, 50) for one in (problem, twin))
    np.testing.assert_array_equal(short.rewards, full.rewards)
    short, full = (one.scores.reshape(50, 30, -1) for one in (short, full))
    np.testing.assert_allclose(short @ short.swapaxes(1, 2), full @ full.swapaxes(1, 2), rtol=0, atol=1e-10)


def test_the_tables_follow_the_problem_and_a_block_is_fixed_by_the_shape():
    pilot, linear, tabular = gt.Pilot(4, 4), gt.gallery.problem("linear"), gt.gallery.problem("tabular")
    before = pilot.sample(linear, 9, 10).scores
    assert pilot.sample(tabular, 9, 10).scores.shape != before.shape
    assert np.array_equal(pilot.sample(linear, 9, 10).scores, before)
    assert not np.array_equal(pilot.sample(replace(linear, theta=np.zeros(5)), 9, 10).scores, before)
    assert (gt.Pilot(3, 5).block_replications, gt.Pilot(10_000, 64).block_replications) == (2184, 1)
    with pytest.raises(ValueError, match=r"directions must have shape \(1, 5\)"):
        gt.Pilot(1, 2, directions=np.ones((1, 4))).sample(linear, 0, 3)
