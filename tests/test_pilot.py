"""Pilot samples: their law, their scores, and the isometric coordinates of a softmax head."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chisquare

import grpo_theory as gt
from grpo_theory.laboratory.experiment import look_up, semidefinite_factor, spread


def rloo(rollouts):
    """The leave-one-out gradient of each batch, shape (R, J)."""
    z, size = rollouts.rewards, rollouts.group_size
    advantages = (z - z.mean(axis=-1, keepdims=True)) * size / (size - 1)
    return np.einsum("rbg,rbgj->rj", advantages, rollouts.scores) / (rollouts.batch_size * size)


def head(seed, m=7, width=4, k=3):
    rng = np.random.default_rng(seed)
    policy = gt.SoftmaxHead(rng.normal(size=(m, width)), k)
    bandit = gt.Bandit(rng.uniform(0.1, 0.9, (m, k)))
    return gt.Problem(bandit, policy, theta=rng.normal(size=policy.dimension), name="head")


def dense_twin(problem):
    """The same policy with its features written out: exactly the same draws, and scores in full."""
    k, hidden = problem.policy.n_responses, problem.policy.logit_map.hidden
    features = np.einsum("kl,mh->mklh", np.eye(k), hidden).reshape(len(hidden), k, -1)
    return replace(problem, policy=gt.LinearSoftmax(features))


def test_shapes_and_blocks():
    pilot = gt.Pilot(3, 5, directions=np.eye(5)[:2])
    block = pilot.sample(gt.gallery.problem("linear"), 0, 11)
    assert block.rewards.shape == (11, 3, 5)
    assert block.scores.shape == (11, 3, 5, 2)
    one = pilot.take(block, 4)
    assert np.array_equal(one.rewards, block.rewards[4])
    assert np.array_equal(one.scores, block.scores[4])
    assert pilot.block_replications == 2184
    assert gt.Pilot(10_000, 64).block_replications == 1
    for problem in (gt.gallery.problem("linear"), head(4)):
        for sizes in ((1, 4), (4, 1), (1, 1)):
            assert gt.Pilot(*sizes).sample(problem, 0, 7).rewards.shape == (7, *sizes)


@pytest.mark.parametrize("name", ["two-arms", "graded", "sequence-shared"])
def test_the_joint_law_of_prompt_response_and_reward(name, seed):
    """Counts of every (score, reward) against the table; a table with the policy's weights reversed is refuted."""
    problem = gt.gallery.problem(name)
    table = problem.at(problem.theta)
    n = 40_000
    block = gt.Pilot(1, 1).sample(problem, seed(1), n)
    scores = problem.policy.scores(problem.theta)[:, table.outcome_responses]
    same = (scores[None] == block.scores[:, 0, 0][:, None, None]).all(axis=-1) & (table.rewards == block.rewards)
    assert (same.sum(axis=(1, 2)) == 1).all()
    probabilities = (problem.bandit.prompt_weights[:, None] * table.outcome_probabilities).ravel()
    counts = same.sum(axis=0).ravel()
    assert chisquare(counts, n * probabilities).pvalue > 1e-5
    assert chisquare(counts, n * probabilities[::-1]).pvalue < 1e-12


@pytest.mark.parametrize(
    "problem",
    [
        gt.gallery.problem("tabular"),
        replace(gt.gallery.problem("kl-linear"), theta=np.array([0.9, -0.6, 1.2])),
        gt.gallery.problem("sequence-shared"),
        replace(gt.gallery.problem("kl-sequence"), theta=np.array([0.9, -0.6])),
        head(3),
    ],
    ids=lambda p: p.name,
)
def test_the_error_of_an_estimate_computed_from_pilots_is_the_exact_one(problem, seed):
    """With weights of the prompts, with a penalty in the reward, and in isometric coordinates, which know no direction."""
    exact = gt.gradient_law(problem, problem.theta, "rloo", batch_size=4, group_size=4)
    gradient = gt.moments(problem, problem.theta).gradient
    estimates = rloo(gt.Pilot(4, 4).sample(problem, seed(2), 20_000))
    power = np.einsum("rj,rj->r", estimates, estimates)
    expected = exact.mse + gradient @ gradient
    error = power.std(ddof=1) / np.sqrt(len(power))
    assert abs(power.mean() - expected) < 4.9 * error
    assert abs(power.mean() - exact.mse) > 4.9 * error  # power: without the squared norm of the gradient


def test_directions_give_the_components_of_the_scores():
    problem = gt.gallery.problem("tabular")
    directions = np.random.default_rng(0).normal(size=(3, problem.policy.dimension))
    full = gt.Pilot(5, 3).sample(problem, 4, 20)
    along = gt.Pilot(5, 3, directions).sample(problem, 4, 20)
    assert np.array_equal(full.rewards, along.rewards)
    assert np.allclose(along.scores, full.scores @ directions.T, rtol=0, atol=1e-13)


def test_isometric_coordinates_keep_inner_products_within_a_batch():
    """Against the same draws with scores in full; 10 of 7 prompts, so that some are drawn twice."""
    problem = head(5)
    block = gt.Pilot(10, 3).sample(problem, 6, 50)
    twin = gt.Pilot(10, 3).sample(dense_twin(problem), 6, 50)
    assert block.scores.shape == (50, 10, 3, 3 * 10)
    assert np.array_equal(block.rewards, twin.rewards)
    short, full = (rollouts.scores.reshape(50, 30, -1) for rollouts in (block, twin))
    assert np.allclose(short @ short.swapaxes(1, 2), full @ full.swapaxes(1, 2), rtol=0, atol=1e-10)


def test_compiled_look_ups_agree_with_plain_python_and_with_numpy():
    rng = np.random.default_rng(11)
    table, columns, factor = rng.normal(size=(5, 3, 4)), np.array([0, 2, 1, 2]), rng.normal(size=(6, 7))
    prompts, outcomes = rng.integers(5, size=6), rng.integers(4, size=(6, 3))
    rows = table[prompts[:, None], columns[outcomes]]
    products = (rows[..., None] * factor[:, None, None, :]).reshape(6, 3, -1)
    for function, before, expected in ((look_up, (table, columns), rows), (spread, (table, columns, factor), products)):
        for one in (function, function.function):
            found = np.full(expected.shape, np.nan)
            one(*before, prompts, outcomes, found)
            assert np.array_equal(found, expected)


def test_isometric_coordinates_of_a_language_model():
    """Squared norms of the scores, against the policy's own."""
    problem = gt.gallery.problem("lm-zero-shot")
    block = gt.Pilot(4, 2).sample(problem, 7, 100)
    norms = np.unique(problem.at(problem.theta).squared_score_norms)
    found = np.einsum("rbgj,rbgj->rbg", block.scores, block.scores).ravel()
    nearest = norms[np.clip(np.searchsorted(norms, found), 1, len(norms) - 1) - np.array([[0], [1]])]
    assert (np.abs(nearest - found).min(axis=0) < 1e-9 * found).all()


def test_semidefinite_factors():
    """Equal rows, zero matrices, and near dependence, on which Cholesky's steps in the given order lose half the digits."""
    rng = np.random.default_rng(8)
    rows = rng.normal(size=(400, 9, 3))
    rows[:, 1] = rows[:, 0]
    rows[:, 2] = rows[:, 0] + 1e-7 * rows[:, 2]
    rows[3] = 0.0
    gram = rows @ rows.swapaxes(1, 2)
    factor = semidefinite_factor(gram)
    assert np.allclose(factor @ factor.swapaxes(1, 2), gram, rtol=0, atol=1e-11)
    assert (np.linalg.matrix_rank(gram) <= 3).all()
    assert np.allclose(factor[:, :, 3:], 0.0, rtol=0, atol=1e-5)


def test_the_tables_follow_the_problem():
    """One experiment, several problems and parameters: each gets its own draws, and no parameter changes in place."""
    pilot = gt.Pilot(4, 4)
    linear, tabular = gt.gallery.problem("linear"), gt.gallery.problem("tabular")
    before = pilot.sample(linear, 9, 10).scores
    assert pilot.sample(tabular, 9, 10).scores.shape != before.shape
    assert np.array_equal(pilot.sample(linear, 9, 10).scores, before)
    assert not np.array_equal(pilot.sample(replace(linear, theta=np.zeros(5)), 9, 10).scores, before)
    with pytest.raises(ValueError, match="read-only"):
        linear.theta[:] = 0.0


def test_bad_arguments():
    problem = gt.gallery.problem("linear")
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        gt.Pilot(0, 4)
    with pytest.raises(TypeError, match="group_size must be an integer"):
        gt.Pilot(1, 2.5)
    with pytest.raises(ValueError, match="directions must have 2 dimensions"):
        gt.Pilot(1, 2, directions=np.ones(5))
    with pytest.raises(ValueError, match=r"directions must have shape \(1, 5\)"):
        gt.Pilot(1, 2, directions=np.ones((1, 4))).sample(problem, 0, 3)
    with pytest.raises(ValueError, match="replications must be at least 1"):
        gt.Pilot(1, 2).sample(problem, 0, 0)
